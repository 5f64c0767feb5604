"""Activations: elementwise ones, and the softmax family, which looks along one axis."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.ir.layouts import LayoutRule
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, GradientContext, LowerContext, OpDef
from graphc.ops.core.axes import normalize_axis
from graphc.ops.core.broadcasting import Adjoints, infer_floating, infer_real
from graphc.ops.core.cost_rules import times_operand, times_result
from graphc.ops.core.emit import convert, emit_one
from graphc.ops.core.layout_rules import elementwise, map_axis
from graphc.ops.core.precision import in_wider, shifted
from graphc.ops.elementwise.arithmetic import minimum

Array = np.ndarray[Any, Any]


def _infer_same(ctx: Any, x: Any, **attrs: Any) -> Any:
    return infer_floating(ctx, x)


# -- elementwise ----------------------------------------------------------------------------


def _relu_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    return [ctx.ops.where(ctx.ops.greater(node.outputs[0], 0), dy, 0)]


def _leaky_relu_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    positive = ctx.ops.greater_equal(node.inputs[0], 0)
    return [ctx.ops.where(positive, dy, dy * node.attrs["alpha"])]


def _elu_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    positive = ctx.ops.greater(node.inputs[0], 0)
    # alpha * exp(x) = y + alpha where x is negative
    return [ctx.ops.where(positive, dy, dy * (node.outputs[0] + node.attrs["alpha"]))]


def _silu_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    x, y = node.inputs[0], node.outputs[0]
    s = ctx.ops.sigmoid(x)
    return [dy * (s + y * (1 - s))]


_TANH_SCALE = math.sqrt(2 / math.pi)
_TANH_CUBIC = 0.044715


def _lower_gelu(ctx: LowerContext, x: Any, *, approximate: bool) -> Any:
    if approximate:
        inner = _TANH_SCALE * (x + _TANH_CUBIC * (x * x * x))
        return x * (0.5 * (1 + lax.tanh(inner)))
    return x * (0.5 * (1 + lax.erf(x * math.sqrt(0.5))))


def _gelu_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    x = node.inputs[0]
    square = x * x
    if node.attrs["approximate"]:
        t = ctx.ops.tanh(_TANH_SCALE * (x + _TANH_CUBIC * (square * x)))
        slope = (0.5 * _TANH_SCALE) * (1 + (3 * _TANH_CUBIC) * square)
        return [dy * (0.5 * (1 + t) + x * (1 - t * t) * slope)]
    normal_cdf = 0.5 * (1 + ctx.ops.erf(x * math.sqrt(0.5)))
    normal_pdf = (1 / math.sqrt(2 * math.pi)) * ctx.ops.exp(square * -0.5)
    return [dy * (normal_cdf + x * normal_pdf)]


def _zero(x: Array) -> Any:
    return x.dtype.type(0)


RELU = OpDef(
    name="Relu",
    signature="x -> y",
    precision="follow",
    infer=infer_real,
    lower=lambda ctx, x: lax.max(x, np.zeros((), x.dtype)),
    gradient=_relu_gradient,
    layout=elementwise,
    fold=lambda x: np.maximum(x, _zero(x)),
    doc="max(x, 0), elementwise; its derivative at 0 is 0. Real dtypes.",
)

LEAKY_RELU = OpDef(
    name="LeakyRelu",
    signature="x -> y",
    precision="follow",
    attrs={"alpha": Attr("float", default=0.01, doc="the slope left of 0")},
    infer=_infer_same,
    lower=lambda ctx, x, *, alpha: jnp.where(x >= 0, x, alpha * x),
    gradient=_leaky_relu_gradient,
    layout=elementwise,
    fold=lambda x, *, alpha: np.where(x >= _zero(x), x, x.dtype.type(alpha) * x),
    cost=times_result(2),
    doc="x where it is at least 0, alpha * x elsewhere. Floating dtypes. Source: Maas et al., "
    "Rectifier nonlinearities improve neural network acoustic models, 2013.",
)

ELU = OpDef(
    name="Elu",
    signature="x -> y",
    precision="follow",
    attrs={"alpha": Attr("float", default=1.0, doc="-alpha is the limit at minus infinity")},
    infer=_infer_same,
    # The inner `where` keeps expm1 from overflowing where its value is not taken.
    lower=lambda ctx, x, *, alpha: jnp.where(x > 0, x, alpha * jnp.expm1(jnp.where(x > 0, 0, x))),
    gradient=_elu_gradient,
    layout=elementwise,
    fold=lambda x, *, alpha: np.where(
        x > _zero(x), x, x.dtype.type(alpha) * np.expm1(np.minimum(x, _zero(x)))
    ),
    cost=times_result(3),
    doc="x where it is positive, alpha * (exp(x) - 1) elsewhere. Floating dtypes. Source: "
    "Clevert, Unterthiner & Hochreiter, 2016, arXiv:1511.07289.",
)

SILU = OpDef(
    name="Silu",
    signature="x -> y",
    precision="follow",
    infer=infer_floating,
    lower=in_wider(lambda ctx, x: x * lax.logistic(x)),
    gradient=_silu_gradient,
    layout=elementwise,
    cost=times_result(4),
    doc="x * sigmoid(x), elementwise (swish). Floating dtypes. Source: Hendrycks & Gimpel, 2016, "
    "arXiv:1606.08415.",
)

GELU = OpDef(
    name="Gelu",
    signature="x -> y",
    precision="follow",
    attrs={"approximate": Attr("bool", default=True, doc="by tanh in place of erf")},
    infer=_infer_same,
    lower=in_wider(_lower_gelu),
    gradient=_gelu_gradient,
    layout=elementwise,
    cost=times_result(8),
    doc="x times the normal distribution function of x, elementwise; approximately "
    "0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))). Floating dtypes. Source: Hendrycks & "
    "Gimpel, 2016, arXiv:1606.08415.",
)


# -- along one axis -------------------------------------------------------------------------


_AXIS = {"axis": Attr("int", check=lambda v: v >= 0, must="be counted from the front")}
_along_axis: LayoutRule = map_axis(lambda node, axis: None if axis == node.attrs["axis"] else axis)


def _infer_softmax(ctx: Any, x: Any, *, axis: int) -> Any:
    ctx.require(axis < x.rank, f"axis {axis} is out of range for rank {x.rank}")
    return infer_floating(ctx, x)


def _lower_softmax(ctx: LowerContext, x: Any, *, axis: int) -> Any:
    exponentials = lax.exp(shifted(x, axis))
    return exponentials / jnp.sum(exponentials, axis=axis, keepdims=True)


def _lower_log_softmax(ctx: LowerContext, x: Any, *, axis: int) -> Any:
    below = shifted(x, axis)
    return below - lax.log(jnp.sum(lax.exp(below), axis=axis, keepdims=True))


def _softmax_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    y, axis = node.outputs[0], node.attrs["axis"]
    return [y * (dy - ctx.ops.reduce_sum(y * dy, axis=axis, keepdims=True))]


def _log_softmax_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    y, axis = node.outputs[0], node.attrs["axis"]
    return [dy - ctx.ops.exp(y) * ctx.ops.reduce_sum(dy, axis=axis, keepdims=True)]


SOFTMAX = OpDef(
    name="Softmax",
    signature="x -> y",
    precision="inside",
    attrs=_AXIS,
    infer=_infer_softmax,
    lower=_lower_softmax,
    gradient=_softmax_gradient,
    layout=_along_axis,
    cost=times_operand(5),
    doc="exp(x) over its sum along `axis`; the maximum is taken off first. Floating dtypes.",
)

LOG_SOFTMAX = OpDef(
    name="LogSoftmax",
    signature="x -> y",
    precision="wide",
    attrs=_AXIS,
    infer=_infer_softmax,
    lower=_lower_log_softmax,
    gradient=_log_softmax_gradient,
    layout=_along_axis,
    cost=times_operand(5),
    doc="The logarithm of the softmax of x along `axis`, without its overflow. Floating dtypes.",
)


# -- functions ------------------------------------------------------------------------------


def relu(x: Any, *, name: str | None = None) -> Tensor:
    """max(x, 0), elementwise. Real dtypes."""
    return emit_one(RELU, (convert(x),), name=name)


def relu6(x: Any, *, name: str | None = None) -> Tensor:
    """min(max(x, 0), 6), elementwise. Real dtypes."""
    return minimum(relu(x), 6, name=name)


def leaky_relu(x: Any, alpha: float = 0.01, *, name: str | None = None) -> Tensor:
    """x where it is at least 0, `alpha` * x elsewhere. Floating dtypes."""
    return emit_one(LEAKY_RELU, (convert(x),), name=name, alpha=alpha)


def elu(x: Any, alpha: float = 1.0, *, name: str | None = None) -> Tensor:
    """x where it is positive, `alpha` * (exp(x) - 1) elsewhere. Floating dtypes."""
    return emit_one(ELU, (convert(x),), name=name, alpha=alpha)


def silu(x: Any, *, name: str | None = None) -> Tensor:
    """x * sigmoid(x), elementwise (swish). Floating dtypes."""
    return emit_one(SILU, (convert(x),), name=name)


def gelu(x: Any, *, approximate: bool = True, name: str | None = None) -> Tensor:
    """x times the normal distribution function of x, elementwise. Floating dtypes.

    Args:
        approximate: use tanh, as BERT and GPT-2 do; False uses erf.
    """
    return emit_one(GELU, (convert(x),), name=name, approximate=approximate)


def softmax(x: Any, axis: int = -1, *, name: str | None = None) -> Tensor:
    """exp(x) over its sum along `axis`; of the shape of `x`. Floating dtypes."""
    x = convert(x)
    return emit_one(SOFTMAX, (x,), name=name, axis=normalize_axis("Softmax", x, axis))


def log_softmax(x: Any, axis: int = -1, *, name: str | None = None) -> Tensor:
    """The logarithm of `softmax(x, axis)`; of the shape of `x`. Floating dtypes."""
    x = convert(x)
    return emit_one(LOG_SOFTMAX, (x,), name=name, axis=normalize_axis("LogSoftmax", x, axis))


OPS: tuple[OpDef, ...] = (RELU, LEAKY_RELU, ELU, SILU, GELU, SOFTMAX, LOG_SOFTMAX)
