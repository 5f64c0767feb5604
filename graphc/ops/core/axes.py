"""Axes: the attribute of operators, and the normalisation of user arguments."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from graphc.errors import AttributeValueError
from graphc.ir.node import Tensor
from graphc.ir.operand import Operand
from graphc.ops.core.checks import refuse
from graphc.ops.core.defining import at_least

AXIS = at_least(0, "be counted from the front")


def normalize_axis(op: str, x: Tensor, axis: Any) -> int:
    """`axis` of `x`, counted from the front. Errors name the operator `op`.

    Raises:
        AttributeValueError: `axis` is not an int, or it is out of range.
    """
    rank = len(x.type.shape)
    try:
        index = operator.index(axis)
    except TypeError:
        refuse(
            f"{op}: axis must be an int, got {axis!r}",
            error=AttributeValueError,
            hint="the tensor is the first argument, its axis comes later"
            if isinstance(axis, Operand)
            else "axes are counted from 0, or from -1 at the end; a tuple names several",
            x=x,
        )
    if not -rank <= index < rank:
        refuse(
            f"{op}: axis {index} is out of range for rank {rank}",
            error=AttributeValueError,
            hint=f"axes run from {-rank} to {rank - 1}" if rank else "a scalar has no axes",
            x=x,
        )
    return index + rank if index < 0 else index


def normalize_axes(op: str, x: Tensor, axis: int | Sequence[int] | None) -> tuple[int, ...]:
    """The axes of `x` in `axis`, sorted. None means all axes.

    Raises:
        AttributeValueError: an axis is not an int, is out of range, or is named twice.
    """
    if axis is None:
        return tuple(range(len(x.type.shape)))
    if not isinstance(axis, Iterable):
        return (normalize_axis(op, x, axis),)
    axes = sorted([normalize_axis(op, x, a) for a in axis])
    for first, second in pairwise(axes):
        if first == second:
            refuse(f"{op}: axis {first} is named twice", error=AttributeValueError, x=x)
    return tuple(axes)
