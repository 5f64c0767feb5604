"""A program whose state tells whether it is whole: each step adds one to every variable."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
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
    """The graph: `x` is to be fed with ones.

    Args:
        partitioned: whether the variables lie on four devices, and each step goes through all.
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
            if not partitioned:  # what would have two variables side by side in one buffer
                self.checks.append(gc.reduce_max(gc.stack(variables[2:4])) + self.one - 1)
        self.feeds: dict[Any, Any] = {self.x: FEED}


def count_in(values: Mapping[str, Any]) -> int | None:
    """How many steps the values of all variables have seen; None where they do not agree."""
    numbers = np.concatenate([np.ravel(values[name]) for name in NAMES])
    return int(numbers[0]) if (numbers == numbers[0]).all() else None


def shared_out(rounds: int, shares: Mapping[str, float], least: int) -> dict[str, int]:
    """How many of the rounds each form of an attack has."""
    whole = sum(shares.values())
    return {form: max(least, round(rounds * part / whole)) for form, part in shares.items()}


def in_children(module: str, forms: Mapping[str, int], seed: int, *, each: bool) -> Counter[str]:
    """The sum of the tallies of the forms of an attack, carried out in other processes.

    Args:
        forms: how many rounds of each.
        each: whether each form has a process of its own, or one has all.
    """
    parts = [{form: count} for form, count in forms.items()] if each else [forms]
    total = Counter[str](lost=0, crashes=0, hangs=0)
    for part in parts:
        found = _in_a_child(module, part, seed)
        print(json.dumps(part), json.dumps(found), flush=True)
        total.update(found)
    return total


def _in_a_child(module: str, forms: Mapping[str, int], seed: int) -> Counter[str]:
    """The tally that an attack prints in a process of its own. One that ends otherwise is a crash,
    one that does not come in time is a hang."""
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
