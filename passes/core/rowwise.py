"""Nodes that compute row by row, and their attributes for a subset of the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphc.ir.node import Node
from graphc.ir.rows import ByRows
from graphc.ops.arrays.shape import BROADCAST_TO, RESHAPE
from graphc.ops.catalogue import CATALOGUE

__all__ = ["ByRows", "attrs_of", "by_rows", "resized"]

_SIZED = {BROADCAST_TO: "shape", RESHAPE: "shape"}  # attributes that hold the result's sizes


def by_rows(node: Node, axes: Sequence[int | None], rows: int) -> ByRows | None:
    """Like `OpDef.by_rows`, but None if `attrs_of` cannot give the attributes for every number of
    rows."""
    how = node.op.by_rows(node, axes, rows, CATALOGUE)
    if how is None or how.axis is None or not how.attrs:
        return how
    return how._replace(attrs={}) if node.op in _SIZED else None


def attrs_of(node: Node, how: ByRows, rows: Any) -> Mapping[str, Any]:
    """The attributes of `node` for a subset of the rows; `rows` is their number."""
    name = _SIZED.get(node.op)
    if name is None or how.axis is None:
        return {**node.attrs, **how.attrs} if how.attrs else node.attrs
    return {**node.attrs, name: resized(node.attrs[name], how.axis, rows)}


def resized(shape: Sequence[Any], axis: int, rows: Any) -> tuple[Any, ...]:
    """`shape` with `rows` as the size along `axis`."""
    return (*shape[:axis], rows, *shape[axis + 1 :])
