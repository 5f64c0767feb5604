"""What JAX's profiler recorded: the runs of HLO instructions, and our own marks on the host.

The only file that knows the form of a profile. `jax.profiler.ProfileData` reads the file, and is
public; the names of the statistics in it are XLA's. If they change, `read` finds no run of an
instruction, and tests/reports/test_xplane.py fails.

XLA:CPU records an event `NAME` with the statistic `hlo_op` for each instruction that it starts, and
an event `end: NAME` when the instruction has ended. The second is later where the work goes on in
other threads, as that of large matrix products does. A number joins the two.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jax.profiler import ProfileData

from graphc.errors import ExecutionError

MARK = "graphc."  # our own events begin with it

_INSTRUCTION, _MODULE, _DEVICE = "hlo_op", "hlo_module", "device_ordinal"
_END = "end: "
_STARTED, _ENDED = "_p", "_c"  # the number that joins a start and an end


class Run(NamedTuple):
    """One run of an instruction. Times are in nanoseconds since the start of the profile.

    Attributes:
        module: the name of the HLO module.
        instruction: the name of the HLO instruction.
        device: the number of the device.
        line: the thread, or the stream of a GPU, that started it.
    """

    module: str
    instruction: str
    device: int
    start: float
    end: float
    line: str


class Mark(NamedTuple):
    """A part of the host's time: a `jax.profiler.TraceAnnotation` whose name begins with `MARK`."""

    name: str
    start: float
    end: float


class Recording(NamedTuple):
    """What the profiler recorded, in the order of the starts."""

    runs: Sequence[Run]
    marks: Sequence[Mark]


@contextmanager
def recording() -> Iterator[Callable[[], Recording]]:
    """Records what happens within the block. What it gives reads the recording afterwards.

    Raises:
        ExecutionError: another profile is being recorded in this process, or the folder for
            temporary files cannot be written.
    """
    found: list[Recording] = []
    with tempfile.TemporaryDirectory(prefix="graphc-profile-") as folder:
        _start(folder)
        try:
            yield lambda: found[0]
        finally:
            _stop()
        found.append(read(folder))


def _start(folder: str) -> None:
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0  # a record of each Python call would slow the steps down
    try:
        jax.profiler.start_trace(folder, profiler_options=options)
    except RuntimeError as error:
        raise ExecutionError(
            f"the profiler cannot start: {error}",
            hint="stop the other profile of this process first: one can run at a time",
        ) from error


def _stop() -> None:
    try:
        jax.profiler.stop_trace()
    except (RuntimeError, OSError) as error:
        raise ExecutionError(f"the profiler could not write its recording: {error}") from error


def read(folder: str) -> Recording:
    """The recording that JAX's profiler wrote into a folder.

    Raises:
        ExecutionError: there is none.
    """
    paths = sorted(Path(folder).rglob("*.xplane.pb"))
    if not paths:
        raise ExecutionError("the profiler wrote no recording", details=[f"in {folder}"])
    runs: list[Run] = []
    marks: list[Mark] = []
    for path in paths:
        with warnings.catch_warnings():
            # The first use of some classes of jaxlib warns from Python 3.12 on. If warnings are
            # errors, jaxlib ends the process.
            warnings.simplefilter("ignore", DeprecationWarning)
            starts, ends = _events(ProfileData.from_file(str(path)), marks)
        runs += [run if n is None else _with_end(run, ends.get(n, ())) for n, run in starts]
    return Recording(sorted(runs, key=lambda r: r.start), sorted(marks, key=lambda m: m.start))


_Numbered = tuple[str | None, Run]


def _events(data: Any, marks: list[Mark]) -> tuple[list[_Numbered], dict[str | None, list[float]]]:
    """The runs as they were started, each with its number, and the times of the ends by number."""
    starts: list[_Numbered] = []
    ends: dict[str | None, list[float]] = {}
    for plane in data.planes:
        ordinal = _ordinal(plane.name)
        for line in plane.lines:
            for event in line.events:
                name, start = event.name, event.start_ns
                if name.startswith(MARK):
                    marks.append(Mark(name, start, start + event.duration_ns))
                elif name.startswith(_END):
                    ends.setdefault(_text(dict(event.stats).get(_ENDED)), []).append(start)
                else:
                    stats = dict(event.stats)
                    if _INSTRUCTION in stats:
                        run = _run(stats, ordinal, start, start + event.duration_ns, line.name)
                        starts.append((_text(stats.get(_STARTED)), run))
    return starts, ends


def _run(stats: Mapping[str, Any], ordinal: int | None, start: float, end: float, line: str) -> Run:
    device = stats.get(_DEVICE, ordinal if ordinal is not None else 0)
    module = str(stats.get(_MODULE, ""))
    return Run(module, str(stats[_INSTRUCTION]), int(device), start, end, line)


def _ordinal(plane: str) -> int | None:
    """The number of the device whose plane has this name, such as "/device:GPU:1"."""
    kind, _, number = plane.rpartition(":")
    return int(number) if kind.startswith("/device:") and number.isdigit() else None


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _with_end(run: Run, ends: Sequence[float]) -> Run:
    """The run with the time at which its work had ended, if that was recorded."""
    later = [time for time in ends if time >= run.start]
    return run._replace(end=min(later)) if later else run
