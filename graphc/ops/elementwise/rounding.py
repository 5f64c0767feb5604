"""Rounding to integers, elementwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax

from graphc.ir.dtypes import is_floating
from graphc.ir.opdef import OpDef
from graphc.ops.core.broadcasting import infer_real
from graphc.ops.core.declaring import Declaration, Given, declared, elementwise_operator, record
from graphc.ops.core.emit import convert
from graphc.typing import TensorLike

__all__ = ["ceil", "floor", "rint"]


def _rounding(name: str, function: Callable[[Any], Any], fold: np.ufunc) -> Declaration:
    """An operator that rounds floats; integers pass through."""

    def of_floats(rounded: Callable[[Any], Any], x: Any) -> Any:
        return rounded(x) if is_floating(np.dtype(x.dtype)) else x

    return elementwise_operator(
        name,
        lambda x: of_floats(function, x),
        infer=infer_real,
        differentiable=False,
        fold=lambda x: of_floats(fold, x),
    )


@_rounding("Floor", lax.floor, np.floor)
def floor(x: TensorLike, *, name: str | None = None) -> Given:
    """The greatest integer that is at most x, elementwise, in x's dtype.

    Examples:
        >>> run(gc.floor([1.7, -1.7]))
        Array([ 1., -2.], dtype=float32)
    """
    return (convert(x),)


@_rounding("Ceil", lax.ceil, np.ceil)
def ceil(x: TensorLike, *, name: str | None = None) -> Given:
    """The smallest integer that is at least x, elementwise, in x's dtype.

    Examples:
        >>> run(gc.ceil([1.2, -1.2]))
        Array([ 2., -1.], dtype=float32)
    """
    return (convert(x),)


@_rounding("Round", lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), np.rint)
def rint(x: TensorLike, *, name: str | None = None) -> Given:
    """The nearest integer, elementwise, in x's dtype; halves round to even.

    Examples:
        >>> run(gc.rint([1.7, 2.5]))
        Array([2., 2.], dtype=float32)
    """
    return (convert(x),)


# Records by name, for passes and for rules of other families.
FLOOR = record(floor)
CEIL = record(ceil)
ROUND = record(rint)

OPS: tuple[OpDef, ...] = declared(__name__)
