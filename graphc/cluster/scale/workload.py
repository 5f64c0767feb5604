"""`Workload`: the figures of a training step that decide how it scales."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from graphc.cluster.scale.hardware import Hardware
from graphc.devices.bucketing import BUCKET_BYTES
from graphc.runtime.hlo.hlo_cost import HloCost
from graphc.runtime.hlo.hlo_kernels import COLLECTIVES, Kernel


class Exchange(NamedTuple):
    """A sum over the replicas.

    Attributes:
        bytes: the size of the value that each replica has.
        ready: when its operands are computed, as a part of the forward and the backward pass: 0 is
            the start of the step, 1 the end of the backward pass.
        needed: when its result is needed; 1 for gradients.
        gradient: whether no other exchange depends on it. A sharded optimizer needs only a piece of
            its result.
    """

    bytes: int
    ready: float
    needed: float
    gradient: bool


class Products(NamedTuple):
    """Pairs of matrix products whose weights can be split over devices: the first by columns, the
    second by rows, so that one sum is exchanged in each direction (Shoeybi et al. 2019).

    Attributes:
        pairs: the number of pairs.
        bytes_per_row: the bytes of the sums in the forward pass, for one row of the batch.
        width: devices must divide this number.
    """

    pairs: int
    bytes_per_row: float
    width: int


class Memory(NamedTuple):
    """Bytes besides parameters and slots: `fixed + per_row * rows`."""

    fixed: float
    per_row: float


@dataclass(frozen=True)
class Workload:
    """A training step, as the scaling model sees it. `counting.workload_of` counts it.

    Attributes:
        name: the name in reports.
        rows: the rows of the batch for which it was counted.
        costs: the costs of the compiled step, by the rows of its batch: one or two.
        parameters, slots: the bytes of the variables, and of the optimizer's variables.
        forward: the part of the work of both passes that the forward pass has.
        exchanges: the sums over replicas, in the order in which they start.
        products: what tensor parallelism can split.
        layers: the work of each node of the forward pass, in order.
        boundary: the bytes that a pipeline sends from one stage to the next for one row.
        memory: activations, gradients and feeds.
        seconds: the measured time of a step of `rows` rows on one device; None to estimate it from
            the costs.
        notes: what was not counted exactly, one line each.

    Examples:
        >>> x = gc.placeholder(("batch", 256), name="x")
        >>> train = gc.minimize(gc.reduce_mean(gc.nn.Dense(256)(x) ** 2), optax.sgd(0.1))
        >>> gc.cluster.scaling(graph, train, {x: (64, 256)}, "8xh100", [8]).work.parameters
        263168
    """

    name: str
    rows: int
    costs: Sequence[tuple[int, HloCost]]
    parameters: float
    slots: float
    forward: float
    exchanges: Sequence[Exchange]
    products: Products
    layers: Sequence[float]
    boundary: float
    memory: Memory
    seconds: float | None = None
    notes: Sequence[str] = field(default=())

    @classmethod
    def of_model(
        cls,
        rows: int,
        seconds: float,
        parameters: float,
        *,
        name: str = "model",
        slots: float = 0.0,
        forward: float = 1 / 3,
        bucket_bytes: int = BUCKET_BYTES,
    ) -> Workload:
        """A model of which only these figures are known: its gradients are computed evenly during
        the backward pass, and exchanged in buckets.

        Args:
            rows: the rows of the batch of one device.
            seconds: the time of a step on one device.
            parameters, slots: bytes.

        Examples:
            >>> work = gc.cluster.Workload.of_model(rows=64, seconds=0.3, parameters=102e6)
            >>> len(work.exchanges)
            4
        """
        count = max(1, math.ceil(parameters / bucket_bytes))
        ends = [forward + (1 - forward) * (i + 1) / count for i in range(count)]
        exchanges = [Exchange(round(parameters / count), end, 1.0, True) for end in ends]
        return cls(
            name=name,
            rows=rows,
            costs=(),
            parameters=parameters,
            slots=slots,
            forward=forward,
            exchanges=exchanges,
            products=Products(0, 0.0, 1),
            layers=(),
            boundary=0.0,
            memory=Memory(parameters, 0.0),
            seconds=seconds,
        )

    def measured(self, seconds: float) -> Workload:
        """The same step, if one device takes so many seconds for it."""
        return replace(self, seconds=seconds)

    def compute(self, hardware: Hardware) -> tuple[float, float]:
        """The seconds of a step on one device without exchanges: those that do not depend on the
        batch, and those of each row."""
        update = self.update(hardware)
        if not self.costs:
            total = self.seconds or 0.0
            return min(update, total), max(0.0, total - update) / self.rows
        times = [(rows, kernel_seconds(cost.launches, hardware)) for rows, cost in self.costs]
        (rows, total), (fewer, less) = times[0], times[-1]
        slope = (total - less) / (rows - fewer) if rows != fewer else (total - update) / rows
        slope = min(max(slope, 0.0), total / rows)
        fixed = total - slope * rows
        factor = 1.0 if self.seconds is None else self.seconds / total
        return fixed * factor, slope * factor

    def update(self, hardware: Hardware) -> float:
        """The seconds of the optimizer: it reads gradients, and reads and writes parameters and
        slots."""
        return (3 * self.parameters + 2 * self.slots) / hardware.memory_bandwidth

    def largest_stage(self, stages: int) -> float:
        """The part of the work that the slowest of so many stages has: nodes stay whole and in
        order."""
        found = self._stages.get(stages)
        if found is None:
            found = self._stages[stages] = _bottleneck(self.layers, stages)
        return found

    @cached_property
    def _stages(self) -> dict[int, float]:
        return {1: 1.0}


def kernel_seconds(kernels: Iterable[Kernel], hardware: Hardware) -> float:
    """The roofline time of kernels, without collectives: each takes the longest of its matrix
    products, its other arithmetic and its memory access."""
    total = 0.0
    for kernel in kernels:
        if kernel.opcode in COLLECTIVES:
            continue
        matrix = sum(n / hardware.rate(dtype) for dtype, n in kernel.matrix_flops.items())
        vector = kernel.vector_flops / (hardware.vector_flops * hardware.efficiency)
        access = kernel.bytes / hardware.memory_bandwidth
        total += kernel.times * (hardware.launch + max(matrix, vector, access))
    return total


def _bottleneck(layers: Sequence[float], stages: int) -> float:
    """The smallest possible share of the largest of `stages` runs of consecutive layers."""
    total = math.fsum(layers)
    if not total:
        return 1.0 / stages
    low, high = max(max(layers) / total, 1.0 / stages), 1.0
    for _ in range(30):
        middle = (low + high) / 2
        if _runs(layers, middle * total) <= stages:
            high = middle
        else:
            low = middle
    return high


def _runs(layers: Sequence[float], most: float) -> int:
    """The number of runs of consecutive layers of at most `most`, each as long as possible."""
    runs, used = 1, 0.0
    for layer in layers:
        if used + layer > most:
            runs, used = runs + 1, 0.0
        used += layer
    return runs
