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
    """Each element of the first choice whose condition holds, or of the `default`.

    Raises:
        AttributeValueError: not one condition for each choice.

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
    """At each element the value of the function whose condition holds, the last that does.

    Args:
        x: any tensor.
        conditions: bools.
        functions: functions of `x`, or values: one for each condition, and maybe one more for
            where none holds (0 by default). All are computed everywhere.

    Raises:
        AttributeValueError: more functions, or fewer.

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
    """Each element of the choice whose number stands in `places`; numbers count as in `take`.

    One out of range counts as the nearest in range, and is an error of runs with
    `CompileOptions(check_numerics=True)`.

    Source: numpy.choose.

    Examples:
        >>> run(gc.choose([1, 0], [[1, 2], [3, 4]]))
        Array([3, 2], dtype=int32)
    """
    numbers, *options = broadcast_arrays(places, *promote_operands(*choices))
    numbers = in_range(numbers, -len(options), len(options), "places", of="choose")
    return squeeze(take_along_axis(stack(options), expand_dims(numbers, 0), 0, "clip"), 0)
