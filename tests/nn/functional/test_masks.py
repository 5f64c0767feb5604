"""Masks of sequences, and means of the unmasked elements."""

import numpy as np
import pytest

import graphc as gc
from graphc import nn
from graphc.errors import DTypeError, ShapeError
from tests.near import assert_near


def test_sequence_mask() -> None:
    with gc.Graph() as graph:
        x = gc.placeholder((None, None, 2), name="x")
        mask = nn.sequence_mask([[2, 0], [3, 5]], x.shape[1], name="mask")
    assert mask.name == "mask:0" and str(mask.type) == "bool[2, 2, x_1]"
    got = gc.Session(graph).run([mask, x], {x: np.zeros((1, 4, 2))})[0]
    want = [[[1, 1, 0, 0], [0, 0, 0, 0]], [[1, 1, 1, 0], [1, 1, 1, 1]]]
    np.testing.assert_array_equal(got, np.array(want, bool))


def test_masked_mean_and_its_gradient_ignore_the_rest() -> None:
    with gc.Graph() as graph:
        x = gc.placeholder((2, 3), "float64", name="x")
        mask = gc.placeholder((2, 1), "bool", name="mask")
        mean = nn.masked_mean(1.0 / x, mask, name="mean")
        (gradient,) = gc.gradients(mean, [x])
    session = gc.Session(graph)
    values = np.array([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]])
    feeds = {x: values, mask: [[True], [False]]}
    got, slope = session.run([mean, gradient], feeds)
    assert float(got) == pytest.approx((1 + 1 / 2 + 1 / 4) / 3)
    assert_near(slope, [[-1 / 3, -1 / 12, -1 / 48], [0, 0, 0]], rtol=1e-7)
    assert float(session.run(mean, {**feeds, mask: [[False], [False]]})) == 0


def test_errors() -> None:
    with gc.Graph():
        x = gc.placeholder((2, 3), name="x")
        with pytest.raises(DTypeError, match=r"(?s)lengths must be integers, got float32.*masks"):
            nn.sequence_mask(x, 3)
        with pytest.raises(DTypeError, match=r"(?s)mask must be bool, got float32.*test_masks"):
            nn.masked_mean(x, x)
        with pytest.raises(ShapeError, match="does not broadcast to"):
            nn.masked_mean(x, x[:, :2] > 0)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_narrow_lengths_reach_all_steps(dtype: str) -> None:
    lengths = np.array([100, 2], dtype)
    with gc.Graph(seed=1) as graph:
        x = gc.placeholder((2, 300, 1), name="x")
        mask = nn.sequence_mask(lengths, 300)
        last = nn.Bidirectional(nn.SimpleRNN(1))(x, lengths=lengths)
        labels = np.ones((2, 1), dtype)
        losses = [
            nn.ctc_loss(logits=gc.concatenate([x, -x], -1), labels=labels, logit_lengths=n)
            for n in (lengths, lengths.astype(np.int32))
        ]
    ones = np.ones((2, 300, 1), np.float32)
    mask, last, losses = gc.Session(graph).run([mask, last, losses], {x: ones})
    np.testing.assert_array_equal(mask.sum(1), [100, 2])
    np.testing.assert_array_equal((last[..., 0] != 0).sum(1), [100, 2])
    np.testing.assert_array_equal(*losses)
