"""The distinct rows that lookups name: a sparse update of a table works on these."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.ir.costs import CostContext, size_of
from graphc.ir.dims import Dim, product
from graphc.ir.dtypes import INT32, is_integer
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.arrays.gathering import fold_indices, gather_indices
from graphc.ops.core.cost_rules import comparisons
from graphc.ops.core.emit import convert, emit
from graphc.ops.core.layout_rules import replicated


def _infer(
    ctx: InferContext, *indices: TensorType, size: Dim, clipped: int
) -> tuple[TensorType, ...]:
    ctx.require(bool(indices), "there must be indices")
    ctx.require_dtype(indices, is_integer, "integers")
    ctx.require(clipped <= len(indices), f"{clipped} of {len(indices)} indices cannot be clipped")
    ctx.require(size != 0, "there must be a row")
    count: Dim = sum((product(type.shape) for type in indices), start=0)
    if isinstance(size, int) and isinstance(count, int):
        ctx.require(size + count < 2**31, "the number of rows and of lookups must fit into int32")
    return TensorType(INT32, (count,)), *(TensorType(INT32, type.shape) for type in indices)


def _row(indices: Any, size: Any, clip: bool) -> Any:
    """The rows as int32, raveled: 0 <= row < size, or `size` for what counts nowhere."""
    places = gather_indices(indices, size)[..., 0].ravel()
    last = jnp.asarray(size - 1, places.dtype)
    first = jnp.zeros((), places.dtype)
    if clip:
        places = lax.clamp(first, places, last)
    rows = places.astype(jnp.int32)
    if clip:
        return rows
    return lax.select((places < first) | (places > last), jnp.zeros_like(rows) + size, rows)


def _lower(ctx: LowerContext, *indices: Any, size: Dim, clipped: int) -> tuple[Any, ...]:
    count = ctx.dim(size)
    rows = jnp.concatenate([_row(x, count, i < clipped) for i, x in enumerate(indices)])
    numbers = lax.broadcasted_iota(jnp.int32, rows.shape, 0)
    sizes = (count, rows.shape[0])
    known = all(isinstance(n, int) for n in sizes) and count <= _FEW_ROWS * rows.shape[0]
    by_table = known and functools.partial(_first_by_table, count=count)
    first = _first(rows, numbers, by_table or _first_by_sort)
    named = rows < count
    # A place without a row has a number that is out of range, and no other place has.
    unique = lax.select((first == numbers) & named, rows, numbers + count)
    places = lax.select(named, first, jnp.zeros_like(first) + rows.shape[0])
    results, start = [], 0
    for x in indices:
        stop = start + x.size
        results.append(lax.slice_in_dim(places, start, stop).reshape(x.shape))
        start = stop
    return unique, *results


# A scratch table of a number for each row is filled faster than lookups are sorted up to so many
# rows for each lookup (1,000,000 rows, 10,240 lookups on CPU: 0.2 against 1.6 ms).
_FEW_ROWS = 256


# Up to so many lookups, a GPU compares each with each other one in one kernel, the same for all
# tables. A sort and what follows it take a second of compile time for 8 tables.
_FEW_LOOKUPS = 8192


def _first(rows: Any, numbers: Any, otherwise: Callable[[Any, Any], Any]) -> Any:
    """For each lookup the number of the first one of the same row."""
    if not isinstance(rows.shape[0], int) or rows.shape[0] > _FEW_LOOKUPS:
        return otherwise(rows, numbers)
    return lax.platform_dependent(rows, numbers, cuda=_first_by_comparison, default=otherwise)


def _first_by_comparison(rows: Any, numbers: Any) -> Any:
    """The same by one reduction over all pairs, without storing the pairs."""
    count = rows.shape[0]
    same = rows[:, None] == rows[None, :]
    return jnp.where(same, numbers[None, :], count).min(axis=1, initial=count)


def _first_by_table(rows: Any, numbers: Any, count: int) -> Any:
    """The same by a table of all rows."""
    first = jnp.full((count + 1,), rows.shape[0], jnp.int32).at[rows].min(numbers)
    return first[rows]


def _first_by_sort(rows: Any, numbers: Any) -> Any:
    """The same in time and memory that do not depend on how many rows there are."""
    ordered, origin = lax.sort((rows, numbers), num_keys=2)
    begins = (ordered != jnp.roll(ordered, 1)).at[:1].set(True)
    begin = lax.cummax(lax.select(begins, numbers, jnp.zeros_like(numbers)))
    return jnp.zeros_like(rows).at[origin].set(origin[begin])


def _fold(*indices: Any, size: int, clipped: int) -> tuple[Any, ...]:
    found = [
        np.where(counts, places, size).ravel()
        for i, x in enumerate(indices)
        for places, counts in [fold_indices(x, size, "clip" if i < clipped else "drop")]
    ]
    rows = np.concatenate(found)
    numbers = np.arange(rows.size)
    _, begins, inverse = np.unique(rows, return_index=True, return_inverse=True)
    first = begins[inverse.ravel()]
    unique = np.where((first == numbers) & (rows < size), rows, numbers + size)
    places = np.where(rows < size, first, rows.size).astype(np.int32)
    ends = np.cumsum([x.size for x in indices])[:-1]
    pieces = np.split(places, ends)
    return unique.astype(np.int32), *(
        piece.reshape(x.shape) for piece, x in zip(pieces, indices, strict=True)
    )


def _cost(ctx: CostContext, node: Node) -> int:
    """All indices are sorted, and each finds its place among the rows."""
    count = sum(map(size_of, node.inputs))
    return 2 * comparisons(count, count)


UNIQUE_ROWS = OpDef(
    name="UniqueRows",
    signature="*indices -> rows, *places",
    precision="wide",
    attrs={
        "size": Attr("dim", doc="how many rows there are to name"),
        "clipped": Attr(
            "int",
            default=0,
            check=lambda v: v >= 0,
            must="not be negative",
            doc="of so many of the first operands an index out of range counts as the nearest, "
            "of the others it counts nowhere",
        ),
    },
    infer=_infer,
    lower=_lower,
    differentiable=False,
    layout=replicated,
    fold=_fold,
    cost=_cost,
    doc="The rows that the indices name, each once, and for each index the place of its row among "
    "them: that of the first index which names it. There are as many rows as indices: those at "
    "other places are out of range, all different. Negative indices count from the end; the place "
    "of an index that counts nowhere is out of range too. Integers of any shape. "
    "Source: jax.numpy.unique with a size.",
)


def unique_rows(
    *indices: Any, size: Dim, clipped: int = 0, name: str | None = None
) -> tuple[Tensor, ...]:
    """The rows that all `indices` name, each once, and for each index its row's place there.

    Args:
        indices: integers of any shape; negative ones count from the end.
        size: how many rows there are.
        clipped: of so many of the first operands an index out of range counts as the nearest
            row; of the others it counts nowhere.

    Returns:
        int32 [n], for n indices in all: each row where it is named first, numbers out of range
        elsewhere; and for each operand int32 of its shape: where its rows stand, n for none.

    Raises:
        DTypeError: indices that are not integers.
        ShapeError: none given, or more than int32 can count.

    Source: jax.numpy.unique with a size.
    """
    result: tuple[Tensor, ...] = emit(
        UNIQUE_ROWS, [convert(x) for x in indices], name=name, size=size, clipped=clipped
    )
    return result


OPS: tuple[OpDef, ...] = (UNIQUE_ROWS,)
