"""Penalties for large weights, and their sum over layers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from graphc.errors import AttributeValueError, GraphError, nearest
from graphc.ir.node import Tensor
from graphc.ir.variable import Variable
from graphc.nn.layers.layer import Layer, Regularizer
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import constant, convert, promote_operands, to_dtype
from graphc.ops.core.precision import wide
from graphc.ops.elementwise.arithmetic import absolute, add
from graphc.ops.elementwise.powers import square
from graphc.ops.reductions.reduction import reduce_sum
from graphc.ops.structure.state import identity
from graphc.typing import TensorLike

__all__ = ["L1", "L2", "penalty"]

AnyRegularizer = Regularizer | str | None
"""A value of any `*_regularizer=` of a layer."""


@dataclass(frozen=True)
class _Penalty:
    rate: float = 0.01

    def __post_init__(self) -> None:
        rate: Any = self.rate
        if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not rate >= 0:
            refuse(
                f"{type(self).__name__}: the rate must be a number of 0 or more, got {rate!r}",
                error=AttributeValueError,
            )

    def __call__(self, x: TensorLike) -> Tensor:
        x = convert(x)
        return reduce_sum(self._of_elements(to_dtype(x, wide(x.dtype)))) * self.rate

    def _of_elements(self, x: Tensor) -> Tensor:
        raise NotImplementedError


class L1(_Penalty):
    """The sum of the absolute values times `rate`. Weights that have little effect become zero.

    Args:
        rate: a number of 0 or more; 0.01 by default.

    Calling it takes a tensor of any shape and gives a scalar. Narrow dtypes are summed in float32.

    Raises:
        AttributeValueError: the rate is not a number of 0 or more.

    Examples:
        >>> run(gc.nn.L1(0.5)([1.0, -2.0]))
        Array(1.5, dtype=float32)
    """

    def _of_elements(self, x: Tensor) -> Tensor:
        return absolute(x)


class L2(_Penalty):
    """The sum of the squares times `rate`. It keeps weights small.

    The sum is not halved, unlike that of `gc.nn.l2_loss`. Args, operands and Raises: see `L1`.

    Examples:
        >>> run(gc.nn.L2(0.5)([1.0, -2.0]))
        Array(2.5, dtype=float32)
    """

    def _of_elements(self, x: Tensor) -> Tensor:
        return square(x)


_NAMES: Final[dict[str, type[L1 | L2]]] = {"l1": L1, "l2": L2}


def penalty(layers: Layer | Iterable[Layer], *, name: str | None = None) -> Tensor:
    """The sum of the penalties of all variables of `layers` that were given a regularizer.

    No layer and no optimizer adds it to the loss: write `loss = error + gc.nn.penalty(model)`. A
    variable that two of the layers share counts once.

    Args:
        layers: one layer or several, which have been called; their inner layers count too.
        name: of the last node.

    Returns:
        A scalar; 0 if no variable has a regularizer.

    Raises:
        GraphError: a layer has not been called, so it has no variables.
        AttributeValueError: an item is not a layer.
        ShapeError: the result of a regularizer is not a scalar.

    Examples:
        >>> dense = gc.nn.Dense(3, kernel_initializer="ones", kernel_regularizer=gc.nn.L2(0.5))
        >>> y = dense([[1.0, 2.0]])
        >>> run(gc.nn.penalty(dense))  # of six weights
        Array(3., dtype=float32)
    """
    given: Any = layers
    several = list(given) if isinstance(given, (list, tuple, set, Iterator)) else [given]
    found: dict[Variable, Regularizer] = {}
    for layer in several:
        if not isinstance(layer, Layer):
            refuse(f"penalty: takes layers, got {layer!r}", error=AttributeValueError)
        if not layer.built:
            raise GraphError.here(
                f"penalty: {layer} has not been called, so it has no variables",
                hint="call the model first, then ask for its penalty",
            )
        found |= layer.regularized
    terms = [_penalty_of(variable, regularizer) for variable, regularizer in found.items()]
    if not terms:
        return constant(0.0, name=name)
    total, *rest = promote_operands(*terms)
    for term in rest[:-1]:
        total = total + term
    return add(total, rest[-1], name=name) if rest else identity(total, name=name)


def as_regularizer(value: Any, of: str) -> Regularizer | None:
    """Returns `value` as a function of a tensor. It may be "l1", "l2", a function or None.

    Raises:
        AttributeValueError: `value` is an unknown name, or none of these.
    """
    if value is None or (callable(value) and not isinstance(value, type)):
        return value
    known = _NAMES.get(value.lower()) if isinstance(value, str) else None
    if known is None:
        raise AttributeValueError.here(
            f"{of}: unknown regularizer {value!r}",
            hint=nearest(value, _NAMES)
            if isinstance(value, str)
            else "pass a function of a tensor such as gc.nn.L2(1e-4)",
        )
    return known()


def _penalty_of(variable: Variable, regularizer: Regularizer) -> Tensor:
    result = convert(regularizer(variable))
    if result.ndim:
        refuse(
            f"penalty: the regularizer of {variable.name!r} must give a scalar, got {result.type}",
            hint="gc.reduce_sum its result",
            penalty=result,
        )
    return result
