"""Reads the cases of `cases.json.gz`, which `make_cases.py` made with TensorFlow."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 - NumPy knows its dtypes by name
import numpy as np


@dataclass(frozen=True)
class Case:
    name: str
    graph: bytes
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    variables: dict[str, Any]
    after: dict[str, Any]
    only_types: bool


def decoded(text: Any) -> Any:
    kind, shape, data = text
    return np.frombuffer(base64.b64decode(data), np.dtype(kind)).reshape(shape)


def read(name: str = "cases.json.gz") -> list[Case]:
    data = gzip.decompress(Path(__file__).with_name(name).read_bytes())
    arrays = ("inputs", "outputs", "variables", "after")
    return [
        Case(
            c["name"],
            base64.b64decode(c["graph"]),
            *({k: decoded(v) for k, v in c[key].items()} for key in arrays),
            c["only_types"],
        )
        for c in json.loads(data)["cases"]
    ]
