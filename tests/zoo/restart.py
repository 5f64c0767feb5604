"""Runs programs of the zoo in a separate process, from the files of another process.

    python -m tests.zoo.restart FOLDER NAME...

For each program: loads its file and runs it, then imports the program again and runs it from the
executable cache. The answers are JSON in FOLDER/answers.json: the difference of the results from
those of the first process, and what was compiled.
"""

from __future__ import annotations

import json
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import graphc as gc
from graphc.runtime.core.counters import COUNTERS
from tests.near import size
from tests.zoo.programs import Prepared, all_programs, prepared_cache


def distance(got: Any, want: Any) -> float:
    """The largest difference relative to the largest value; infinite for other shapes or NaNs."""
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape or got.dtype != want.dtype:
        return float("inf")
    if not np.array_equal(np.isfinite(got), np.isfinite(want)):
        return float("inf")
    finite = np.isfinite(want)
    gap = np.abs(np.where(finite, got, 0).astype("float64") - np.where(finite, want, 0))
    return float(gap.max(initial=0.0) / max(size(want), 0.1))  # as in test_zoo


def answer(prepared: Prepared, folder: Path) -> dict[str, Any]:
    name = prepared.program.name
    with np.load(folder / f"{name}.npz") as stored:
        want = [stored[f"y{i}"] for i in range(len(stored.files))]
    point = gc.load(folder / f"{name}.gcx").signatures["run"]
    given = {f"x{i}": value for i, value in enumerate(prepared.values)}
    results = point(**{key: given[key] for key in point.inputs})
    loaded = max(distance(results[f"y{i}"], y) for i, y in enumerate(want))

    graph, xs, ys = prepared.graph()
    session = gc.Session(graph, options=gc.CompileOptions(cache=folder / "cache"))
    before = COUNTERS.compiles
    got = session.run(ys, dict(zip(xs, prepared.values, strict=True)))
    (step,) = session.executables
    return {
        "way": point.way,
        "loaded": loaded,
        "imported": max(distance(a, b) for a, b in zip(got, want, strict=True)),
        "cached": step.cached,
        "compiles": COUNTERS.compiles - before,
    }


def main(folder: Path, names: list[str]) -> None:
    warnings.simplefilter("ignore")
    prepared_cache(folder)
    known = {program.name: program for program in all_programs()}
    answers: dict[str, Any] = {}
    for name in names:
        try:
            answers[name] = answer(Prepared(known[name]), folder)
        except Exception:  # the test reports it
            answers[name] = {"error": traceback.format_exc()}
    (folder / "answers.json").write_text(json.dumps(answers))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
