"""Fake quantisation: floats are rounded to the grid of the integers, to train networks for it.

Source: Jacob et al., Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference, CVPR 2018 (arXiv:1712.05877), section 3.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import jax
from jax import numpy as jnp

from graphc.ir.dtypes import is_floating
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, GradientContext, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.core.broadcasting import Adjoints, require_one_dtype
from graphc.ops.core.emit import emit_one, promote_inexact, to_dtype
from graphc.ops.core.precision import summed, wide
from graphc.ops.elementwise.comparison import greater, less, where
from graphc.ops.elementwise.rounding import rint
from graphc.ops.nn.quantizing import along, canonical, check_grid, grid_operator, summed_along
from graphc.typing import TensorLike

__all__ = ["fake_quantize"]

_JAX = SimpleNamespace(where=jnp.where, rint=jnp.rint, clip=jnp.clip)


def _nudged(ops: Any, low: Any, high: Any, bits: int, narrow_range: bool) -> tuple[Any, Any, Any]:
    """The scale and its lowest and highest multiple: the range, shifted so that 0 is on the grid.

    Works on graph tensors and on JAX values: `ops` has the functions.
    """
    first, last = int(narrow_range), 2**bits - 1
    scale = ops.where(high >= low, high - low, math.nan) / (last - first)
    zero_point = ops.rint(ops.clip(first - low / ops.where(scale > 0, scale, 1), first, last))
    return scale, first - zero_point, last - zero_point


def _infer(ctx: InferContext, *operands: TensorType, axis: int | None, **grid: int) -> TensorType:
    ctx.require_dtype(operands, is_floating, "floating")
    require_one_dtype(ctx, *operands)
    x, low, high = operands
    check_grid(ctx, x.shape, axis, low=low, high=high)
    return x


@jax.custom_jvp
def _on_grid(x: Any, scale: Any, lowest: Any, highest: Any, low: Any, high: Any) -> Any:
    """`x` rounded to the nearest grid point. `low` and `high` are needed for the derivative."""
    step = jnp.rint(x / jnp.where(scale > 0, scale, 1))
    return jnp.clip(step, lowest, highest) * scale


@_on_grid.defjvp
def _on_grid_jvp(primals: Any, tangents: Any) -> Any:
    x, scale, lowest, highest, _, _ = primals
    of_x, _, _, _, of_low, of_high = tangents
    tangent = jnp.where(x > highest * scale, of_high, of_x)
    return _on_grid(*primals), jnp.where(x < lowest * scale, of_low, tangent)


def _lower(ctx: LowerContext, x: Any, low: Any, high: Any, *, axis: int | None, **grid: Any) -> Any:
    low, high = (along(v, x.ndim, axis) for v in (low, high))
    return _on_grid(x, *_nudged(_JAX, low, high, **grid), low, high)


def _gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    attrs = dict(node.attrs)
    axis, wider = attrs.pop("axis"), wide(dy.type.dtype)
    x, low, high = (to_dtype(t, wider) for t in node.inputs)
    if axis is not None:
        later = [1] * (len(x.type.shape) - axis - 1)
        low, high = (ctx.ops.reshape(t, (*t.type.shape, *later)) for t in (low, high))
    scale, lowest, highest = _nudged(_GRAPH, low, high, **attrs)
    below, above = less(x, lowest * scale), greater(x, highest * scale)
    inside = where(below, 0, where(above, 0, dy))
    ends = [(below, node.inputs[1]), (above, node.inputs[2])]
    return [inside, *[summed_along(ctx, where(out, dy, 0), axis, end) for out, end in ends]]


def _clip(x: Tensor, low: int, high: int) -> Tensor:
    return where(x < low, low, where(x > high, high, x))


_GRAPH = SimpleNamespace(where=where, rint=rint, clip=_clip)

FAKE_QUANTIZE = grid_operator(
    "FakeQuantize(x, low, high) -> y",
    attrs={
        "bits": Attr("int", default=8, check=lambda n: 2 <= n <= 16, must="be 2 to 16"),
        "narrow_range": Attr("bool", default=False, doc="use 2^bits - 1 grid points, not 2^bits"),
    },
    infer=_infer,
    lower=summed(_lower),
    gradient=_gradient,
    operations=7,
    doc="x rounded to the nearest of 2^bits evenly spaced points from low to high. The range is "
    "shifted so that 0 is one of them. The adjoint passes to x within the range, to low below it "
    "and to high above it. One range for all elements, or one for each index along `axis`. "
    "Floating dtypes. Source: Jacob et al., CVPR 2018, section 3.",
)


def fake_quantize(
    x: TensorLike,
    low: TensorLike,
    high: TensorLike,
    *,
    bits: int = 8,
    narrow_range: bool = False,
    axis: int | None = None,
    name: str | None = None,
) -> Tensor:
    """`x` rounded to the nearest of `2**bits` points from `low` to `high`: quantised and
    dequantised.

    The range is shifted by less than one step so that 0 is on the grid. A range that does not
    contain 0 is shifted until it does. An empty range (`high == low`) gives 0, and `high < low`
    gives NaN. The gradient passes to `x` within the range, to `low` below it and to `high` above
    it, as if nothing were rounded.

    Args:
        x: floating.
        low, high: the range: scalars, or vectors with `axis`. They may be variables, to be learned.
        bits: 2 to 16.
        narrow_range: leave out the lowest point, so that the grid of low = -high is symmetric
            around 0.
        axis: the axis of `x` with one range for each index; None: one range for all elements.

    Raises:
        AttributeValueError: `bits` is not from 2 to 16, or there is no such axis.
        ShapeError: `low` or `high` is neither a scalar nor a vector of the size of the axis.

    Source: Jacob et al., CVPR 2018, section 3; tf.quantization.fake_quant_with_min_max_vars,
    which rounds halves up, not to even.

    Examples:
        >>> run(gc.fake_quantize([-0.1, 0.52, 2.0], 0.0, 1.0, bits=2))
        Array([0.    , 0.6667, 1.    ], dtype=float32)
    """
    operands = promote_inexact(x, low, high)
    attrs = {"bits": bits, "narrow_range": narrow_range}
    place = canonical("FakeQuantize", operands[0], axis)
    return emit_one(FAKE_QUANTIZE, operands, name, axis=place, **attrs)


OPS: tuple[OpDef, ...] = (FAKE_QUANTIZE,)
