"""The scaling model compared with runs of 1 to 8 processes and with published tables.

The processes communicate with gloo and share this machine's cores. Four figures are measured first,
on one and two processes: a step alone, how many processes the cores serve at once, and latency and
bandwidth of an all-reduce between two. From these, the model predicts 2, 4 and 8.

    python -m benchmarks.run scaling
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import graphc as gc
from benchmarks import published_scaling
from benchmarks.scaling_child import LARGE, ROWS, SMALL, model
from graphc.cluster.scale.counting import workload_of
from graphc.config import CompileOptions

Row = tuple[str, str, str]
CHILD = Path(__file__).with_name("scaling_child.py")
PROCESSES = (2, 4, 8)
ROUNDS = 3
LIMIT = 300.0  # seconds of one launch


class Figures(NamedTuple):
    """The measurements that describe this machine.

    Attributes:
        step: seconds of a step in one process.
        together: seconds of a step in each of two processes that run at once.
        small, large: seconds of all-reduces between two processes.
    """

    step: float
    together: float
    small: float
    large: float

    @property
    def hardware(self) -> gc.cluster.Hardware:
        """This machine. `slowed` is the factor by which two concurrent processes are slower; their
        messages slow down by the same factor."""
        slowed = max(1.0, self.together / self.step)
        latency = self.small / 2 / slowed
        bandwidth = 4 * (LARGE - SMALL) / (self.large - self.small) * slowed
        link = gc.cluster.Link(latency, bandwidth)
        return gc.cluster.Hardware(
            name=f"{os.cpu_count()} cores",
            memory=math.inf,
            memory_bandwidth=1e10,
            matrix_flops={"tf32": 1e11, "f64": 5e10},
            vector_flops=1e10,
            devices_per_machine=max(PROCESSES),
            link=link,
            network=link,
            concurrent=2 / slowed,
            overlap=False,
        )


def rows() -> Iterator[Row]:
    """Rows: measured and predicted steps of this machine; then the published tables."""
    with TemporaryDirectory() as folder:
        figures = measure(Path(folder))
        measured = {n: _best(Path(folder), "step", n) for n in PROCESSES}
    hardware = figures.hardware
    graph, fetches = model()
    feeds = {"x": (ROWS, 784), "labels": (ROWS,)}
    work = workload_of(graph, fetches, feeds, CompileOptions()).measured(figures.step)
    alone, together = 1e3 * figures.step, 1e3 * figures.together
    latency, bandwidth = 1e6 * hardware.link.latency, hardware.link.bandwidth / 1e9
    yield (
        f"this machine: a step takes {alone:.2f} ms, and {together:.2f} ms beside another; gloo "
        f"{latency:.0f} us, {bandwidth:.2f} GB/s",
        f"{hardware.concurrent:.2f} at once",
        "",
    )
    for count, seconds in measured.items():
        split = gc.cluster.Split(count)
        found = gc.cluster.predict(work, hardware, split, ROWS * count).seconds
        name = f"{count} processes: measured {1e3 * seconds:.2f} ms, predicted {1e3 * found:.2f} ms"
        yield name, f"{found / seconds - 1:+.1%}", "at most 15 %"
    yield from published_scaling.rows()


def measure(folder: Path) -> Figures:
    """Measures the figures of this machine."""
    small, large = _best_pair(folder)
    return Figures(_best(folder, "step", 1), _best(folder, "alone", 2), small, large)


def _best(folder: Path, what: str, processes: int) -> float:
    """The fastest of several launches."""
    return min(float(min(_run(folder, what, processes))) for _ in range(ROUNDS))


def _best_pair(folder: Path) -> tuple[float, float]:
    found = [_run(folder, "exchange", 2)[0] for _ in range(ROUNDS)]
    return min(pair[0] for pair in found), min(pair[1] for pair in found)


def _run(folder: Path, what: str, processes: int) -> list[Any]:
    """The measurements of a launch of the child; of processes that run alone, the slowest's."""
    for old in folder.iterdir():
        old.unlink()
    command = [sys.executable, "-m", "graphc", "launch", "-n", str(processes), str(CHILD)]
    environment = {**os.environ, "XLA_FLAGS": "", "JAX_PLATFORMS": "cpu"}
    subprocess.run(
        [*command, "--", what, str(folder / "result")],
        check=True,
        timeout=LIMIT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    found = [json.loads(path.read_text()) for path in folder.iterdir()]
    return [max(found)] if what == "alone" else found


if __name__ == "__main__":
    for row in rows():
        print(*row, sep=" | ")
