"""Rounding to whole numbers, elementwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax

from graphc.ir.dtypes import is_floating
from graphc.ir.node import Tensor
from graphc.ir.opdef import OpDef
from graphc.ops.core.broadcasting import infer_real
from graphc.ops.core.emit import convert, emit_one
from graphc.ops.core.layout_rules import elementwise

__all__ = ["ceil", "floor", "rint"]


def _rounding(name: str, function: Callable[[Any], Any], fold: np.ufunc, doc: str) -> OpDef:
    """An operator that rounds floats; integers pass through."""

    def of_floats(rounded: Callable[[Any], Any], x: Any) -> Any:
        return rounded(x) if is_floating(np.dtype(x.dtype)) else x

    return OpDef(
        name=name,
        signature="x -> y",
        precision="wide",
        infer=infer_real,
        lower=lambda ctx, x: of_floats(function, x),
        differentiable=False,
        layout=elementwise,
        fold=lambda x: of_floats(fold, x),
        doc=f"{doc} Integer and floating dtypes.",
    )


def _round_half_even(x: Any) -> Any:
    return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)


FLOOR = _rounding("Floor", lax.floor, np.floor, "The greatest integer not above x.")
CEIL = _rounding("Ceil", lax.ceil, np.ceil, "The smallest integer not below x.")
ROUND = _rounding("Round", _round_half_even, np.rint, "The nearest integer, the even one of two.")


def floor(x: Any, *, name: str | None = None) -> Tensor:
    """The greatest integer not above x, elementwise, in x's dtype."""
    return emit_one(FLOOR, (convert(x),), name)


def ceil(x: Any, *, name: str | None = None) -> Tensor:
    """The smallest integer not below x, elementwise, in x's dtype."""
    return emit_one(CEIL, (convert(x),), name)


def rint(x: Any, *, name: str | None = None) -> Tensor:
    """The nearest integer, the even one of two, elementwise, in x's dtype."""
    return emit_one(ROUND, (convert(x),), name)


OPS: tuple[OpDef, ...] = (FLOOR, CEIL, ROUND)
