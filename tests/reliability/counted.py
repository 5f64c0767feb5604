"""A program whose state shows a partial update: each step adds one to every variable."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import graphc as gc

REPOSITORY = Path(__file__).parents[2]
ROWS = 8
SHAPES = [(), (3,), (4, 4), (4, 4), (64, 16), (5, 2), (), (7,)]
FEED = np.ones((ROWS, 4), np.float32)
FEED.flags.writeable = False
DEVICES = ("/cpu:0", "/cpu:1", "/cpu:2", "/cpu:3")
NAMES = [f"v{i}" for i in range(len(SHAPES))]


class Counted:
    """The graph of the program: `x` must be fed with ones.

    Args:
        partitioned: whether the variables are on four devices, and each step uses all devices.
    """

    def __init__(self, partitioned: bool = False) -> None:
        self.graph = gc.Graph()
        with self.graph:
            self.x = gc.placeholder((None, 4), name="x")
            self.one = gc.reduce_mean(self.x, name="one")
            places = DEVICES if partitioned else (None,)
            more = []
            for i, (name, shape) in enumerate(zip(NAMES, SHAPES, strict=True)):
                with gc.device(places[i % len(places)]):
                    v = gc.variable(np.zeros(shape, np.float32), name=name)
                    more.append(v.assign(v + self.one))
            self.step = gc.group(*more, name="step")
            variables = list(self.graph.variables.values())
            self.checks = [gc.reduce_max(v) + self.one - 1 for v in variables]
            if not partitioned:  # the layout puts these two variables in one buffer
                self.checks.append(gc.reduce_max(gc.stack(variables[2:4])) + self.one - 1)
        self.feeds: dict[Any, Any] = {self.x: FEED}

    def saved(self, session: gc.Session) -> list[float]:
        """The checks, computed by a model that was saved from a session and loaded."""
        outputs = {f"c{i}": check for i, check in enumerate(self.checks)}
        signature = gc.Signature({"x": self.x}, outputs)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model"
            gc.save(session, path, signatures={"look": signature}, platforms=("cpu",))
            found = gc.load(path).signatures["look"](x=FEED)
        return [float(value) for value in found.values()]


def count_in(values: Mapping[str, Any]) -> int | None:
    """The number of steps in the values of all variables; None if they do not agree."""
    numbers = np.concatenate([np.ravel(values[name]) for name in NAMES])
    return int(numbers[0]) if (numbers == numbers[0]).all() else None


def shared_out(rounds: int, shares: Mapping[str, float], least: int) -> dict[str, int]:
    """Divides the rounds of an attack among its forms."""
    whole = sum(shares.values())
    return {form: max(least, round(rounds * part / whole)) for form, part in shares.items()}


def in_children(module: str, forms: Mapping[str, int], seed: int, *, each: bool) -> Counter[str]:
    """Runs the forms of an attack in other processes, and sums their tallies.

    Args:
        module: the module of the attack; it calls `print_total` when it is run.
        forms: form -> its number of rounds.
        each: whether each form runs in a separate process, or all forms in one.
    """
    parts = [{form: count} for form, count in forms.items()] if each else [forms]
    total = Counter[str](lost=0, crashes=0, hangs=0)
    for part in parts:
        found = _in_a_child(module, part, seed)
        print(json.dumps(part), json.dumps(found), flush=True)
        total.update(found)
    return total


def _in_a_child(module: str, forms: Mapping[str, int], seed: int) -> Counter[str]:
    """Runs an attack in a separate process and reads its tally. A process that fails counts as a
    crash, and one that takes too long as a hang."""
    flags = "--xla_force_host_platform_device_count=4"
    command = [sys.executable, "-X", "faulthandler", "-m", f"tests.reliability.{module}"]
    try:
        done = subprocess.run(
            [*command, json.dumps(forms), str(seed)],
            cwd=REPOSITORY,
            env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags},
            capture_output=True,
            text=True,
            timeout=300 + sum(forms.values()),
        )
    except subprocess.TimeoutExpired as error:
        print(error.stdout, error.stderr)
        return Counter(hangs=1)
    if done.returncode:
        print(done.stdout[-2000:], done.stderr[-6000:])
        return Counter(crashes=1)
    print("\n".join(done.stdout.splitlines()[:-1]))
    return Counter(json.loads(done.stdout.splitlines()[-1]))


def print_total(attack: Callable[[str, int, int], Counter[str]]) -> None:
    """Runs the forms of an attack that the command line names, and prints the sum of their tallies.

    Args:
        attack: takes a form, its number of rounds and a seed; returns the tally.
    """
    total = Counter[str]()
    for form, rounds in json.loads(sys.argv[1]).items():
        total.update(attack(form, rounds, int(sys.argv[2])))
    print(json.dumps(total))
