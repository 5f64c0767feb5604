"""TensorFlow's functions for the graph itself: assertions, defaults of feeds, and cases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from graphc.errors import AttributeValueError
from graphc.ir.dtypes import BOOL
from graphc.ir.node import Node, Tensor
from graphc.ir.source import current_source
from graphc.ops.control.bodies import check_body
from graphc.ops.control.branching import cond
from graphc.ops.core.checks import as_dims, refuse, same_shape
from graphc.ops.core.emit import convert, to_dtype
from graphc.ops.structure.host import py_callback
from graphc.ops.structure.state import identity
from graphc.typing import ShapeLike, TensorLike, TensorTree

__all__ = ["Assert", "case", "placeholder_with_default"]


def Assert(
    condition: TensorLike,
    data: TensorLike | str | Sequence[TensorLike | str] = (),
    *,
    name: str | None = None,
) -> Node:
    """A node that fails the run if an element of `condition` is false.

    It checks in each run that selects it: fetch the node, or build the fetched tensors under
    `with gc.control_dependencies([node])`. The variables do not change in a run that fails. Such a
    program waits for Python in each run, is not cached and cannot be saved: see `py_callback`.
    `CompileOptions(check_numerics=True)` checks values and indices without such nodes.

    Args:
        condition: bools.
        data: what the error shows: a tensor or a text, or a list of them.
        name: of the node; the error shows it.

    The run raises `ExecutionError`.

    Source: tf.Assert.

    Examples:
        >>> x = gc.placeholder((2,), name="x")
        >>> with gc.control_dependencies([gc.Assert(x > 0, x)]):
        ...     y = gc.log(x)
        >>> run(y, {x: [1.0, 1.0]})
        Array([0., 0.], dtype=float32)
    """
    source = current_source()
    label = f" {name!r}" if name else ""
    parts = list(data) if isinstance(data, list | tuple) else [data]
    values = [part for part in parts if not isinstance(part, str)]
    texts = [part if isinstance(part, str) else None for part in parts]

    def check(holds: np.ndarray[Any, Any], *shown: np.ndarray[Any, Any]) -> None:
        if not holds.all():
            rest = (np.array2string(value, threshold=20) for value in shown)
            lines = [next(rest) if text is None else text for text in texts]
            text = "".join(f"\n  {line}" for line in lines)
            raise AttributeValueError(f"Assert{label}: the condition is false{text}", source=source)

    node: Node = py_callback(check, None, to_dtype(convert(condition), BOOL), *values, name=name)
    return node


def placeholder_with_default(
    default: TensorLike, shape: ShapeLike | None = None, *, name: str | None = None
) -> Tensor:
    """`default`, unless a run feeds it another value of the same shape and dtype.

    Any tensor can be fed; this function gives one a name.

    Args:
        default: a value, or a tensor.
        shape: that of `default`, to check it.
        name: of the node, by which it is fed.

    Raises:
        ShapeError: `default` has another shape.

    Source: tf.placeholder_with_default.

    Examples:
        >>> rate = gc.placeholder_with_default(0.5, (), name="rate")
        >>> run(rate * 2), run(rate * 2, {rate: 0.25})
        (Array(1., dtype=float32), Array(0.5, dtype=float32))
    """
    tensor = convert(default)
    if shape is not None and not same_shape(
        as_dims("placeholder_with_default", shape), tensor.shape, tensor
    ):
        refuse(
            f"placeholder_with_default: the default does not have the shape {shape}",
            hint="a feed has the shape of the default; use gc.placeholder for other shapes",
            default=tensor,
        )
    return identity(tensor, name=name)


def case(
    pairs: Iterable[tuple[TensorLike, Callable[[], TensorTree]]], default: Callable[[], TensorTree]
) -> TensorTree:
    """The result of the function of the first true condition, or else of `default`.

    Args:
        pairs: a list of pairs of a condition, a scalar of bool, and a function without arguments.
        default: called if no condition is true.

    Returns:
        The result of the function. All functions return the same structure with equal types; see
        `cond`.

    Raises:
        AttributeValueError: `pairs` are not pairs of a condition and a function.
        ShapeError, DTypeError, GraphError: see `cond`.

    Source: tf.case.

    Examples:
        >>> run(
        ...     gc.case(
        ...         [(gc.constant(False), lambda: 1), (gc.constant(True), lambda: 2)], lambda: 3
        ...     )
        ... )
        Array(2, dtype=int32)
    """
    given: Any = pairs
    several = isinstance(given, (list, tuple))
    if not several or not all(isinstance(p, (list, tuple)) and len(p) == 2 for p in given):
        refuse(
            f"case: takes a list of pairs (condition, function), got {pairs!r}",
            error=AttributeValueError,
            hint="gc.case([(x > 0, f), (x < 0, g)], default)",
        )
    check_body("case: default", default, 0)
    if not given:
        return default()
    (condition, function), *rest = given
    return cond(condition, function, lambda: case(rest, default))
