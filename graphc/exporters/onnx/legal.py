"""Casts around operators that do not take the dtype of their operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import ml_dtypes
import numpy as np

from graphc.exporters.onnx.dtypes import SPELLINGS, number_of
from graphc.exporters.onnx.refused import Refused
from graphc.exporters.onnx.values import Value

if TYPE_CHECKING:
    from graphc.exporters.onnx.writer import Writer

# Where an operator does not take a dtype: those that hold all its values, the best first.
_WIDER: Final = {
    "bool": ("uint8", "int32", "int64", "float32"),
    "int4": ("int8", "int32", "float32"),
    "uint4": ("uint8", "int32", "float32"),
    "int8": ("int32", "int64", "float32"),
    "uint8": ("int32", "int64", "float32"),
    "int16": ("int32", "int64", "float32"),
    "uint16": ("int32", "int64", "float32"),
    "int32": ("int64", "float64"),
    "uint32": ("int64", "float64"),
    "float16": ("float32",),
    "bfloat16": ("float32",),
    "float8_e4m3fn": ("float32",),
    "float8_e4m3fnuz": ("float32",),
    "float8_e5m2": ("float32",),
    "float8_e5m2fnuz": ("float32",),
}

# What ONNX allows, but onnxruntime has no kernel for on CPUs (1.32): a wider dtype runs anywhere.
_BYTES: Final = frozenset({"int8", "uint8"})
_SHORT: Final = frozenset({"int16", "uint16"})
_UNSIGNED: Final = frozenset({"uint32", "uint64"})
_WITHOUT_KERNEL: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(("ArgMax", "ArgMin"), _SHORT | _UNSIGNED),
    **dict.fromkeys(("Clip", "Max", "Min", "Pad"), _SHORT),
    **dict.fromkeys(("CumSum", "ReduceMax", "ReduceMin"), _UNSIGNED),
    **dict.fromkeys(("ReduceMean", "ReduceProd", "ReduceSum"), _UNSIGNED),
    **dict.fromkeys(("Einsum", "Pow"), _BYTES | _SHORT | _UNSIGNED),
    "TopK": frozenset({"uint16"}) | _UNSIGNED,
    "Where": frozenset({"bool", "uint64"}) | _SHORT,
}
# Their results in int64 have the same bits.
_MODULAR: Final = frozenset({"CumSum", "Einsum", "ReduceProd", "ReduceSum", "Where"})


@cache
def _schema(op: str, opset: int) -> Any:
    from onnx import defs

    try:
        return defs.get_schema(op, opset, "")
    except defs.SchemaError:
        return None


class Schemas:
    """The operators of one version of ONNX.

    Args:
        opset: the version of the operator set.
    """

    def __init__(self, opset: int) -> None:
        self.opset = opset

    def has(self, op: str) -> bool:
        """Whether this version has the operator."""
        return _schema(op, self.opset) is not None

    def takes(self, op: str, position: int, dtype: np.dtype[Any]) -> bool:
        """Whether an input of the operator may have the dtype."""
        return SPELLINGS.get(dtype.name) in _schema(op, self.opset).inputs[position].types

    def legal(
        self,
        writer: Writer,
        op: str,
        inputs: Sequence[Value | None],
        results: Sequence[tuple[Any, int]],
        attrs: Mapping[str, Any],
    ) -> list[Value]:
        """Adds the node, with casts where its operands need them.

        Raises:
            Refused: this version has no such operator, or it takes no wider dtype either.
        """
        schema = _schema(op, self.opset)
        if schema is None:
            raise Refused(f"needs the operator {op}, which opset {self.opset} does not have")
        allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
        chosen: dict[str, np.dtype[Any]] = {}
        operands: list[Value | None] = []
        for i, x in enumerate(inputs):
            formal = schema.inputs[min(i, len(schema.inputs) - 1)]
            variable = formal.type_str
            if x is None or not formal.is_homogeneous:
                operands.append(x)
                continue
            if variable not in allowed:  # one dtype, which the schema names
                operands.append(_cast(writer, x, _NAMED.get(variable, x.dtype)))
                continue
            dtype = chosen.get(variable) or _taken(op, x.dtype, allowed[variable])
            chosen[variable] = dtype
            operands.append(_cast(writer, x, dtype))
        kinds = [
            schema.outputs[min(i, len(schema.outputs) - 1)].type_str for i in range(len(results))
        ]
        made = [
            (chosen.get(kind, dtype), rank)
            for kind, (dtype, rank) in zip(kinds, results, strict=True)
        ]
        values = writer.add(op, operands, made, attrs)
        return [_cast(writer, v, np.dtype(d)) for v, (d, _) in zip(values, results, strict=True)]


_NAMED: Final = {
    spelling: np.dtype(getattr(ml_dtypes, name, name)) for name, spelling in SPELLINGS.items()
}


def _taken(op: str, dtype: np.dtype[Any], allowed: Sequence[str]) -> np.dtype[Any]:
    """The dtype itself, or the first wider one that the operator takes."""
    wider = ("int64",) if dtype == np.uint64 and op in _MODULAR else _WIDER.get(dtype.name, ())
    lacking = _WITHOUT_KERNEL.get(op, frozenset())
    for name in (dtype.name, *wider):
        if SPELLINGS.get(name) in allowed and name not in lacking:
            return np.dtype(getattr(ml_dtypes, name, name))
    if SPELLINGS.get(dtype.name) in allowed:  # other runtimes may have the kernel
        return dtype
    raise Refused(f"needs ONNX's operator {op}, which takes no {dtype.name} tensors")


def _cast(writer: Writer, x: Value, dtype: np.dtype[Any]) -> Value:
    """The value in another dtype, by a node of its own."""
    if x.dtype == dtype:
        return x
    attrs = {"to": number_of(dtype)}
    if dtype.name.startswith("float8"):
        attrs["saturate"] = 0
    return writer.add("Cast", [x], [(dtype, x.rank)], attrs)[0]
