"""The state of an optax transformation as variables, one a leaf of its nest."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from graphc.build.initializers import Constant
from graphc.build.variables import variable
from graphc.ir.node import Tensor
from graphc.ir.scopes import absolute_scope, device
from graphc.ir.variable import Variable
from graphc.jaxpr.tracing import Traced


def make_slots(
    init: Traced, parameters: Mapping[str, Variable], reads: Sequence[Tensor], name: str
) -> list[Variable]:
    """A variable for each leaf of the state that `init`, traced, gives.

    A leaf that belongs to a parameter is called `<parameter>/<name>/<path>` and lies where the
    parameter does; any other `<name>/<path>`. Initial values that are one number need no nodes.

    Args:
        init: of the parameters, by name.
        parameters: by name, in the order of `reads`.
        reads: the parameters' values.
        name: of the training step.
    """
    types = init.out_types()
    fills = init.fills()
    computed = iter(init.replay(reads, [fill is None for fill in fills]))
    slots = []
    for path, type, fill in zip(_paths(init.out_tree), types, fills, strict=True):
        parameter, label = _slot_name(path, parameters, name)
        initial: Any
        if fill is None:
            initial = next(computed)
        elif type.shape:
            initial = Constant(fill.item())
        else:
            initial = np.array(fill)
        where = parameters[parameter].device if parameter is not None else ""
        shape = None if fill is None else type.shape
        dtype = None if fill is None else type.dtype
        with absolute_scope(""), device(None), device(where):
            slots.append(variable(initial, shape=shape, dtype=dtype, trainable=False, name=label))
    return slots


def _paths(tree: Any) -> list[Any]:
    """The path of each leaf of a nest."""
    nest = jax.tree.unflatten(tree, range(tree.num_leaves))
    return [path for path, _ in jax.tree_util.tree_flatten_with_path(nest)[0]]


def _slot_name(
    path: Sequence[Any], parameters: Mapping[str, Variable], name: str
) -> tuple[str | None, str]:
    """The parameter that the leaf at `path` belongs to, and the slot's name."""
    keys = [_key(entry) for entry in path]
    for i in reversed(range(len(keys))):
        if isinstance(path[i], jax.tree_util.DictKey) and keys[i] in parameters:
            rest = keys[:i] + keys[i + 1 :]
            return keys[i], "/".join([keys[i], name, *map(_plain, rest)])
    return None, "/".join([name, *map(_plain, keys)])


def _key(entry: Any) -> str:
    """What stands in a path: a field, a key, or a position."""
    for attribute in ("name", "key", "idx"):
        if hasattr(entry, attribute):
            return str(getattr(entry, attribute))
    return str(entry)


def _plain(key: str) -> str:
    """A key of the user's as part of a name."""
    return re.sub(r"[^\w.-]+", "_", key) or "_"
