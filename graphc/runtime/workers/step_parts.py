"""The compiled halves of a step: the worker's half once per worker device, the server's once."""

from __future__ import annotations

from collections.abc import Callable, MutableSequence, Sequence
from dataclasses import replace
from threading import Lock
from typing import Any

import jax

from graphc.config import CompileOptions
from graphc.devices.step_halves import step_halves
from graphc.errors import ExecutionError, GraphcError
from graphc.ir.rewrite import bind_sizes
from graphc.runtime.buffers.layout import StateLayout
from graphc.runtime.core.failures import in_words
from graphc.runtime.feeds.feeds import bind_feeds
from graphc.runtime.pipeline.compilation import Compilation
from graphc.runtime.pipeline.executable_cache import CacheSlot
from graphc.runtime.pipeline.request import CompileRequest
from graphc.runtime.state.live_state import Homes
from graphc.runtime.step.compiler import Made, make
from graphc.runtime.targets.executors import Executor, Places, spread
from graphc.runtime.targets.prepare import Prepared
from graphc.runtime.targets.running import without_faults
from graphc.runtime.workers.parameter_server import ParameterServer


class Part:
    """A half of a step on one device. Only one thread may use it at a time."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._here = jax.sharding.SingleDeviceSharding(executor.devices[0])
        self._known: tuple[StateLayout, Places] | None = None  # of the last layout that fitted

    def fits(self, layout: StateLayout) -> bool:
        """Whether state with this layout has the buffers that the half was compiled for."""
        known = self._known
        if known is None or known[0] is not layout:
            return layout.has(self._executor.interface.buffers)
        return True

    def _places_in(self, layout: StateLayout) -> Places:
        known = self._known  # another thread may ask about another layout meanwhile
        if known is None or known[0] is not layout:
            known = self._known = layout, Places.of(self._executor.interface, layout)
        return known[1]

    def wait(self) -> None:
        """Returns when the half is compiled.

        Raises:
            ExecutionError: XLA rejects the program.
        """
        self._executor.compiled  # noqa: B018  reading it compiles

    def __call__(
        self, layout: StateLayout, buffers: MutableSequence[Any], feeds: Sequence[Any]
    ) -> list[Any]:
        """The fetched values, when they are complete. Puts new state into its places in `buffers`.

        Args:
            layout: the layout of `buffers`; it must fit.

        Raises:
            ExecutionError: the run failed, and `buffers` is unchanged.
            NumericsError: the run made a NaN or an infinity, and `buffers` is unchanged.
        """
        written, read, assigned = self._places_in(layout)
        here = self._here
        try:
            fetched, new = self._executor(
                [spread(buffers[i], here) for i in written],
                [spread(buffers[i], here) for i in read],
                feeds,
            )
            jax.block_until_ready((fetched, new))
        except GraphcError:
            raise
        except Exception as error:
            self._executor.forget()
            what, details = in_words(error)
            raise ExecutionError(f"the run failed: {what}", details=details) from error
        fetched = without_faults(self._executor.interface, fetched)
        for number, buffer in zip(assigned, new, strict=True):
            buffers[number] = buffer
        return list(fetched)


class StepParts:
    """The parts of a step for feeds of given shapes. Each is compiled when it is first needed.

    Neither half consumes its state, because other workers may be reading it. Requests of nodes by
    `gc.device` are ignored.

    Args:
        adopt: puts the state into another layout, with its buffers where executables need them.

    Attributes:
        halves: the programs.

    Raises:
        FeedError: the shapes do not fit.
        GraphError: see `step_halves`.
    """

    def __init__(
        self,
        prepared: Prepared,
        shapes: Sequence[Sequence[int]],
        options: CompileOptions,
        workers: Sequence[jax.Device],
        server: jax.Device,
        adopt: Callable[[StateLayout, Homes], None],
    ) -> None:
        program, sources = prepared.functional, prepared.sources
        program = bind_sizes(program, bind_feeds(program, shapes, sources))
        self.halves = step_halves(program)
        self._options = replace(options, donate=False)
        self._workers, self._server, self._adopt = workers, server, adopt
        self._worker_half = Prepared(self.halves.worker, sources, self._options)
        self._server_half = Prepared(self.halves.server, {}, self._options)
        self._lock = Lock()
        self._made: dict[jax.Device | None, Made] = {}  # None: the server's half
        self._parts: dict[int | None, Part] = {}  # by worker; None: the server's part

    def ensure(self, worker: int, server: ParameterServer) -> None:
        """Makes sure that the parts that this worker needs are compiled. The first call determines
        the layout of the state, as any compiled step does; the other calls keep that layout."""
        layout = server.snapshot.layout
        parts = self._parts.get(worker), self._parts.get(None)
        if all(part is not None and part.fits(layout) for part in parts):
            return
        with self._lock:
            server.settle(lambda grow: self._settle(worker, server, grow))
        for number in (worker, None):
            self._parts[number].wait()

    def _settle(self, worker: int, server: ParameterServer, grow: bool) -> None:
        layout = server.snapshot.layout
        if grow and not self._made:
            for device in (self._workers[worker], None):
                layout = self._make(device, layout, grow=True).layout
            here = jax.sharding.SingleDeviceSharding(self._server)
            touched = [b for made in self._made.values() for b in made.executor.interface.buffers]
            self._adopt(layout, {buffer: here for buffer in touched if layout.has([buffer])})
        self._part(worker, layout)
        self._part(None, layout)

    def part(self, worker: int | None, layout: StateLayout) -> Part:
        """The part of a worker, or of the server (None), for state with this layout."""
        part = self._parts.get(worker)
        if part is not None and part.fits(layout):
            return part
        with self._lock:
            return self._part(worker, layout)

    def _part(self, worker: int | None, layout: StateLayout) -> Part:
        part = self._parts.get(worker)
        if part is None or not part.fits(layout):
            device = None if worker is None else self._workers[worker]
            made = self._make(device, layout, grow=False)
            # Each part has its own executor, because an executor limits the steps in flight of one
            # thread.
            executor = Executor(
                made.executor.interface,
                lambda: made.executor.compiled,
                made.executor.devices,
                self._options.max_in_flight,
            )
            part = self._parts[worker] = Part(executor)
        return part

    def _make(self, device: jax.Device | None, layout: StateLayout, *, grow: bool) -> Made:
        made = self._made.get(device)
        if made is None or not layout.has(made.executor.interface.buffers):
            prepared = self._server_half if device is None else self._worker_half
            shapes: Any = [p.tensor.type.shape for p in prepared.functional.ports("feed")]
            where = device or self._server
            compilation = Compilation(CompileRequest(prepared, shapes, self._options, device=where))
            made = self._made[device] = make(
                compilation, CacheSlot(compilation, layout), layout, grow=grow
            )
        return made
