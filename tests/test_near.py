"""The comparison of results is relative to the largest value, and still finds differences."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.near import assert_near

ROOT = Path(__file__).parent


def test_a_value_near_zero_is_judged_by_the_largest() -> None:
    assert_near([1e-12, 1.0], [0.0, 1.0], rtol=1e-9)
    with pytest.raises(AssertionError):
        assert_near([1e-8, 1.0], [0.0, 1.0], rtol=1e-9)
    with pytest.raises(AssertionError):
        assert_near([1e-12, 1.0], [0.0, 1.0], rtol=1e-9, each=True)


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_must_agree(odd: float) -> None:
    assert_near([odd, 1.0], [odd, 1.0], rtol=1e-9)
    with pytest.raises(AssertionError):
        assert_near([odd, 1.0], [0.0, 1.0], rtol=1e-9)
    with pytest.raises(AssertionError):
        assert_near([0.0, 1.0], [odd, 1.0], rtol=1e-9)


def test_it_is_the_only_comparison_of_this_kind() -> None:
    name = "testing.assert_" + "allclose"
    users = {path.name for path in ROOT.rglob("*.py") if name in path.read_text()}
    assert users == {"near.py"}
