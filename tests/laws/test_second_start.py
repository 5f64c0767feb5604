"""The second-start law: a new process runs what another process compiled, with equal results.

It holds for every operator of the catalogue, every primitive that `from_jax` keeps, and their
gradients, from the executable cache and from native code in an artifact. See `programs` and
`starts`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from graphc.jaxpr.table import RULES
from graphc.ops.catalogue import FAMILIES
from graphc.ops.structure.primitive import _PRIMITIVES
from tests.jaxpr.kept_functions import NOT_KEPT
from tests.laws.programs import programs

REPOSITORY = Path(__file__).parents[2]
Facts = dict[str, Any]

# Operators of each external library, both ways to store code, and several devices.
SAMPLE = (
    "values/factorization", "gradients/factorization", "values/general_matrices", "values/sorting",
    "values/fourier", "devices/one", "devices/thread", "devices/steps", "devices/placed",
    "devices/replicated",
)  # fmt: skip


NOT_STORED = {"devices/calling back"}  # a program that calls Python cannot be stored


def started(folder: Path, names: Sequence[str]) -> tuple[Facts, Facts]:
    """The results of the first and of the second process, by program."""
    folder.chmod(0o700)
    for mode in ("first", "second"):
        done = subprocess.run(
            [sys.executable, "-m", "tests.laws.starts", mode, str(folder), *names],
            cwd=REPOSITORY,
            env=os.environ | {"JAX_PLATFORMS": "cpu"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{mode}: {done.stderr}"
        if mode == "second":
            sys.stderr.write(done.stderr)
    first, second = (
        json.loads((folder / f"{mode}.json").read_text()) for mode in ("first", "second")
    )
    return first, second


def check_equal(first: Facts, second: Facts) -> None:
    assert first.keys() == second.keys()
    for name, was in first.items():
        for way, found in second[name].items():
            assert "ended" not in found, f"{name}, {way}: the process ended with {found['ended']}"
            different = [
                number
                for number, (a, b) in enumerate(zip(was[way], found["results"], strict=True))
                if a != b
            ]
            assert not different, f"{name}, {way}: results {different} are different"
        cached = second[name]["cache"]
        kept = was["kept"] and cached["cached"] and cached["compiles"] == 0
        assert kept or name in NOT_STORED, f"{name}: compiled again"


def test_a_sample_starts_again(tmp_path: Path) -> None:
    first, second = started(tmp_path, SAMPLE)
    check_equal(first, second)
    targets = {target for name in first for target in first[name]["targets"]}
    assert "TopK" in targets and len([t for t in targets if t.startswith("lapack_")]) > 20


@pytest.mark.slow
@pytest.mark.exhaustive  # the sample has each external library
def test_every_operator_starts_again(tmp_path: Path) -> None:
    names = list(programs())
    first, second = started(tmp_path, names)
    check_equal(first, second)
    covered = {operator for found in first.values() for operator in found["operators"]}
    own = {op.name for family in FAMILIES for op in family.OPS}
    assert own - covered == set(), "operators in none of the programs"
    kept = {f"Primitive[{name}]" for name in _PRIMITIVES if name not in {*RULES, *NOT_KEPT}}
    assert kept - covered == set(), "primitives in none of the programs"
