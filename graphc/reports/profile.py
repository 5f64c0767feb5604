"""`Profile`: where the time of a step goes, by node and by the user's line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from graphc.ir.node import Node
from graphc.ir.program import Program
from graphc.ir.source import Source
from graphc.reports.chrome_trace import write_trace
from graphc.reports.profile_html import write_html
from graphc.reports.profile_text import text_of
from graphc.reports.xplane import Recording

FORWARD, BACKWARD, UPDATE, EXCHANGE, LOOP = PHASES = (
    *("forward", "backward", "update", "exchange", "loop"),
)


@dataclass(frozen=True)
class NodeTime:
    """The time of one node. All figures are of one step on one device.

    Attributes:
        name: of the node. Each of the repeated blocks that graphc made a loop of has its own.
        op: the name of the operator, "" if it is not known.
        seconds: its part of the elapsed time.
        count: how often it ran.
        flops, bytes: its cost for all its runs, estimated from shapes; see `gc.Executable.cost`.
        source: the user's line; for a node of the backward pass, the line of the node that it is
            the gradient of. None if it is not known.
        phase: "forward", "backward", "update"; "exchange" for the collectives between devices,
            whose time includes waiting for the other devices; "loop" for what a loop or a branch
            takes besides the nodes inside, such as slices and buffers.
        caller: for the backward pass and the update, the line that called `gc.minimize` or
            `gc.gradients`, if it is known.
    """

    name: str
    op: str
    seconds: float
    count: float
    flops: float
    bytes: float
    source: Source | None = None
    phase: str = FORWARD
    caller: Source | None = None

    @property
    def flops_per_second(self) -> float:
        """The achieved rate of operations. Of a node within a fused kernel, an estimate."""
        return self.flops / self.seconds if self.seconds else 0.0

    @property
    def bytes_per_second(self) -> float:
        """The achieved rate of bytes, as if nothing were fused."""
        return self.bytes / self.seconds if self.seconds else 0.0


def _place(source: Source | None) -> str | None:
    return None if source is None else f"{source.file}:{source.line}"


@dataclass(frozen=True)
class LineTime:
    """The time of one line of the user's program, in one step.

    Attributes:
        source: the file and the line.
        seconds: the time of all its nodes.
        share: the part of the time of the step.
        phases: the parts of `seconds`: "forward", "backward", "update", "exchange", "loop".
        callers: the lines that requested its backward pass.
        nodes: the names of its nodes, the slowest first.
    """

    source: Source
    seconds: float
    share: float
    phases: Mapping[str, float]
    callers: tuple[Source, ...]
    nodes: tuple[str, ...]

    @property
    def code(self) -> str:
        """The text of the line, or "" if the file cannot be read."""
        return self.source.code


@dataclass(frozen=True)
class HostTime:
    """The host's time in one step, in seconds. The device runs beside it.

    Attributes:
        feeds: converting the feeds, and starting their copies to the devices.
        dispatch: starting the step.
        wait: waiting for the results.
    """

    feeds: float
    dispatch: float
    wait: float


@dataclass(frozen=True, repr=False)
class Profile:
    """Where the time of a step goes. Made by `gc.profile`; `print(profile)` shows it.

    The elapsed time of a step is `sum(seconds of nodes) + unattributed_seconds + idle_seconds`.
    Where several instructions run at the same time, on the threads of a device or on several
    devices, they share the elapsed time equally.

    Attributes:
        nodes: node name -> its time.
        lines: "file:line" -> the time of a line of the user's program.
        host: the host's time.
        step_seconds: the elapsed time of one step, the mean of all profiled steps.
        plain_seconds: the elapsed time of a step without the profiler, measured before.
        unattributed_seconds: the time of instructions that belong to no node.
        idle_seconds: the time in which no instruction ran.
        steps: how many steps were profiled.
        devices: how many devices ran them.
        unattributed: the names of the instructions that belong to no node -> seconds.
        notes: what could not be found out, one line each.
        recording: the runs of instructions, and the parts of the host's time.
        owners: (module, instruction) of the recording -> the node that takes most of its time.
        containers: the instructions of the recording that contain others, such as loops.
        program: the program as it was lowered, for `gc.train.SummaryWriter.graph`; of several, the
            first. None if it is not known.
        program_seconds: node of `program` -> its part of the elapsed time of a step, for
            `gc.train.SummaryWriter.run_metadata`. A node in a loop has the time of all iterations.

    Examples:
        >>> x = gc.placeholder((64, 64), name="x")
        >>> product = gc.matmul(x, x, name="product")
        >>> profile = gc.profile(gc.Session(graph), product, {x: np.ones((64, 64), "float32")})
        >>> [(name, node.op) for name, node in profile.nodes.items()], profile.steps
        ([('product', 'MatMul')], 20)
    """

    nodes: Mapping[str, NodeTime]
    host: HostTime
    step_seconds: float
    plain_seconds: float
    unattributed_seconds: float
    idle_seconds: float
    steps: int
    devices: int
    unattributed: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    recording: Recording = field(default=Recording((), ()), repr=False)
    owners: Mapping[tuple[str, str], str] = field(default_factory=dict, repr=False)
    containers: frozenset[tuple[str, str]] = field(default=frozenset(), repr=False)
    program: Program | None = field(default=None, repr=False)
    program_seconds: Mapping[Node, float] = field(default_factory=dict, repr=False)

    @cached_property
    def lines(self) -> Mapping[str, LineTime]:
        """The lines of the user's program, the slowest first."""
        found: dict[str, list[NodeTime]] = {}
        for node in self.nodes.values():
            if node.source is not None:
                key = f"{node.source.file}:{node.source.line}"
                found.setdefault(key, []).append(node)
        rows = {key: self._line(nodes) for key, nodes in found.items()}
        return dict(sorted(rows.items(), key=lambda row: -row[1].seconds))

    def _line(self, nodes: list[NodeTime]) -> LineTime:
        first = nodes[0].source
        source = Source("", 0) if first is None else Source(first.file, first.line)

        def total(phase: str) -> float:
            return sum(node.seconds for node in nodes if node.phase == phase)

        seconds = sum(node.seconds for node in nodes)
        callers = {
            str(n.caller): n.caller for n in nodes if n.caller is not None and n.phase == BACKWARD
        }
        return LineTime(
            source,
            seconds,
            seconds / self.step_seconds if self.step_seconds else 0.0,
            {phase: total(phase) for phase in PHASES},
            tuple(callers.values()),
            tuple(node.name for node in sorted(nodes, key=lambda n: -n.seconds)),
        )

    @property
    def device_seconds(self) -> float:
        """The time of a step in which any instruction ran."""
        return sum(node.seconds for node in self.nodes.values()) + self.unattributed_seconds

    def to_json(self) -> dict[str, Any]:
        """All figures as JSON has them, for other tools: seconds of one step."""
        nodes = {
            node.name: {
                "operator": node.op,
                "seconds": node.seconds,
                "count": node.count,
                "flops": node.flops,
                "bytes": node.bytes,
                "phase": node.phase,
                "line": _place(node.source),
                "caller": _place(node.caller),
            }
            for node in self.nodes.values()
        }
        lines = {
            key: {"seconds": line.seconds, "share": line.share, "phases": dict(line.phases)}
            for key, line in self.lines.items()
        }
        return {
            "step_seconds": self.step_seconds,
            "plain_seconds": self.plain_seconds,
            "device_seconds": self.device_seconds,
            "unattributed_seconds": self.unattributed_seconds,
            "idle_seconds": self.idle_seconds,
            "host": vars(self.host),
            "steps": self.steps,
            "devices": self.devices,
            "notes": list(self.notes),
            "lines": lines,
            "nodes": nodes,
        }

    def text(self) -> str:
        """The tables as text: the host's time, the slowest lines and nodes, and the user's source
        with the time of each line."""
        return text_of(self)

    def html(self, path: str | Path) -> None:
        """Writes the tables and the annotated source into one HTML file, which needs no network.

        Raises:
            GraphcError: the file cannot be written.
        """
        write_html(self, path)

    def trace(self, path: str | Path) -> None:
        """Writes the profiled steps as a Chrome trace, for https://ui.perfetto.dev.

        Each device has a track with the names of the nodes. The host's parts have another.

        Raises:
            GraphcError: the file cannot be written.
        """
        write_trace(self, path)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return (
            f"<Profile of {self.steps} steps: {1e3 * self.step_seconds:.3g} ms a step, "
            f"{len(self.nodes)} nodes>"
        )
