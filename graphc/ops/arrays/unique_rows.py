"""The distinct rows that lookups refer to. A sparse update of a table works on these rows."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
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
from graphc.ops.core.defining import at_least, without_gradient
from graphc.ops.core.emit import convert, emit
from graphc.ops.core.layout_rules import replicated
from graphc.ops.core.sizes import SIZE


def _infer(
    ctx: InferContext, *indices: TensorType, size: Dim, clipped: int, pieces: bool
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
    """The rows as int32, raveled: 0 <= row < size, or `size` for ignored indices."""
    places = gather_indices(indices, size)[..., 0].ravel()
    last = jnp.asarray(size - 1, places.dtype)
    first = jnp.zeros((), places.dtype)
    if clip:
        places = lax.clamp(first, places, last)
    rows = places.astype(jnp.int32)
    if clip:
        return rows
    return lax.select((places < first) | (places > last), jnp.zeros_like(rows) + size, rows)


def _lower(
    ctx: LowerContext, *indices: Any, size: Dim, clipped: int, pieces: bool
) -> tuple[Any, ...]:
    count = ctx.dim(size)
    rows = jnp.concatenate([_row(x, count, i < clipped) for i, x in enumerate(indices)])
    numbers = _numbers(rows.shape[0])
    if pieces:
        rows = lax.platform_dependent(rows, numbers, cpu=_stored, default=lambda rows, _: rows)
    sizes = (count, rows.shape[0])
    known = all(isinstance(n, int) for n in sizes) and count <= _FEW_ROWS * rows.shape[0]
    by_table = known and functools.partial(_first_by_table, count=count)
    first = _first(rows, numbers, by_table or _first_by_sort)
    is_first, places = first == numbers, first
    if clipped < len(indices):
        named = rows < count
        is_first &= named
        places = lax.select(named, first, jnp.zeros_like(first) + rows.shape[0])
    # An entry without a row gets a unique number that is out of range.
    unique = lax.select(is_first, rows, numbers + count)
    results, start = [], 0
    for x in indices:
        stop = start + x.size
        results.append(lax.slice_in_dim(places, start, stop).reshape(x.shape))
        start = stop
    return unique, *results


_FEW_NUMBERS = 4096


def _numbers(count: Any) -> Any:
    """0, 1, ... int32. A few are a constant: XLA would compile an iota as a kernel, and sometimes
    writes it twice into other kernels, which then differ from those of the next table."""
    if isinstance(count, int) and count <= _FEW_NUMBERS:
        return jnp.asarray(np.arange(count, dtype=np.int32))
    return lax.broadcasted_iota(jnp.int32, (count,), 0)


def _stored(rows: Any, numbers: Any) -> Any:
    """The rows in a separate buffer.

    XLA fuses the indices' expression into every kernel that reads the rows. If the indices of
    several tables are slices of one array, these kernels differ in an offset, and each of them is
    compiled. It never fuses a sort or a scatter, and it removes `lax.optimization_barrier` before
    it fuses. A sort by ascending numbers leaves the rows as they are. It compiles in a fifth of the
    time of a scatter, but takes more time to run.
    """
    if isinstance(rows.shape[0], int) and rows.shape[0] <= _FEW_ON_CPU:
        return lax.sort((numbers, rows), num_keys=1)[1]
    dims = lax.ScatterDimensionNumbers((), (0,), (0,))
    zeros = jnp.zeros_like(rows)
    return lax.scatter(
        zeros,
        numbers[:, None],
        rows,
        dims,
        unique_indices=True,
        indices_are_sorted=True,
        mode="promise_in_bounds",
    )


# Up to this number of rows for each lookup, filling a scratch table with one number for each row is
# faster than sorting the lookups (1,000,000 rows, 10,240 lookups on CPU: 0.2 ms against 1.6 ms).
_FEW_ROWS = 256


# Up to this number of lookups, a GPU compares all pairs in one kernel, which is the same for all
# tables. A sort and the operations after it take a second of compile time for 8 tables.
_FEW_LOOKUPS = 8192
# On CPU, comparison is as fast as a sort up to this number (256 lookups: 16 us against 29 us; 512:
# 88 us against 63 us), and compiles in half the time.
_FEW_ON_CPU = 256


def _first(rows: Any, numbers: Any, otherwise: Callable[[Any, Any], Any]) -> Any:
    """For each lookup, the number of the first lookup of the same row."""
    count = rows.shape[0]
    if not isinstance(count, int) or count > _FEW_LOOKUPS:
        return otherwise(rows, numbers)
    if count <= _FEW_ON_CPU:
        return _first_by_comparison(rows, numbers)
    return lax.platform_dependent(rows, numbers, cuda=_first_by_comparison, default=otherwise)


def _first_by_comparison(rows: Any, numbers: Any) -> Any:
    """`_first` by one reduction over all pairs, without storing the pairs."""
    count = rows.shape[0]
    same = rows[:, None] == rows[None, :]
    return jnp.where(same, numbers[None, :], count).min(axis=1, initial=count)


def _first_by_table(rows: Any, numbers: Any, count: int) -> Any:
    """`_first` by a table of all rows."""
    first = jnp.full((count + 1,), rows.shape[0], jnp.int32)
    places, axis = rows[:, None], (0,)
    to = lax.ScatterDimensionNumbers((), axis, axis)
    first = lax.scatter_min(first, places, numbers, to, mode="promise_in_bounds")
    out_of = lax.GatherDimensionNumbers((), axis, axis)
    return lax.gather(first, places, out_of, (1,), mode="promise_in_bounds")


def _first_by_sort(rows: Any, numbers: Any) -> Any:
    """`_first` in time and memory that do not depend on the number of rows."""
    ordered, origin = lax.sort((rows, numbers), num_keys=2)
    begins = (ordered != jnp.roll(ordered, 1)).at[:1].set(True)
    begin = lax.cummax(lax.select(begins, numbers, jnp.zeros_like(numbers)))
    return jnp.zeros_like(rows).at[origin].set(origin[begin])


def _fold(*indices: Any, size: int, clipped: int, pieces: bool) -> tuple[Any, ...]:
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
    parts = np.split(places, ends)
    return unique.astype(np.int32), *(
        part.reshape(x.shape) for part, x in zip(parts, indices, strict=True)
    )


def _cost(ctx: CostContext, node: Node) -> int:
    """The cost of sorting all indices and finding the position of each among the rows."""
    count = sum(map(size_of, node.inputs))
    return 2 * comparisons(count, count)


UNIQUE_ROWS = without_gradient(
    "UniqueRows(*indices) -> rows, *places",
    attrs={
        "size": replace(SIZE, doc="the number of rows of the table"),
        "clipped": at_least(
            0,
            "not be negative",
            default=0,
            doc="for this number of first operands, an index out of range is clamped; for the "
            "others it is ignored",
        ),
        "pieces": Attr(
            "bool",
            default=False,
            doc="whether indices are pieces of another tensor; on CPU, the rows are then stored, "
            "so that kernels that read them do not depend on the offset of a piece",
        ),
    },
    infer=_infer,
    lower=_lower,
    layout=replicated,
    fold=_fold,
    cost=_cost,
    doc="The distinct rows that the indices refer to, and for each index the position of its row "
    "among them, which is the position of the first index of that row. There are as many rows as "
    "indices; the unused entries are out of range and all different. Negative indices count from "
    "the end. The position of an ignored index is out of range, too. Integers of any shape. "
    "Source: jax.numpy.unique with a size.",
)


def unique_rows(
    *indices: Any, size: Dim, clipped: int = 0, name: str | None = None
) -> tuple[Tensor, ...]:
    """The distinct rows that all `indices` refer to, and for each index the position of its row.

    Args:
        indices: integers of any shape; negative ones count from the end.
        size: the number of rows of the table.
        clipped: for this number of first operands, an index out of range is clamped; for the others
            it is ignored.

    Returns:
        int32 [n], for n indices in total: each row at the position of its first index, and numbers
        out of range elsewhere; and for each operand int32 of its shape: the positions of its rows,
        n for none.

    Raises:
        DTypeError: the indices are not integers.
        ShapeError: there are no indices, or more than int32 can count.

    Source: jax.numpy.unique with a size.
    """
    result: tuple[Tensor, ...] = emit(
        UNIQUE_ROWS, [convert(x) for x in indices], name=name, size=size, clipped=clipped
    )
    return result


OPS: tuple[OpDef, ...] = (UNIQUE_ROWS,)
