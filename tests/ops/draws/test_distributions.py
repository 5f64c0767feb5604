"""The draws of `gc.random`, compared with SciPy's distributions, and their gradients."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from graphc.autodiff import gradients
from graphc.build.placeholders import placeholder
from graphc.config import CompileOptions
from graphc.devices.strategy import DataParallel
from graphc.errors import AttributeValueError, ShapeError
from graphc.ir.graph import Graph
from graphc.ops import random
from graphc.runtime.session import Session
from tests.near import assert_near
from tests.ops.test_random import draw

N = 20_000

CONTINUOUS = {
    "exponential": (lambda: random.exponential(N, 2.0), stats.expon(scale=2)),
    "gumbel": (lambda: random.gumbel(N, 1.0, 2.0), stats.gumbel_r(1, 2)),
    "logistic": (lambda: random.logistic(N, 1.0, 2.0), stats.logistic(1, 2)),
    "laplace": (lambda: random.laplace(N, 1.0, 2.0, "float64"), stats.laplace(1, 2)),
    "cauchy": (lambda: random.cauchy(N, 1.0, 2.0), stats.cauchy(1, 2)),
    "lognormal": (lambda: random.lognormal(N, 0.5, 0.7), stats.lognorm(0.7, scale=np.exp(0.5))),
    "gamma": (lambda: random.gamma(2.5, 3.0, N), stats.gamma(2.5, scale=3)),
    "gamma of a small shape": (lambda: random.gamma(0.2, shape=N), stats.gamma(0.2)),
    "chisquare": (lambda: random.chisquare(3, N), stats.chi2(3)),
    "beta": (lambda: random.beta(0.5, 2.0, N), stats.beta(0.5, 2)),
    "student_t": (lambda: random.student_t(4.0, N), stats.t(4)),
    "share": (lambda: random.dirichlet([1.0, 2.0, 3.0], N)[:, 1], stats.beta(2, 4)),
}


@pytest.fixture(scope="module")
def continuous():
    values = draw(lambda: [build() for build, _ in CONTINUOUS.values()])
    return dict(zip(CONTINUOUS, values, strict=True))


@pytest.mark.slow
@pytest.mark.one_jax
@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous(name: str, continuous) -> None:
    values = continuous[name]
    assert np.isfinite(values).all()
    assert stats.kstest(values, CONTINUOUS[name][1].cdf).pvalue > 1e-3


def frequencies(values, count):
    return np.bincount(values.ravel(), minlength=count) / values.size


def test_integers() -> None:
    p = np.array([0.1, 0.2, 0.7], np.float32)
    even, few, classes, chosen, many = draw(
        lambda: [
            random.randint(N, -2, 2),
            random.poisson(3.5, N),
            random.categorical(np.log(p), shape=N),
            random.choice(np.array([5, 6, 7], np.int32), N, p=p),
            random.categorical(np.log(np.stack([p, p[::-1]], 1)), 0, (N // 2, 2)),
        ]
    )
    near = 5 / np.sqrt(N)
    assert abs(frequencies(even + 2, 4) - 0.25).max() < near
    wanted = stats.poisson(3.5).pmf(np.arange(few.max() + 1))
    assert few.dtype == np.int32 and abs(frequencies(few, 0) - wanted).max() < near
    assert classes.dtype == np.int32 and abs(frequencies(classes, 3) - p).max() < near
    assert abs(frequencies(chosen - 5, 3) - p).max() < near
    assert abs(frequencies(many[:, 0], 3) - p).max() < 2 * near
    assert abs(frequencies(many[:, 1], 3) - p[::-1]).max() < 2 * near


def test_orders() -> None:
    x = np.arange(12).reshape(3, 4)
    numbers, rows, columns, some, weighted = draw(
        lambda: [
            random.permutation(1000),
            random.permutation(x),
            random.shuffle(x, 1),
            random.choice(x, (2,), replace=False, axis=1),
            random.choice(4, (3,), replace=False, p=np.array([0.0, 0.2, 0.3, 0.5], np.float32)),
        ]
    )
    assert sorted(numbers) == list(range(1000)) and list(numbers) != sorted(numbers)
    assert abs(stats.spearmanr(numbers, np.arange(1000)).statistic) < 0.15
    assert {tuple(row) for row in rows} == {tuple(row) for row in x}
    assert {tuple(row) for row in columns.T} == {tuple(row) for row in x.T}
    assert some.shape == (3, 2) and not np.array_equal(some[:, 0], some[:, 1])
    assert sorted(weighted) == [1, 2, 3]


def test_vectors() -> None:
    mean, cov = np.array([1.0, -2.0]), np.array([[2.0, 0.6], [0.6, 1.0]])
    vectors, shares = draw(
        lambda: [
            random.multivariate_normal(mean, cov, N),
            random.dirichlet(np.array([[1.0, 2.0], [3.0, 1.0]])),
        ]
    )
    assert abs(vectors.mean(0) - mean).max() < 0.06 and abs(np.cov(vectors.T) - cov).max() < 0.08
    assert shares.shape == (2, 2)
    assert_near(shares.sum(1), 1, rtol=1e-7)


@pytest.mark.slow
def test_each_draw_is_its_own_unless_the_seed_is_the_same() -> None:
    functions = (
        lambda **s: random.student_t(2.0, 8, **s),
        lambda **s: random.beta(2.0, 3.0, 8, **s),
        lambda **s: random.permutation(50, **s),
        lambda **s: random.gumbel(8, **s),
    )
    found = draw(lambda: [f(**s) for f in functions for s in ({}, {}, {"seed": 1}, {"seed": 1})])
    for i in range(0, len(found), 4):
        one, other, same, again = found[i : i + 4]
        assert not np.array_equal(one, other) and not np.array_equal(one, same)
        np.testing.assert_array_equal(same, again)


@pytest.mark.slow
def test_gradients_of_parameters() -> None:
    """Gradients of means that are known: gamma has a * s, beta has a / (a + b)."""
    with Graph() as graph:
        a, s = placeholder((), "float64"), placeholder((), "float64")
        of_gamma = gradients(random.gamma(a, s, N), [a, s])
        of_beta = gradients(random.beta(a, s, N), [a, s])
        of_laplace = gradients(random.laplace(N, a, s, "float64"), [a, s])
    session = Session(graph)
    found = session.run([of_gamma, of_beta, of_laplace], {a: 2.0, s: 3.0})
    (g_a, g_s), (b_a, b_b), (l_a, l_s) = np.asarray(found) / N
    assert abs(g_a - 3) < 0.1 and abs(g_s - 2) < 0.1
    assert abs(b_a - 3 / 25) < 0.01 and abs(b_b + 2 / 25) < 0.01
    assert abs(l_a - 1) < 1e-9 and abs(l_s) < 0.05


def test_classes_do_not_depend_on_the_number_of_replicas() -> None:
    with Graph(seed=1) as graph:
        x = placeholder((8, 5), "float32", batch_axis=0)
        y = random.categorical(x)
    logits = np.zeros((8, 5), np.float32)
    options = CompileOptions(max_in_flight=1)
    alone = Session(graph).run(y, {x: logits})
    together = Session(graph, strategy=DataParallel(4), options=options).run(y, {x: logits})
    np.testing.assert_array_equal(alone, together)
    assert len(set(np.asarray(alone).tolist())) > 1


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x: random.choice(3, 4, replace=False), AttributeValueError, "cannot choose 4 of 3"),
        (
            lambda x: random.choice(3, 2, replace=False, p=[0.0, 1.0, 0.0]),
            AttributeValueError,
            "cannot choose 2 without replacement, because p is positive for 1",
        ),
        (lambda x: random.choice(x, 4, p=[0.5, 0.5]), ShapeError, "p must hold 3 probabilities"),
        (lambda x: random.choice(x, 4, axis=2), AttributeValueError, "axis 2 is out of range"),
        (
            lambda x: random.randint((3,), 0, x[0, 0]),
            AttributeValueError,
            "maxval must be a number",
        ),
        (lambda x: random.randint((3,), 0, 2.5), AttributeValueError, "must be ints"),
        (lambda x: random.gumbel(3, dtype="int32"), AttributeValueError, "dtype must be floating"),
        (lambda x: random.categorical(x, shape=(5,)), ShapeError, "broadcast"),
        (lambda x: random.beta(x, [1.0, 2.0]), ShapeError, "do not broadcast"),
        (lambda x: random.multivariate_normal(x[0], x), ShapeError, "must be square"),
    ],
)
def test_errors(call, error, words) -> None:
    with Graph():
        x = placeholder((3, 4))
        with pytest.raises(error, match=rf"(?s){words}.*at test_distributions.py:"):
            call(x)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_parameters_do_not_bias(dtype: str) -> None:
    """8-bit numbers cannot tell a probability of 1/1000 from 0."""
    p = np.array([0.001] * 100 + [0.9]).astype(dtype)
    share = p.astype(np.float64)
    drawn = draw(
        lambda: [
            random.categorical(np.log(p), shape=(10 * N,)),
            random.choice(101, 10 * N, p=p),
            random.bernoulli(p[0], 10 * N),
        ]
    )
    rare = share[0] / share.sum()
    assert abs((drawn[0] < 100).mean() - 100 * rare) < 0.004
    assert abs((drawn[1] < 100).mean() - 100 * rare) < 0.004
    assert abs(drawn[2].mean() - share[0]) < 0.0004


def test_numbers_of_numpy() -> None:
    n = np.int64(5)
    drawn = draw(
        lambda: [
            random.randint(N, np.int64(-2), np.int64(2)),
            random.choice(n, 3),
            random.permutation(n),
        ]
    )
    assert set(drawn[0].tolist()) == {-2, -1, 0, 1}
    assert drawn[1].shape == (3,) and drawn[1].max() < 5
    assert sorted(drawn[2].tolist()) == [0, 1, 2, 3, 4]
