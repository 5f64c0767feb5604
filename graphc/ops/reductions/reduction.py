"""Reductions over axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphc.errors import DTypeError
from graphc.ir.dims import product
from graphc.ir.dtypes import BOOL, as_dtype, is_complex, is_inexact, real_of
from graphc.ir.node import Tensor
from graphc.ir.opdef import OpDef
from graphc.ops.core.axes import normalize_axes
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import convert, dim_value, emit_one, promote_inexact, to_dtype
from graphc.ops.core.precision import wide
from graphc.ops.elementwise.arithmetic import add, divide, maximum, minimum, multiply
from graphc.ops.elementwise.comparison import not_equal
from graphc.ops.elementwise.complex_parts import conj, real
from graphc.ops.elementwise.powers import square
from graphc.ops.reductions.reduction_operands import chosen, countable, mask_of, refuse_where
from graphc.ops.reductions.reduction_rules import LOG_SUM_EXP as LOG_SUM_EXP
from graphc.ops.reductions.reduction_rules import PLAIN_REDUCTIONS, may_be_empty
from graphc.ops.reductions.reduction_rules import REDUCE_ALL as REDUCE_ALL
from graphc.ops.reductions.reduction_rules import REDUCE_ANY as REDUCE_ANY
from graphc.ops.reductions.reduction_rules import REDUCE_MAX as REDUCE_MAX
from graphc.ops.reductions.reduction_rules import REDUCE_MEAN as REDUCE_MEAN
from graphc.ops.reductions.reduction_rules import REDUCE_MIN as REDUCE_MIN
from graphc.ops.reductions.reduction_rules import REDUCE_PROD as REDUCE_PROD
from graphc.ops.reductions.reduction_rules import REDUCE_SUM as REDUCE_SUM
from graphc.typing import DTypeLike, TensorLike

__all__ = [
    "all",
    "amax",
    "amin",
    "any",
    "logsumexp",
    "max",
    "mean",
    "min",
    "prod",
    "reduce_all",
    "reduce_any",
    "reduce_max",
    "reduce_mean",
    "reduce_min",
    "reduce_prod",
    "reduce_sum",
    "reduce_variance",
    "sum",
    "var",
]

Axes = int | Sequence[int] | None


def _counted(x: Tensor, axis: Axes, keepdims: bool, where: Any) -> Tensor:
    """The number of elements that count, in x's dtype."""
    return reduce_sum(to_dtype(mask_of(x, where), x.dtype), axis, keepdims)


def _emit_reduction(
    op: OpDef, x: Tensor, axis: Axes, keepdims: bool, name: str | None, **attrs: bool
) -> Tensor:
    axes = normalize_axes(op.name, x, axis)
    return emit_one(op, (x,), name, axes=axes, keepdims=bool(keepdims), **attrs)


def reduce_sum(
    x: TensorLike,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    dtype: DTypeLike | None = None,
    where: TensorLike | None = None,
    initial: TensorLike | None = None,
    name: str | None = None,
) -> Tensor:
    """The sum over `axis` (one, several, or None for all); `keepdims` keeps axes of size 1.

    Args:
        x: any numeric tensor, or bools.
        axis: one, several, or None for all.
        keepdims: keeps the axes, with size 1.
        dtype: to convert to first; by default bools and integers below 32 bits are summed as
            int32 or uint32, and other dtypes stay.
        where: bools that broadcast to `x`: which elements count; by default all.
        initial: an additional term.
        name: of the node.

    Raises:
        AttributeValueError: an axis is out of range or named twice.

    Source: numpy.sum.

    Examples:
        >>> run(gc.reduce_sum([[1, 5], [7, 2]], axis=1))
        Array([6, 9], dtype=int32)
    """
    tensor = chosen(countable(x, dtype), where, 0)
    if initial is None:
        return _emit_reduction(REDUCE_SUM, tensor, axis, keepdims, name)
    found = _emit_reduction(REDUCE_SUM, tensor, axis, keepdims, None)
    return add(found, to_dtype(initial, found.dtype), name=name)


def reduce_mean(
    x: TensorLike,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    dtype: DTypeLike | None = None,
    where: TensorLike | None = None,
    name: str | None = None,
) -> Tensor:
    """The mean over `axis` (one, several, or None for all); integers and bools give float32.

    Args:
        x, axis, keepdims, where, name: as in `reduce_sum`; the result is NaN if no element counts.
        dtype: to convert to first, floating or complex.

    Raises:
        AttributeValueError: an axis is out of range or named twice.
        DTypeError: another dtype.

    Source: numpy.mean.

    Examples:
        >>> run(gc.reduce_mean([[1.0, 5.0], [7.0, 3.0]], axis=1))
        Array([3., 5.], dtype=float32)
    """
    if dtype is not None and not is_inexact(as_dtype(dtype)):
        refuse(
            f"ReduceMean: dtype must be floating or complex, got {as_dtype(dtype).name}",
            error=DTypeError,
            hint="gc.cast the mean, which rounds it",
        )
    (tensor,) = promote_inexact(x if dtype is None else to_dtype(convert(x), as_dtype(dtype)))
    if where is None:
        return _emit_reduction(REDUCE_MEAN, tensor, axis, keepdims, name)
    rows = to_dtype(tensor, wide(tensor.dtype))
    count = _counted(rows, axis, keepdims, where)
    total = reduce_sum(rows, axis, keepdims, where=where)
    return to_dtype(divide(total, count, name=name), tensor.dtype)


def reduce_max(
    x: TensorLike,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    where: TensorLike | None = None,
    initial: TensorLike | None = None,
    name: str | None = None,
) -> Tensor:
    """The greatest element over `axis` (one, several, or None for all); NaN if one is NaN.

    Args:
        x, axis, keepdims, name: as in `reduce_sum`.
        where: bools that broadcast to `x`: which elements count. It needs `initial`.
        initial: an additional element.

    Raises:
        AttributeValueError: an axis is out of range or named twice, or `where` is given without
            `initial`.
        ShapeError: there are no elements, and no `initial`.

    Source: numpy.max.

    Examples:
        >>> run(gc.reduce_max([[1, 5], [7, 2]], axis=1))
        Array([5, 7], dtype=int32)
    """
    return _extreme(REDUCE_MAX, maximum, x, axis, keepdims, where, initial, name)


def reduce_min(
    x: TensorLike,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    where: TensorLike | None = None,
    initial: TensorLike | None = None,
    name: str | None = None,
) -> Tensor:
    """The smallest element over `axis` (one, several, or None for all); NaN if one is NaN.

    Args:
        x, axis, keepdims, name: as in `reduce_sum`.
        where: bools that broadcast to `x`: which elements count. It needs `initial`.
        initial: an additional element.

    Raises:
        AttributeValueError: an axis is out of range or named twice, or `where` is given without
            `initial`.
        ShapeError: there are no elements, and no `initial`.

    Source: numpy.min.

    Examples:
        >>> run(gc.reduce_min([[1, 5], [7, 2]], axis=1))
        Array([1, 2], dtype=int32)
    """
    return _extreme(REDUCE_MIN, minimum, x, axis, keepdims, where, initial, name)


def _extreme(
    op: OpDef,
    combine: Callable[..., Tensor],
    x: Any,
    axis: Axes,
    keepdims: bool,
    where: Any,
    initial: Any,
    name: str | None,
) -> Tensor:
    """`reduce_max` or `reduce_min`; `combine` is the function of two operands."""
    tensor = convert(x)
    if initial is None:
        refuse_where(tensor, where)
        return _emit_reduction(op, tensor, axis, keepdims, name)
    tensor = chosen(tensor, where, initial)
    empty = may_be_empty(tensor, normalize_axes(op.name, tensor, axis))
    found = _emit_reduction(op, tensor, axis, keepdims, None, allow_empty=empty)
    return combine(found, to_dtype(initial, found.dtype), name=name)


def reduce_prod(
    x: TensorLike,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    dtype: DTypeLike | None = None,
    where: TensorLike | None = None,
    initial: TensorLike | None = None,
    name: str | None = None,
) -> Tensor:
    """The product over `axis` (one, several, or None for all).

    Args:
        x, axis, keepdims, dtype, where, name: as in `reduce_sum`.
        initial: an additional factor.

    Raises:
        AttributeValueError: an axis is out of range or named twice.

    Source: numpy.prod.

    Examples:
        >>> run(gc.reduce_prod([[1, 5], [7, 2]], axis=1))
        Array([ 5, 14], dtype=int32)
    """
    tensor = chosen(countable(x, dtype), where, 1)
    if initial is None:
        return _emit_reduction(REDUCE_PROD, tensor, axis, keepdims, name)
    found = _emit_reduction(REDUCE_PROD, tensor, axis, keepdims, None)
    return multiply(found, to_dtype(initial, found.dtype), name=name)


def _as_bool(x: Any) -> Tensor:
    tensor = convert(x)
    return tensor if tensor.type.dtype == BOOL else not_equal(tensor, 0)


def reduce_any(
    x: TensorLike,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    where: TensorLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Whether any element over `axis` (one, several, or None for all) is not zero, as bool.

    `where` (bools that broadcast to `x`) selects the elements that count.

    Raises:
        AttributeValueError: an axis is out of range or named twice.

    Examples:
        >>> run(gc.reduce_any([[True, False], [False, False]], axis=1))
        Array([ True, False], dtype=bool)
    """
    return _emit_reduction(REDUCE_ANY, chosen(_as_bool(x), where, False), axis, keepdims, name)


def reduce_all(
    x: TensorLike,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    where: TensorLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Whether no element over `axis` (one, several, or None for all) is zero, as bool.

    `where` (bools that broadcast to `x`) selects the elements that count.

    Raises:
        AttributeValueError: an axis is out of range or named twice.

    Examples:
        >>> run(gc.reduce_all([[True, False], [True, True]], axis=1))
        Array([False,  True], dtype=bool)
    """
    return _emit_reduction(REDUCE_ALL, chosen(_as_bool(x), where, True), axis, keepdims, name)


def logsumexp(
    x: TensorLike, axis: Axes = None, keepdims: bool = False, *, name: str | None = None
) -> Tensor:
    """log(sum(exp(x))) over `axis` (one, several, or None for all), without overflow.

    Raises:
        AttributeValueError: an axis is out of range or named twice.
        ShapeError: there are no elements.

    Examples:
        >>> run(gc.logsumexp([0.0, 0.0]))
        Array(0.6931, dtype=float32)
    """
    return _emit_reduction(LOG_SUM_EXP, promote_inexact(x)[0], axis, keepdims, name)


def reduce_variance(
    x: TensorLike,
    axis: Axes = None,
    keepdims: bool = False,
    ddof: int = 0,
    *,
    where: TensorLike | None = None,
    name: str | None = None,
) -> Tensor:
    """The mean of the squared distance from the mean over `axis`; real for complex x.

    Args:
        x: any tensor; integers give float32.
        axis: one, several, or None for all.
        keepdims: keeps the axes, with size 1.
        ddof: is subtracted from the number of elements, by which the sum is divided.
        where: bools that broadcast to `x`: which elements count; by default all.
        name: of the node.

    Raises:
        AttributeValueError: an axis is out of range or named twice.

    Source: numpy.var.

    Examples:
        >>> run(gc.reduce_variance([1.0, 3.0]))
        Array(1., dtype=float32)
    """
    tensor = promote_inexact(x)[0]
    rows = to_dtype(tensor, wide(tensor.dtype))
    centred = rows - reduce_mean(rows, axis, keepdims=True, where=where)
    squares = real(centred * conj(centred)) if is_complex(rows.dtype) else square(centred)
    if ddof == 0:
        found = reduce_mean(squares, axis, keepdims, where=where, name=name)
    elif where is not None:
        total = reduce_sum(squares, axis, keepdims, where=where)
        found = divide(total, _counted(squares, axis, keepdims, where) - ddof, name=name)
    else:
        axes = normalize_axes("ReduceSum", rows, axis)
        count = product(rows.shape[i] for i in axes) - ddof
        total = reduce_sum(squares, axis, keepdims)
        found = divide(total, dim_value(count, total.dtype), name=name)
    return to_dtype(found, real_of(tensor.dtype))


sum = reduce_sum
mean = reduce_mean
max = reduce_max
amax = reduce_max
amin = reduce_min
min = reduce_min
prod = reduce_prod
any = reduce_any
all = reduce_all
var = reduce_variance

OPS: tuple[OpDef, ...] = (*PLAIN_REDUCTIONS, LOG_SUM_EXP)
