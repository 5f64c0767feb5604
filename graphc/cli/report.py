"""Figures and tables as people, and programs, read them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_STEPS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def amount(value: float, unit: str) -> str:
    """A figure with three digits and a prefix.

    >>> amount(12_345_678, "B"), amount(12, "FLOP")
    ('12.3 MB', '12 FLOP')
    """
    for step, prefix in _STEPS:
        if abs(value) >= 0.9995 * step:
            return f"{value / step:.3g} {prefix}{unit}"
    return f"{value:.4g} {unit}"


def duration(seconds: float) -> str:
    """
    >>> duration(0.0123), duration(2.5)
    ('12.3 ms', '2.5 s')
    """
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def table(rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> list[str]:
    """The rows as indented lines, with columns under each other, those in `right` to the right."""
    count = max((len(row) for row in rows), default=0)
    widths = [max(len(row[i]) for row in rows if i < len(row)) for i in range(count)]
    return [
        "  "
        + "  ".join(
            cell.rjust(widths[i]) if i in right else cell.ljust(widths[i])
            for i, cell in enumerate(row)
        ).rstrip()
        for row in rows
    ]


def print_json(value: Any) -> None:
    """JSON on standard output; what JSON lacks (NaN, infinities) as null."""
    print(json.dumps(plain(value), indent=1, allow_nan=False))


def plain(value: Any) -> Any:
    """A value as JSON has it."""
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
