"""Functions of `gc.nn` that TensorFlow also has, compared with their formulas."""

import jax
import numpy as np
import pytest
from jax import numpy as jnp

import graphc as gc
from graphc import nn
from graphc.errors import ArgumentError, AttributeValueError, DTypeError, ShapeError
from tests.newcomers.running import assert_near, run

RNG = np.random.default_rng(1)


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def test_bias_add():
    x, bias = normal(2, 3, 4), normal(4)
    assert_near(run(nn.bias_add, x, bias), x + bias)
    for wrong in (normal(1), normal(1, 4), normal(3)):
        with pytest.raises(ShapeError, match=r"bias_add: bias must be \[4\]"):
            run(nn.bias_add, x, wrong)


def test_l2_normalize():
    x = normal(3, 4, 5)
    x[0, 0] = 0
    for axis in (-1, 1, (0, 2), None):
        squared = np.sum(np.square(x), axis=axis, keepdims=True)
        wanted = x / np.sqrt(np.maximum(squared, 1e-12))
        assert_near(run(lambda x, axis=axis: nn.l2_normalize(x, axis), x), wanted)
    assert run(lambda x: nn.l2_normalize(x), x.astype("float16")).dtype == np.float16
    with pytest.raises(DTypeError, match="must be floating"):
        run(nn.l2_normalize, np.arange(3))


def test_depthwise_and_separable_convolutions():
    x, w, pointwise = normal(2, 6, 7, 3), normal(2, 3, 3, 2), normal(1, 1, 6, 4)
    wanted = jax.lax.conv_general_dilated(
        x, w.reshape(2, 3, 1, 6), (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=3,
    )  # fmt: skip
    options = {"strides": (1, 2, 2, 1), "padding": "SAME"}
    assert_near(run(lambda x, w: nn.depthwise_conv2d(x, w, **options), x, w), wanted)
    got = run(lambda *given: nn.separable_conv2d(*given, **options), x, w, pointwise)
    assert_near(got, wanted @ pointwise[0, 0])
    flat = run(lambda *given: nn.separable_conv2d(*given, **options), x, w, pointwise[0, 0])
    assert_near(flat, got)
    with pytest.raises(ShapeError, match="depthwise_conv2d: x must be"):
        run(nn.depthwise_conv2d, x[0], w)
    with pytest.raises(ShapeError, match="the kernel must be"):
        run(nn.depthwise_conv2d, x, w[0])
    with pytest.raises(ShapeError, match="pointwise must be"):
        run(nn.separable_conv2d, x, w, normal(2, 1, 6, 4))


def test_weighted_cross_entropy():
    x, z = normal(4, 3) * 5, RNG.uniform(size=(4, 3)).astype(np.float32)
    for weight in (0.3, 1.0, 4.0):
        p = 1 / (1 + np.exp(-x.astype(np.float64)))
        wanted = -weight * z * np.log(p) - (1 - z) * np.log(1 - p)
        got = run(
            lambda x, z, w=weight: nn.weighted_cross_entropy(logits=x, labels=z, pos_weight=w), x, z
        )
        assert_near(got, wanted)
    far = run(
        lambda x: nn.weighted_cross_entropy(logits=x, labels=[1.0, 0.0], pos_weight=2.0),
        np.array([-1e4, 1e4], np.float32),
    )
    assert_near(far, [2e4, 1e4])
    with pytest.raises(ArgumentError), gc.Graph():
        nn.weighted_cross_entropy(x, z, 1.0)


# -- samplers -------------------------------------------------------------------------------

SAMPLERS = {
    "log_uniform_candidate_sampler": lambda n: np.diff(np.log(np.arange(1, n + 2))) / np.log(n + 1),
    "uniform_candidate_sampler": lambda n: np.full(n, 1 / n),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_draws_with_repetition(name):
    n, samples = 12, 20_000
    p = SAMPLERS[name](n)
    labels = np.array([[0, 5], [11, 1]])
    got = run(lambda y: getattr(nn, name)(y, samples, n, unique=False), labels)
    assert_near(got.true_counts, p[labels] * samples)
    assert_near(got.counts, (p * samples)[got.classes])
    found = np.bincount(got.classes, minlength=n)
    assert (np.abs(found - p * samples) < 5 * np.sqrt(p * samples)).all()  # five deviations


@pytest.mark.parametrize("name", SAMPLERS)
def test_unique_draws(name):
    """For every class, the mean of draws divided by expected counts is 1."""
    n, samples, runs = 9, 4, 3000
    with gc.Graph(seed=3) as graph:
        drawn = getattr(nn, name)(np.arange(n), samples, n)
    got = gc.Session(graph).run_steps(list(drawn), {}, runs)
    classes, true_counts, counts = map(np.asarray, got)
    assert all(len(set(row)) == samples for row in classes)
    assert (counts > 0).all() and (counts <= 1).all()
    assert_near(np.take_along_axis(true_counts, classes, 1), counts)
    ratio = np.zeros((runs, n))
    np.put_along_axis(ratio, classes, 1 / counts, 1)
    assert (np.abs(ratio.mean(0) - 1) < 5 * ratio.std(0) / np.sqrt(runs)).all()


def test_all_classes_are_drawn_surely():
    got = run(lambda y: nn.log_uniform_candidate_sampler(y, 5, 5), np.array([2, 4]))
    assert sorted(got.classes) == [0, 1, 2, 3, 4]
    assert (got.true_counts == 1).all() and (got.counts == 1).all()


def test_wrong_samples():
    with gc.Graph():
        with pytest.raises(AttributeValueError, match="cannot draw 6 different classes of 5"):
            nn.uniform_candidate_sampler([1], 6, 5)
        with pytest.raises(AttributeValueError, match="samples must be an int of 1 or more"):
            nn.log_uniform_candidate_sampler([1], 0, 5)
        with pytest.raises(DTypeError, match="labels must be integers"):
            nn.log_uniform_candidate_sampler([1.0], 1, 5)


# -- sampled losses -------------------------------------------------------------------------


def candidates_of(labels):
    """Classes and counts as a sampler might return them."""
    classes = np.array([0, 3, 6, 2], np.int32)
    counts = np.linspace(0.2, 0.9, 7).astype(np.float32)
    return nn.Candidates(classes, counts[labels], counts[classes])


def sampled_logits(weights, biases, inputs, labels, hits):
    drawn = candidates_of(labels)
    true = np.einsum("bd,btd->bt", inputs, weights[labels]) + biases[labels]
    others = inputs @ weights[drawn.classes].T + biases[drawn.classes]
    true, others = true - np.log(drawn.true_counts), others - np.log(drawn.counts)
    if hits:
        others[(labels[:, :, None] == drawn.classes).any(1)] = -np.inf
    return np.concatenate([true, others], 1)


@pytest.mark.parametrize("hits", [True, False])
@pytest.mark.parametrize("true", [1, 2])
def test_sampled_losses(hits, true):
    weights, biases, inputs = normal(7, 5), normal(7), normal(4, 5)
    labels = np.array([[3, 1], [2, 6], [5, 0], [1, 4]])[:, :true]
    logits = sampled_logits(weights, biases, inputs, labels, hits)
    wanted = np.concatenate([np.full((4, true), 1 / true), np.zeros((4, 4))], 1)

    def losses(w, b, x):
        given = {"weights": w, "biases": b, "inputs": x, "labels": labels,
                 "candidates": candidates_of(labels), "remove_accidental_hits": hits}  # fmt: skip
        return nn.nce_loss(**given), nn.sampled_softmax_loss(**given)

    nce, softmax = run(losses, weights, biases, inputs)
    terms = np.where(np.isinf(logits), 0, np.logaddexp(0, logits) - wanted * logits.clip(-1e9))
    assert_near(nce, terms.sum(1))
    logs = np.asarray(jax.nn.log_softmax(jnp.asarray(logits), axis=1))
    assert_near(softmax, -(wanted * logs.clip(-1e9)).sum(1))


def test_the_sampled_softmax_of_all_classes_is_the_softmax():
    weights, biases, inputs = normal(7, 5), normal(7), normal(4, 5)
    labels = np.array([3, 1, 6, 0])

    def both(w, b, x):
        sampled = nn.sampled_softmax_loss(weights=w, biases=b, inputs=x, labels=labels, samples=7)
        full = nn.sparse_softmax_cross_entropy(logits=x @ w.T + b, labels=labels)
        return (
            sampled,
            full,
            *gc.gradients(gc.sum(sampled), [w, b, x]),
            *gc.gradients(gc.sum(full), [w, b, x]),
        )

    sampled, full, *gradients = run(both, weights, biases, inputs)
    assert_near(sampled, full)
    for got, want in zip(gradients[:3], gradients[3:], strict=True):
        assert_near(got, want)


def test_wrong_operands_of_sampled_losses():
    with gc.Graph():
        with pytest.raises(ShapeError, match=r"nce_loss: takes weights \[classes, features\]"):
            nn.nce_loss(weights=normal(7), biases=normal(7), inputs=normal(4, 5),
                        labels=[1, 2, 3, 4], samples=2)  # fmt: skip
        with pytest.raises(ShapeError, match="weights have 7 classes, biases 6"):
            nn.nce_loss(weights=normal(7, 5), biases=normal(6), inputs=normal(4, 5),
                        labels=[1, 2, 3, 4], samples=2)  # fmt: skip
        with pytest.raises(ShapeError, match="weights have 5 features, inputs 7"):
            nn.sampled_softmax_loss(weights=normal(7, 5), biases=normal(7), inputs=normal(4, 7),
                                    labels=[1, 2, 3, 4], samples=2)  # fmt: skip
        for given in ({}, {"samples": 2, "candidates": candidates_of(np.array([1]))}):
            with pytest.raises(AttributeValueError, match="takes either samples= or candidates="):
                nn.nce_loss(weights=normal(7, 5), biases=normal(7), inputs=normal(1, 5),
                            labels=[1], **given)  # fmt: skip
        with pytest.raises(DTypeError, match="sampled_softmax_loss: labels must be integers"):
            nn.sampled_softmax_loss(weights=normal(7, 5), biases=normal(7), inputs=normal(4, 5),
                                    labels=normal(4), samples=2)  # fmt: skip
