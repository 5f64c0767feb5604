"""Maps the axes of operands through transposes, axes of size 1 and constant factors."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from graphc.ir.dtypes import is_floating
from graphc.ir.node import Node, Tensor
from graphc.ops.arrays.shape import RESHAPE, TRANSPOSE
from graphc.ops.core.emit import CAST
from graphc.ops.elementwise.arithmetic import DIVIDE, MULTIPLY, NEGATIVE
from graphc.ops.matrices.contraction import DOT_GENERAL
from graphc.ops.matrices.matrix_product import MATMUL

Label: TypeAlias = Hashable
Labels: TypeAlias = tuple[Label | None, ...]  # of a tensor's axes; None for axes of size 1
Axes: TypeAlias = tuple[int | None, ...]


class Peeled(NamedTuple):
    """A tensor as a constant multiple of another with moved axes.

    Attributes:
        root: the other tensor.
        axes: for each axis of the tensor the axis of the root; None for axes of size 1.
        factor: the constant.
        through: the tensors in between, without `root`.
    """

    root: Tensor
    axes: Axes
    factor: float
    through: tuple[Tensor, ...]

    def labels(self, own: Sequence[Label | None]) -> Labels:
        """The labels of the root's axes from those of the tensor."""
        return renamed(self.axes, own, len(self.root.type.shape))


def own_axes(tensor: Tensor) -> Axes:
    """The axes of a tensor; None for those of size 1."""
    return tuple(None if dim == 1 else i for i, dim in enumerate(tensor.type.shape))


def renamed(moved: Axes, names: Sequence[Label | None], rank: int) -> tuple[Any, ...]:
    """The labels of an operand's axes from those of the result."""
    below: list[Any] = [None] * rank
    for place, name in zip(moved, names, strict=True):
        if place is not None:
            below[place] = name
    return tuple(below)


def peel(
    tensor: Tensor,
    made: Mapping[Tensor, Node],
    scalar: Callable[[Tensor], Any],
    also: Callable[[Node], Tensor | None] = lambda node: None,
) -> Peeled:
    """Follows `tensor` back through moved axes and constant factors.

    `also` returns the operand of another node to look through, or None.
    """
    axes = own_axes(tensor)
    factor, through = 1.0, []
    while (node := made.get(tensor)) is not None:
        if (moved := axis_map(node)) is not None:
            axes = tuple(None if axis is None else moved[axis] for axis in axes)
            below = node.inputs[0]
        elif (scaled := scaling(node, scalar)) is not None:
            below, c = scaled
            factor *= c
        elif (found := also(node)) is not None or (found := _widened(node)) is not None:
            below = found
        else:
            break
        through.append(tensor)
        tensor = below
    return Peeled(tensor, axes, factor, tuple(through))


def _widened(node: Node) -> Tensor | None:
    """The operand of a cast to a wider floating dtype, which changes no value."""
    if node.op is not CAST:
        return None
    before, after = node.inputs[0].type.dtype, node.outputs[0].type.dtype
    widens = is_floating(before) and is_floating(after) and before.itemsize < after.itemsize
    return node.inputs[0] if widens else None


def axis_map(node: Node) -> Axes | None:
    """The axis of the operand for each axis of the result, for a transpose or a reshape that only
    adds or removes axes of size 1."""
    if node.op is TRANSPOSE:
        return tuple(node.attrs["perm"])
    if node.op is not RESHAPE:
        return None
    before, after = (t.type.shape for t in (node.inputs[0], node.outputs[0]))
    if [d for d in before if d != 1] != [d for d in after if d != 1]:
        return None
    places = iter([i for i, dim in enumerate(before) if dim != 1])
    return tuple(None if dim == 1 else next(places) for dim in after)


def scaling(node: Node, scalar: Callable[[Tensor], Any]) -> tuple[Tensor, float] | None:
    """The operand and the constant of a multiplication by a constant."""
    if node.op is NEGATIVE:
        return node.inputs[0], -1.0
    if node.op not in (MULTIPLY, DIVIDE):
        return None
    a, b = node.inputs
    shape = node.outputs[0].type.shape
    for x, other in ((a, b), (b, a)) if node.op is MULTIPLY else ((a, b),):
        c = scalar(other) if x.type.shape == shape else None
        if isinstance(c, (int, float)) and c != 0:
            return x, float(c) if node.op is MULTIPLY else 1 / c
    return None


class Product(NamedTuple):
    """A product of two operands, with the role of each of their axes.

    Attributes:
        operands: both.
        parts: for each operand and axis: the axis of the result, -1 - j for the jth contracted
            pair, or None for a broadcast axis.
    """

    operands: tuple[Tensor, Tensor]
    parts: tuple[Axes, Axes]


def product_of(node: Node) -> Product | None:
    """The product; None for other operators."""
    if node.op is DOT_GENERAL:
        return _dot_general(node)
    return _matmul(node) if node.op is MATMUL else None


def _dot_general(node: Node) -> Product:
    a, b = node.inputs
    batch = len(node.attrs["lhs_batch"])
    free, parts = batch, []
    for tensor, side in ((a, "lhs"), (b, "rhs")):
        own_batch, own_sums = node.attrs[f"{side}_batch"], node.attrs[f"{side}_contract"]
        found: list[int | None] = []
        for axis in range(len(tensor.type.shape)):
            if axis in own_batch:
                found.append(own_batch.index(axis))
            elif axis in own_sums:
                found.append(-1 - own_sums.index(axis))
            else:
                found.append(free)
                free += 1
        parts.append(tuple(found))
    return Product((a, b), (parts[0], parts[1]))


def _matmul(node: Node) -> Product:
    a, b = node.inputs
    shape = node.outputs[0].type.shape
    rank, parts = len(shape), []
    for tensor, turned, left in (
        (a, node.attrs["transpose_a"], True),
        (b, node.attrs["transpose_b"], False),
    ):
        own = tensor.type.shape
        found: list[int | None] = []
        for axis, dim in enumerate(own[:-2]):
            place = axis + rank - len(own)
            found.append(place if dim == shape[place] else None)
        matrix = [rank - 2, -1] if left else [-1, rank - 1]
        found += matrix[::-1] if turned else matrix
        parts.append(tuple(found))
    return Product((a, b), (parts[0], parts[1]))
