"""`UnigramSampler`: its draws, its counts, and training with it."""

import numpy as np
import optax
import pytest

import graphc as gc
from graphc import nn
from graphc.errors import AttributeValueError, DTypeError
from tests.near import assert_near

COUNTS = np.array([8, 1, 4, 2, 1], "int32")


def test_draws_with_repetition_follow_the_counts():
    samples = 20_000
    with gc.Graph(seed=0) as graph:
        sampler = nn.UnigramSampler(5, samples, unique=False, distortion=0.75, counts=COUNTS)
        got = sampler(np.array([[0, 3]]), training=False)
    got = gc.Session(graph).run(got)
    p = COUNTS**0.75 / (COUNTS**0.75).sum()
    assert_near(got.true_counts, p[[[0, 3]]] * samples, 1e-5, 1e-6)
    assert_near(got.counts, (p * samples)[got.classes], 1e-5, 1e-6)
    found = np.bincount(got.classes, minlength=5)
    assert (np.abs(found - p * samples) < 5 * np.sqrt(p * samples)).all()  # five deviations


def test_unique_draws():
    """For every class, the mean of draws divided by expected counts is 1."""
    runs = 3000
    with gc.Graph(seed=3) as graph:
        drawn = nn.UnigramSampler(5, 3, counts=COUNTS)(np.arange(5), training=False)
    classes, _, counts = map(np.asarray, gc.Session(graph).run_steps(list(drawn), {}, runs))
    assert all(len(set(row)) == 3 for row in classes)
    ratio = np.zeros((runs, 5))
    np.put_along_axis(ratio, classes, 1 / counts, 1)
    assert (np.abs(ratio.mean(0) - 1) < 5 * ratio.std(0) / np.sqrt(runs)).all()


def losses_of(strategy=None):
    """The counts after two steps of a loss on labels, and the counts of another sampler."""
    with gc.Graph(seed=0) as graph:
        labels = gc.placeholder(("batch", 1), "int32", name="labels")
        used, other = (nn.UnigramSampler(5, 2, name=name) for name in ("used", "other"))
        drawn = used(labels, training=True)
        other([[1]], training=True)
        weights = gc.variable(np.zeros((5, 3), "float32"), name="weights")
        loss = gc.reduce_mean(
            nn.nce_loss(
                weights=weights,
                biases=gc.zeros(5),
                inputs=gc.ones((labels.shape[0], 3)),
                labels=labels,
                candidates=drawn,
            )
        )
        train = gc.minimize(loss, optax.sgd(0.1))
    session = gc.Session(graph, strategy=strategy)
    feeds = {labels: np.array([[0], [4], [4], [2]], "int32")}
    session.run(loss, feeds)
    assert (session.get("used/counts") == 1).all()  # evaluation does not change the counts
    session.run(train, feeds)
    session.run(train, feeds)
    return session.get("used/counts"), session.get("other/counts")


def test_a_step_counts_the_labels():
    used, other = losses_of()
    assert used.tolist() == [3, 1, 3, 1, 5]
    assert other.tolist() == [1, 1, 1, 1, 1]


def test_devices_count_the_whole_batch():
    used, _ = losses_of(gc.devices.DataParallel(2))
    assert used.tolist() == [3, 1, 3, 1, 5]


def test_training_by_a_placeholder():
    with gc.Graph(seed=0) as graph:
        training = gc.placeholder((), "bool", name="training")
        nn.UnigramSampler(3, 2)([1], training=training)
        (update,) = graph.collection("updates")
    session = gc.Session(graph)
    session.run(update, {training: False})
    assert session.get("unigram_sampler/counts").tolist() == [1, 1, 1]
    session.run(update, {training: True})
    assert session.get("unigram_sampler/counts").tolist() == [1, 2, 1]


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: nn.UnigramSampler(5, 6), AttributeValueError, "cannot draw 6 different classes"),
        (lambda: nn.UnigramSampler(5, 2, distortion=0.0), AttributeValueError, "distortion must"),
        (lambda: nn.UnigramSampler(5, 2)([1]), AttributeValueError, "training must be True"),
        (lambda: nn.UnigramSampler(5, 2)([1.0], True), DTypeError, "labels must be integers"),
    ],
)
def test_errors(make, error, text):
    with gc.Graph(), pytest.raises(error, match=text):
        make()
