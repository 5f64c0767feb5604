"""The result of `gc.tune`: the options that it found, and the outcome of each variant."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from graphc.config import CompileOptions


@dataclass(frozen=True)
class TuningRow:
    """The outcome of one variant.

    Attributes:
        name: the name of the change.
        ratio: its time relative to the given options, as the median of the pairs; None if it was
            not measured.
        compile_seconds: the time to compile it; None if it was not compiled.
        outcome: a description of the outcome.
    """

    name: str
    ratio: float | None
    compile_seconds: float | None
    outcome: str


@dataclass(frozen=True)
class Tuning:
    """The result of `gc.tune`. `print(tuning)` shows a table.

    Attributes:
        options: the options to compile with; the given ones if nothing was clearly faster.
        name: the name of the change that they make, or None for no change.
        ratio: the time with these options relative to the given ones; 1.0 for no change.
        seconds: the duration of a call with the given options.
        kept: whether later compilations use the options automatically.
        rows: the outcome of each variant.
        estimated: whether the times are estimates, for a machine that is not present. In that case
            nothing has run and nothing is stored.
    """

    options: CompileOptions
    name: str | None
    ratio: float
    seconds: float
    kept: bool
    rows: tuple[TuningRow, ...]
    estimated: bool = False

    def to_json(self) -> dict[str, Any]:
        """The report as plain values. Of the options, it contains only what `rows` do not."""
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
                "to compile this way, pass these options; to verify, tune on the machine"
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
