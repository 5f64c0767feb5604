"""Figures and tables as text for people, or as JSON for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from graphc.errors import ArtifactError
from graphc.reports.figures import amount as amount
from graphc.reports.figures import duration as duration
from graphc.reports.figures import table as table


def check_writable(path: str | None) -> None:
    """Raises `ArtifactError` now, rather than after the work, if a file cannot be there."""
    if path is not None and (not Path(path).parent.is_dir() or Path(path).is_dir()):
        raise ArtifactError(f"cannot write {path!r}", hint="give a file in a folder that exists")


def print_json(value: Any) -> None:
    """Prints JSON on standard output. Values that JSON lacks (NaN, infinities) become null."""
    print(json.dumps(plain(value), indent=1, allow_nan=False))


def print_result(facts: Any, lines: Iterable[str], *, as_json: bool) -> None:
    """Prints the result of a command: `facts` as JSON, or `lines`."""
    if as_json:
        print_json(facts)
    else:
        print("\n".join(lines))


def plain(value: Any) -> Any:
    """A value in a form that JSON can represent."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, complex):
        return [plain(value.real), plain(value.imag)]
    return value
