"""A function that is compiled for arguments of one form, and the call of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

import jax
from jax import numpy as jnp
from jax.tree_util import tree_leaves, tree_structure, tree_unflatten

from graphc.config import CompileOptions
from graphc.devices.mesh import Strategy
from graphc.errors import ExecutionError, StateError
from graphc.ir.node import Tensor
from graphc.ir.source import current_source
from graphc.ir.variable import Variable
from graphc.jaxpr.keys import is_key
from graphc.jitted.arguments import Form, array_type
from graphc.jitted.importing import Imported, Leaf
from graphc.jitted.packed import PackedTree
from graphc.ops.structure.state import group
from graphc.runtime.buffers.layout import OWN, StateLayout
from graphc.runtime.feeds.feeds import variable_value
from graphc.runtime.pipeline.request import CompileRequest
from graphc.runtime.state.state import State
from graphc.runtime.step.compiler import build
from graphc.runtime.step.executable import Executable
from graphc.runtime.step.plans import Plan

Given: TypeAlias = list[Any] | PackedTree
"""The leaves of an argument, or the packed tree that holds them."""


class JitProgram:
    """A compiled function for arguments of one form.

    Args:
        forms: the forms of the arguments that are traced.
        layouts: by the types of variables, the layout of states that exist. The program takes them
            without moving them, if it can. Its own layout is added.

    Attributes:
        executable: runs the program.
    """

    def __init__(
        self,
        imported: Imported,
        forms: Sequence[Form],
        options: CompileOptions,
        strategy: Strategy | None,
        device: jax.Device | None,
        layouts: dict[Any, StateLayout],
    ) -> None:
        self.imported, self.forms = imported, list(forms)
        types = {v.name: v.type for v in imported.variables.values()}
        self._own = StateLayout(types)
        plan = _plan(imported, options)
        shapes = [_sizes(tensor) for tensor in plan.feeds]
        request = CompileRequest(plan.prepared, shapes, options, strategy, device=device)
        key = frozenset(types.items())
        known = layouts.get(key, self._own)
        self.executable: Executable = build(plan.fetch_set, request, known).wait()
        self._layout = layouts[key] = self.executable.layout
        self._specs, self._rebuild = plan.specs, plan.nest.rebuild
        self._sources = _sources(imported, plan.feeds)
        self._leaves = {variable.name: leaf for leaf, variable in imported.variables.items()}
        self._names = {
            argument: [imported.variables[Leaf(argument, n)].name for n in range(len(form.avals))]
            for argument, form in enumerate(self.forms)
            if argument in imported.segments
        }
        self._is_stacked = any(b.kind != OWN for b in self.executable.interface.buffers)
        stacked = [
            argument
            for argument, names in self._names.items()
            if any(self._layout.buffer_of(name).kind != OWN for name in names)
        ]
        self._result = _Result(imported, self.forms, self._names, stacked)

    def __call__(self, given: Sequence[Given]) -> Any:
        """The result for arguments of these forms.

        Raises:
            StateError: a donated argument was given to an earlier call.
            ExecutionError: the run failed.
        """
        if not self._is_stacked:
            given = [tree_leaves(v) if type(v) is PackedTree else v for v in given]
        array, values = array_type(), []
        for source, spec in zip(self._sources, self._specs, strict=True):
            value = given[source.argument][source.number] if type(source) is Leaf else source
            values.append(value if type(value) is array else spec.convert(value))
        try:
            return self._run_stacked(given, values) if self._is_stacked else self._run(given, values)
        except ExecutionError:
            self._refuse_deleted(values)
            raise

    def _run(self, given: Sequence[Given], values: list[Any]) -> Any:
        """One run, where each variable has a buffer of its own: the caller's array."""
        buffers: list[Any] = [None] * len(self._layout.buffers)
        numbers = {name: self._layout.slots[name].buffer for name in self._leaves}
        for name, number in numbers.items():
            buffers[number] = self._variable(name, given)
        fetched = self._rebuild(self.executable.step(buffers, values))
        new = {name: buffers[number] for name, number in numbers.items()}
        return self._result(fetched, new, None)

    def _run_stacked(self, given: Sequence[Given], values: list[Any]) -> Any:
        state = self._state(given)
        with state.lock:
            fetched, after = self.executable.run_on(state, values)
        for argument in self._names:
            packed = given[argument]
            if type(packed) is PackedTree:
                packed.forget()
        return self._result(fetched, after, after)

    def _state(self, given: Sequence[Given]) -> State:
        """The state of the packed arguments; or a new one, if they are not of one state."""
        states = [_state_of(given[argument], names) for argument, names in self._names.items()]
        state = states[0]
        if state is not None and all(other is state for other in states):
            return state
        leaves = [tree_leaves(v) if type(v) is PackedTree else v for v in given]
        return State(self._own, [self._variable(name, leaves) for name in self._own.types])

    def _variable(self, name: str, given: Sequence[Given]) -> Any:
        """The value of a variable among the arguments, where the program takes it.

        Raises:
            StateError: the array was donated to an earlier call.
        """
        leaf = self._leaves[name]
        value = given[leaf.argument][leaf.number]
        number = self._layout.slots[name].buffer
        buffer = self._layout.buffers[number]
        home = self.executable.homes.get(buffer)
        if type(value) is not array_type():
            value = variable_value(name, self._own.types[name], value)
        elif value.is_deleted():
            raise _deleted(name)
        if buffer.kind == OWN and home is not None and getattr(value, "sharding", None) != home:
            return self.executable.place(value, buffer)
        return value

    def _refuse_deleted(self, values: Sequence[Any]) -> None:
        """Raises `StateError` if an argument was donated before."""
        for source, value in zip(self._sources, values, strict=True):
            if isinstance(value, jax.Array) and value.is_deleted() and type(source) is Leaf:
                raise _deleted(self.imported.feeds[source].name.removesuffix(":0"))


class _Result:
    """Makes the result of a call from what was fetched and the new variables."""

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
        finish = [_finisher(aval) for aval in imported.out_avals]
        self._finish_of = {
            result.name: finish[number]
            for number, result in enumerate(imported.results)
            if isinstance(result, Variable)
        }
        # What stands at each place of the result: a fetched value, a variable, or a packed tree.
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
        self._tree = _with_leaves(imported.out_tree, spans)

    def __call__(self, fetched: Any, new: Mapping[str, Any], state: State | None) -> Any:
        """The result of a call.

        Args:
            new: the variables after it, by name.
            state: holds the stacked variables.
        """
        leaves: list[Any] = []
        for kind, key, finish in self._places:
            if kind == "packed" and state is not None:
                leaves.append(PackedTree(state, self._names[key], self._forms[key], self._read))
                continue
            value = fetched[key] if kind == "fetched" else new[key]
            leaves.append(value if finish is None else finish(value))
        return tree_unflatten(self._tree, leaves)

    def _read(self, state: State, names: list[str]) -> list[Any]:
        """The leaves of a packed tree."""
        rows = [(state[name], self._finish_of[name]) for name in names]
        return [value if finish is None else finish(value) for value, finish in rows]


def _plan(imported: Imported, options: CompileOptions) -> Plan:
    """The program of a call. Arguments on which no result depends are left out."""
    fetches: list[Any] = [r for r in imported.results if not isinstance(r, Variable)]
    if imported.assigned:
        with imported.graph.extend():
            fetches.append(group(*imported.assigned))
    held = [tensor for tensor, _ in imported.held]
    feeds = dict.fromkeys([*imported.feeds.values(), *held])
    return Plan.of(imported.graph, fetches, feeds, options, unused_feeds="ignore")


def _sources(imported: Imported, feeds: Sequence[Tensor]) -> list[Any]:
    """Where each feed comes from: a leaf of an argument, or an array that the function holds."""
    sources: dict[Tensor, Any] = {tensor: leaf for leaf, tensor in imported.feeds.items()}
    sources.update(imported.held)
    return [sources[tensor] for tensor in feeds]


def _sizes(tensor: Tensor) -> tuple[int, ...]:
    return tuple([dim for dim in tensor.type.shape if isinstance(dim, int)])


def _state_of(value: Given, names: list[str]) -> State | None:
    return value.state if type(value) is PackedTree and value.names == names else None


def _with_leaves(tree: Any, spans: Sequence[tuple[int, int]]) -> Any:
    """The structure of a tree in which each span of leaves, which is a subtree, is one leaf.

    Args:
        spans: the first leaf and the number of leaves of each.
    """
    wanted = [list(range(first, first + count)) for first, count in spans]
    skeleton = tree_unflatten(tree, range(tree.num_leaves))
    # A subtree of one child has the same leaves as that child: the outermost is taken.
    return tree_structure(skeleton, is_leaf=lambda node: tree_leaves(node) in wanted)


def _finisher(aval: Any) -> Callable[[Any], Any] | None:
    """What makes a leaf of the result of a program's value: typed keys, weakly typed numbers."""
    if is_key(aval.dtype):
        return jax.random.wrap_key_data
    return _weakly_typed if aval.weak_type else None


@cache
def _weak() -> Callable[[Any], Any]:
    # Zeros of a Python number are weakly typed, and stay so when all their values are set.
    return jax.jit(
        lambda x: jnp.broadcast_to(jnp.asarray(x.dtype.type(0).item()), x.shape).at[...].set(x)
    )


def _weakly_typed(value: Any) -> Any:
    return _weak()(value)


def _deleted(name: str) -> StateError:
    return StateError(
        f"jit: argument {name!r} was deleted: it was donated to an earlier call",
        source=current_source(),
        hint="pass what that call returned in its place, or do not donate the argument",
    )
