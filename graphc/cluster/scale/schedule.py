"""How long a step takes, and how much memory a device needs, for one split of the devices.

A step is the forward and backward pass of each micro-batch, then the update. Within a replica, the
stages of a pipeline wait for each other (Huang et al. 2019), and tensor parallelism exchanges sums
between two layers, which nothing hides. Between replicas, gradients are exchanged in buckets while
the backward pass of the last micro-batch goes on (Li et al. 2020).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from graphc.cluster.scale.collectives import Group, all_gather, all_reduce, reduce_scatter, send
from graphc.cluster.scale.hardware import Hardware
from graphc.cluster.scale.workload import Exchange, Workload
from graphc.devices.bucketing import BUCKET_BYTES

Sharded = Literal["nothing", "optimizer", "parameters"]


@dataclass(frozen=True)
class Split:
    """How devices share a step.

    Attributes:
        data: the number of replicas, each with its part of the batch.
        tensor: the number of devices that share each matrix product.
        pipeline: the number of stages.
        micro_batches: the number of parts into which a replica divides its part of the batch.
        sharded: what each replica keeps only a piece of: "nothing", the slots of the "optimizer"
            (ZeRO stage 1), or the "parameters" too (stage 3).

    Examples:
        >>> gc.cluster.Split(data=4, tensor=2).devices
        8
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    micro_batches: int = 1
    sharded: Sharded = "nothing"

    @property
    def devices(self) -> int:
        """The number of devices."""
        return self.data * self.tensor * self.pipeline

    def __str__(self) -> str:
        parts = [f"data {self.data}"]
        parts += [f"tensor {self.tensor}"] * (self.tensor > 1)
        parts += [f"pipeline {self.pipeline}"] * (self.pipeline > 1)
        parts += [f"micro-batches {self.micro_batches}"] * (self.micro_batches > 1)
        parts += [f"sharded {self.sharded}"] * (self.sharded != "nothing")
        return ", ".join(parts)


@dataclass(frozen=True)
class Prediction:
    """The figures of a step.

    Attributes:
        split: how the devices share it.
        rows: the rows of the whole batch.
        seconds: the time of a step.
        computing: how long the slowest device computes.
        waiting: how long it waits for exchanges.
        bubble: how long it waits for other stages.
        memory: the bytes that each device needs.
        fits: whether it has so many.
        efficiency: the rows a second for each device, as a part of those of one device alone.

    Examples:
        >>> work = gc.cluster.Workload.of_model(rows=32, seconds=0.1, parameters=100e6)
        >>> found = gc.cluster.scaling_of(work, "8xh100", [8]).best[8]
        >>> found.bubble, found.fits
        (0.0, True)
    """

    split: Split
    rows: float
    seconds: float
    computing: float
    waiting: float
    bubble: float
    memory: float
    fits: bool
    efficiency: float


def predict(work: Workload, hardware: Hardware, split: Split, rows: float) -> Prediction:
    """The figures of a step of `rows` rows in all.

    Examples:
        >>> work = gc.cluster.Workload.of_model(rows=32, seconds=0.1, parameters=100e6)
        >>> hardware = gc.cluster.Hardware.read("8xh100")
        >>> found = gc.cluster.predict(work, hardware, gc.cluster.Split(data=8), rows=256)
        >>> round(found.efficiency, 2)
        1.0
    """
    parts = split.tensor * split.pipeline
    micro = rows / split.data / split.micro_batches
    slow = hardware.slowdown(min(hardware.devices_per_machine, split.devices))
    fixed, per_row = work.compute(hardware)
    update = min(work.update(hardware), fixed)
    passes = fixed - update + per_row * micro
    stage = passes * work.largest_stage(split.pipeline) / split.tensor * slow
    inside = _tensor_seconds(work, hardware, split, micro)
    slots = split.micro_batches + split.pipeline - 1
    bubble = (slots - split.micro_batches) * (stage + inside)
    update *= slow / parts / (1 if split.sharded == "nothing" else split.data)
    computing = split.micro_batches * stage + update
    waiting = split.micro_batches * inside + _pipeline_seconds(work, hardware, split, micro)
    waiting += _replica_seconds(work, hardware, split, stage + inside)
    seconds = computing + waiting + bubble
    alone = work.compute(hardware)
    ideal = (alone[0] + alone[1] * work.rows) / work.rows
    memory = memory_of(work, split, rows)
    return Prediction(
        split=split,
        rows=rows,
        seconds=seconds,
        computing=computing,
        waiting=waiting,
        bubble=bubble,
        memory=memory,
        fits=memory <= hardware.memory,
        efficiency=rows * ideal / (seconds * split.devices),
    )


def memory_of(work: Workload, split: Split, rows: float) -> float:
    """The bytes that each device needs for a batch of `rows` rows in all. The first stage of a
    pipeline keeps the activations of as many micro-batches as there are stages
    (`gc.devices.PipelineParallel`)."""
    parts = split.tensor * split.pipeline
    replica = rows / split.data
    kept = replica * min(split.pipeline, split.micro_batches) / split.micro_batches
    pieces = {"nothing": (1, 1), "optimizer": (1, split.data), "parameters": (split.data,) * 2}
    of_parameters, of_slots = pieces[split.sharded]
    held = work.parameters / of_parameters + work.slots / of_slots
    return (held + work.memory.fixed / of_parameters + work.memory.per_row * kept) / parts


def _tensor_seconds(work: Workload, hardware: Hardware, split: Split, micro: float) -> float:
    """The exchanges of tensor parallelism for one micro-batch: for each pair of products one sum
    forward and one backward, on the slowest stage."""
    if split.tensor == 1 or not work.products.pairs:
        return 0.0
    group = Group.of(split.tensor, hardware)
    size = work.products.bytes_per_row * micro / work.products.pairs
    here = work.products.pairs * work.largest_stage(split.pipeline)
    return 2 * here * all_reduce(size, group, hardware)


def _pipeline_seconds(work: Workload, hardware: Hardware, split: Split, micro: float) -> float:
    """The messages on the way through all stages and back. Those of other micro-batches are sent
    while the stages compute."""
    if split.pipeline == 1:
        return 0.0
    far = split.devices > hardware.devices_per_machine
    one = send(work.boundary * micro / split.tensor, hardware, far)
    return 2 * (split.pipeline - 1) * one


def _replica_seconds(work: Workload, hardware: Hardware, split: Split, window: float) -> float:
    """How long a replica waits for the others. `window` is the time of a micro-batch's passes."""
    if split.data == 1:
        return 0.0
    group = Group.of(split.data, hardware, stride=split.tensor)
    parts = split.tensor * split.pipeline
    share = work.parameters / parts

    def seconds(exchange: Exchange) -> float:
        halves = exchange.gradient and split.sharded != "nothing"
        one = reduce_scatter if halves else all_reduce
        return one(exchange.bytes / (parts if exchange.gradient else 1), group, hardware)

    early = [e for e in work.exchanges if not e.gradient]
    waiting = exposed(work.exchanges, window, seconds, hardware.overlap)
    if split.micro_batches > 1:
        waiting += (split.micro_batches - 1) * exposed(early, window, seconds, hardware.overlap)
    if split.sharded == "optimizer":
        waiting += all_gather(share, group, hardware)
    if split.sharded == "parameters":
        hidden = hardware.overlap * window
        first = all_gather(min(share, BUCKET_BYTES), group, hardware)
        gather = all_gather(share, group, hardware)
        each = max(first, gather - hidden * work.forward)
        each += max(0.0, gather - hidden * (1 - work.forward))
        waiting += split.micro_batches * each
    return waiting


def exposed(
    exchanges: Iterable[Exchange],
    window: float,
    seconds: Callable[[Exchange], float],
    overlap: bool = True,
) -> float:
    """How much longer than `window` the passes take because of exchanges, which run one after the
    other, each from when it is ready.

    Examples:
        >>> from graphc.cluster.scale.schedule import exposed
    >>> from graphc.cluster.scale.workload import Exchange
        >>> from graphc.devices.bucketing import BUCKET_BYTES
        >>> halfway, at_end = Exchange(8, 0.5, 1.0, True), Exchange(8, 1.0, 1.0, True)
        >>> exposed([halfway, at_end], window=10.0, seconds=lambda exchange: 2.0)
        2.0
    """
    given = list(exchanges)
    if not overlap:
        return sum(map(seconds, given))
    moments = [(e.ready, 1, i) for i, e in enumerate(given)]
    moments += [(max(e.needed, e.ready), 2, i) for i, e in enumerate(given)]
    now = free = done = 0.0
    ends: dict[int, float] = {}
    for part, kind, index in sorted(moments):
        now, done = now + (part - done) * window, part
        if kind == 1:
            free = ends[index] = max(now, free) + seconds(given[index])
        else:
            now = max(now, ends[index])
    return now + (1 - done) * window - window
