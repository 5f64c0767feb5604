"""A small catalogue of operators for these tests, one for each feature of the IR."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.ir.catalogue import Catalogue
from graphc.ir.opdef import Attr, Effects, InferContext, OpDef
from graphc.ir.types import TensorType


def _never(*args: Any, **attrs: Any) -> Any:
    raise NotImplementedError("operators of these tests are never lowered")


def _op(name: str, signature: str, infer: Any, **fields: Any) -> OpDef:
    return OpDef(name=name, signature=signature, infer=infer, lower=_never, doc=name, **fields)


def _infer_matmul(ctx: InferContext, a: TensorType, b: TensorType, *, transpose_b: bool) -> Any:
    rows, inner = a.shape
    k, n = reversed(b.shape) if transpose_b else b.shape
    ctx.unify(inner, k, "inner dimensions")
    return TensorType(a.dtype, (rows, n))


def _infer_split(ctx: InferContext, x: TensorType, *, axis: int, sizes: tuple[int, ...]) -> Any:
    ctx.unify(x.shape[axis], sum(sizes), "the sum of sizes and the dim")
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    return tuple(TensorType(x.dtype, (*before, size, *after)) for size in sizes)


def _infer_concatenate(ctx: InferContext, *xs: TensorType, axis: int) -> TensorType:
    shape = list(xs[0].shape)
    for x in xs[1:]:
        shape[axis] = shape[axis] + x.shape[axis]
    return TensorType(xs[0].dtype, tuple(shape))


def _infer_scan(ctx: InferContext, *xs: TensorType, length: int) -> tuple[TensorType, ...]:
    (body,) = ctx.regions
    return tuple(port.tensor.type for port in body.outputs)


def _infer_everything(ctx: InferContext, x: TensorType, **attrs: Any) -> TensorType:
    return x


EVERYTHING = {
    "i": Attr("int", default=0),
    "f": Attr("float", default=0.0),
    "b": Attr("bool", default=False),
    "s": Attr("str", default=""),
    "d": Attr("dtype", default=None),
    "n": Attr("dim", default=None),
    "ints": Attr("ints", default=()),
    "dims": Attr("dims", default=()),
    "pairs": Attr("pairs", default=()),
    "a": Attr("array", default=None),
    "m": Attr("attrs", default=None),
}


def _broadcast(ctx: InferContext, *xs: TensorType) -> TensorType:
    return TensorType(xs[0].dtype, ctx.broadcast(*[x.shape for x in xs]))


OPS = (
    _op("Relu", "x -> y", lambda ctx, x: x),
    _op("Add", "x, y -> z", _broadcast, commutative=True),
    _op("MatMul", "a, b -> c", _infer_matmul, attrs={"transpose_b": Attr("bool", default=False)}),
    _op("Softmax", "x -> y", lambda ctx, x, *, axis: x, attrs={"axis": Attr("int", default=-1)}),
    _op(
        "Split", "x -> *parts", _infer_split,
        attrs={
            "axis": Attr("int", default=0),
            "sizes": Attr("ints", check=lambda v: min(v) > 0, must="be positive"),
        },
    ),
    _op("Concatenate", "*xs -> y", _infer_concatenate, attrs={"axis": Attr("int")}),
    _op(
        "Reshape", "x -> y", lambda ctx, x, *, shape: TensorType(x.dtype, shape),
        attrs={"shape": Attr("dims")},
    ),
    _op(
        "DimValue", "-> n", lambda ctx, *, dim: TensorType(np.dtype(np.int32), ()),
        attrs={"dim": Attr("dim")},
    ),
    _op(
        "Constant", "-> y", lambda ctx, *, value: TensorType(value.dtype, value.shape),
        attrs={"value": Attr("array")},
    ),
    _op("Scan", "*xs -> *ys", _infer_scan, attrs={"length": Attr("int", default=1)}),
    _op("Everything", "x -> y", _infer_everything, attrs=EVERYTHING),
    _op(
        "Placeholder", "-> x", lambda ctx, *, dtype, shape: TensorType(dtype, shape),
        attrs={"dtype": Attr("dtype"), "shape": Attr("dims")}, effects=Effects.FEED,
    ),
    _op(
        "ReadVariable", "-> value",
        lambda ctx, *, variable, dtype, shape: TensorType(dtype, shape),
        attrs={"variable": Attr("str"), "dtype": Attr("dtype"), "shape": Attr("ints")},
        effects=Effects.READ,
    ),
    _op(
        "Assign", "value -> value", lambda ctx, value, *, variable: value,
        attrs={"variable": Attr("str")}, effects=Effects.WRITE,
    ),
    _op("RandomKey", "-> key", lambda ctx: TensorType(np.dtype(np.uint32), (2,)),
        effects=Effects.RANDOM),
    _op("Print", "x ->", lambda ctx, x: (), effects=Effects.HOST),
    _op("Group", "->", lambda ctx: ()),
    _op("Broken", "x -> y", lambda ctx, x: x.shape[7]),
)  # fmt: skip

CATALOGUE = Catalogue(OPS)
