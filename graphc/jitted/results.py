"""The result of a call: a pytree of the fetched values and the new variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import jax
from jax import numpy as jnp
from jax.tree_util import tree_leaves, tree_structure, tree_unflatten

from graphc.ir.variable import Variable
from graphc.jaxpr.keys import is_key
from graphc.jitted.arguments import Form, example_of, is_weak
from graphc.jitted.importing import Imported
from graphc.jitted.packed import Packing, packed_tree
from graphc.runtime.state.state import State


class Result:
    """Builds the result of a call from the fetched values and the new variables."""

    def __init__(
        self,
        imported: Imported,
        forms: Sequence[Form],
        names: Mapping[int, list[str]],
        stacked: Sequence[int],
    ) -> None:
        self._forms, self._names = forms, names
        first_of = {argument: imported.segments[argument] for argument in stacked}
        inside = {
            first + n for argument, first in first_of.items() for n in range(len(names[argument]))
        }
        finish = [finisher(aval) for aval in imported.out_avals]
        self._finish_of = {
            result.name: finish[number]
            for number, result in enumerate(imported.results)
            if isinstance(result, Variable)
        }
        # The item at each position of the result: a fetched value, a variable, or a packed tree.
        self._places: list[tuple[str, Any, Any]] = []
        starts = {first: argument for argument, first in first_of.items()}
        fetched = 0
        for number, result in enumerate(imported.results):
            if number in starts:
                self._places.append(("packed", starts[number], None))
            if isinstance(result, Variable):
                if number not in inside:
                    self._places.append(("variable", result.name, finish[number]))
            else:
                self._places.append(("fetched", fetched, finish[number]))
                fetched += 1
        spans = [(first, len(names[argument])) for argument, first in first_of.items()]
        self._tree = _with_leaves(imported.out_tree, imported.out_avals, spans)

    def __call__(self, fetched: Any, new: Mapping[str, Any], state: State | None) -> Any:
        """The result of a call.

        Args:
            new: the variables after the call, by name.
            state: holds the stacked variables.
        """
        leaves: list[Any] = []
        for kind, key, finish in self._places:
            if kind == "packed" and state is not None:
                packing = Packing(state, self._names[key], self._forms[key], self._read)
                leaves.append(packed_tree(packing))
                continue
            value = fetched[key] if kind == "fetched" else new[key]
            leaves.append(value if finish is None else finish(value))
        return tree_unflatten(self._tree, leaves)

    def _read(self, state: State, names: list[str]) -> list[Any]:
        """The leaves of a packed tree."""
        rows = zip(state.several(names), [self._finish_of[name] for name in names], strict=True)
        return [value if finish is None else finish(value) for value, finish in rows]


def _with_leaves(tree: Any, avals: Sequence[Any], spans: Sequence[tuple[int, int]]) -> Any:
    """The structure of a tree in which each span of leaves, which is a subtree, is one leaf.

    Args:
        avals: the types of the leaves.
        spans: the number of the first leaf, and the number of leaves, of each span.
    """
    if not spans:
        return tree
    example = example_of(tree, avals)
    numbers = list(map(id, tree_leaves(example)))
    wanted = [numbers[first : first + count] for first, count in spans]
    # A subtree of one child has the same leaves as that child: the outermost one is chosen.
    return tree_structure(example, is_leaf=lambda node: list(map(id, tree_leaves(node))) in wanted)


def finisher(aval: Any) -> Callable[[Any], Any] | None:
    """The function that converts a program's value to a leaf of the result, for typed keys and
    weakly typed numbers; None if the value needs no conversion."""
    if is_key(aval.dtype):
        return wrap_key
    return _weakly_typed if is_weak(aval) else None


wrap_key: Callable[[Any], Any] = partial(jax.random.wrap_key_data, impl="threefry2x32")
"""Makes a typed key from its words, independently of JAX's default generator."""


@cache
def _weak() -> Callable[[Any], Any]:
    # Zeros made from a Python number are weakly typed, and stay so when all values are replaced.
    return jax.jit(
        lambda x: jnp.broadcast_to(jnp.asarray(x.dtype.type(0).item()), x.shape).at[...].set(x)
    )


def _weakly_typed(value: Any) -> Any:
    with jax.enable_x64(value.dtype.itemsize * (1 + (value.dtype.kind != "c")) > 8):
        return _weak()(value)
