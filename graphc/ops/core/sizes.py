"""Attributes that are sizes of results."""

from __future__ import annotations

from typing import Final

from graphc.ir.opdef import Attr

SHAPE: Final = Attr(
    "dims",
    check=lambda dims: all(dim >= 0 for dim in dims if isinstance(dim, int)),
    must="be a tuple of sizes, none negative",
    hint="-1 is for gc.reshape only; x.shape[0] is a size that may be unknown",
)

SIZE: Final = Attr(
    "dim",
    check=lambda size: not isinstance(size, int) or size >= 0,
    must="be a size, not negative",
)
