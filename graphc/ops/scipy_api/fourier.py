"""FFT: the discrete Fourier transform over some axes, and its inverse; complex or real."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax

from graphc.errors import AttributeValueError
from graphc.ir.costs import CostContext, dims_of
from graphc.ir.dims import Dim, Shape, product
from graphc.ir.dtypes import COMPLEX64, FLOAT32, is_complex, real_of
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, GradientContext, InferContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.arrays.creation import iota
from graphc.ops.arrays.padding import pad
from graphc.ops.arrays.shape import moveaxis
from graphc.ops.arrays.slicing import slice_
from graphc.ops.core.axes import normalize_axis
from graphc.ops.core.broadcasting import Adjoints
from graphc.ops.core.checks import as_dims, refuse
from graphc.ops.core.defining import define
from graphc.ops.core.emit import dim_value, emit_one, promote_inexact, to_dtype
from graphc.ops.core.layout_rules import same_axis
from graphc.ops.elementwise.arithmetic import divide, multiply
from graphc.ops.elementwise.comparison import equal, where
from graphc.ops.elementwise.complex_parts import conj, real
from graphc.ops.elementwise.powers import sqrt
from graphc.ops.structure.state import identity

_KINDS = ("FFT", "IFFT", "RFFT", "IRFFT")
_MOST_AXES = 3  # the number that XLA transforms at once


def _infer_fft(ctx: InferContext, x: TensorType, *, kind: str, lengths: Shape) -> TensorType:
    count = len(lengths)
    ctx.require(x.rank >= count, f"x has {x.rank} axes, and {count} are transformed")
    stack, own = x.shape[: x.rank - count], x.shape[x.rank - count :]
    halved = (*lengths[:-1], lengths[-1] // 2 + 1)
    if kind == "RFFT":
        ctx.require_dtype([x], lambda d: d.name in ("float32", "float64"), "float32 or float64")
        before, after = lengths, halved
        dtype = np.dtype(np.complex128) if x.dtype == np.float64 else COMPLEX64
    else:
        ctx.require_dtype([x], is_complex, "complex")
        before = halved if kind == "IRFFT" else lengths
        after, dtype = lengths, real_of(x.dtype) if kind == "IRFFT" else x.dtype
    for have, wanted in zip(own, before, strict=True):
        ctx.unify(have, wanted, "the size and the length of a transformed axis")
    return TensorType(dtype, (*stack, *after))


def _fft_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    kind, lengths = node.attrs["kind"], node.attrs["lengths"]
    if kind == "RFFT":  # the lower half of a transform: the upper half has no adjoint
        missing = lengths[-1] - dy.shape[-1]
        whole = pad(dy, [(0, 0)] * (dy.ndim - 1) + [(0, missing)])
        return [real(emit_one(FFT, (whole,), kind="FFT", lengths=lengths))]
    if kind == "IRFFT":
        y = conj(emit_one(FFT, (dy,), kind="RFFT", lengths=lengths))
        return [y * _times_used(lengths[-1], y) / dim_value(product(lengths), real_of(y.dtype))]
    return [emit_one(FFT, (dy,), kind=kind, lengths=lengths)]


def _times_used(length: Dim, y: Tensor) -> Tensor:
    """The number of times that IRFFT uses each element along the last axis: twice, except for the
    first element, and for the last element of an even length."""
    place = iota((y.shape[-1],), 0)
    once = equal(place, 0) | equal(2 * place, dim_value(length))
    return to_dtype(where(once, 1, 2), y.dtype)


def _fft_cost(ctx: CostContext, node: Node) -> int:
    """5 n log2 n for complex numbers, half of it for real ones. Source: Cooley & Tukey, 1965, as
    counted in Van Loan, Computational Frameworks for the FFT, 1992."""
    lengths, real = node.attrs["lengths"], node.attrs["kind"] in ("RFFT", "IRFFT")
    stack = dims_of(node.inputs[0])[: -len(lengths)]
    elements: int = math.prod(lengths)
    of_each = 5 * elements * math.log2(max(elements, 2))
    return round(math.prod(stack) * of_each / (2 if real else 1))


FFT = define(
    "FFT(x) -> y",
    precision="wide",
    attrs={
        "kind": Attr("str", check=lambda v: v in _KINDS, must=f"be one of {', '.join(_KINDS)}"),
        "lengths": Attr(
            "dims",
            check=lambda v: 1 <= len(v) <= _MOST_AXES,
            must="be one to three sizes",
            doc="of the transformed (last) axes; for RFFT and IRFFT those of the real side",
        ),
    },
    infer=_infer_fft,
    lower=lambda ctx, x, *, kind, lengths: lax.fft(x, kind, ctx.shape(lengths)),
    gradient=_fft_gradient,
    layout=same_axis(
        lambda node, axis: axis < node.inputs[0].ndim - len(node.attrs["lengths"]), linear=True
    ),
    cost=_fft_cost,
    doc="The discrete Fourier transform over the last axes, or its inverse, which divides by the "
    "number of elements. RFFT gives the lower half of the transform of real numbers along the "
    "last axis, and IRFFT inverts it. Complex dtypes; float32 and float64 on the real side.",
)


# -- any axes, sizes and norms --------------------------------------------------------------


def transform(
    kind: str,
    x: Any,
    sizes: Sequence[Dim] | None,
    axes: Sequence[int] | None,
    norm: str | None,
    name: str | None,
) -> Tensor:
    """One of the transforms of `gc.fft`. That module documents the arguments."""
    norm = "backward" if norm is None else norm
    if norm not in ("backward", "forward", "ortho"):
        refuse(
            f'FFT: norm must be "backward", "forward" or "ortho", got {norm!r}',
            error=AttributeValueError,
        )
    tensor = _real_side(x) if kind == "RFFT" else as_complex(x)
    if axes is None:
        axes = range(-len(sizes), 0) if sizes is not None else range(tensor.ndim)
    places = [normalize_axis("FFT", tensor, axis) for axis in axes]
    if len(set(places)) < len(places):
        refuse(f"FFT: axes {tuple(axes)} name an axis twice", error=AttributeValueError, x=tensor)
    if sizes is not None and len(sizes) != len(places):
        refuse(f"FFT: {len(sizes)} sizes for {len(places)} axes", error=AttributeValueError)
    if not places:
        refuse("FFT: there is no axis to transform", error=AttributeValueError, x=tensor)
    lengths = _default_lengths(kind, tensor, places) if sizes is None else as_dims("FFT", sizes)
    inverse = kind in ("IFFT", "IRFFT")
    first, last = slice(None, -_MOST_AXES), slice(-_MOST_AXES, None)
    if kind == "IRFFT" and places[first]:
        tensor = transform("IFFT", tensor, lengths[first], places[first], norm, None)
    tensor = _transformed(kind, tensor, lengths[last], places[last])
    if kind != "IRFFT" and places[first]:
        outer = "IFFT" if inverse else "FFT"
        tensor = transform(outer, tensor, lengths[first], places[first], norm, None)
    return _normed(tensor, lengths[last], norm, inverse, name)


def as_complex(x: Any) -> Tensor:
    """`x` as complex numbers: complex128 for 64-bit dtypes, else complex64."""
    (tensor,) = promote_inexact(x)
    if is_complex(tensor.type.dtype):
        return tensor
    wide = tensor.type.dtype == np.float64
    return to_dtype(tensor, np.dtype(np.complex128) if wide else COMPLEX64)


def _real_side(x: Any) -> Tensor:
    (tensor,) = promote_inexact(x)
    narrow = tensor.type.dtype.itemsize < FLOAT32.itemsize
    return to_dtype(tensor, FLOAT32) if narrow else tensor


def _default_lengths(kind: str, x: Tensor, places: Sequence[int]) -> Shape:
    lengths = [x.shape[place] for place in places]
    if kind == "IRFFT":
        lengths[-1] = 2 * (lengths[-1] - 1)
    return tuple(lengths)


def _transformed(kind: str, x: Tensor, lengths: Shape, places: Sequence[int]) -> Tensor:
    """The transform over at most three axes, with the normalization of the operator."""
    for i, (length, place) in enumerate(zip(lengths, places, strict=True)):
        halved = kind == "IRFFT" and i == len(places) - 1
        x = _resized(x, place, length // 2 + 1 if halved else length)
    behind = list(range(x.ndim - len(places), x.ndim))
    if behind == places:
        return emit_one(FFT, (x,), kind=kind, lengths=lengths)
    y = emit_one(FFT, (moveaxis(x, places, behind),), kind=kind, lengths=lengths)
    return moveaxis(y, behind, places)


def _resized(x: Tensor, axis: int, size: Dim) -> Tensor:
    """`x` truncated or padded with zeros to `size` along an axis."""
    have = x.shape[axis]
    if have == size:
        return x
    if not (isinstance(have, int) and isinstance(size, int)):
        refuse(f"FFT: axis {axis} has size {have}, which cannot be resized to {size}", x=x)
    if size < have:
        return slice_(x, [0] * x.ndim, [*x.shape[:axis], size, *x.shape[axis + 1 :]])
    return pad(x, [(0, size - have if i == axis else 0) for i in range(x.ndim)])


def _normed(y: Tensor, lengths: Shape, norm: str, inverse: bool, name: str | None) -> Tensor:
    """`y` normalized by `norm`. The operator itself divides only inverse transforms."""
    if norm == "backward":
        return y if name is None else identity(y, name=name)
    count = dim_value(product(lengths), real_of(y.dtype))
    factor = sqrt(count) if norm == "ortho" else count
    return multiply(y, factor, name=name) if inverse else divide(y, factor, name=name)


OPS: tuple[OpDef, ...] = (FFT,)
