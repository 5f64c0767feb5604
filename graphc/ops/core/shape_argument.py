"""Functions whose first argument is the shape of their result."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

from graphc.errors import ArgumentError
from graphc.ir.dims import DimExpr
from graphc.ops.core.checks import refuse

F = TypeVar("F", bound=Callable[..., Any])


def shape_first(function: F) -> F:
    """Wraps the function so that it rejects calls in the style of other libraries.

    Such calls would mean something else here. `torch.rand(3, 4)` has the shape (3, 4): here the 4
    would be the next parameter, such as a mean. `np.random.normal(0, 1, (3, 4))` takes the shape
    last: here the 0 would be the shape. So a one-axis shape that is followed by other ints or by a
    shape must be written as a tuple.

    Args:
        function: its first parameter is called `shape`.
    """
    others = list(inspect.signature(function).parameters)[1:]

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) > 1 and _is_number(args[0]):
            _check(function.__name__, args, others)
        return function(*args, **kwargs)

    return cast(F, call)


def _check(name: str, args: tuple[Any, ...], others: list[str]) -> None:
    first, second = args[:2]
    shapes = [x for x in args[1:] if isinstance(x, (tuple, list)) and all(map(_is_size, x))]
    if shapes:
        rest = ", ".join(repr(x) for x in args if x is not shapes[0])
        refuse(
            f"{name}: the shape is the first argument, got {first!r}",
            error=ArgumentError,
            hint=f"{name}({shapes[0]!r}, {rest})",
        )
    if _is_size(first) and _is_size(second):
        sizes = [str(x) for x in itertools.takewhile(_is_size, args)]
        hint = f"{name}(({', '.join(sizes)}))"
        if others[0] != "dtype":
            given = ", ".join(f"{k}={v!r}" for k, v in zip(others, args[1:], strict=False))
            hint += f", or {name}(({first},), {given})"
        refuse(
            f"{name}: the shape is one argument, a tuple, got {first} and then {second}",
            error=ArgumentError,
            hint=hint,
        )


def _is_size(value: Any) -> bool:
    ints = type(value) is int or isinstance(value, np.integer)
    return isinstance(value, DimExpr) or (ints and value >= 0)


def _is_number(value: Any) -> bool:
    return type(value) is not bool and isinstance(value, (int, float, np.number, DimExpr))
