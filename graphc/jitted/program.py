"""A function compiled for arguments of one form, and how it is called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import jax
from jax.tree_util import tree_leaves, treedef_is_leaf

from graphc.config import CompileOptions
from graphc.devices.mesh import Strategy
from graphc.errors import ExecutionError, StateError
from graphc.ir.node import Tensor
from graphc.jaxpr.keys import is_key
from graphc.jitted.arguments import Form, array_type, converted, example_of
from graphc.jitted.direct import DirectCall, is_direct
from graphc.jitted.failures import DeletedArgumentError, as_in_jax
from graphc.jitted.importing import Imported, Leaf
from graphc.jitted.packed import is_packed, packing_of
from graphc.jitted.results import Result
from graphc.jitted.surroundings import Place
from graphc.ops.structure.state import group
from graphc.runtime.buffers.layout import OWN, StateLayout
from graphc.runtime.feeds.feeds import FeedSpec
from graphc.runtime.pipeline.request import CompileRequest
from graphc.runtime.state.state import State
from graphc.runtime.step.compiler import build
from graphc.runtime.step.executable import Executable
from graphc.runtime.step.plans import Plan

Given: TypeAlias = Any
"""The leaves of an argument, or the packed tree that holds them."""


class JitProgram:
    """A compiled function for arguments of one form.

    Args:
        forms: the forms of the traced arguments.
        executable: runs the program.
        layouts: the layouts of existing states, by the types of variables. The layout of this
            program is added.

    Attributes:
        sources: the source of each feed of the program: a leaf, or an array that the function
            holds.
        is_stacked: whether variables are stacked, so that calls take and return packed trees.
        packs_an_array: whether an argument that is a single array is stacked with others. No packed
            tree can replace it, because JAX accepts no other class as an array.
    """

    def __init__(
        self,
        imported: Imported,
        forms: Sequence[Form],
        executable: Executable,
        layouts: dict[Any, StateLayout],
    ) -> None:
        self.imported, self.forms, self.executable = imported, list(forms), executable
        types = {v.name: v.type for v in imported.variables.values()}
        self._own = StateLayout(types)
        self._layout = layouts[frozenset(types.items())] = executable.layout
        self._specs, self._rebuild = executable.specs, executable.rebuild
        self.sources = _sources(imported, executable.feeds)
        self._leaves = {variable.name: leaf for leaf, variable in imported.variables.items()}
        self._names = {
            argument: [imported.variables[Leaf(argument, n)].name for n in range(len(form.avals))]
            for argument, form in enumerate(self.forms)
            if argument in imported.segments
        }
        self.is_stacked = any(b.kind != OWN for b in self.executable.interface.buffers)
        self._stacked = [
            argument
            for argument, names in self._names.items()
            if any(self._layout.buffer_of(name).kind != OWN for name in names)
        ]
        self.packs_an_array = any(
            treedef_is_leaf(self.forms[argument].tree) for argument in self._stacked
        )
        self._result = Result(imported, self.forms, self._names, self._stacked)

    def __call__(self, given: Sequence[Given]) -> Any:
        """The result for arguments of these forms.

        Raises:
            StateError: a donated argument was passed to an earlier call.
            ExecutionError: the run failed.
        """
        packed = [packing for i in self._names if (packing := packing_of(given[i])) is not None]
        if len(set(map(id, packed))) < len(packed):
            raise _given_twice()
        for packing in packed:
            packing.buffers()  # raises if it was consumed
        given = [
            tree_leaves(value) if is_packed(value) and i not in self._stacked else value
            for i, value in enumerate(given)
        ]
        array, values = array_type(), []
        for source, spec in zip(self.sources, self._specs, strict=True):
            value = given[source.argument][source.number] if type(source) is Leaf else source
            if isinstance(value, jax.Array) and value.is_deleted():
                raise _deleted(spec.label) if type(source) is Leaf else _deleted_outside(value)
            values.append(value if type(value) is array else converted(value, spec))
        state = self._state(given) if self.is_stacked else None
        for packing in packed:
            packing.forget()
        try:
            result = self._run(given, values) if state is None else self._run_stacked(state, values)
        except (ExecutionError, StateError) as error:
            raise as_in_jax(error) from error.__cause__
        if self.executable.consumes:
            for packing in packed:
                if packing.state is not state:
                    packing.consume()
        return result

    def _run_stacked(self, state: State, values: list[Any]) -> Any:
        """Runs once on a state. After an interrupt, the trees of the state still have values."""
        with state.lock:
            fetched, after = self.executable.run_on(state, values)
            try:
                return self._result(fetched, after, after)
            except BaseException:
                if after is not state:
                    state.revive(after.buffers)
                raise

    def direct(self, forms: Sequence[Form]) -> DirectCall | None:
        """The fast path for leaves of the types in `forms`; None if the program does not support
        it."""
        if not is_direct(self.executable):
            return None
        array = array_type()
        leaves = self._leaves.values()
        for form, number in [(forms[leaf.argument], leaf.number) for leaf in leaves]:
            if form.types[number] is not array and not is_key(form.avals[number].dtype):
                return None
        feeds = list(zip(self.sources, self._specs, strict=True))
        return DirectCall(self.imported, forms, self.executable, feeds, array)

    def _run(self, given: Sequence[Given], values: list[Any]) -> Any:
        """Runs once, when each variable has its own buffer: the caller's array."""
        buffers: list[Any] = [None] * len(self._layout.buffers)
        numbers = {name: self._layout.slots[name].buffer for name in self._leaves}
        for name, number in numbers.items():
            buffers[number] = self._variable(name, given)
        fetched = self._rebuild(self.executable.step(buffers, values))
        new = {name: buffers[number] for name, number in numbers.items()}
        return self._result(fetched, new, None)

    def _state(self, given: Sequence[Given]) -> State:
        """The state of the packed arguments, if it holds nothing else; otherwise a new one."""
        states = [_state_of(given[argument], names) for argument, names in self._names.items()]
        state = states[0]
        alike = state is not None and all(other is state for other in states)
        if state is not None and alike and state.layout.types.keys() == self._own.types.keys():
            return state
        leaves = [tree_leaves(v) if is_packed(v) else v for v in given]
        return State(self._own, [self._variable(name, leaves) for name in self._own.types])

    def _variable(self, name: str, given: Sequence[Given]) -> Any:
        """The value of a variable among the arguments, on the device where the program takes it.

        Raises:
            StateError: the array was donated to an earlier call.
        """
        leaf = self._leaves[name]
        value = given[leaf.argument][leaf.number]
        number = self._layout.slots[name].buffer
        buffer = self._layout.buffers[number]
        home = self.executable.homes.get(buffer)
        if isinstance(value, jax.Array) and value.is_deleted():
            raise _deleted(name)
        if type(value) is not array_type():
            value = converted(value, FeedSpec.of_type(name, self._own.types[name], None))
        if buffer.kind == OWN and home is not None and getattr(value, "sharding", None) != home:
            return self.executable.place(value, buffer)
        return value


def compiled(
    imported: Imported,
    forms: Sequence[Form],
    options: CompileOptions,
    strategy: Strategy | None,
    place: Place | None,
    layouts: dict[Any, StateLayout],
) -> JitProgram:
    """Compiles the program of an imported function. Arguments on which no result depends are
    omitted.

    Args:
        layouts: as for `JitProgram`. The program takes existing states without moving them, if
            possible.
    """
    fetches: list[Any] = [*imported.fetched()]
    if imported.assigned:
        with imported.graph.extend():
            fetches.append(group(*imported.assigned))
    held = [tensor for tensor, _ in imported.held]
    feeds = dict.fromkeys([*imported.feeds.values(), *held])
    types = {v.name: v.type for v in imported.variables.values()}

    def made(options: CompileOptions, known: StateLayout) -> JitProgram:
        plan = Plan.of(imported.graph, fetches, feeds, options, unused_feeds="ignore")
        shapes = [tensor.type.sizes for tensor in plan.feeds]
        where: dict[str, Any] = {} if place is None else place._asdict()
        request = CompileRequest(plan.prepared, shapes, options, strategy, **where)
        executable = build(plan.fetch_set, request, known).wait()
        return JitProgram(imported, forms, executable, layouts)

    if example_of(imported.out_tree, imported.out_avals) is None:
        options = replace(options, state_buffers="separate")  # no packed tree can be put into it
    program = made(options, layouts.get(frozenset(types.items()), StateLayout(types)))
    if program.packs_an_array:
        program = made(replace(options, state_buffers="separate"), StateLayout(types))
    return program


def _sources(imported: Imported, feeds: Sequence[Tensor]) -> list[Any]:
    """The source of each feed: a leaf of an argument, or an array that the function holds."""
    sources: dict[Tensor, Any] = {tensor: leaf for leaf, tensor in imported.feeds.items()}
    sources.update(imported.held)
    return [sources[tensor] for tensor in feeds]


def _state_of(value: Given, names: list[str]) -> State | None:
    packing = packing_of(value)
    return packing.state if packing is not None and packing.names == names else None


def _given_twice() -> StateError:
    return StateError.here(
        "jit: one packed tree was passed as two donated arguments",
        hint="copy it for one of them: jax.tree.map(jnp.copy, tree)",
    )


def _deleted_outside(array: Any) -> StateError:
    return StateError.here(
        f"jit: an array that the function holds was deleted: {array.dtype}{list(array.shape)}",
        hint="pass it as an argument, or do not donate it to another function",
    )


def _deleted(name: str) -> StateError:
    return DeletedArgumentError.here(
        f"jit: argument {name!r} was deleted: it was donated to an earlier call",
        hint="pass what that call returned in its place, or do not donate the argument",
    )
