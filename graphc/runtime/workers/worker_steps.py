"""The compiled steps of workers, looked up by fetches, feeds and shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

import jax

from graphc.config import CompileOptions
from graphc.ir.graph import Graph
from graphc.runtime.buffers.layout import StateLayout
from graphc.runtime.feeds.batches import Batch
from graphc.runtime.state.live_state import Homes
from graphc.runtime.step.plans import Plan, ProgramKey, fetch_key
from graphc.runtime.workers.step_parts import StepParts


class WorkerSteps:
    """The compiled steps of the workers of a session. Any thread may use it.

    Args:
        devices: the devices of the workers.
        server: the device of the server.
        adopt: see `StepParts`.
    """

    def __init__(
        self,
        graph: Graph,
        devices: Sequence[jax.Device],
        server: jax.Device,
        options: CompileOptions,
        adopt: Callable[[StateLayout, Homes], None],
    ) -> None:
        self.devices, self.server = devices, server
        self.graph, self._options, self._adopt = graph, options, adopt
        self._plans: dict[Any, tuple[Plan, dict[ProgramKey, StepParts]]] = {}
        self._lock = Lock()

    def plan_of(self, fetches: Any, feeds: Batch) -> tuple[Plan, dict[ProgramKey, StepParts]]:
        """The plan of steps with these fetches and feeds, and its parts by shapes."""
        key = (fetch_key(fetches), tuple(feeds))
        with self._lock:
            found = self._plans.get(key)
            if found is None:
                plan = Plan.of(self.graph, fetches, feeds, self._options)
                self.graph.finalize()
                found = self._plans[key] = (plan, {})
            return found

    def parts_of(
        self, plan: Plan, parts: dict[ProgramKey, StepParts], key: ProgramKey
    ) -> StepParts:
        """The parts of a plan for feeds of these shapes."""
        with self._lock:
            found = parts.get(key)
            if found is None:
                found = parts[key] = StepParts(
                    plan.prepared,
                    key.shapes,
                    self._options,
                    self.devices,
                    self.server,
                    self._adopt,
                )
            return found
