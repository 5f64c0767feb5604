"""The attributes of nodes that TensorBoard's graph view shows: shapes, types, the user's line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.ir.dims import Dim
from graphc.ir.node import Node
from graphc.ir.types import TensorType

_LONGEST = 200  # characters of an attribute
_MOST_SHOWN = 16  # elements of a constant


def add_types(added: Any, types: Sequence[TensorType]) -> None:
    """The types of a node's results. The view reads `_output_shapes` for the labels of edges."""
    shapes = added.attr["_output_shapes"].list
    shapes.SetInParent()
    for type in types:
        shape = shapes.shape.add()
        for dim in type.shape:
            # -1 is a size that is not known before a run.
            shape.dim.add(size=dim if isinstance(dim, int) else -1, name=_name_of(dim))
    if types:
        added.attr["types"].s = plain(", ".join(type.shown() for type in types))


def _name_of(dim: Dim) -> str:
    return "" if isinstance(dim, int) else plain(str(dim)).decode()


def add_attrs(added: Any, node: Node) -> None:
    """The attributes of a node of graphc, and its line."""
    for name, value in node.attrs.items():
        if name in ("shape", "dtype") or value is None:  # `types` has them
            continue
        if isinstance(value, bool):
            added.attr[name].b = value
        elif isinstance(value, int) and abs(value) < 2**63:
            added.attr[name].i = value
        else:
            added.attr[name].s = plain(_shown(value))
    if node.source is not None:
        added.attr["source"].s = plain(str(node.source))
        if code := node.source.code:
            added.attr["code"].s = plain(code)


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        if value.size > _MOST_SHOWN:
            return f"{value.dtype.name}{list(value.shape)}"
        return str(value.tolist())
    if isinstance(value, np.dtype):
        return value.name
    return str(getattr(value, "__name__", value))


def plain(text: str) -> bytes:
    """A text on one line, in ASCII without quotes: the view's reader knows little else."""
    line = " ".join(text.split()).replace('"', "'").replace("\\", "/")
    shown = line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."
    return shown.encode("ascii", "replace")
