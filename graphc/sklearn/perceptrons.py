"""The networks that estimators build by default."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphc.errors import AttributeValueError
from graphc.ir.node import Tensor
from graphc.nn.layers.linear import Dense
from graphc.ops.elementwise.activation import relu

Activation = Callable[[Tensor], Tensor]


def mlp(
    x: Tensor, outputs: int, hidden: int | Sequence[int] = (100,), activation: Activation = relu
) -> Tensor:
    """A multilayer perceptron: the network that estimators build by default.

    Its variables have the dtype of the features.

    Args:
        x: [rows, features].
        outputs: the number of columns of the result.
        hidden: the width of each hidden layer, or of the only one.
        activation: applied after each hidden layer.

    Raises:
        AttributeValueError: a width is not a positive int.

    Examples:
        >>> x = gc.placeholder((None, 64), name="x")
        >>> gc.sklearn.mlp(x, 10, hidden=(32, 16)).shape[1]
        10
    """
    for number, width in enumerate(_widths(hidden)):
        x = Dense(width, activation, name=f"hidden_{number}", dtype=x.dtype)(x)
    return Dense(outputs, name="outputs", dtype=x.dtype)(x)


def mirrored(
    encoding: Tensor,
    outputs: int,
    hidden: int | Sequence[int] = (100,),
    activation: Activation = relu,
) -> Tensor:
    """The decoder of a transformer by default: `mlp` with the hidden layers in reverse order."""
    return mlp(encoding, outputs, _widths(hidden)[::-1], activation)


def _widths(hidden: int | Sequence[int]) -> tuple[int, ...]:
    given = [hidden] if isinstance(hidden, int) else list(hidden)
    widths = tuple(int(width) for width in given)
    if any(width < 1 or width != old for width, old in zip(widths, given, strict=True)):
        raise AttributeValueError.here(
            f"mlp: hidden must be positive numbers of units, got {hidden!r}",
            hint="pass one width for each hidden layer, such as hidden=(100, 50)",
        )
    return widths
