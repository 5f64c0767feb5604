"""The pass manager: runs passes in order, and verifies, times and reports them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from graphc.errors import AttributeValueError, LayoutError, PassError, VerifyError
from graphc.ir.node import Node
from graphc.ir.program import Program, effects_of
from graphc.ir.text import print_program
from graphc.ir.verify import STATEFUL, Stage, verify
from graphc.passes.core.base import Pass
from graphc.passes.core.validate import Evaluator, check_meaning


@dataclass(frozen=True)
class PassRow:
    """The record of one run of one pass.

    Attributes:
        name: the pass.
        round: the number of the round, from 1.
        before, after: the numbers of nodes, including nodes in bodies.
        changed: the number of changes.
        milliseconds: the time of the pass itself.
        check_milliseconds: the time of verification and validation after it.
        notes: notes of the pass about the program after it.
        flops, bytes, memory: estimates for the program after it, as in `passes.costs` and
            `passes.peak`; None if not requested (see `Executable.pass_history`).
    """

    name: str
    round: int
    before: int
    after: int
    changed: int
    milliseconds: float
    check_milliseconds: float
    notes: tuple[str, ...] = ()
    flops: int | None = None
    bytes: int | None = None
    memory: int | None = None


@dataclass(frozen=True)
class PassReport:
    """The changes that passes made to a program. `print(report)` shows a table; `to_json()` gives
    the rows."""

    rows: tuple[PassRow, ...] = ()

    def __add__(self, other: PassReport) -> PassReport:
        return PassReport(self.rows + other.rows)

    @property
    def milliseconds(self) -> float:
        """The time of all passes and their checks."""
        return sum(row.milliseconds + row.check_milliseconds for row in self.rows)

    def to_json(self) -> list[dict[str, Any]]:
        """The rows as plain data."""
        return [asdict(row) for row in self.rows]

    def __str__(self) -> str:
        known = any(row.flops is not None for row in self.rows)
        table = [(*_COLUMNS, *_FIGURES) if known else _COLUMNS, *map(_cells, self.rows)]
        widths = [max(len(cells[i]) for cells in table) for i in range(len(table[0]))]
        lines = []
        for first, *numbers in table:
            right = [cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=False)]
            lines.append("  ".join([first.ljust(widths[0]), *right]))
        nodes = f"{self.rows[0].before} -> {self.rows[-1].after} nodes, " if self.rows else ""
        notes = [f"{row.name}: {note}" for row in self.rows for note in row.notes]
        return "\n".join([*lines, f"{nodes}{self.milliseconds:.1f} ms", *notes])


_COLUMNS = ("pass", "round", "before", "after", "changed", "ms", "check ms")
_FIGURES = ("MFLOP", "MB moved", "MB at once")


def _cells(row: PassRow) -> tuple[str, ...]:
    figures = (row.flops, row.bytes, row.memory)
    return (
        row.name,
        *map(str, (row.round, row.before, row.after, row.changed)),
        f"{row.milliseconds:.2f}",
        f"{row.check_milliseconds:.2f}",
        *(f"{figure / 1e6:.4g}" for figure in figures if figure is not None),
    )


@dataclass(frozen=True)
class PassManager:
    """Runs `passes` in order, up to `rounds` times, until a round changes nothing.

    Attributes:
        verify: check the rules of the IR for the given program and after each pass that changed it.
        stage: the required stage after each pass. The given program may still read and assign
            variables, so that `Functionalize` can be the first pass.
        validate: also evaluate the program before and after each such pass on random inputs with
            `evaluator`, and reject a pass that changed the meaning.
        dump: a folder. The text of the program is written to a new subfolder `<program name>` (then
            `<program name>-2`, ...): first `00-start.txt`, then `<number>-<pass>.txt` after each
            pass that changed it, so that consecutive files are the text before and after a pass.
        rounds: a second round uses results of the first (a folded constant that is 1, copies that
            became equal) and changes about one node in a hundred. A third round found nothing in
            thousands of generated programs.
        seed: the seed of the random inputs.

    Raises:
        AttributeValueError: `validate` without an evaluator, or no rounds.
    """

    passes: Sequence[Pass]
    verify: bool = True
    stage: Stage = "functional"
    validate: bool = False
    evaluator: Evaluator | None = None
    dump: str | None = None
    rounds: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        if self.validate and self.evaluator is None:
            raise AttributeValueError(
                "PassManager: validate=True needs an evaluator",
                hint="pass evaluator=f, with f(program, inputs) -> outputs",
            )
        if self.rounds < 1:
            raise AttributeValueError(f"PassManager: rounds must be at least 1, got {self.rounds}")

    def run(self, program: Program) -> tuple[Program, PassReport]:
        """The program after the passes, and the report.

        Raises:
            VerifyError: the given program is not valid.
            PassError: a pass failed, returned an invalid program, or changed the meaning. The error
                names the pass, and the node and the user's line if they are known.
        """
        course = _Course(self, program)
        course.check_start()
        for number in range(1, self.rounds + 1):
            before = course.program
            for a_pass in self.passes:
                course.step(a_pass, number)
            if course.program is before:
                break
        return course.program, PassReport(tuple(course.rows))


@dataclass
class _Course:
    """One run of a manager."""

    manager: PassManager
    program: Program
    rows: list[PassRow] = field(default_factory=list)
    verified: set[Node] = field(default_factory=set)
    nothing_in: dict[Pass, Program] = field(default_factory=dict)  # passes that changed nothing

    def __post_init__(self) -> None:
        self.nodes = _count(self.program)
        self.dumped = 0
        self.folder = _new_folder(self.manager.dump, self.program.name)
        self.dump("start")

    def step(self, a_pass: Pass, number: int) -> None:
        """Runs one pass on the current program, unless it already found nothing to change there."""
        before = self.program
        if self.nothing_in.get(a_pass) is before or (a_pass.once and number > 1):
            return
        start = perf_counter()
        after, changed = _run(a_pass, before)
        done = perf_counter()
        nodes = self.nodes
        if after is before:
            self.nothing_in[a_pass] = before
        else:
            self.program, self.nodes = after, _count(after)
            self.dump(a_pass.name)
            self.check(a_pass, before, after)
        checked = perf_counter()
        times = (done - start) * 1e3, (checked - done) * 1e3
        notes = a_pass.notes(self.program)
        row = PassRow(a_pass.name, number, nodes, self.nodes, changed, *times, notes)
        self.rows.append(row)
        tell(row, before, self.program)

    def check_start(self) -> None:
        """Verifies the given program."""
        if not self.manager.verify:
            return
        if any(effects_of(node) & STATEFUL for node in self.program.nodes):
            verify(self.program, "captured")
        else:
            verify(self.program, self.manager.stage, previously=self.verified)

    def check(self, a_pass: Pass, before: Program, after: Program) -> None:
        """Verifies and validates, as configured."""
        manager = self.manager
        if manager.verify:
            try:
                verify(after, manager.stage, previously=self.verified)
            except VerifyError as error:
                raise PassError(
                    f"pass {a_pass.name} left an invalid program",
                    details=[error.what, *error.details],
                    source=error.source,
                    hint="a fault of the pass: dump= shows the program before and after it",
                ) from error
        if manager.validate and manager.evaluator is not None and a_pass.exact:
            difference = check_meaning(before, after, manager.evaluator, manager.seed)
            if difference is not None:
                raise PassError(
                    f"pass {a_pass.name} changed the meaning of program {before.name!r}",
                    details=[difference],
                    hint="a fault of the pass: dump= shows the program before and after it",
                )

    def dump(self, label: str) -> None:
        if self.folder is None:
            return
        text = print_program(self.program, names=True, elide=True)
        path = self.folder / f"{self.dumped:02d}-{label}.txt"
        with _dumping():
            path.write_text(text + "\n", encoding="utf-8")
        self.dumped += 1


def _new_folder(dump: str | None, program: str) -> Path | None:
    """A new subfolder of `dump`, so that an earlier dump is never overwritten."""
    if dump is None:
        return None
    name = re.sub(r"[^\w.-]", "_", program)
    folder, number = Path(dump) / name, 1
    with _dumping():
        while folder.exists():
            number += 1
            folder = Path(dump) / f"{name}-{number}"
        folder.mkdir(parents=True)
    return folder


@contextmanager
def _dumping() -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: the path is not valid for a file
        raise AttributeValueError(
            f"CompileOptions: dump cannot be written: {error}",
            hint="pass another folder, or leave dump out",
        ) from error


def _run(a_pass: Pass, program: Program) -> tuple[Program, int]:
    try:
        return a_pass.run(program)
    except LayoutError:  # an impossible request of the user, not a bug of the pass
        raise
    except PassError as error:
        if a_pass.name in error.what:
            raise
        raise a_pass.fault(None, error) from error
    except Exception as error:
        raise a_pass.fault(None, error) from error


def tell_of(name: str, before: Program, after: Program, seconds: float) -> None:
    """Reports a step that is not a pass of a manager to the watcher."""
    counts = _count(before), _count(after)
    tell(PassRow(name, 1, *counts, int(after is not before), seconds * 1e3, 0.0), before, after)


def _count(program: Program) -> int:
    return sum(1 for _ in program.walk())


# (the record of a pass, the program before it, the program after it)
Watcher = Callable[[PassRow, Program, Program], None]

_WATCHER: Final[ContextVar[Watcher | None]] = ContextVar("watcher", default=None)


@contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    """Calls `watcher` after each pass that runs inside, in this thread, whether it changed
    something or not."""
    token = _WATCHER.set(watcher)
    try:
        yield
    finally:
        _WATCHER.reset(token)


def tell(row: PassRow, before: Program, after: Program) -> None:
    """Reports one step to the watcher, if there is one."""
    watcher = _WATCHER.get()
    if watcher is not None:
        watcher(row, before, after)
