"""A batcher without threads, with a clock that the test moves, and a model that records its
inputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.devices.row_proof import Rows
from graphc.ir.types import parse_type
from graphc.serving.batching.batcher import Batcher, BatchReport
from graphc.serving.batching.paddable import OpenSize, Paddable
from graphc.serving.config import BatchingConfig

BATCH = OpenSize("n", {"x": 0}, {"y": Rows(0)})
AXES = Paddable(
    {"x": parse_type("f32[n, 2]")},
    {"y": parse_type("f32[n, 2]"), "one": parse_type("f32[]")},
    {"n": BATCH},
    BATCH,
)


def rows(*values: float) -> dict[str, Any]:
    """A request with one row for each value."""
    return {"x": np.repeat(np.array(values, np.float32)[:, None], 2, 1)}


class Rig:
    """A batcher without threads, its clock and its reports."""

    def __init__(self, axes: Paddable = AXES, **config: Any) -> None:
        self.now = 0.0
        self.reports: list[BatchReport] = []
        self.given: list[dict[str, Any]] = []
        self.then: list[Any] = []  # called while a batch runs
        self.batcher = Batcher(
            self.run,
            axes,
            BatchingConfig(**{"max_batch_size": 4, "batch_timeout_micros": 1_000_000} | config),
            self.reports.append,
            clock=lambda: self.now,
            threads=0,
        )
        self.submit = self.batcher.submit

    def run(self, inputs):
        self.given.append({name: value.copy() for name, value in inputs.items()})
        if self.then:
            self.then.pop(0)()
        return {"y": inputs["x"] * 10, "one": np.float32(1)}

    def busy(self, action) -> None:
        """Calls `action` while a batch runs, so that "idle" releases nothing."""
        self.then.append(action)
        self.submit(rows(0))
        assert self.batcher.run_ready()
        del self.reports[-1], self.given[0]

    def last(self) -> tuple[int, int, int, str]:
        report = self.reports[-1]
        return report.rows, report.padded_to, report.requests, report.reason


def values(future) -> list[float]:
    return future.result(0)["y"][:, 0].tolist()
