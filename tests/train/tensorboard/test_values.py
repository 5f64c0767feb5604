"""The numbers of histograms and PR curves, compared with simple references."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.train.tensorboard.histograms import buckets_of, nonfinite
from graphc.train.tensorboard.images import checked_images
from graphc.train.tensorboard.pr_curves import pr_table
from tests.near import assert_near

FARTHEST = np.finfo(np.float64).max / 4
DTYPES = [
    "bool", "int8", "uint8", "int64", "uint64", "float16", "float32", "float64", ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.int4, ml_dtypes.uint4,
    ml_dtypes.float4_e2m1fn,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
def test_histograms_of_any_dtype(dtype: Any) -> None:
    values = np.array([[0, 1, 1], [0, 1, 1]]).astype(dtype)
    rows = buckets_of(values, 2)
    assert rows.dtype == np.float64
    assert rows.tolist() == [[0.0, 0.5, 2.0], [0.5, 1.0, 4.0]]
    assert nonfinite(values) == 0


@pytest.mark.parametrize("dtype", ["float16", "float64", ml_dtypes.bfloat16, ml_dtypes.float8_e5m2])
def test_elements_that_are_not_finite(dtype: Any) -> None:
    values = np.array([np.nan, 1.0, np.inf, -np.inf, 2.0]).astype(dtype)
    assert nonfinite(values) == 3
    assert buckets_of(values, 5)[:, 2].sum() == 2
    assert not buckets_of(values[[0, 2]], 5).any()


@settings(deadline=None, max_examples=200)
@given(
    hnp.arrays(np.float64, hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=20)),
    st.integers(1, 40),
)
def test_histograms_of_anything(values: Any, count: int) -> None:
    """All finite elements are counted, in adjacent buckets from the least to the greatest."""
    rows = buckets_of(values, count)
    finite = np.clip(values[np.isfinite(values)], -FARTHEST, FARTHEST)
    assert rows.shape == (count, 3)
    assert np.isfinite(rows).all()
    assert rows[:, 2].sum() == finite.size
    if finite.size:
        assert rows[0, 0] == finite.min() or rows[-1, 0] == finite.min()
        assert rows[-1, 1] == finite.max()
        assert (rows[:, 0] <= rows[:, 1]).all()


@settings(deadline=None, max_examples=100)
@given(hnp.arrays(np.float32, st.integers(2, 200), elements=st.floats(-1e3, 1e3, width=32)))
def test_histograms_are_those_of_numpy(values: Any) -> None:
    rows = buckets_of(values, 10)
    values = values.astype(np.float64)
    if (np.diff(np.linspace(values.min(), values.max(), 11)) > 0).all():
        counts, edges = np.histogram(values, 10)
        assert_near(rows[:, 0], edges[:-1], 1e-12)
        np.testing.assert_array_equal(rows[:, 2], counts)


@settings(deadline=None, max_examples=100)
@given(st.data(), st.integers(0, 50), st.integers(2, 30))
def test_pr_curves(data: Any, size: int, count: int) -> None:
    """Compared with a loop over the thresholds, with predictions on and near the thresholds."""
    steps = st.sampled_from([k / (count - 1) for k in range(count)])
    scores = np.array(data.draw(st.lists(steps | st.floats(0, 1), min_size=size, max_size=size)))
    labels = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)), bool)
    weights = np.array(data.draw(st.lists(st.integers(0, 5), min_size=size, max_size=size)), float)
    table = pr_table(labels, scores, weights, count)
    assert table.shape == (6, count)
    for column, threshold in zip(table.T, np.linspace(0, 1, count), strict=True):
        positive = scores >= threshold
        true = weights[positive & labels].sum()
        false = weights[positive & ~labels].sum()
        total = weights[labels].sum()
        wanted = [true, false, weights[~labels].sum() - false, total - true]
        assert_near(column[:4], wanted, 1e-6)
        assert_near(column[4], true / max(true + false, 1e-7), 1e-6)
        assert_near(column[5], true / max(total, 1e-7), 1e-6)


@pytest.mark.parametrize(
    ("labels", "scores", "weights", "error"),
    [
        ([1, 0], [0.5], None, ShapeError),
        ([1, 0], [0.5, 1.5], None, AttributeValueError),
        ([1, 0], [0.5, np.nan], None, AttributeValueError),
        ([1, 2], [0.5, 0.5], None, DTypeError),
        ([1, 0], [0.5, 0.5], [1.0, 2.0, 3.0], ShapeError),
        ([1, 0], [0.5, 0.5], [-1.0, 2.0], AttributeValueError),
        ([1, 0], [0.5, 0.5], np.inf, AttributeValueError),
    ],
    ids=str,
)
def test_refusals(labels: Any, scores: Any, weights: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"SummaryWriter\.pr_curve"):
        pr_table(labels, scores, weights, 5)


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        (np.zeros((2, 3)), (1, 2, 3, 1)),
        (np.zeros((2, 3, 2), np.float16), (1, 2, 3, 2)),
        (np.zeros((5, 2, 3, 3), ml_dtypes.bfloat16), (4, 2, 3, 3)),
        (np.zeros((1, 2, 3, 4), np.uint8), (1, 2, 3, 4)),
    ],
    ids=lambda value: str(getattr(value, "shape", value)),
)
def test_shapes_of_images(value: Any, shape: Any) -> None:
    pixels = checked_images(value, 4)
    assert (pixels.shape, pixels.dtype) == (shape, np.uint8)


def test_values_of_images() -> None:
    floats = np.array([[-1.0, 0.0, 0.5, 1.0, 7.0]])
    assert checked_images(floats, 1).reshape(-1).tolist() == [0, 0, 128, 255, 255]
    assert checked_images(floats > 0.2, 1).reshape(-1).tolist() == [0, 0, 255, 255, 255]
    marked = checked_images(np.array([[[0.5, 0.5], [np.nan, 0.0]]]), 1)  # gray and alpha
    assert marked[0, 0].tolist() == [[128, 128, 128, 128], [255, 0, 0, 255]]
