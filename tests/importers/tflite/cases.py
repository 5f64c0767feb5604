"""Reads the cases of `cases.json.gz`, which `make_cases.py` made with TensorFlow."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Case:
    """A model.

    Attributes:
        runs: (inputs, outputs) in the order of the model's.
        only_types: whether results are random.
        signature: the one that was run; None for the default.
    """

    name: str
    model: bytes
    runs: list[tuple[list[Any], list[Any]]]
    only_types: bool
    signature: str | None

    def write(self, folder: Path) -> Path:
        """The model as a file."""
        path = folder / f"{self.name.replace(' ', '_')}.tflite"
        path.write_bytes(self.model)
        return path


def _decoded(entry: Any) -> Any:
    kind, shape, data = entry
    return np.frombuffer(base64.b64decode(data), np.dtype(kind)).reshape(shape)


@cache
def read() -> dict[str, Case]:
    """The cases by name."""
    data = gzip.decompress(Path(__file__).with_name("cases.json.gz").read_bytes())
    found = [
        Case(
            c["name"],
            base64.b64decode(c["model"]),
            [([_decoded(x) for x in xs], [_decoded(y) for y in ys]) for xs, ys in c["runs"]],
            c["only_types"],
            c["signature"],
        )
        for c in json.loads(data)["cases"]
    ]
    assert len({case.name for case in found}) == len(found)
    return {case.name: case for case in found}


def steps(got: Any, wanted: Any) -> float:
    """The largest difference: relative to the largest element of floats, in steps of integers."""
    kind = np.complex128 if wanted.dtype.kind == "c" else np.float64
    difference = np.abs(got.astype(kind) - wanted.astype(kind)).max(initial=0.0)
    if wanted.dtype.kind in "iub":
        return float(difference)
    return float(difference / np.abs(wanted).max(initial=1.0))
