"""`scaling`: the predicted figures of a step on more and more devices, and the best split."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from graphc.cluster.scale.counting import workload_of
from graphc.cluster.scale.hardware import Hardware
from graphc.cluster.scale.plot import plot_scaling
from graphc.cluster.scale.schedule import Prediction, Sharded, Split, predict
from graphc.cluster.scale.workload import Workload
from graphc.config import CompileOptions
from graphc.devices.machine import Machine
from graphc.errors import AttributeValueError
from graphc.ir.graph import Graph
from graphc.typing import Feeds, Fetches

_SHARDED: tuple[Sharded, ...] = ("nothing", "optimizer", "parameters")
_MOST_STAGES, _MOST_MICRO_BATCHES = 64, 256


@dataclass(frozen=True)
class Scaling:
    """Predictions for several numbers of devices.

    Attributes:
        work: the step.
        hardware: the devices.
        plain: by strategy, such as "data parallel": the predictions in the order of the numbers of
            devices, without those that the step does not allow.
        best: for each number of devices the split with the most rows a second that fits into the
            memory; without those for which none fits.

    Examples:
        >>> work = gc.cluster.Workload.of_model(rows=64, seconds=0.3, parameters=102e6)
        >>> found = gc.cluster.scaling_of(work, "8xh100", [8, 64])
        >>> [prediction.split.devices for prediction in found.plain["data parallel"]]
        [8, 64]
    """

    work: Workload
    hardware: Hardware
    plain: Mapping[str, Sequence[Prediction]]
    best: Mapping[int, Prediction]

    def to_json(self) -> dict[str, Any]:
        """The predictions as values that JSON can represent.

        Examples:
            >>> work = gc.cluster.Workload.of_model(rows=64, seconds=0.3, parameters=102e6)
            >>> found = gc.cluster.scaling_of(work, "8xh100", [8])
            >>> sorted(found.to_json())
            ['best', 'hardware', 'name', 'notes', 'strategies']
        """
        return {
            "name": self.work.name,
            "hardware": self.hardware.name,
            "notes": list(self.work.notes),
            "strategies": {name: list(map(_plain, found)) for name, found in self.plain.items()},
            "best": {str(count): _plain(found) for count, found in self.best.items()},
        }

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Writes a picture of rows a second and memory by the number of devices (extra `plot`).

        Raises:
            MissingExtraError: Matplotlib is not installed.
            ArtifactError: the file cannot be written.

        Examples:
            >>> work = gc.cluster.Workload.of_model(rows=64, seconds=0.3, parameters=102e6)
            >>> import tempfile
            >>> path = tempfile.mkdtemp() + "/scaling.png"
            >>> gc.cluster.scaling_of(work, "8xh100", [8, 64]).plot(path)
        """
        plot_scaling(path, self.work.name, self.hardware, self.plain, self.best)


def scaling(
    graph: Graph,
    fetches: Fetches,
    feeds: Feeds,
    hardware: Hardware | str | os.PathLike[str],
    devices: Sequence[int],
    *,
    fixed_batch: bool = False,
    step_seconds: float | None = None,
    options: CompileOptions | None = None,
) -> Scaling:
    """Predicts step time, memory and efficiency of a training step on a cluster, by a model of its
    collectives: see docs/scaling.md. Nothing runs; the step is compiled for one device, twice.

    Args:
        fetches, feeds, options: as for `gc.compile`; feeds have the shapes of one device's batch.
        hardware: a `Hardware`, a name such as "8xh100" for machines of 8 GPUs, or a file.
        devices: the numbers of devices.
        fixed_batch: the batch of `feeds` is that of all devices together. By default it grows
            with the number of devices.
        step_seconds: the measured time of the step on one device of this hardware. By default it is
            estimated from the program's arithmetic and memory accesses.

    Raises:
        FeedError: no feed has a batch axis, or their sizes differ.
        AttributeValueError: the hardware, the numbers or the time are not valid.

    Examples:
        >>> x = gc.placeholder(("batch", 256), name="x")
        >>> y = gc.nn.Dense(256)(x)
        >>> train = gc.minimize(gc.reduce_mean(y**2), optax.adam(1e-3))
        >>> hardware = gc.cluster.Hardware.read("8xh100")
        >>> found = gc.cluster.scaling(graph, train, {x: (4096, 256)}, hardware, [1, 8])
        >>> found.best[8].split.devices
        8
    """
    known = _hardware(hardware)
    machine = None
    if isinstance(hardware, (str, os.PathLike)) and not str(hardware).lower().endswith(".json"):
        machine = Machine(os.fspath(hardware))
    work = workload_of(graph, fetches, feeds, options or CompileOptions(), machine)
    if step_seconds is not None:
        if type(step_seconds) not in (int, float) or not 0 < step_seconds < float("inf"):
            raise _refusal(f"step_seconds must be more than 0, got {step_seconds!r}")
        work = work.measured(float(step_seconds))
    return scaling_of(work, known, devices, fixed_batch=fixed_batch)


def scaling_of(
    work: Workload,
    hardware: Hardware | str | os.PathLike[str],
    devices: Sequence[int],
    *,
    fixed_batch: bool = False,
) -> Scaling:
    """The predictions for a step that is known already; see `scaling`.

    Raises:
        AttributeValueError: the hardware or the numbers are not valid.

    Examples:
        >>> work = gc.cluster.Workload.of_model(rows=64, seconds=0.3, parameters=102e6)
        >>> gc.cluster.scaling_of(work, "8xh100", [512]).best[512].split.data
        512
    """
    known, counts = _hardware(hardware), list(devices)
    if not counts or not all(type(n) is int and 1 <= n <= 2**20 for n in counts):
        raise _refusal(f"devices must be positive numbers of at most 2**20, got {devices!r}")
    plain: dict[str, list[Prediction]] = {}
    best: dict[int, Prediction] = {}
    for count in sorted(set(counts)):
        rows = float(work.rows if fixed_batch else work.rows * count)
        for name, split in _plain_splits(work, known, count, rows):
            plain.setdefault(name, []).append(predict(work, known, split, rows))
        tried = [predict(work, known, split, rows) for split in splits(work, known, count, rows)]
        fitting = [found for found in tried if found.fits]
        if fitting:
            best[count] = min(fitting, key=_preference)
    return Scaling(work, known, plain, best)


def splits(work: Workload, hardware: Hardware, devices: int, rows: float) -> Iterator[Split]:
    """The splits of so many devices among which `scaling` looks for the best.

    Tensor parallelism stays within a machine, and divides the widths of the products. A replica has
    at least one row, and a micro-batch at least one.
    """
    for tensor in _divisors(devices, hardware.devices_per_machine):
        if work.products.width % tensor:
            continue
        for pipeline in _divisors(devices // tensor, min(_MOST_STAGES, max(1, len(work.layers)))):
            data = devices // tensor // pipeline
            if rows < data or (pipeline > 1 and not work.boundary):
                continue
            for micro_batches in _powers(min(_MOST_MICRO_BATCHES, rows / data)):
                for sharded in _SHARDED[: 1 if data == 1 else None]:
                    yield Split(data, tensor, pipeline, micro_batches, sharded)


def _plain_splits(
    work: Workload, hardware: Hardware, devices: int, rows: float
) -> Iterator[tuple[str, Split]]:
    """The usual strategies, each by its name."""
    if rows >= devices:
        yield "data parallel", Split(devices)
        yield "sharded optimizer", Split(devices, sharded="optimizer")
        yield "sharded parameters", Split(devices, sharded="parameters")
    tensor = max(
        t for t in _divisors(devices, hardware.devices_per_machine) if not work.products.width % t
    )
    if tensor > 1 and rows >= devices // tensor:
        yield "tensor and data", Split(devices // tensor, tensor)
    stages = [p for p in _divisors(devices, min(8, len(work.layers))) if p > 1]
    if stages and work.boundary and rows >= devices // stages[-1]:
        stage_count = stages[-1]
        data = devices // stage_count
        micro = max(_powers(min(4 * stage_count, rows / data)))
        yield "pipeline and data", Split(data, 1, stage_count, micro)


def _preference(found: Prediction) -> tuple[float, ...]:
    """Faster first; of equally fast splits the simplest."""
    split = found.split
    return (
        float(f"{found.seconds:.3g}"),
        split.pipeline,
        split.tensor,
        split.micro_batches,
        _SHARDED.index(split.sharded),
    )


def _divisors(number: int, most: int) -> list[int]:
    return [n for n in range(1, min(number, most) + 1) if number % n == 0]


def _powers(most: float) -> list[int]:
    return [2**i for i in range(20) if 2**i <= most] or [1]


def _plain(found: Prediction) -> dict[str, Any]:
    return {**asdict(found), "devices": found.split.devices}


def _hardware(given: Hardware | str | os.PathLike[str]) -> Hardware:
    return given if isinstance(given, Hardware) else Hardware.read(given)


def _refusal(what: str) -> AttributeValueError:
    return AttributeValueError.here(
        f"scaling: {what}", hint='gc.cluster.scaling(graph, train, shapes, "8xh100", [8, 64, 512])'
    )
