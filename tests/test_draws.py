"""Tests draw the same numbers in every order: see `own_numbers` of conftest.py."""

from __future__ import annotations

from zlib import crc32

import numpy as np
import pytest

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("number", [0, 1])
def test_numbers_depend_on_the_test_alone(number: int, request: pytest.FixtureRequest) -> None:
    want = np.random.default_rng(crc32(request.node.nodeid.encode())).random(3)
    assert RNG.random(3).tolist() == want.tolist()
