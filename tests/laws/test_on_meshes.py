"""The law of meshes: every operator and its gradient compute the same on a mesh as on one device,
for all layouts, even if the mesh does not divide the sizes.

The cases are those of the other laws, so a new operator is included automatically.
`tests/reliability/meshes.py` tries other layouts, groups and dtypes.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.laws.meshes import CASES, MESHES, compare, spread

_TOGETHER = 8  # cases in a program: they take a fifth of the time
_EACH = 14  # one of so many programs is in the normal suite
_MANY = 4  # one of so many is in the slow one
_ORDER = np.random.default_rng(16).permutation(len(CASES))
GROUPS = [_ORDER[i : i + _TOGETHER].tolist() for i in range(0, len(CASES), _TOGETHER)]


def check(number: int) -> None:
    axes = MESHES[number % len(MESHES)]
    made = spread([CASES[i] for i in GROUPS[number]], axes, seed=number)
    assert made.fetches
    assert not compare(made), dict(axes)


@pytest.mark.parametrize("number", range(0, len(GROUPS), _EACH))
def test_some_operators_mean_on_a_mesh_what_they_mean_alone(number: int) -> None:
    check(number)


@pytest.mark.slow
@pytest.mark.parametrize("number", [i for i in range(0, len(GROUPS), _MANY) if i % _EACH])
def test_more_operators_mean_on_a_mesh_what_they_mean_alone(number: int) -> None:
    check(number)


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("number", [i for i in range(len(GROUPS)) if i % _EACH and i % _MANY])
def test_all_operators_mean_on_a_mesh_what_they_mean_alone(number: int) -> None:
    check(number)
