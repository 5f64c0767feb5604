"""`partition` with several positions."""

from __future__ import annotations

import numpy as np
import pytest

from graphc.build.placeholders import placeholder
from graphc.errors import AttributeValueError, ShapeError
from graphc.ir.graph import Graph
from graphc.ops.reductions.sorting import argpartition, partition
from tests.ops.table import Row, check


def test_several_places() -> None:
    x = np.array([3.0, 1.0, 2.0, 0.0])
    check([
        Row("partition", lambda x: partition(x, (0, 2)), np.sort, [x]),
        Row("argpartition", lambda x: argpartition(x, np.array([1, -1])), np.argsort, [x]),
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("kth", "error", "words"),
    [
        ((0, 4), ShapeError, "there is no element 4 of 4"),
        (1.5, AttributeValueError, "kth must be an int, or several, got 1.5"),
        ([], AttributeValueError, "kth must be an int, or several"),
    ],
)
def test_errors(kth, error, words) -> None:
    with Graph():
        x = placeholder((4,))
        with pytest.raises(error, match=rf"(?s){words}.*at test_sorting.py:"):
            partition(x, kth)
        with pytest.raises(AttributeValueError, match="must be an int, or several"):
            partition(x, x)
