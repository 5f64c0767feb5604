"""Outputs of a signature as the results of classify and regress."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graphc.ir.dtypes import Array, is_floating
from graphc.serving.protocol.tensors import STRING
from graphc.web.failures import Failure

CLASSIFY = "tensorflow/serving/classify"
REGRESS = "tensorflow/serving/regress"


def classes_of(outputs: Mapping[str, Array], rows: int) -> list[list[tuple[str, float]]]:
    """For each example its classes: (label, score).

    The scores are the output `scores`, or the only output of floats with shape [rows, classes]. The
    labels are the output `classes` of the same shape, otherwise the numbers of the classes.

    Raises:
        Failure: INVALID_ARGUMENT: the signature has no such output.
    """
    scores = _chosen(outputs, "scores", lambda array: array.ndim == 2, rows)
    if scores is None:
        raise _unsuited(outputs, "classify", "a float output 'scores' of shape [batch, classes]")
    values = scores.astype(np.float64).tolist()
    labels = outputs.get("classes")
    if labels is None:
        names = [str(number) for number in range(scores.shape[1])]
        return [list(zip(names, row, strict=True)) for row in values]
    if labels.shape != scores.shape:
        raise _unsuited(outputs, "classify", "outputs 'classes' and 'scores' of one shape")
    return [
        [(_label(label), score) for label, score in zip(names, row, strict=True)]
        for names, row in zip(labels.tolist(), values, strict=True)
    ]


def values_of(outputs: Mapping[str, Array], rows: int) -> list[float]:
    """For each example its value: the output `outputs`, or the only output of floats with shape
    [rows] or [rows, 1].

    Raises:
        Failure: INVALID_ARGUMENT: the signature has no such output.
    """

    def one_each(array: Array) -> bool:
        return array.shape[1:] in ((), (1,))

    found = _chosen(outputs, "outputs", one_each, rows)
    if found is None:
        raise _unsuited(outputs, "regress", "a float output of shape [batch] or [batch, 1]")
    values: list[float] = found.reshape(rows).astype(np.float64).tolist()
    return values


def _chosen(outputs: Mapping[str, Array], name: str, fits: Any, rows: int) -> Array | None:
    def suits(array: Array) -> bool:
        floats = array.dtype != STRING and is_floating(array.dtype)
        return bool(floats and array.ndim and array.shape[0] == rows and fits(array))

    if name in outputs:
        return outputs[name] if suits(outputs[name]) else None
    suited = [array for array in outputs.values() if suits(array)]
    return suited[0] if len(suited) == 1 else None


def _label(label: Any) -> str:
    return label.decode("utf-8", "replace") if isinstance(label, bytes) else str(label)


def _unsuited(outputs: Mapping[str, Array], method: str, wanted: str) -> Failure:
    shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in outputs.items())
    return Failure(
        "INVALID_ARGUMENT",
        f"the signature does not suit {method}: expected {wanted}, got {shapes}; use predict",
    )
