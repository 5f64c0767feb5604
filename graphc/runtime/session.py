"""`Session`: a graph with live state. Compiles each fetch set once per feed types, and runs it."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import jax
import numpy as np
from jax import numpy as jnp

from graphc.config import CompileOptions
from graphc.devices.strategy import DataParallel
from graphc.errors import (
    DTypeError,
    FeedError,
    GraphError,
    ShapeError,
    StateError,
    UnknownNameError,
    nearest,
)
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.ir.source import current_source
from graphc.ir.variable import Variable
from graphc.runtime.compiler import build, checked_options
from graphc.runtime.executable import Executable
from graphc.runtime.feeds import FeedSpec
from graphc.runtime.fetches import FetchNest, resolve_feeds
from graphc.runtime.initial import initial_values, state_types
from graphc.runtime.prepare import Prepared, prepare
from graphc.runtime.state import State, StateLayout, public_names


class Session:
    """Runs a graph.

    Args:
        graph: finalized by the first run.
        strategy: `gc.devices.DataParallel(...)` to run every step on several devices.
        options: see `CompileOptions`.

    The first run of a set of fetches compiles it; later runs with feeds of the same shapes only
    run it. Values come back as `jax.Array`s, before they are computed: reading one waits.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        strategy: DataParallel | None = None,
        options: CompileOptions | None = None,
    ) -> None:
        if not isinstance(graph, Graph):
            raise GraphError(
                f"the first argument must be a graph, got {type(graph).__name__}",
                mend="gc.Session(graph)",
            )
        self.graph = graph
        self.strategy = strategy
        self.options = checked_options(options)
        if strategy is not None:
            strategy.resolve()  # more devices than exist: said now, not at the first run
        self._plans: dict[Any, _Plan] = {}
        self._layout = StateLayout({})
        self._buffers: list[Any] = []
        self._where: Any = None  # places state where the executables want it
        self._device: jax.Device | None = None  # that of a one-device session, once it has run
        self._broken: str | None = None
        self._closed = False

    # -- running ----------------------------------------------------------------------------

    def run(self, fetches: Any, feeds: Mapping[Any, Any] | None = None) -> Any:
        """The values of `fetches` after one run.

        Args:
            fetches: a tensor, variable, node or name, or a nest (lists, tuples, dicts) of them.
                Nodes without a value (a training step) give None.
            feeds: values by tensor or name; of any tensor of the graph.

        Raises:
            FeedError, FetchError, UnknownNameError: they do not fit the graph; nothing has run
                and the session goes on.
            StateError: the session was closed or broken by a failed run.
        """
        if feeds is None:
            feeds = {}
        try:
            key = (_fetch_key(fetches), tuple(feeds))
            plan = self._plans.get(key)
        except TypeError:  # no mapping, or nothing that can be a key
            key, plan = None, None
        if plan is None:
            plan = self._plan(key, fetches, feeds)
        if self._broken is not None or self._closed:
            self._refuse()
        values, shapes = plan.convert(feeds)
        executable = plan.executables.get(shapes)
        if executable is None:
            executable = self._build(plan, shapes)
        try:
            return plan.nest.rebuild(executable.step(self._buffers, values))
        except StateError as error:
            self._broken = error.what
            raise

    def _plan(self, key: Any, fetches: Any, feeds: Mapping[Any, Any]) -> _Plan:
        tensors = list(resolve_feeds(self.graph, feeds))
        nest = FetchNest(self.graph, fetches)
        same = (frozenset(nest.distinct), frozenset(tensors))
        known = next((p for p in self._plans.values() if p.same == same), None)
        if known is None:
            prepared = prepare(self.graph, nest.distinct, tensors, self.options)
            plan = _Plan(fetches, nest, tensors, prepared, same)
        else:  # the same program, whatever the nest and the order: compiled once
            nest.take_order(known.nest.distinct)
            plan = _Plan(fetches, nest, known.feeds, known.prepared, same)
            plan.executables = known.executables
            if tensors != known.feeds:
                plan.order = [tensors.index(t) for t in known.feeds]
        self._plans[key] = plan
        return plan

    def _build(self, plan: _Plan, shapes: tuple[tuple[int, ...], ...]) -> Executable:
        self._grow_state()
        executable = build(
            self.graph,
            plan.nest,
            plan.feeds,
            plan.prepared,
            shapes,
            self._layout,
            self.strategy,
            self.options,
            self._device,
        )
        self._settle(executable)
        plan.executables[shapes] = executable
        return executable

    def _refuse(self) -> None:
        if self._closed:
            raise StateError("the session is closed", mend="open another: gc.Session(graph)")
        raise StateError(
            f"the session is broken: {self._broken}",
            mend="open another session, and restore its variables from a checkpoint",
        )

    # -- state ------------------------------------------------------------------------------

    def _grow_state(self) -> None:
        """Adds the variables that the graph got since (all of them, the first time)."""
        types = state_types(self.graph)
        missing = [name for name in types if name not in self._layout.types]
        if not missing:
            return
        values = initial_values(self.graph)
        known = dict(zip(self._layout.types, self._buffers, strict=True))
        self._layout = StateLayout({**self._layout.types, **{n: types[n] for n in missing}})
        self._buffers = [
            known[name] if name in known else values[name] for name in self._layout.types
        ]
        if self._where is not None:
            self._buffers = [self._placed(b) for b in self._buffers]

    def _placed(self, value: Any) -> Any:
        return self._where(value) if isinstance(value, np.ndarray) else value

    def _settle(self, executable: Executable) -> None:
        """Puts state where the executable wants it; all executables of a session agree."""
        self._where = executable.place
        if self.strategy is None:
            self._device = executable.devices[0]
        for plan in self._plans.values():  # only on CPU may JAX alias a host array
            plan.copy_feeds(executable.devices[0].platform == "cpu")
        self._buffers = [self._placed(b) for b in self._buffers]

    def _buffer(self, name: str | Variable) -> int:
        self._grow_state()
        found = name.name if isinstance(name, Variable) else name
        if found not in self._layout.slots:
            raise UnknownNameError(
                f"no variable {found!r} in graph {self.graph.name!r}",
                source=current_source(),
                mend=nearest(found, public_names(self._layout.slots)),
            )
        return self._layout.slot(found).buffer

    def get(self, name: str | Variable) -> jax.Array:
        """The current value of a variable: a copy, which later runs leave alone.

        Raises:
            UnknownNameError: no such variable.
        """
        if self._broken is not None or self._closed:
            self._refuse()
        index = self._buffer(name)  # may make the buffers first
        value = self._buffers[index]
        with jax.enable_x64(True):
            return jnp.array(value, copy=True)

    def set(self, name: str | Variable, value: Any) -> None:
        """Gives a variable a new value, of its shape; cast to its dtype within a kind.

        Raises:
            UnknownNameError, ShapeError, DTypeError: it does not fit; the old value stays.
        """
        if self._broken is not None or self._closed:
            self._refuse()
        index = self._buffer(name)
        found = name.name if isinstance(name, Variable) else name
        variable = self.graph.variables.get(found)
        type = self._layout.types[found]
        spec = FeedSpec.of_type(found, type, variable.source if variable is not None else None)
        try:
            array = np.asarray(spec.convert(value))
        except FeedError as error:
            raise DTypeError(
                error.what.replace("feed", "variable", 1),
                details=error.details,
                source=error.source,
                mend=error.mend and error.mend.replace("feed", "set", 1),
            ) from None
        if array.shape != type.shape:
            raise ShapeError(
                f"variable {found!r} has shape {type.shape}, the value {array.shape}",
                source=spec.source,
                mend="set a value of that shape",
            )
        where = self._where
        self._buffers[index] = array if where is None else where(array)

    def values(self) -> dict[str, np.ndarray[Any, Any]]:
        """Every variable's value on the host, by name."""
        return {name: np.asarray(self.get(name)) for name in self.graph.variables}

    def state(self) -> State:
        """All state, as an executable of `gc.compile` takes it: a copy."""
        if self._broken is not None or self._closed:
            self._refuse()
        self._grow_state()
        with jax.enable_x64(True):
            return State(self._layout, [jnp.array(b, copy=True) for b in self._buffers])

    # -- looking inside ---------------------------------------------------------------------

    @property
    def executables(self) -> list[Executable]:
        """Every executable this session has compiled, in order."""
        found = {id(e): e for plan in self._plans.values() for e in plan.executables.values()}
        return list(found.values())

    @property
    def compile_count(self) -> int:
        """How many executables this session has compiled."""
        return len(self.executables)

    def close(self) -> None:
        """Frees the state and the executables; the session cannot run any more."""
        self._closed = True
        self._plans.clear()
        self._buffers.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Session of {self.graph!r}, {self.compile_count} executables>"


_LEAF: Any = jax.tree.structure(0)


class _Plan:
    """One way of calling `run`: its fetches and feed keys, resolved."""

    def __init__(
        self,
        fetches: Any,
        nest: FetchNest,
        feeds: list[Tensor],
        prepared: Prepared,
        same: Any,
    ) -> None:
        self.fetches = fetches  # keeps the objects alive that the key holds by identity
        self.nest = nest
        self.feeds = feeds
        self.prepared = prepared
        self.same = same
        self.order: list[int] | None = None  # of the given feeds, where it is not that of `feeds`
        self.executables: dict[tuple[tuple[int, ...], ...], Executable] = {}
        sources = prepared.sources
        self.specs = [
            FeedSpec(port, sources.get(port.name), copy=True)
            for port in prepared.program.ports("feed")
        ]

    def copy_feeds(self, copy: bool) -> None:
        """Says whether host arrays have to be copied."""
        for spec in self.specs:
            spec.copy = copy

    def convert(self, feeds: Mapping[Any, Any]) -> tuple[list[Any], tuple[tuple[int, ...], ...]]:
        """The values in order as arrays of the right dtype, and their shapes."""
        given = feeds.values() if self.order is None else self._reorder(feeds)
        values = [spec.convert(value) for spec, value in zip(self.specs, given, strict=True)]
        return values, tuple([value.shape for value in values])

    def _reorder(self, feeds: Mapping[Any, Any]) -> list[Any]:
        given = list(feeds.values())
        return [given[i] for i in self.order or ()]


def _fetch_key(fetches: Any) -> Any:
    """A hashable stand-in for a nest of fetches: by identity of tensors, by value of names."""
    kind = type(fetches)
    flat = (kind, *fetches) if kind is list or kind is tuple else fetches
    try:
        hash(flat)
    except TypeError:  # a nest in a nest
        return _nest_key(fetches)
    return flat


def _nest_key(fetches: Any) -> Any:
    if isinstance(fetches, (list, tuple)):
        return (type(fetches), *map(_fetch_key, fetches))
    if isinstance(fetches, Mapping):
        items = ((key, _fetch_key(value)) for key, value in fetches.items())
        return (type(fetches), *items)
    leaves, tree = jax.tree.flatten(fetches)
    if tree == _LEAF:
        return id(fetches)  # not a fetch at all: refused when it is resolved
    return (tree, *map(_fetch_key, leaves))  # a class that JAX knows as a nest
