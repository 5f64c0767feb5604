"""An attack on meshes: random programs of the law cases with random layouts, compared with one
device.

Each program has one to eight cases, with a random dtype, on one of four meshes. Half of the
programs have gradients, and half have unrelated fetches. Programs run in child processes, since
XLA's partitioner may abort the process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from tests.laws.meshes import CASES, MESHES, compare, spread

_AT_ONCE = 50  # programs per child process, which bounds its memory


@dataclass
class Tally:
    """The results of an attack.

    Attributes:
        programs: how many programs were compiled for a mesh and for one device.
        compared: how many of their results and gradients were compared.
        wrong: values that differ, each with its program.
        refused: programs that raised an error, each with its text.
        crashed: programs that ended the process.
    """

    programs: int = 0
    compared: int = 0
    wrong: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    crashed: list[str] = field(default_factory=list)


def attack(rounds: int, seed: int) -> Tally:
    """Runs this number of programs. Equal seeds give equal programs."""
    tally = Tally()
    start = 0
    while start < rounds:
        last = start - 1
        for row in _in_a_child(start, min(start + _AT_ONCE, rounds), seed):
            last = row["round"]
            tally.programs += 1
            tally.compared += row["compared"]
            tally.wrong += row["wrong"]
            tally.refused += row["refused"]
        if last + 1 < min(start + _AT_ONCE, rounds):
            last += 1  # the one that was running
            tally.programs += 1
            tally.crashed.append(f"seed {seed}, round {last}")
        start = last + 1
    return tally


def _in_a_child(start: int, end: int, seed: int) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "tests.reliability.meshes", str(start), str(end), str(seed)]
    flags = "--xla_force_host_platform_device_count=4"
    if flags not in os.environ.get("XLA_FLAGS", ""):
        flags = f"{os.environ.get('XLA_FLAGS', '')} {flags}"
    else:
        flags = os.environ["XLA_FLAGS"]
    environment = {**os.environ, "XLA_FLAGS": flags, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def rows(start: int, end: int, seed: int) -> Iterator[dict[str, Any]]:
    """The results of each round of a range."""
    for number in range(start, end):
        rng = np.random.default_rng([seed, number])
        chosen = [CASES[i] for i in rng.choice(len(CASES), int(rng.integers(1, 9)), replace=False)]
        axes = MESHES[int(rng.integers(len(MESHES)))]
        dtype = (None, "float64", "float32", "int32", "complex128")[int(rng.integers(5))]
        tally = Tally()
        try:
            made = spread(
                chosen, axes, number, dtype=dtype,
                gradient=bool(rng.integers(2)), company=bool(rng.integers(2)),
            )  # fmt: skip
            tally.compared = len(made.fetches)
            where = f"seed {seed}, round {number}, {dict(axes)}, {dtype}: "
            tally.wrong = [where + text for text in compare(made)]
        except Exception as error:  # any kind of error is counted
            tally.refused = [f"seed {seed}, round {number}: {type(error).__name__}: {error}"[:300]]
        row = asdict(tally)
        yield {"round": number, **{key: row[key] for key in ("compared", "wrong", "refused")}}


if __name__ == "__main__":
    for found in rows(*map(int, sys.argv[1:])):
        print(json.dumps(found), flush=True)
