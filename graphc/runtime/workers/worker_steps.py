"""The steps that workers make, compiled: found by fetches, feeds and shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

import jax

from graphc.config import CompileOptions
from graphc.ir.graph import Graph
from graphc.ir.node import position_of, same_items
from graphc.runtime.buffers.layout import StateLayout
from graphc.runtime.feeds.batches import Batch
from graphc.runtime.feeds.fetches import FetchNest, in_program_order, resolve_feeds
from graphc.runtime.state.live_state import Homes
from graphc.runtime.step.plans import Plan, fetch_key
from graphc.runtime.targets.prepare import prepare
from graphc.runtime.workers.step_parts import StepParts


class WorkerSteps:
    """What is compiled for the workers of a session; for any thread.

    Args:
        devices: of the workers.
        server: the server's.
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
        self._plans: dict[Any, tuple[Plan, dict[Any, StepParts]]] = {}
        self._lock = Lock()

    def plan_of(self, fetches: Any, feeds: Batch) -> tuple[Plan, dict[Any, StepParts]]:
        """The plan of steps with these fetches and feeds, and its parts by shapes."""
        key = (fetch_key(fetches), tuple(feeds))
        with self._lock:
            found = self._plans.get(key)
            if found is None:
                found = self._plans[key] = (self._plan(fetches, feeds), {})
            return found

    def _plan(self, fetches: Any, feeds: Batch) -> Plan:
        tensors = list(resolve_feeds(self.graph, feeds))
        nest = FetchNest(self.graph, fetches)
        ordered = in_program_order(self.graph, tensors)
        prepared = prepare(self.graph, nest.distinct, ordered, self._options)
        self.graph.finalize()
        plan = Plan(fetches, nest, ordered, prepared, None)
        if not same_items(tensors, ordered):
            plan.order = [position_of(t, tensors) for t in ordered]
        return plan

    def parts_of(self, plan: Plan, parts: dict[Any, StepParts], shapes: Any) -> StepParts:
        """The parts of a plan for feeds of these shapes."""
        with self._lock:
            found = parts.get(shapes)
            if found is None:
                found = parts[shapes] = StepParts(
                    plan.prepared,
                    shapes,
                    self._options,
                    self.devices,
                    self.server,
                    self._adopt,
                )
            return found
