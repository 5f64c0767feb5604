"""`Executable`: one compiled program with names for its feeds, fetches and state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import jax

from graphc.errors import FeedError, GraphcError, StateError
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.ir.program import Program
from graphc.passes.manager import PassReport
from graphc.runtime.executors import Signature
from graphc.runtime.feeds import FeedSpec
from graphc.runtime.fetches import resolve_feed
from graphc.runtime.initial import initial_values
from graphc.runtime.state import State, StateLayout


class Executor(Protocol):
    """What runs a compiled program: see `runtime.executors`."""

    @property
    def signature(self) -> Signature: ...
    @property
    def program(self) -> Program: ...
    @property
    def lowered(self) -> Any: ...
    @property
    def compiled(self) -> Any: ...
    @property
    def seconds(self) -> Mapping[str, float]: ...

    def place(self, value: Any) -> jax.Array: ...

    def __call__(
        self, written: Sequence[Any], read: Sequence[Any], feeds: Sequence[Any]
    ) -> tuple[Sequence[Any], Sequence[Any]]: ...


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
        signature = executor.signature
        self.consumes = donate and bool(signature.written)
        self.program = executor.program
        self.cache_key = key
        self.devices = tuple(devices)
        self.notes = list(notes)
        self._written = [layout.slot(p.name).buffer for p in signature.written]
        self._read = [layout.slot(p.name).buffer for p in signature.read]
        self._assigned = [layout.slot(p.name).buffer for p in signature.assigned]

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
        values = self.convert_feeds(self._ordered(feeds or {}))
        buffers = list(state.buffers)
        fetched = self.step(buffers, values)
        if self.consumes:
            state.consume("a step that assigns variables")
        return fetched, State(self._layout, buffers)

    def step(self, buffers: list[Any], feeds: Sequence[Any]) -> Any:
        """Runs on `buffers` and puts the new ones in their places; gives the fetched nest.

        Raises:
            StateError: the run failed after it had consumed state.
        """
        try:
            fetched, assigned = self._executor(
                [buffers[i] for i in self._written], [buffers[i] for i in self._read], feeds
            )
        except GraphcError:
            raise
        except Exception as error:
            if any(buffers[i].is_deleted() for i in self._written):
                raise StateError(
                    f"the run failed after it had consumed state: {error}",
                    mend="restore the variables from a checkpoint, or start a new session",
                ) from error
            raise
        for i, buffer in zip(self._assigned, assigned, strict=True):
            buffers[i] = buffer
        return self._rebuild(fetched)

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
        given = {resolve_feed(self._graph, key): value for key, value in feeds.items()}
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
        ports = self._executor.signature
        return (
            f"<Executable {self.program.name}: {len(self.program.nodes)} nodes, "
            f"{len(ports.feeds)} feeds, {len(ports.fetches)} fetches, "
            f"{len(ports.assigned)} variables assigned>"
        )
