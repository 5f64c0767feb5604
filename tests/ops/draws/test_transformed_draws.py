"""Draws of `gc.random` by formulas and counts, compared with SciPy's distributions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from graphc.autodiff import gradients
from graphc.build.placeholders import placeholder
from graphc.config import CompileOptions
from graphc.devices.strategy import DataParallel
from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.ir.graph import Graph
from graphc.ops import random
from graphc.ops.linalg import vector_norm
from graphc.runtime.session import Session
from tests.near import assert_near
from tests.ops.draws.test_distributions import frequencies
from tests.ops.test_random import draw

N = 20_000

CONTINUOUS = {
    "ball": (lambda: vector_norm(random.ball(3, shape=N), axis=-1) ** 3.0, stats.uniform()),
    "ball of another norm": (
        lambda: vector_norm(random.ball(2, 1, N), 1, axis=-1) ** 2.0,
        stats.uniform(),
    ),
    "f": (lambda: random.f(3, 5, N), stats.f(3, 5)),
    "generalized_normal": (lambda: random.generalized_normal(1.5, N), stats.gennorm(1.5)),
    "maxwell": (lambda: random.maxwell(N, 2.0), stats.maxwell(scale=2)),
    "pareto": (lambda: random.pareto(3, N), stats.pareto(3)),
    "rayleigh": (lambda: random.rayleigh(N, 2.0), stats.rayleigh(scale=2)),
    "triangular": (lambda: random.triangular(-1, 0.5, 2, N), stats.triang(0.5, -1, 3)),
    "wald": (lambda: random.wald(2, 3, N), stats.invgauss(2 / 3, scale=3)),
    "weibull": (lambda: random.weibull(1.5, 2.0, N), stats.weibull_min(1.5, scale=2)),
}


@pytest.fixture(scope="module")
def drawn():
    values = draw(lambda: [build() for build, _ in CONTINUOUS.values()])
    return dict(zip(CONTINUOUS, values, strict=True))


@pytest.mark.slow
@pytest.mark.one_jax
@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous(name: str, drawn) -> None:
    values = drawn[name]
    assert np.isfinite(values).all()
    assert stats.kstest(values, CONTINUOUS[name][1].cdf).pvalue > 1e-3


@pytest.mark.slow
def test_counts() -> None:
    few, many, classes, trials, signs, sure, narrow = draw(
        lambda: [
            random.binomial(5, 0.3, N),
            random.binomial(np.int32(100_000), np.full((), 0.7, np.float16), N, "int64"),
            random.multinomial(10, [2.0, 3.0, 5.0], (N,)),
            random.geometric(0.2, N),
            random.rademacher((N,), "int8"),
            random.binomial(7, [0.0, 1.0]),
            random.geometric(np.array([1.0], np.float16)),
        ]
    )
    near = 5 / np.sqrt(N)
    assert few.dtype == np.int32 and many.dtype == np.int64 and signs.dtype == np.int8
    assert abs(frequencies(few, 6) - stats.binom(5, 0.3).pmf(range(6))).max() < near
    share = float(np.float16(0.7))  # of numbers that float16 cannot represent
    assert abs(many.mean() - 100_000 * share) < 5 * 150 / np.sqrt(N)
    assert classes.shape == (N, 3) and (classes.sum(1) == 10).all()
    assert abs(classes.mean(0) - [2, 3, 5]).max() < 2 * near
    wanted = stats.geom(0.2).pmf(np.arange(trials.max() + 1))
    assert abs(frequencies(trials, 0) - wanted).max() < near
    assert set(signs.tolist()) == {-1, 1} and abs(signs.astype(float).mean()) < near
    assert sure.tolist() == [0, 7] and narrow.tolist() == [1]


def test_orthogonal() -> None:
    (q,) = draw(lambda: [random.orthogonal(3, (2000,), "float64")])
    assert_near(q @ np.swapaxes(q, 1, 2), np.eye(3) + 0 * q, rtol=1e-7, atol=1e-12)
    assert abs(q.mean(0)).max() < 0.07 and abs(np.linalg.det(q).mean()) < 0.12


@pytest.mark.slow
def test_each_draw_is_its_own_unless_the_seed_is_the_same() -> None:
    functions = (
        lambda **s: random.binomial(1000, 0.5, 8, **s),
        lambda **s: random.wald(2, 3, 8, **s),
    )
    found = draw(lambda: [f(**s) for f in functions for s in ({}, {}, {"seed": 1}, {"seed": 1})])
    for i in range(0, len(found), 4):
        one, other, same, again = found[i : i + 4]
        assert not np.array_equal(one, other) and not np.array_equal(one, same)
        np.testing.assert_array_equal(same, again)


@pytest.mark.slow
def test_counts_do_not_depend_on_the_number_of_replicas() -> None:
    with Graph(seed=1) as graph:
        p = placeholder((8,), "float32", batch_axis=0)
        fetches = [random.binomial(100, p), random.weibull(p + 1.0)]
    shares = np.linspace(0.1, 0.9, 8, dtype=np.float32)
    options = CompileOptions(max_in_flight=1)
    alone = Session(graph).run(fetches, {p: shares})
    together = Session(graph, strategy=DataParallel(4), options=options).run(fetches, {p: shares})
    np.testing.assert_array_equal(alone[0], together[0])
    assert_near(alone[1], together[1], rtol=1e-6)


def test_gradients_of_parameters() -> None:
    """Means that are known: a triangular distribution has (left + mode + right) / 3; pareto."""
    with Graph() as graph:
        a, b = placeholder((), "float64"), placeholder((), "float64")
        slopes = [
            gradients(random.triangular(a, b, 4.0, N), [a, b]),
            gradients(random.pareto(b, N), [b]),
        ]
    found = Session(graph).run(slopes, {a: 0.0, b: 3.0})
    left, mode, shape = (float(slope) for slopes in found for slope in slopes)
    assert abs(left / N - 1 / 3) < 0.01 and abs(mode / N - 1 / 3) < 0.01
    assert abs(shape / N + 1 / 4) < 0.05  # the mean is b / (b - 1)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x: random.weibull(x, shape=(2,)), ShapeError, "do not broadcast together"),
        (lambda x: random.f(x, [1.0, 2.0]), ShapeError, "not broadcast"),
        (lambda x: random.geometric(x, (2, 1)), ShapeError, "not broadcast"),
        (lambda x: random.ball(0), AttributeValueError, "d must be a positive int"),
        (lambda x: random.ball(2, -1), AttributeValueError, "p must be a positive number"),
        (lambda x: random.orthogonal(2.5), AttributeValueError, "n must be a positive int"),
        (lambda x: random.orthogonal(2, dtype="float16"), DTypeError, "must be float32"),
        (lambda x: random.rayleigh(3, dtype="int32"), AttributeValueError, "must be floating"),
    ],
)
def test_errors(call, error, words) -> None:
    with Graph():
        x = placeholder((3,))
        with pytest.raises(error, match=rf"(?s){words}.*at test_transformed_draws.py:"):
            call(x)


def test_one_draw_is_never_used_in_several_places() -> None:
    three = np.ones(3, np.float32)
    with Graph(seed=0):
        for draws in (random.gamma(2.0, three), random.weibull(2.0, three)):
            assert draws.shape == (3,)
        for draw_from in (
            lambda: random.normal((), three),
            lambda: random.exponential((1,), three),
            lambda: random.gamma(2.0, three, ()),
            lambda: random.multivariate_normal(np.zeros((5, 3)), np.eye(3), ()),
            lambda: random.multivariate_normal(np.zeros(3), np.ones((1, 1))),
        ):
            with pytest.raises(ShapeError):
                draw_from()
