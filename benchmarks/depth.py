"""The cost of depth: transformers of 24 and 48 blocks, compiled cold, run, and started again.

Every compilation is in a fresh process (`benchmarks.depth_child`), one after the other. The
processes then stay alive, and their steps are timed in turn, so that noise affects all equally.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from benchmarks.children import answer_of

Row = tuple[str, str, str]
FORMS = ("graphc", "imported", "scan", "unrolled")


class Child:
    """A process that compiles one form and then runs steps on request."""

    def __init__(
        self,
        form: str,
        size: int,
        module: str = "benchmarks.depth_child",
        command: tuple[str, ...] = ("compile",),
    ) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *command, form, str(size)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.seconds = self._answer()

    def steps(self, count: int) -> float:
        """The seconds per step."""
        print(count, file=self._process.stdin, flush=True)
        return self._answer()["seconds"] / count

    def close(self) -> None:
        self._process.communicate()

    def _answer(self) -> dict[str, float]:
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a child process died: exit code {self._process.wait()}")
        found: dict[str, float] = json.loads(line)
        return found


def rows(*, unrolled48: bool) -> Iterator[Row]:
    """All rows. `unrolled48` includes JAX's unrolled step of 48 blocks (about 5 minutes)."""
    colds: dict[int, dict[str, float]] = {}
    for blocks in (24, 48):
        forms = [f for f in FORMS if f != "unrolled" or blocks == 24 or unrolled48]
        found, colds[blocks] = of_depth(blocks, forms)
        yield from found
    for form in ("graphc", "imported"):
        ratio = colds[48][form] / colds[24][form]
        yield f"{form}: compiling 48 blocks over 24", f"{ratio:.3f}x", "at most 1.25x"
    yield from second_start(24)


def of_depth(blocks: int, forms: list[str]) -> tuple[list[Row], dict[str, float]]:
    """The rows of one depth, and for each form the seconds of lowering and compiling."""
    children = {form: Child(form, blocks) for form in forms}
    cold = {form: _of(c.seconds, "layout", "lower", "compile") for form, c in children.items()}
    steps: dict[str, list[float]] = {form: [] for form in forms}
    for number in range(8):
        for form, child in children.items():
            seconds = child.steps(3)
            if number:
                steps[form].append(seconds)
    for child in children.values():
        child.close()
    found: list[Row] = []
    for form in ("graphc", "imported"):
        ours = children[form].seconds
        label = f"{form}, {blocks} blocks"
        before = _of(ours, "build", "passes", "key and the rest")
        parts = ", ".join(f"{name} {ours[name]:.2f}" for name in ours)
        target = "at most 2 s" if blocks == 48 else ""
        found.append((f"{label}: build, passes and key ({parts} s)", f"{before:.2f} s", target))
        for other, compile_target, step_target in (("unrolled", 0.12, 1.0), ("scan", 1.6, 1.1)):
            if other in children:
                found += [
                    _over(f"{label}: trace, lower and compile", cold, form, other, compile_target),
                    _step_over(f"{label}: step", steps, form, other, step_target),
                ]
    return found, cold


def _of(seconds: dict[str, float], *stages: str) -> float:
    return sum(seconds.get(stage, 0.0) for stage in stages)


def _over(label: str, seconds: dict[str, float], ours: str, theirs: str, target: float) -> Row:
    a, b = seconds[ours], seconds[theirs]
    what = f"{label} ({a:.2f} s), over JAX {theirs} ({b:.2f} s)"
    return what, f"{a / b:.3f}x", f"at most {target:.2f}x"


def _step_over(
    label: str, seconds: dict[str, list[float]], ours: str, theirs: str, target: float
) -> Row:
    ratio = statistics.median(a / b for a, b in zip(seconds[ours], seconds[theirs], strict=True))
    a, b = (1e3 * statistics.median(seconds[form]) for form in (ours, theirs))
    what = f"{label} ({a:.0f} ms), over JAX {theirs} ({b:.0f} ms)"
    return what, f"{ratio:.3f}x", f"at most {target:.2f}x"


def second_start(blocks: int, rounds: int = 5) -> list[Row]:
    """The time from the first import to the end of the first step in a new process with warm
    caches."""
    times: dict[str, list[float]] = {"graphc": [], "unrolled": [], "imports": []}
    with (
        tempfile.TemporaryDirectory() as ours,
        tempfile.TemporaryDirectory() as theirs,
        tempfile.TemporaryDirectory() as bytecode,
    ):
        folders = {"graphc": ours, "unrolled": theirs}
        for number in range(rounds + 1):
            for form in times:
                extra = () if form == "imports" else ("start", form, str(blocks), folders[form])
                seconds = _run(bytecode, *(extra or ("imports",)))
                if number:  # the first fills the caches
                    times[form].append(seconds)
    graphc, unrolled, imports = (statistics.median(times[form]) for form in times)
    label = f"second start, {blocks} blocks ({graphc:.2f} s)"
    return [
        (
            f"{label}, over JAX with its cache warm ({unrolled:.2f} s)",
            f"{graphc / unrolled:.3f}x",
            "at most 0.20x",
        ),
        (
            f"{label}, over `import jax, optax` ({imports:.2f} s)",
            f"+{graphc - imports:.2f} s",
            "at most +1.2 s",
        ),
    ]


def _run(bytecode: str, *arguments: str) -> float:
    """The seconds that a child reports. Python stores the bytecode of all modules in a folder, as
    for installed packages, even if this environment disables it."""
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment = {**inherited, "PYTHONPYCACHEPREFIX": bytecode}
    answer = answer_of("benchmarks.depth_child", *arguments, environment=environment)
    return float(answer["seconds"])
