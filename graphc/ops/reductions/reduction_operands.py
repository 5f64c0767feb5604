"""The operands of reductions: their dtype, and the elements that count."""

from __future__ import annotations

from typing import Any

from graphc.errors import AttributeValueError, DTypeError
from graphc.ir.dtypes import BOOL, INT32, UINT32, DType, as_dtype, is_integer, short_name
from graphc.ir.node import Tensor
from graphc.ops.arrays.shape import broadcast_to
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import convert, to_dtype
from graphc.ops.elementwise.comparison import where as select
from graphc.ops.reductions.reduction_rules import LOG_SUM_EXP as LOG_SUM_EXP
from graphc.ops.reductions.reduction_rules import REDUCE_ALL as REDUCE_ALL
from graphc.ops.reductions.reduction_rules import REDUCE_ANY as REDUCE_ANY
from graphc.ops.reductions.reduction_rules import REDUCE_MAX as REDUCE_MAX
from graphc.ops.reductions.reduction_rules import REDUCE_MEAN as REDUCE_MEAN
from graphc.ops.reductions.reduction_rules import REDUCE_MIN as REDUCE_MIN
from graphc.ops.reductions.reduction_rules import REDUCE_PROD as REDUCE_PROD
from graphc.ops.reductions.reduction_rules import REDUCE_SUM as REDUCE_SUM


def _sum_dtype(dtype: DType) -> DType:
    """The default dtype of a sum. Integers below 32 bits give int32 or uint32, as in JAX."""
    if dtype == BOOL:
        return INT32
    if is_integer(dtype) and dtype.itemsize < 4:
        return UINT32 if short_name(dtype)[0] == "u" else INT32
    return dtype


def countable(x: Any, dtype: Any) -> Tensor:
    """`x` as a tensor in the dtype of the sum: `dtype`, or the default."""
    tensor = convert(x)
    own = _sum_dtype(tensor.type.dtype) if dtype is None else as_dtype(dtype)
    return to_dtype(tensor, own)


def chosen(x: Tensor, where: Any, otherwise: Any) -> Tensor:
    """`x` with `otherwise` in place of the elements that do not count."""
    if where is None:
        return x
    return select(mask_of(x, where), x, to_dtype(otherwise, x.dtype))


def mask_of(x: Tensor, where: Any) -> Tensor:
    """`where`, checked and broadcast to `x`."""
    mask = convert(where)
    if mask.dtype != BOOL:
        refuse(f"where must be bool, got {mask.type}", error=DTypeError, x=x, where=mask)
    return broadcast_to(mask, x.shape)


def refuse_where(x: Tensor, where: Any) -> None:
    """Raises if `where` is given. Called if there is no `initial`."""
    if where is not None:
        refuse(
            "where= needs initial=: the result if no element counts",
            error=AttributeValueError,
            hint="for example, pass initial=-np.inf",
            x=x,
        )
