"""The history of passes: the program before and after each pass, and its cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from graphc.errors import UnknownNameError, nearest
from graphc.ir.costs import Cost
from graphc.ir.graph import Graph
from graphc.ir.program import Program
from graphc.ir.rewrite import bind_sizes
from graphc.passes.core.costs import program_costs, total
from graphc.passes.core.peak import peak
from graphc.passes.manager import PassReport, PassRow, watching
from graphc.runtime.buffers.layout import StateLayout
from graphc.runtime.buffers.state_buffers import propose
from graphc.runtime.pipeline.compilation import Compilation
from graphc.runtime.state.initial import state_types


@dataclass(frozen=True)
class PassStep:
    """One run of one pass.

    Attributes:
        row: what the pass did, and the cost of the program after it.
        before, after: the program. Both are the same object if the pass changed nothing.
    """

    row: PassRow
    before: Program
    after: Program


@dataclass(frozen=True)
class PassHistory:
    """All passes of a program in order. `print(history)` shows a table, and
    `print(history.after("roll-repeats"))` the program after a pass.

    There are two steps besides the passes of the pipeline. After "physical", the program uses the
    buffers that store the state. After "replicate", it is the program that each of several devices
    runs.

    Attributes:
        start: the program before all passes, and its cost.
        steps: one for each run of a pass.
    """

    start: PassStep
    steps: tuple[PassStep, ...]

    @property
    def report(self) -> PassReport:
        """What each run did, and the cost of the program after it."""
        return PassReport(tuple(step.row for step in (self.start, *self.steps)))

    def before(self, name: str) -> Program:
        """The program before a pass.

        Args:
            name: the name of the pass, which means its first run that changed something, or its
                first run. A name with a number selects a run: "prune:2" is the second run.

        Raises:
            UnknownNameError: no such pass ran.
        """
        return self._find(name).before

    def after(self, name: str) -> Program:
        """The program after a pass; see `before`."""
        return self._find(name).after

    def _find(self, name: str) -> PassStep:
        kind, _, number = name.partition(":")
        runs = [step for step in self.steps if step.row.name == kind]
        if not runs:
            known = list(dict.fromkeys(step.row.name for step in self.steps))
            raise UnknownNameError(f"no pass {kind!r} ran", hint=nearest(kind, known))
        if not number:
            return next((step for step in runs if step.before is not step.after), runs[0])
        if not number.isdecimal() or not 1 <= int(number) <= len(runs):
            raise UnknownNameError(
                f"pass {kind!r} has no run {number!r}", hint=f"it ran {len(runs)} times"
            )
        return runs[int(number) - 1]

    def __str__(self) -> str:
        return str(self.report)


def pass_history(
    compilation: Compilation, layout: StateLayout, budget: int | None = None
) -> PassHistory:
    """Runs all passes of `compilation` again and records what they did. Nothing is compiled.

    Args:
        layout: the layout of the state.
        budget: see `passes.recompute`.

    Raises:
        LayoutError: the strategy cannot be followed.
    """
    cost = _costs(compilation)
    steps: list[PassStep] = []

    def keep(row: PassRow, before: Program, after: Program) -> None:
        steps.append(PassStep(cost(row, after), before, after))

    again = compilation.under(replace(compilation.options, dump=None, validate=False))
    with watching(keep):
        again.in_jax(layout, budget)
    functional = compilation.prepared.functional
    nodes = sum(1 for _ in functional.walk())
    row = cost(PassRow("(start)", 1, nodes, nodes, 0, 0.0, 0.0), functional)
    return PassHistory(PassStep(row, functional, functional), tuple(steps))


def layout_for(graph: Graph, compilation: Compilation) -> StateLayout:
    """The layout that the state has if no other program uses it."""
    layout = StateLayout({}).with_variables(state_types(graph))
    return layout.with_groups(
        propose(compilation.program, layout, compilation.options.state_buffers)
    )


def _costs(compilation: Compilation) -> Callable[[PassRow, Program], PassRow]:
    """Returns a function that adds the program's cost to a row, with the sizes that are bound."""
    last: tuple[Program, Cost, int] | None = None

    def add(row: PassRow, program: Program) -> PassRow:
        nonlocal last
        if last is None or last[0] is not program:  # most passes change nothing
            bound = bind_sizes(program, compilation.bindings) if program.symbols() else program
            last = program, total(cost for _, cost in program_costs(bound)), peak(bound)
        _, cost, memory = last
        return replace(row, flops=cost.flops, bytes=cost.bytes, memory=memory)

    return add
