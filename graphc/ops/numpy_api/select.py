"""Choices between several tensors, element by element."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphc.errors import AttributeValueError
from graphc.ir.node import Tensor
from graphc.ops.arrays.along_axis import take_along_axis
from graphc.ops.arrays.shape import expand_dims, squeeze
from graphc.ops.arrays.stacking import stack
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import convert, promote_operands
from graphc.ops.core.ranges import in_range
from graphc.ops.elementwise.comparison import where
from graphc.ops.numpy_api.rearranging import broadcast_arrays
from graphc.typing import TensorLike

__all__ = ["choose", "piecewise", "select"]


def select(
    conditions: Sequence[TensorLike], choices: Sequence[TensorLike], default: TensorLike = 0
) -> Tensor:
    """For each element, the first choice whose condition is true, or the `default`.

    Raises:
        AttributeValueError: the numbers of conditions and choices differ.

    Source: numpy.select.

    Examples:
        >>> run(gc.select([[True, False], [False, False]], [[1, 2], [3, 4]], default=9))
        Array([1, 9], dtype=int32)
    """
    if len(conditions) != len(choices) or not choices:
        refuse(
            f"select: {len(conditions)} conditions for {len(choices)} choices",
            error=AttributeValueError,
        )
    *options, result = promote_operands(*choices, default)
    for condition, option in reversed(list(zip(conditions, options, strict=True))):
        result = where(condition, option, result)
    return result


def piecewise(
    x: TensorLike,
    conditions: Sequence[TensorLike],
    functions: Sequence[Callable[[Tensor], TensorLike] | TensorLike],
) -> Tensor:
    """For each element, the value of the last function whose condition is true.

    Args:
        x: any tensor.
        conditions: bools.
        functions: functions of `x`, or values: one for each condition, and optionally one more for
            elements without a true condition (0 by default). All functions are computed for all
            elements.

    Raises:
        AttributeValueError: the number of functions does not fit.

    Source: numpy.piecewise.

    Examples:
        >>> run(gc.piecewise([-1.0, 2.0], [[True, False]], [0.0, lambda x: x * x]))
        Array([0., 4.], dtype=float32)
    """
    x = convert(x)
    if len(functions) not in (len(conditions), len(conditions) + 1):
        refuse(
            f"piecewise: {len(functions)} functions for {len(conditions)} conditions",
            error=AttributeValueError,
        )
    values = [f(x) if callable(f) else f for f in functions]
    default = values.pop() if len(values) > len(conditions) else 0
    return select(conditions[::-1], values[::-1], default)


def choose(places: TensorLike, choices: Sequence[TensorLike]) -> Tensor:
    """For each element, the choice with the index in `places`. Indices count as in `take`.

    An index out of range is clamped, and raises an error in runs with
    `CompileOptions(check_numerics=True)`.

    Source: numpy.choose.

    Examples:
        >>> run(gc.choose([1, 0], [[1, 2], [3, 4]]))
        Array([3, 2], dtype=int32)
    """
    numbers, *options = broadcast_arrays(places, *promote_operands(*choices))
    numbers = in_range(numbers, -len(options), len(options), "places", of="choose")
    return squeeze(take_along_axis(stack(options), expand_dims(numbers, 0), 0, "clip"), 0)
