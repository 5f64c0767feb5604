"""What `gc.tune` gives: the options it found, and what came of each variant it tried."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from graphc.config import CompileOptions


@dataclass(frozen=True)
class TuningRow:
    """What came of one variant.

    Attributes:
        name: what it changes.
        ratio: its time as a part of that of the options as they are: median of the pairs; None
            where it was not measured.
        compile_seconds: what compiling it took; None where it was not compiled.
        outcome: in words.
    """

    name: str
    ratio: float | None
    compile_seconds: float | None
    outcome: str


@dataclass(frozen=True)
class Tuning:
    """What `gc.tune` found. `print(tuning)` shows a table.

    Attributes:
        options: those to compile with; the ones given where nothing was clearly faster.
        name: of what they change, or None for nothing.
        ratio: the time with them as a part of the time without; 1.0 for no change.
        seconds: of a call without them.
        kept: whether later compilations take them unasked.
        rows: what came of each variant.
        estimated: whether times are estimates, for a machine that is not here: nothing has run, and
            nothing is kept.
    """

    options: CompileOptions
    name: str | None
    ratio: float
    seconds: float
    kept: bool
    rows: tuple[TuningRow, ...]
    estimated: bool = False

    def to_json(self) -> dict[str, Any]:
        """As plain values; of the options what `rows` do not say."""
        return {
            "name": self.name,
            "ratio": self.ratio,
            "seconds": self.seconds,
            "kept": self.kept,
            "estimated": self.estimated,
            "xla_options": dict(self.options.xla_options),
            "rows": [asdict(row) for row in self.rows],
        }

    def __str__(self) -> str:
        width = max([len(row.name) for row in self.rows], default=0)
        lines = [
            f"{row.name.ljust(width)}  {_figure(row.ratio)}  {row.outcome}" for row in self.rows
        ]
        if self.estimated:
            lines.append("times are estimates from the compiled text: nothing has run")
        if self.name is None:
            lines.append(f"nothing is clearly faster than {_time(self.seconds)}")
        elif self.estimated:
            lines.append(
                f"{self.name}: {self.ratio:.2f} of {_time(self.seconds)}; "
                "to compile so, pass these options; to be sure, tune on the machine"
            )
        else:
            lines.append(
                f"{self.name}: {self.ratio:.2f} of {_time(self.seconds)}"
                + ("; later compilations use it" if self.kept else "; not kept: there is no cache")
            )
        return "\n".join(lines)


def _figure(ratio: float | None) -> str:
    return " -  " if ratio is None else f"{ratio:.2f}"


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"
