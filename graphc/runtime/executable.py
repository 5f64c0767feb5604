"""`Executable`: one compiled program with names for its feeds, fetches and state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax

from graphc.errors import ExecutionError, FeedError, GraphcError, StateError
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.ir.program import Program
from graphc.passes.manager import PassReport
from graphc.runtime.executors import PortOrder
from graphc.runtime.feeds import FeedSpec
from graphc.runtime.fetches import resolve_feeds
from graphc.runtime.initial import initial_values
from graphc.runtime.state import State, StateLayout


class Executor(Protocol):
    """What runs a compiled program: see `runtime.executors`."""

    @property
    def order(self) -> PortOrder: ...
    @property
    def program(self) -> Program: ...
    @property
    def lowered(self) -> Any: ...
    @property
    def compiled(self) -> Any: ...
    @property
    def seconds(self) -> Mapping[str, float]: ...
    @property
    def home(self) -> jax.sharding.Sharding: ...

    def place(self, value: Any) -> jax.Array: ...

    def __call__(
        self, written: Sequence[Any], read: Sequence[Any], feeds: Sequence[Any]
    ) -> tuple[Sequence[Any], Sequence[Any]]: ...


class Places(NamedTuple):
    """The numbers of the buffers that a step takes and assigns, in its own order."""

    written: list[int]
    read: list[int]
    assigned: list[int]


class Executable:
    """A compiled step: `fetched, state = step(state, feeds)`.

    Pure in values: everything that it changes is in the state it returns. It consumes the state
    it is given where it assigns variables (unless `CompileOptions(donate=False)`). Made by
    `gc.compile`; stays valid when the graph is extended.

    Attributes:
        program: the optimised program that was lowered.
        cache_key: the same for the same program, sizes, options and environment; None where
            the program calls back into Python.
        devices: those it runs on.
        notes: what could not be done as asked (placement, layouts), one line each.
    """

    def __init__(
        self,
        graph: Graph,
        executor: Executor,
        *,
        specs: Sequence[FeedSpec],
        feeds: Sequence[Tensor],
        rebuild: Callable[[Sequence[Any]], Any],
        layout: StateLayout,
        donate: bool,
        reports: Sequence[PassReport],
        key: str | None,
        devices: Sequence[jax.Device],
        notes: Sequence[str] = (),
    ) -> None:
        self._graph = graph
        self._executor = executor
        self._specs = list(specs)
        self._feeds = list(feeds)
        self._rebuild = rebuild
        self._layout = layout
        self._reports = list(reports)
        order = executor.order
        self.consumes = donate and bool(order.written)
        self.program = executor.program
        self.cache_key = key
        self.devices = tuple(devices)
        self.notes = list(notes)
        self._places = self._find(layout)

    # -- running ----------------------------------------------------------------------------

    def init(self) -> State:
        """The state at the start: every variable's initial value, on the step's devices."""
        values = initial_values(self._graph)
        return State(self._layout, [self._executor.place(v) for v in values.values()])

    def __call__(self, state: State, feeds: Mapping[Any, Any] | None = None) -> tuple[Any, State]:
        """Runs the step once.

        Args:
            state: from `init()` or from the call before; consumed if the step assigns.
            feeds: values by tensor or name.

        Returns:
            (the fetched values in the nest of the fetches, the new state)

        Raises:
            FeedError: a wrong, missing or superfluous feed; nothing has run, the state is valid.
            StateError: the state was consumed already.
        """
        if not isinstance(state, State):
            raise StateError(
                f"the first argument must be a state, got {type(state).__name__}",
                mend="state = step.init(); fetched, state = step(state, feeds)",
            )
        values = self.convert_feeds(self._ordered({} if feeds is None else feeds))
        own = state.layout is self._layout
        places = self._places if own else self._find(state.layout)
        buffers = list(state.buffers)
        if buffers and buffers[0].sharding != self._executor.home:
            buffers = [self._executor.place(buffer) for buffer in buffers]
        try:
            fetched = self.step(buffers, values, places)
        except StateError:
            state.consume("a run that failed")
            raise
        if self.consumes:
            state.consume("a step that assigns variables")
        elif not places.assigned:
            return self._rebuild(fetched), state
        return self._rebuild(fetched), state.followed_by(buffers)

    def step(self, buffers: list[Any], feeds: Sequence[Any], places: Places | None = None) -> Any:
        """Runs on `buffers` and puts the new ones in their places; gives the fetched values.

        Args:
            places: where state lies in `buffers`, if not as in this executable's own layout.

        Raises:
            StateError: the run failed after it had consumed state.
            ExecutionError: it failed, and the buffers are as they were.
        """
        written, read, assigned = places or self._places
        try:
            fetched, new = self._executor(
                [buffers[i] for i in written], [buffers[i] for i in read], feeds
            )
        except GraphcError:
            raise
        except Exception as error:
            if any(buffers[i].is_deleted() for i in written):
                raise StateError(
                    f"the run failed after it had consumed state: {error}",
                    mend="restore the variables from a checkpoint, or start a new session",
                ) from error
            raise ExecutionError(f"the run failed: {error}") from error
        for i, buffer in zip(assigned, new, strict=True):
            buffers[i] = buffer
        return fetched

    def _find(self, layout: StateLayout) -> Places:
        """Where the state that this step touches lies in `layout`.

        Raises:
            StateError: a variable is not there, or of another type.
        """
        order = self._executor.order
        for port in (*order.written, *order.read, *order.assigned):
            found = layout.types.get(port.name)
            if found != port.tensor.type:
                raise StateError(
                    f"this step takes {port.name!r} as {port.tensor.type}, and the state "
                    + ("has no such variable" if found is None else f"has it as {found}"),
                    mend="start from this step's own init(), or from a state of the same graph "
                    "that was made after its last variable",
                )
        rows = (order.written, order.read, order.assigned)
        return Places(*([layout.slot(port.name).buffer for port in row] for row in rows))

    def convert_feeds(self, values: Sequence[Any]) -> list[Any]:
        """The feeds in order, checked, as the executor takes them."""
        converted = []
        for spec, value in zip(self._specs, values, strict=True):
            array = spec.convert(value)
            if array.shape != spec.shape:
                raise FeedError(
                    f"feed {spec.label!r} must be {spec.type}, got shape {tuple(array.shape)}",
                    source=spec.source,
                    mend="this executable was compiled for that shape; gc.compile another, or "
                    "use gc.Session, which compiles per shape",
                )
            converted.append(array)
        return converted

    def _ordered(self, feeds: Mapping[Any, Any]) -> list[Any]:
        given = resolve_feeds(self._graph, feeds)
        missing = [t for t in self._feeds if t not in given]
        if missing:
            raise FeedError(
                f"feed {missing[0].name.removesuffix(':0')!r} is missing",
                source=missing[0].node.source,
                mend=f"this executable takes {self._feed_names()}",
            )
        for tensor in given:
            if tensor not in self._feeds:
                raise FeedError(
                    f"feed {tensor.name.removesuffix(':0')!r} is not one of this executable's",
                    mend=f"it takes {self._feed_names()}",
                )
        return [given[t] for t in self._feeds]

    def _feed_names(self) -> str:
        return ", ".join(repr(spec.label) for spec in self._specs) or "no feeds"

    def place(self, value: Any) -> jax.Array:
        """A state value on the device or devices of this step."""
        return self._executor.place(value)

    # -- looking inside ---------------------------------------------------------------------

    @property
    def seconds(self) -> Mapping[str, float]:
        """Seconds spent in "lower" (tracing included) and "compile"."""
        return self._executor.seconds

    def stablehlo(self) -> str:
        """The StableHLO text that JAX lowered the program to."""
        return str(self._executor.lowered.as_text())

    def hlo(self) -> str:
        """The HLO text after XLA's own passes."""
        return str(self._executor.compiled.as_text())

    def cost(self) -> dict[str, float]:
        """XLA's estimate for one run: "flops", "bytes accessed" and more, per device."""
        analysis = self._executor.compiled.cost_analysis()
        found = analysis[0] if isinstance(analysis, list) else analysis
        return dict(found or {})

    def memory(self) -> dict[str, int]:
        """Bytes of one run on each device: "arguments", "outputs", "temporaries", "aliased"
        (outputs that reuse donated arguments), "code"."""
        analysis = self._executor.compiled.memory_analysis()
        return {
            "arguments": int(analysis.argument_size_in_bytes),
            "outputs": int(analysis.output_size_in_bytes),
            "temporaries": int(analysis.temp_size_in_bytes),
            "aliased": int(analysis.alias_size_in_bytes),
            "code": int(analysis.generated_code_size_in_bytes),
        }

    def pass_report(self) -> PassReport:
        """What each pass did, on the symbolic program and again after sizes were bound."""
        return sum(self._reports, PassReport())

    def __repr__(self) -> str:
        ports = self._executor.order
        return (
            f"<Executable {self.program.name}: {len(self.program.nodes)} nodes, "
            f"{len(ports.feeds)} feeds, {len(ports.fetches)} fetches, "
            f"{len(ports.assigned)} variables assigned>"
        )
