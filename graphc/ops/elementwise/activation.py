"""Activations: elementwise functions, and the softmax family, which normalizes along one axis."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.ir.dtypes import Array
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, GradientContext, LowerContext, OpDef
from graphc.ops.core.axes import AXIS, normalize_axis
from graphc.ops.core.broadcasting import Adjoints, infer_floating, infer_real
from graphc.ops.core.cost_rules import times_operand, times_result
from graphc.ops.core.declaring import (
    Declaration,
    Given,
    Operands,
    declared,
    elementwise_operator,
    operator,
    record,
)
from graphc.ops.core.emit import convert
from graphc.ops.core.layout_rules import not_along, same_axis
from graphc.ops.core.precision import shifted
from graphc.ops.elementwise.arithmetic import minimum
from graphc.typing import TensorLike

__all__ = ["elu", "gelu", "leaky_relu", "log_softmax", "relu", "relu6", "silu", "softmax"]


# -- elementwise ----------------------------------------------------------------------------


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


def _gelu(x: Any, *, approximate: bool) -> Any:
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


@elementwise_operator(
    "Relu",
    lambda x: lax.max(x, np.zeros((), x.dtype)),
    infer=infer_real,
    precision="follow",
    gradient=lambda ctx, node, dy: [ctx.ops.where(ctx.ops.greater(node.outputs[0], 0), dy, 0)],
    fold=lambda x: np.maximum(x, _zero(x)),
)
def relu(x: TensorLike, *, name: str | None = None) -> Given:
    """max(x, 0), elementwise; its derivative at 0 is 0. Integer and floating dtypes.

    Examples:
        >>> run(gc.nn.relu([-1.0, 2.0]))
        Array([0., 2.], dtype=float32)
    """
    return (convert(x),)


def relu6(x: TensorLike, *, name: str | None = None) -> Tensor:
    """min(max(x, 0), 6), elementwise. Real dtypes.

    Examples:
        >>> run(gc.nn.relu6([-1.0, 2.0, 9.0]))
        Array([0., 2., 6.], dtype=float32)
    """
    return minimum(relu(x), 6, name=name)


@elementwise_operator(
    "LeakyRelu",
    lambda x, *, alpha: jnp.where(x >= 0, x, alpha * x),
    infer=infer_floating,
    precision="follow",
    attrs={"alpha": Attr("float", default=0.01, doc="the derivative below 0")},
    gradient=lambda ctx, node, dy: [
        ctx.ops.where(ctx.ops.greater_equal(node.inputs[0], 0), dy, dy * node.attrs["alpha"])
    ],
    fold=lambda x, *, alpha: np.where(x >= _zero(x), x, x.dtype.type(alpha) * x),
    cost=times_result(2),
)
def leaky_relu(x: TensorLike, alpha: float = 0.01, *, name: str | None = None) -> Given:
    """x where it is at least 0, `alpha` * x elsewhere. Floating dtypes.

    Source: Maas et al., Rectifier nonlinearities improve neural network acoustic models, 2013.

    Examples:
        >>> run(gc.nn.leaky_relu([-1.0, 2.0]))
        Array([-0.01,  2.  ], dtype=float32)
    """
    return Operands(convert(x), alpha=alpha)


@elementwise_operator(
    "Elu",
    # The inner `where` keeps expm1 from overflowing where its value is not used.
    lambda x, *, alpha: jnp.where(x > 0, x, alpha * jnp.expm1(jnp.where(x > 0, 0, x))),
    infer=infer_floating,
    precision="follow",
    attrs={"alpha": Attr("float", default=1.0, doc="-alpha is the limit at minus infinity")},
    gradient=_elu_gradient,
    fold=lambda x, *, alpha: np.where(
        x > _zero(x), x, x.dtype.type(alpha) * np.expm1(np.minimum(x, _zero(x)))
    ),
    cost=times_result(3),
)
def elu(x: TensorLike, alpha: float = 1.0, *, name: str | None = None) -> Given:
    """x where it is positive, `alpha` * (exp(x) - 1) elsewhere. Floating dtypes.

    Source: Clevert, Unterthiner & Hochreiter, 2016, arXiv:1511.07289.

    Examples:
        >>> run(gc.nn.elu([-1.0, 2.0]))
        Array([-0.6321,  2.    ], dtype=float32)
    """
    return Operands(convert(x), alpha=alpha)


@elementwise_operator(
    "Silu",
    lambda x: x * lax.logistic(x),
    infer=infer_floating,
    widen=True,
    precision="follow",
    gradient=_silu_gradient,
    cost=times_result(4),
)
def silu(x: TensorLike, *, name: str | None = None) -> Given:
    """x * sigmoid(x), elementwise (swish). Floating dtypes.

    Source: Hendrycks & Gimpel, 2016, arXiv:1606.08415.

    Examples:
        >>> run(gc.nn.silu([-1.0, 2.0]))
        Array([-0.2689,  1.7616], dtype=float32)
    """
    return (convert(x),)


@elementwise_operator(
    "Gelu",
    _gelu,
    infer=infer_floating,
    widen=True,
    precision="follow",
    attrs={"approximate": Attr("bool", default=True, doc="by tanh instead of erf")},
    gradient=_gelu_gradient,
    cost=times_result(8),
)
def gelu(x: TensorLike, *, approximate: bool = True, name: str | None = None) -> Given:
    """x times the normal distribution function of x, elementwise. Floating dtypes.

    Args:
        approximate: use tanh, 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), as BERT and GPT-2
            do; False uses erf.

    Source: Hendrycks & Gimpel, 2016, arXiv:1606.08415.

    Examples:
        >>> run(gc.nn.gelu([-1.0, 2.0]))
        Array([-0.1588,  1.9546], dtype=float32)
    """
    return Operands(convert(x), approximate=approximate)


# -- along one axis -------------------------------------------------------------------------


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


def _softmax_operator(
    name: str, lower: Callable[..., Any], gradient: Callable[..., Adjoints], precision: str
) -> Declaration:
    return operator(
        name,
        infer=_infer_softmax,
        lower=lower,
        precision=precision,
        attrs={"axis": AXIS},
        gradient=gradient,
        layout=same_axis(not_along),
        cost=times_operand(5),
    )


@_softmax_operator("Softmax", _lower_softmax, _softmax_gradient, "inside")
def softmax(x: TensorLike, axis: int = -1, *, name: str | None = None) -> Given:
    """exp(x) divided by its sum along `axis`, in the shape of `x`. The maximum is subtracted first.
    Floating dtypes.

    Examples:
        >>> run(gc.softmax([0.0, 0.0, np.log(2.0)]))
        Array([0.25, 0.25, 0.5 ], dtype=float32)
    """
    x = convert(x)
    return Operands(x, axis=normalize_axis("Softmax", x, axis))


@_softmax_operator("LogSoftmax", _lower_log_softmax, _log_softmax_gradient, "wide")
def log_softmax(x: TensorLike, axis: int = -1, *, name: str | None = None) -> Given:
    """The logarithm of `softmax(x, axis)`, in the shape of `x`. Floating dtypes.

    Examples:
        >>> run(gc.log_softmax([0.0, 0.0]))
        Array([-0.6931, -0.6931], dtype=float32)
    """
    x = convert(x)
    return Operands(x, axis=normalize_axis("LogSoftmax", x, axis))


# Records by name, for passes and for rules of other families.
LOG_SOFTMAX = record(log_softmax)
SOFTMAX = record(softmax)

OPS: tuple[OpDef, ...] = declared(__name__)
