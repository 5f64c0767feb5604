"""Order along an axis: sort, argsort, and the greatest elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax

from graphc.errors import AttributeValueError
from graphc.ir.costs import CostContext, dims_of, size_of
from graphc.ir.dims import Dim, product
from graphc.ir.dtypes import INT32
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import GradientContext, InferContext, OpDef
from graphc.ir.operand import Operand
from graphc.ir.types import TensorType
from graphc.ops.arrays.along_axis import scatter_add_along_axis
from graphc.ops.arrays.creation import iota, zeros_like
from graphc.ops.arrays.shape import one_axis
from graphc.ops.arrays.slicing import flip
from graphc.ops.core.axes import AXIS, normalize_axis
from graphc.ops.core.broadcasting import Adjoints, infer_ordered
from graphc.ops.core.checks import refuse
from graphc.ops.core.cost_rules import comparisons
from graphc.ops.core.defining import at_least, define
from graphc.ops.core.emit import convert, emit, emit_node
from graphc.ops.core.layout_rules import not_along, not_last, same_axis
from graphc.ops.core.precision import in_wider
from graphc.typing import TensorLike

__all__ = ["argpartition", "argsort", "lexsort", "partition", "sort", "sort_together", "top_k"]


def _infer_sort(
    ctx: InferContext, *types: TensorType, axis: int, keys: int
) -> tuple[TensorType, ...]:
    ctx.require(keys <= len(types), f"there are {keys} keys for {len(types)} operands")
    for key in types[:keys]:
        infer_ordered(ctx, key)
    first = types[0]
    ctx.require(axis < first.rank, f"axis {axis} is out of range for rank {first.rank}")
    for other in types[1:]:
        ctx.require(other.rank == first.rank, f"operands differ in rank: {first} and {other}")
        for a, b in zip(first.shape, other.shape, strict=True):
            ctx.unify(a, b, "sizes of the operands")
    return types


def _sort_gradient(ctx: GradientContext, node: Node, *dys: Tensor | None) -> Adjoints:
    axis, keys = node.attrs["axis"], node.attrs["keys"]
    places = iota(node.inputs[0].shape, axis, INT32)
    order = emit(SORT, (*node.inputs[:keys], places), axis=axis, keys=keys)[-1]
    return [
        None if dy is None else scatter_add_along_axis(zeros_like(x), order, dy, axis)
        for x, dy in zip(node.inputs, dys, strict=True)
    ]


def _sort_cost(ctx: CostContext, node: Node) -> int:
    """n log2 n comparisons of all keys along the axis."""
    x = node.inputs[0]
    along = dims_of(x)[node.attrs["axis"]]
    return int(node.attrs["keys"]) * comparisons(size_of(x), along)


SORT = define(
    "Sort(*xs) -> *ys",
    precision="follow",
    attrs={
        "axis": AXIS,
        "keys": at_least(1, "be positive", default=1, doc="operands compared"),
    },
    infer=_infer_sort,
    lower=lambda ctx, *operands, axis, keys: tuple(
        lax.sort(operands, dimension=axis, is_stable=True, num_keys=keys)
    ),
    gradient=_sort_gradient,
    layout=same_axis(not_along),
    cost=_sort_cost,
    doc="The operands, of one shape, in the order along `axis` that sorts the first of them. Ties "
    "are decided by the next keys, and then by position. NaN comes last. Keys have real dtypes or "
    "bool, others any dtype.",
)


def _infer_top_k(ctx: InferContext, x: TensorType, *, k: int) -> tuple[TensorType, TensorType]:
    infer_ordered(ctx, x)
    ctx.require(x.rank > 0, "x must have an axis, got a scalar")
    size: Dim = x.shape[-1]
    ctx.require(
        not isinstance(size, int) or k <= size,
        f"k is {k} of {size} elements",
        hint="elements are selected along the last axis: k is at most its size",
    )
    shape = (*x.shape[:-1], k)
    return TensorType(x.dtype, shape), TensorType(INT32, shape)


def top_k_gradient(
    ctx: GradientContext, node: Node, dy: Tensor | None, dindices: Tensor | None
) -> Adjoints:
    """The adjoint of the operand of `TopK` or `ApproxTopK`: `dy` at the selected indices."""
    if dy is None:
        return [None]
    return [scatter_add_along_axis(zeros_like(node.inputs[0]), node.outputs[1], dy, -1)]


def top_k_cost(ctx: CostContext, node: Node) -> int:
    """Each element is compared with a heap of the k greatest so far."""
    return comparisons(size_of(node.inputs[0]), node.attrs["k"])


TOP_K = define(
    "TopK(x) -> y, indices",
    precision="follow",
    attrs={"k": at_least(0, "not be negative")},
    infer=_infer_top_k,
    lower=in_wider(lambda ctx, x, *, k: tuple(lax.top_k(x, k))),
    gradient=top_k_gradient,
    layout=same_axis(not_last),
    cost=top_k_cost,
    doc="The k greatest elements along the last axis, the greatest first, and their indices "
    "(int32). Of equal elements the first comes first. Real dtypes.",
)


def sort(
    x: TensorLike, axis: int | None = -1, *, descending: bool = False, name: str | None = None
) -> Tensor:
    """`x` in ascending order along `axis`, NaN last; `descending` reverses the result.

    `axis` None ravels first.

    Raises:
        AttributeValueError: the axis is out of range.
        DTypeError: complex numbers.

    Source: numpy.sort.

    Examples:
        >>> run(gc.sort([7, 1, 4]))
        Array([1, 4, 7], dtype=int32)
    """
    tensor, place = one_axis("Sort", x, axis)
    result: Tensor = emit(SORT, (tensor,), name=name, axis=place, keys=1)
    return flip(result, place) if descending else result


def argsort(x: TensorLike, axis: int | None = -1, *, name: str | None = None) -> Tensor:
    """The indices (int32) along `axis` that sort `x` in ascending order; equal elements keep their
    order.

    `axis` None ravels first.

    Raises:
        AttributeValueError: the axis is out of range.
        DTypeError: complex numbers.

    Source: numpy.argsort with kind="stable".

    Examples:
        >>> run(gc.argsort([7, 1, 4]))
        Array([1, 2, 0], dtype=int32)
    """
    tensor, place = one_axis("Sort", x, axis)
    places = iota(tensor.shape, place, INT32)
    order: Tensor = emit(SORT, (tensor, places), name=name, axis=place, keys=1)[1]
    return order


def partition(
    x: TensorLike, kth: int | Sequence[int], axis: int | None = -1, *, name: str | None = None
) -> Tensor:
    """`x`, reordered along `axis` so that smaller elements precede element `kth` of the sorted
    order.

    The result is completely sorted, which fulfils this for any `kth`. `axis` None ravels first.

    Raises:
        AttributeValueError, ShapeError: the axis or `kth` is out of range, or `kth` is not an int
            or several.
        DTypeError: complex numbers.

    Source: numpy.partition.

    Examples:
        >>> run(gc.partition([7, 1, 4], 1)[1])
        Array(4, dtype=int32)
    """
    return sort(_with_place(x, kth, axis), axis, name=name)


def argpartition(
    x: TensorLike, kth: int | Sequence[int], axis: int | None = -1, *, name: str | None = None
) -> Tensor:
    """The indices (int32) from which `partition` takes its elements.

    Raises:
        AttributeValueError, ShapeError, DTypeError: as `partition`.

    Source: numpy.argpartition.

    Examples:
        >>> run(gc.argpartition([7, 1, 4], 1)[1])
        Array(2, dtype=int32)
    """
    return argsort(_with_place(x, kth, axis), axis, name=name)


def _with_place(x: Any, kth: Any, axis: int | None) -> Tensor:
    tensor = convert(x)
    size = (
        product(tensor.shape)
        if axis is None
        else tensor.shape[normalize_axis("partition", tensor, axis)]
    )
    places = np.asarray(kth) if not isinstance(kth, Operand) else np.empty(0)
    if places.dtype.kind not in "iu" or places.ndim > 1:
        refuse(
            f"partition: kth must be an int, or several, got {kth!r}",
            error=AttributeValueError,
            x=tensor,
        )
    for place in places.ravel().tolist():
        if isinstance(size, int) and not -size <= place < size:
            refuse(f"partition: there is no element {place} of {size}", x=tensor)
    return tensor


def sort_together(
    operands: Sequence[TensorLike], axis: int = -1, keys: int = 1, *, name: str | None = None
) -> tuple[Tensor, ...]:
    """Tensors of one shape, all reordered by the order that sorts the first of them.

    Args:
        operands: one or more; the first `keys` of them real.
        axis: the axis to sort along.
        keys: how many of them are keys. Later keys decide ties of earlier keys. Rows that are equal
            in all keys keep their order.
        name: of the node.

    Raises:
        AttributeValueError: the axis is out of range.
        ShapeError: shapes differ, or there are fewer operands than keys.
        DTypeError: complex keys.

    Source: jax.lax.sort.

    Examples:
        >>> run(gc.sort_together([[7, 1, 4], [0, 1, 2]]))
        (Array([1, 4, 7], dtype=int32), Array([1, 2, 0], dtype=int32))
    """
    tensors = [convert(x) for x in operands]
    place = normalize_axis("Sort", tensors[0], axis)
    return emit_node(SORT, tensors, name=name, axis=place, keys=keys).outputs


def lexsort(keys: Sequence[TensorLike], axis: int = -1, *, name: str | None = None) -> Tensor:
    """The indices (int32) along `axis` that sort by several keys; the last key is the primary one.

    Raises:
        ShapeError, DTypeError, AttributeValueError: as `sort_together`.

    Source: numpy.lexsort.

    Examples:
        >>> run(gc.lexsort(([2, 1, 1], [0, 0, -1])))
        Array([2, 1, 0], dtype=int32)
    """
    tensors = [convert(key) for key in keys][::-1]
    place = normalize_axis("Sort", tensors[0], axis)
    places = iota(tensors[0].shape, place, INT32)
    return sort_together([*tensors, places], place, len(tensors), name=name)[-1]


def top_k(x: TensorLike, k: int, *, name: str | None = None) -> tuple[Tensor, Tensor]:
    """The `k` greatest elements along the last axis, the greatest first; and their indices.

    Args:
        x: [..., n], real.
        k: at most n.

    Returns:
        The elements [..., k], and int32 [..., k].

    Raises:
        ShapeError: a scalar, or fewer than k elements.
        DTypeError: complex numbers.

    Examples:
        >>> run(gc.top_k([7, 1, 4], 2))
        (Array([7, 4], dtype=int32), Array([0, 2], dtype=int32))
    """
    values, indices = emit(TOP_K, (convert(x),), name=name, k=k)
    return values, indices


OPS: tuple[OpDef, ...] = (SORT, TOP_K)
