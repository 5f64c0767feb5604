"""Checks that operator functions make before they add a node, and the errors that these raise."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from graphc.errors import AttributeValueError, GradientError, GraphcError, ShapeError
from graphc.ir.dims import Dim, DimExpr, Shape
from graphc.ir.hints import usual_hint
from graphc.ir.node import Node, Tensor, describe_tensors
from graphc.ir.opdef import GradientContext
from graphc.ir.scopes import AMBIENT
from graphc.ir.source import current_source


def refuse(
    what: str, *, hint: str | None = None, error: type[GraphcError] = ShapeError, **tensors: Tensor
) -> NoReturn:
    """Raises `error`. Its details describe `tensors`, and its source is the user's line."""
    raise error(
        what,
        details=describe_tensors(tensors),
        source=AMBIENT.source or current_source(),
        hint=hint or usual_hint(what, error),
    )


def no_gradient(words: Callable[[Node], str], hint: str) -> Callable[..., NoReturn]:
    """The gradient rule of an operator that gradients must not pass: it raises `GradientError`.

    Args:
        words: gives the message for a node.
    """

    def gradient(ctx: GradientContext, node: Node, *adjoints: Tensor | None) -> NoReturn:
        raise GradientError(words(node), source=node.source, hint=hint)

    return gradient


def same_shape(a: Shape, b: Shape, of: Tensor) -> bool:
    """Whether the shapes `a` and `b` are equal in the graph of the tensor `of`.

    If a size is unknown, the graph records that the two are equal and checks this when values are
    fed. While a graph is built, do not compare shapes with `==`: it distinguishes two names of one
    size.
    """
    return a == b or (of.graph is not None and of.graph.constraints.unify_shapes(a, b))


def known_alike(a: Shape, b: Shape, of: Tensor) -> bool:
    """Whether the graph of the tensor `of` has recorded that the shapes are equal. It records
    nothing new: use this to choose between two ways to compute the same result."""
    return a == b or (
        of.graph is not None and len(a) == len(b) and all(map(of.graph.constraints.equal, a, b))
    )


def broadcasts_to(shape: Shape, wanted: Shape, of: Tensor) -> bool:
    """Whether `shape` broadcasts to `wanted` in the graph of the tensor `of`; see `same_shape`."""
    return shape == wanted or (
        of.graph is not None and of.graph.constraints.unify_broadcast(shape, wanted)
    )


def as_dims(op: str, shape: Any) -> Shape:
    """`shape` (ints and named sizes, or one of them) as a tuple of dims.

    Raises:
        AttributeValueError: a size is neither an int nor a named size. Wildcards (-1) are accepted.
    """
    if isinstance(shape, DimExpr) or not isinstance(shape, Iterable):
        shape = (shape,)
    return tuple(d if type(d) is int or isinstance(d, DimExpr) else _dim(op, d) for d in shape)


def _dim(op: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        refuse(
            f"{op}: a size must be an int or a named size, got {value!r}",
            error=AttributeValueError,
            hint=_instead_of_size(value),
        )


def _instead_of_size(value: Any) -> str:
    if value is None:
        return "x.shape has the sizes; where a function takes -1, it follows from the others"
    if isinstance(value, (tuple, list)):
        return "it is one size; a shape is for functions such as gc.ones"
    return "sizes are static: take them from x.shape"


def is_static(*dims: Dim) -> bool:
    """Whether every dim is an int, as folding on the host requires."""
    return not any(isinstance(dim, DimExpr) for dim in dims)


def positive_int(op: str, label: str, value: Any) -> int:
    """`value` if it is a positive int.

    Raises:
        AttributeValueError: it is not.
    """
    if type(value) is not int or value < 1:
        refuse(f"{op}: {label} must be a positive int, got {value!r}", error=AttributeValueError)
    return value


def insertion_axis(op: str, x: Tensor, axis: Any, rank: int) -> int:
    """The position of a new axis in a result of rank `rank`, counted from the front.

    Raises:
        AttributeValueError: `axis` is not an int, or it is out of range.
    """
    index = _dim(op, axis)
    if not -rank <= index < rank:
        refuse(
            f"{op}: axis {index} is out of range for a result of rank {rank}",
            error=AttributeValueError,
            hint=f"places for the new axis run from {-rank} to {rank - 1}",
            x=x,
        )
    return index + rank if index < 0 else index
