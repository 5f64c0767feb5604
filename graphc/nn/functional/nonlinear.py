"""Activations that are short expressions of others. Elementwise, on floating dtypes."""

from __future__ import annotations

from graphc.ir.node import Tensor
from graphc.ops.arrays.joining import split
from graphc.ops.core.axes import normalize_axis
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import convert, promote_operands
from graphc.ops.elementwise.activation import elu, relu6, silu
from graphc.ops.elementwise.arithmetic import absolute, clip, divide, multiply, negative
from graphc.ops.elementwise.comparison import greater_equal, where
from graphc.ops.elementwise.powers import sqrt, square
from graphc.ops.elementwise.transcendental import sigmoid, softplus, tanh
from graphc.typing import TensorLike

__all__ = [
    "celu",
    "glu",
    "hard_sigmoid",
    "hard_silu",
    "hard_tanh",
    "log_sigmoid",
    "mish",
    "prelu",
    "selu",
    "softsign",
    "squareplus",
    "swish",
]

_SELU_ALPHA = 1.6732632423543772
_SELU_SCALE = 1.0507009873554805


def celu(x: TensorLike, alpha: float = 1.0, *, name: str | None = None) -> Tensor:
    """x where it is positive, `alpha` * (exp(x / alpha) - 1) elsewhere.

    Source: Barron, 2017, arXiv:1704.07483.

    Examples:
        >>> run(gc.nn.celu([-1.0, 2.0]))
        Array([-0.6321,  2.    ], dtype=float32)
    """
    return multiply(elu(divide(x, alpha)), alpha, name=name)


def selu(x: TensorLike, *, name: str | None = None) -> Tensor:
    """1.0507 * elu(x, 1.6733): keeps mean 0 and variance 1 through dense layers.

    Source: Klambauer et al., 2017, arXiv:1706.02515.

    Examples:
        >>> run(gc.nn.selu([-1.0, 1.0]))
        Array([-1.1113,  1.0507], dtype=float32)
    """
    return multiply(elu(x, _SELU_ALPHA), _SELU_SCALE, name=name)


def hard_sigmoid(x: TensorLike, *, name: str | None = None) -> Tensor:
    """min(max(x + 3, 0), 6) / 6. Source: Howard et al., 2019, arXiv:1905.02244.

    Examples:
        >>> run(gc.nn.hard_sigmoid([-4.0, 0.0, 1.5]))
        Array([0.  , 0.5 , 0.75], dtype=float32)
    """
    return divide(relu6(convert(x) + 3), 6, name=name)


def hard_silu(x: TensorLike, *, name: str | None = None) -> Tensor:
    """x * hard_sigmoid(x) (hard swish). Source: Howard et al., 2019, arXiv:1905.02244.

    Examples:
        >>> run(gc.nn.hard_silu([0.0, 3.0]))
        Array([0., 3.], dtype=float32)
    """
    x = convert(x)
    return multiply(x, hard_sigmoid(x), name=name)


def hard_tanh(x: TensorLike, *, name: str | None = None) -> Tensor:
    """min(max(x, -1), 1).

    Examples:
        >>> run(gc.nn.hard_tanh([-4.0, 0.5, 3.0]))
        Array([-1. ,  0.5,  1. ], dtype=float32)
    """
    return clip(x, -1, 1, name=name)


def log_sigmoid(x: TensorLike, *, name: str | None = None) -> Tensor:
    """The logarithm of sigmoid(x), exact for large negative x too.

    Examples:
        >>> run(gc.nn.log_sigmoid([0.0]))
        Array([-0.6931], dtype=float32)
    """
    return negative(softplus(negative(x)), name=name)


def mish(x: TensorLike, *, name: str | None = None) -> Tensor:
    """x * tanh(softplus(x)). Source: Misra, 2019, arXiv:1908.08681.

    Examples:
        >>> run(gc.nn.mish([0.0, 1.0]))
        Array([0.    , 0.8651], dtype=float32)
    """
    x = convert(x)
    return multiply(x, tanh(softplus(x)), name=name)


def prelu(x: TensorLike, alpha: TensorLike, *, name: str | None = None) -> Tensor:
    """x where it is at least 0, `alpha` * x elsewhere; `alpha` is trained.

    Args:
        x: floating.
        alpha: promoted with `x`, of a shape that broadcasts with it: [channels] or a scalar.

    Source: He et al., 2015, arXiv:1502.01852.

    Examples:
        >>> run(gc.nn.prelu([-2.0, 3.0], 0.25))
        Array([-0.5,  3. ], dtype=float32)
    """
    x, alpha = promote_operands(x, alpha)
    return where(greater_equal(x, 0), x, alpha * x, name=name)


def softsign(x: TensorLike, *, name: str | None = None) -> Tensor:
    """x / (1 + |x|).

    Examples:
        >>> run(gc.nn.softsign([-1.0, 3.0]))
        Array([-0.5 ,  0.75], dtype=float32)
    """
    x = convert(x)
    return divide(x, absolute(x) + 1, name=name)


def squareplus(x: TensorLike, b: float = 4.0, *, name: str | None = None) -> Tensor:
    """(x + sqrt(x^2 + b)) / 2, a softplus without exponentials.

    Source: Barron, 2021, arXiv:2112.11687.

    Examples:
        >>> run(gc.nn.squareplus([0.0, 1.5]))
        Array([1., 2.], dtype=float32)
    """
    x = convert(x)
    return multiply(x + sqrt(square(x) + b), 0.5, name=name)


def swish(x: TensorLike, *, name: str | None = None) -> Tensor:
    """Another name for `silu`.

    Examples:
        >>> run(gc.nn.swish([-1.0, 2.0]))
        Array([-0.2689,  1.7616], dtype=float32)
    """
    return silu(x, name=name)


def glu(x: TensorLike, axis: int = -1, *, name: str | None = None) -> Tensor:
    """The first half of `x` along `axis` times the sigmoid of the second.

    Raises:
        ShapeError: the size along `axis` is odd.

    Source: Dauphin et al., 2017, arXiv:1612.08083.

    Examples:
        >>> run(gc.nn.glu([1.0, 2.0, 0.0, 0.0]))
        Array([0.5, 1. ], dtype=float32)
    """
    x = convert(x)
    axis = normalize_axis("glu", x, axis)
    size = x.shape[axis]
    if isinstance(size, int) and size % 2:
        refuse(
            f"glu: the size {size} is odd and cannot be halved",
            hint="a layer before it with twice the units: gc.nn.Dense(2 * units)",
            x=x,
        )
    value, gate = split(x, 2, axis)
    return multiply(value, sigmoid(gate), name=name)
