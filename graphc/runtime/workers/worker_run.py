"""One call of `Session.run_workers` whose workers compute in this process."""

from __future__ import annotations

from typing import Any

from graphc.devices.discovery import name_of
from graphc.runtime.workers.parameter_server import ParameterServer
from graphc.runtime.workers.worker_steps import WorkerSteps
from graphc.runtime.workers.worker_threads import WorkersCall, WorkerThreads


class Run(WorkerThreads):
    """One call of `run_workers`."""

    def __init__(self, steps: WorkerSteps, call: WorkersCall) -> None:
        super().__init__(list(map(name_of, steps.devices)), call)
        self._compiled = steps
        self._server = ParameterServer(call.state, self._admission)

    def _step(self, worker: int) -> bool:
        server = self._server
        taken = self._source.take(worker, lambda: self._admission.stopping)
        if taken is None:
            return False
        ticket, feeds = taken
        plan, by_shapes = self._compiled.plan_of(self._fetches, feeds)
        values, key = plan.convert(feeds)
        parts = self._compiled.parts_of(plan, by_shapes, key)
        parts.ensure(worker, server)
        values += self._draws(worker, parts.halves.draws)
        snapshot = server.read(worker, ticket)
        if snapshot is None:
            return False
        compute = parts.part(worker, snapshot.layout)
        given = compute(snapshot.layout, list(snapshot.buffers), values)
        del snapshot, values  # old state is not kept longer than needed
        own = parts.halves.on_server.count(False)
        crossing = given[own:]

        def update(layout: Any, buffers: list[Any]) -> list[Any]:
            return parts.part(None, layout)(layout, buffers, crossing)

        def done(number: int, staleness: int, there: list[Any]) -> None:
            here, rest = iter(given[:own]), iter(there)
            rows = [next(rest if on_server else here) for on_server in parts.halves.on_server]
            self._note(worker, number, staleness, plan.nest.rebuild(rows))

        server.apply(worker, update, done)
        return True
