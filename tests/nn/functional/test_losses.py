"""Losses and their gradients compared with optax, for known and named sizes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from graphc import nn
from graphc.autodiff import gradients
from graphc.build import placeholder
from graphc.devices.strategy import DataParallel
from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.ir.graph import Graph
from graphc.ops.nn.loss import softmax_cross_entropy
from graphc.ops.reductions.reduction import reduce_sum
from graphc.runtime.session import Session
from tests.near import assert_near

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 6)).astype(np.float32) * 3
LABELS = RNG.standard_normal((4, 6)).astype(np.float32)
SIGNS = np.sign(LABELS)
ROWS = np.array(jax.nn.softmax(LABELS))
HARD = np.eye(6, dtype=np.float32)[[0, 5, 2, 2]]
CLASSES = np.array([0, 5, 2, 2])

# (our loss, optax's loss, labels)
CASES = {
    "absolute": (nn.absolute_error, lambda x, y: jnp.abs(x - y), LABELS),
    "cosine": (nn.cosine_distance, optax.cosine_distance, LABELS),
    "focal": (
        lambda predictions, labels: nn.sigmoid_focal_loss(logits=predictions, labels=labels),
        optax.sigmoid_focal_loss,
        HARD,
    ),
    "focal, weighted": (
        lambda predictions, labels: nn.sigmoid_focal_loss(
            logits=predictions, labels=labels, gamma=1.5, alpha=0.3
        ),
        lambda x, y: optax.sigmoid_focal_loss(x, y, alpha=0.3, gamma=1.5),
        HARD,
    ),
    "hinge": (
        lambda predictions, labels: nn.hinge_loss(logits=predictions, labels=labels),
        optax.hinge_loss,
        SIGNS,
    ),
    "huber": (
        lambda predictions, labels: nn.huber_loss(
            predictions=predictions, labels=labels, delta=0.7
        ),
        lambda x, y: optax.huber_loss(x, y, delta=0.7),
        LABELS,
    ),
    "kl": (
        lambda predictions, labels: nn.kl_divergence(log_predictions=predictions, labels=labels),
        optax.kl_divergence,
        ROWS,
    ),
    "kl, zeros": (
        lambda predictions, labels: nn.kl_divergence(log_predictions=predictions, labels=labels),
        optax.kl_divergence,
        HARD,
    ),
    "log cosh": (nn.log_cosh_loss, optax.log_cosh, LABELS),
    "poisson": (
        lambda predictions, labels: nn.poisson_loss(log_predictions=predictions, labels=labels),
        lambda x, y: jnp.exp(x) - y * x,
        ROWS,
    ),
    "smooth": (
        lambda predictions, labels: nn.softmax_cross_entropy(
            logits=predictions, labels=labels, label_smoothing=0.2
        ),
        lambda x, y: optax.softmax_cross_entropy(x, optax.smooth_labels(y, 0.2)),
        HARD,
    ),
    "smooth classes": (
        lambda predictions, labels: nn.sparse_softmax_cross_entropy(
            logits=predictions, labels=labels, label_smoothing=0.2
        ),
        lambda x, y: optax.softmax_cross_entropy(x, optax.smooth_labels(HARD, 0.2)),
        CLASSES,
    ),
    "squared": (nn.squared_error, optax.squared_error, LABELS),
    "triplet": (
        lambda predictions, labels: nn.triplet_loss(
            anchors=predictions, positives=labels, negatives=labels * 0.5 + 1, margin=0.3
        ),
        lambda x, y: optax.losses.triplet_margin_loss(x, y, y * 0.5 + 1, margin=0.3),
        LABELS,
    ),
}


def test_losses_are_those_of_optax() -> None:
    """One program computes all of them."""
    with Graph() as graph:
        x = placeholder(("n", "d"))
        losses = [ours(predictions=x, labels=labels) for ours, _, labels in CASES.values()]
        slopes = [gradients(reduce_sum(loss), x) for loss in losses]
    found = Session(graph).run([*losses, *slopes], {x: X})

    @jax.jit
    def by_optax(x):
        pairs = [jax.vjp(lambda x: theirs(x, y), x) for _, theirs, y in CASES.values()]  # noqa: B023
        return [loss for loss, _ in pairs] + [pull(loss * 0 + 1)[0] for loss, pull in pairs]

    for name, got, wanted in zip([*CASES, *CASES], found, by_optax(X), strict=True):
        assert_near(got, wanted, rtol=1e-4, atol=1e-5, err_msg=name)


def test_far_from_zero() -> None:
    with Graph() as graph:
        x = placeholder((3,))
        loss = nn.log_cosh_loss(predictions=x, labels=0.0)
        focal = nn.sigmoid_focal_loss(logits=x, labels=1.0)
        slopes = [gradients(reduce_sum(v), x) for v in (loss, focal)]
    found = Session(graph).run([loss, focal, *slopes], {x: np.array([-900, 0, 900], np.float32)})
    assert_near(found[0], [900 - np.log(2), 0, 900 - np.log(2)], rtol=1e-7, atol=1e-6)
    assert_near(found[1], [900, np.log(2) / 4, 0], rtol=1e-6)
    assert all(np.isfinite(slope).all() for slope in found[2:])


# -- CTC ------------------------------------------------------------------------------------

LOGITS = RNG.standard_normal((4, 9, 5)).astype(np.float32) * 2
SPOKEN = np.array([[1, 2, 3], [2, 2, 4], [3, 3, 3], [4, 1, 2]], np.int32)
STEPS = np.array([9, 7, 5, 4], np.int32)
COUNTS = np.array([3, 3, 2, 0], np.int32)


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("blank", [0, 4])
def test_ctc_is_that_of_optax(blank: int, replicas: int) -> None:
    spoken = SPOKEN if blank == 0 else SPOKEN - 1
    paddings = [np.arange(n) >= lengths[:, None] for n, lengths in ((9, STEPS), (3, COUNTS))]
    with Graph() as graph:
        x = placeholder((None, "time", 5), batch_axis=0)
        rows = [placeholder(s, "int32", batch_axis=0) for s in ((None, "words"), (None,), (None,))]
        labels, steps, counts = rows
        loss = nn.ctc_loss(
            logits=x, labels=labels, logit_lengths=steps, label_lengths=counts, blank=blank
        )
        assert loss.ndim == 1
        slope = gradients(reduce_sum(loss), x)
    strategy = DataParallel(replicas) if replicas > 1 else None
    beyond = np.where(paddings[1], -7, spoken)  # no class
    feeds = {x: LOGITS, labels: beyond, steps: STEPS, counts: COUNTS}
    got, of_logits = Session(graph, strategy=strategy).run([loss, slope], feeds)

    @jax.jit
    def by_optax(x):
        padded = [p.astype(np.float32) for p in paddings]
        loss, pull = jax.vjp(
            lambda x: optax.ctc_loss(x, padded[0], spoken, padded[1], blank_id=blank), x
        )
        return loss, *pull(loss * 0 + 1)

    wanted, slopes = by_optax(LOGITS)
    assert_near(got, wanted, rtol=1e-4)
    assert_near(of_logits, slopes, rtol=1e-3, atol=1e-5)


def test_ctc_sums_over_all_alignments() -> None:
    """Two steps, one label: (label, label), (label, blank), (blank, label)."""
    p = np.array([[0.5, 0.2, 0.3], [0.1, 0.6, 0.3]])
    with Graph() as graph:
        x = placeholder((1, 2, 3), "float64")
        loss = nn.ctc_loss(logits=x, labels=np.array([[1]]))
        twice = nn.ctc_loss(logits=x, labels=np.array([[1, 1]]))  # needs a blank between the labels
        slope = gradients(reduce_sum(twice), x)
    found = Session(graph).run([loss, twice, slope], {x: np.log(p)[None]})
    assert_near(found[0], -np.log(0.2 * 0.6 + 0.2 * 0.1 + 0.5 * 0.6), rtol=1e-6)
    np.testing.assert_array_equal(found[1], [np.inf])
    np.testing.assert_array_equal(found[2], np.zeros((1, 2, 3)))


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda x: nn.ctc_loss(logits=x, labels=x), ShapeError, "got 2 and 2 axes"),
        (
            lambda x: nn.ctc_loss(logits=x[None], labels=x),
            DTypeError,
            "labels integers, got float32 and float32",
        ),
        (
            lambda x: nn.ctc_loss(logits=x[None], labels=np.ones((2, 1), int)),
            ShapeError,
            "1 sequences of logits and 2 of labels",
        ),
        (
            lambda x: nn.ctc_loss(
                logits=x[None], labels=np.ones((1, 1), int), label_lengths=np.ones(2, int)
            ),
            ShapeError,
            r"ctc_loss: lengths must be of shape \[1\]",
        ),
        (
            lambda x: nn.ctc_loss(logits=x[None], labels=np.ones((1, 1), int), blank=3),
            AttributeValueError,
            "blank must be one of 3 classes, got 3",
        ),
        (
            lambda x: nn.softmax_cross_entropy(logits=x, labels=x, label_smoothing=2.0),
            AttributeValueError,
            r"label smoothing must lie in \[0, 1\], got 2.0",
        ),
    ],
)
def test_errors(call, error, match: str) -> None:
    with Graph():
        x = placeholder((2, 3))
        with pytest.raises(error, match=match) as info:
            call(x)
    assert "test_losses.py:" in str(info.value)


def test_classes_that_are_ruled_out() -> None:
    with Graph() as graph:
        x = placeholder((2, 3))
        loss = softmax_cross_entropy(x, np.array([[0, 1, 0], [0, 0.5, 0.5]], np.float32))
        slope = gradients(reduce_sum(loss), x)
    logits = np.array([[-np.inf, 0, 0], [0, 0, 0]], np.float32)
    loss, slope = Session(graph).run([loss, slope], {x: logits})
    assert_near(loss, np.log([2, 3]), rtol=1e-6)
    assert_near(slope[0], [0, -0.5, 0.5], rtol=1e-7, atol=1e-6)
    assert np.isfinite(slope).all()
