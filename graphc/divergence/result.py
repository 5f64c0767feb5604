"""`Comparison`: what `gc.compare` returns."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from graphc.errors import MissingExtraError
from graphc.reports.figures import table

_ROWS = 40  # of the table


@dataclass(frozen=True)
class Divergence:
    """One value that two runs have in common.

    Attributes:
        node: the name of the node.
        op: its operator.
        source: the user's line; "" if it is not known.
        tensor: the name of the value.
        type: its dtype and shape.
        nodes: the names of all nodes since the last common values; more than one where passes
            joined them.
        difference: the largest difference of the two runs, as a fraction of the largest element.
        errors: for each run, the same for its distance from the exact result of its own values.
        ratios: for each run, its distance from that result, as a fraction of what rounding
            explains. Above 1 it is a fault.
        inside: the loops and branches around the node, outermost first.
        index: the element of the run with the larger ratio that deviates most.
        blamed: the pass that made the fault; None if it is not known.
        run: the run with the larger ratio, as reports call it.
    """

    node: str
    op: str
    source: str
    tensor: str
    type: str
    nodes: tuple[str, ...]
    difference: float
    errors: tuple[float, ...]
    ratios: tuple[float, ...]
    inside: tuple[str, ...] = ()
    index: tuple[int, ...] = ()
    blamed: str | None = None
    run: str = ""

    @property
    def is_fault(self) -> bool:
        """Whether rounding does not explain the value of one of the runs."""
        return max(self.ratios) > 1.0

    def __str__(self) -> str:
        where = f" ({self.source})" if self.source else ""
        around = "".join(f" in {each}" for each in reversed(self.inside))
        return f"{self.op} {self.node!r}{where}{around}"


@dataclass(frozen=True)
class Comparison:
    """Where two runs part. `print(comparison)` shows it; `gc.compare` returns it.

    Attributes:
        labels: what the two runs are called.
        rows: the values that both have, in program order.
        first: the first fault; None if rounding explains every value.
        notes: what was not compared.

    Examples:
        >>> x = gc.placeholder((3,), name="x")
        >>> y = gc.exp(x, name="y")
        >>> wrong = {"y": np.float32([1.0, 2.0, 3.0])}
        >>> found = gc.compare(graph, wrong, {x: [0.0, 1.0, 2.0]}, fetches=y)
        >>> found.ok, found.first.node, found.first.index
        (False, 'y', (2,))
    """

    labels: tuple[str, str]
    rows: tuple[Divergence, ...]
    first: Divergence | None
    notes: tuple[str, ...] = field(default=())

    @property
    def ok(self) -> bool:
        """Whether rounding explains every value.

        Examples:
            >>> x = gc.placeholder((3,), name="x")
            >>> gc.compare(graph, feeds={x: [1.0, 2.0, 3.0]}, fetches=gc.exp(x)).ok
            True
        """
        return self.first is None

    @property
    def faults(self) -> tuple[Divergence, ...]:
        """All values that rounding does not explain, in program order."""
        return tuple(row for row in self.rows if row.is_fault)

    def to_json(self) -> dict[str, Any]:
        """The comparison for other programs."""
        return {
            "runs": list(self.labels),
            "ok": self.ok,
            "first": None if self.first is None else asdict(self.first),
            "faults": len(self.faults),
            "rows": [asdict(row) for row in self.rows],
            "notes": list(self.notes),
        }

    def text(self, rows: int = _ROWS) -> str:
        """The first fault, and the error's growth along the graph.

        Args:
            rows: of the table; around the first fault, or evenly along the graph.
        """
        return "\n".join([*self._verdict(), "", *self._table(rows), *self.notes])

    def __str__(self) -> str:
        return self.text()

    def _verdict(self) -> list[str]:
        a, b = self.labels
        worst = max((row.difference for row in self.rows), default=0.0)
        if self.first is None:
            return [
                f"rounding explains all {len(self.rows)} values of {a} and {b}",
                f"  largest difference: {worst:.2g} of the largest element",
            ]
        first = self.first
        at = f", largest at {list(first.index)}" if first.index else ""
        lines = [
            f"{a} and {b} part at {first}",
            f"  {first.run}: {max(first.errors):.2g} of the largest element from the "
            f"exact result, {max(first.ratios):.3g} times what rounding explains{at}",
        ]
        if first.blamed:
            lines.append(f"  pass {first.blamed} made it")
        if len(first.nodes) > 1:
            lines.append(f"  {len(first.nodes)} nodes together: {_listed(first.nodes)}")
        others = len(self.faults) - 1
        if others > 0:
            lines.append(f"  {others} more values are not explained by rounding")
        return lines

    def _table(self, count: int) -> list[str]:
        shown = self._shown(count)
        head = ("", "node", "operator", "result", "difference", "local error", "x rounding", "line")
        lines = [head]
        lines += [
            (
                "*" if row.is_fault else "",
                row.node,
                row.op,
                row.type,
                f"{row.difference:.2g}",
                f"{max(row.errors):.2g}",
                f"{max(row.ratios):.2g}",
                row.source,
            )
            for row in shown
        ]
        rest = len(self.rows) - len(shown)
        return [*table(lines, right=(4, 5, 6)), *([f"  and {rest} more values"] if rest else [])]

    def _shown(self, count: int) -> list[Divergence]:
        if len(self.rows) <= count:
            return list(self.rows)
        faulty = [i for i, row in enumerate(self.rows) if row.is_fault][: count // 2]
        step = len(self.rows) / max(count - len(faulty), 1)
        chosen = {*faulty, *(int(i * step) for i in range(max(count - len(faulty), 1)))}
        return [self.rows[i] for i in sorted(chosen)]

    def plot(self, path: str) -> None:
        """Draws the error's growth along the graph into a PNG or SVG file.

        Raises:
            MissingExtraError: matplotlib is not installed.
        """
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise MissingExtraError(
                "Comparison.plot needs matplotlib", hint="pip install 'graphc[plot]'"
            ) from error
        figure = Figure(figsize=(9, 4.5), layout="constrained")
        axes = figure.subplots()
        numbers = range(len(self.rows))

        def shown(values: Iterable[float]) -> list[float]:
            """The values on a logarithmic axis, which has no zero."""
            return [min(value, 1e9) if value > 0 else math.nan for value in values]

        series = [
            (f"difference of {self.labels[0]} and {self.labels[1]}", "-", "C0",
             [row.difference for row in self.rows]),
            ("local error", ".", "C7", [max(row.errors) for row in self.rows]),
        ]  # fmt: skip
        for label, style, color, values in series:
            axes.plot(numbers, shown(values), style, color=color, label=label)
        faults = [i for i, row in enumerate(self.rows) if row.is_fault]
        if faults:
            errors = shown(max(self.rows[i].errors) for i in faults)
            axes.plot(faults, errors, "x", color="C3", label="not rounding", markersize=9)
            axes.set_title(f"first fault: {self.first or self.rows[faults[0]]}", fontsize="medium")
        axes.set_yscale("log")
        axes.set_xlabel("value, in program order")
        axes.set_ylabel("fraction of the largest element")
        axes.legend()
        figure.savefig(path)


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names[:4]) + (f", ... {names[-1]}" if len(names) > 4 else "")
