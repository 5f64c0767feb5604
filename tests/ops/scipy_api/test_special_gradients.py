"""Derivatives of special functions that JAX lacks or has wrong, compared with differences."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special

import graphc as gc
from graphc.autodiff.reverse import gradients
from graphc.build.placeholders import placeholder
from graphc.ir.graph import Graph
from graphc.ops.scipy_api.gamma_slopes import igamma_grad_a, random_gamma_grad
from tests.laws.harness import evaluate, functional
from tests.near import assert_near

STEP = 1e-5


def slope(f, values):
    """The derivative of `f` and its central differences, at the values."""
    x64 = np.asarray(values, np.float64)
    with Graph() as graph:
        x = placeholder(x64.shape, "float64", name="x")
        y = f(x)
        found = gradients([gc.sum(y)], [x])
        shifted = [f(x + STEP), f(x - STEP)]
    got, above, below = evaluate(functional(graph, [*found, *shifted], [x]), [x64])
    return got, (above - below) / (2 * STEP)


def test_spence_and_its_second_derivative_at_one() -> None:
    xs = [0.2, 1.0, 1.5, 1.7, 4.0]
    got, near = slope(gc.spence, xs)
    assert_near(got, near, rtol=1e-7)
    got, near = slope(lambda x: gradients([gc.sum(gc.spence(x))], [x])[0], xs)
    assert_near(got, near, rtol=1e-5)


def test_derivatives_of_the_gamma_distribution_in_x() -> None:
    for f in (
        lambda x: igamma_grad_a(1.7, x),
        lambda x: random_gamma_grad(1.7, x),
        lambda x: random_gamma_grad(1.7, x, log=True),
    ):
        got, near = slope(f, [0.3, 1.1, 2.5])
        assert_near(got, near, rtol=1e-6)


def test_exponential_integral_of_order_zero() -> None:
    got, near = slope(lambda x: gc.expn(0, x), [0.3, 2.0])
    assert_near(got, near, rtol=1e-7)


def test_draws_too_small_for_their_dtype_have_a_gradient() -> None:
    """The gradient of log x where x itself underflows to 0: JAX gives 0 or infinity."""
    with Graph() as graph:
        alpha = placeholder((), "float32", name="alpha")
        y = random_gamma_grad(alpha, np.float32([-50, -70, -1000]), log=True)
    (got,) = evaluate(functional(graph, [y], [alpha]), [np.float32(0.05)])
    wanted = (special.digamma(1.05) - np.array([-50, -70, -1000])) / 0.05
    assert_near(got, wanted, rtol=1e-4)


def test_where_parameters_have_no_gradient_it_is_nan() -> None:
    with Graph() as graph:
        a = placeholder((), "float64", name="a")
        found = [
            gradients([y], [a])[0]
            for y in (
                gc.expn(a, 0.5),
                igamma_grad_a(a, 0.5),
                gc.hyp1f1(a, 2.0, 150.0),
                gc.hyp1f1(a, 2.0, -20.0),
                gc.hyp1f1(a - 3.0, 2.0, 2.0),
                gc.hyp2f1(1.5, a, 2.0, -2.0),
                gc.hyp2f1(a - 2.0, 2.0, 3.0, 0.5),
            )
        ]
    assert all(math.isnan(v) for v in evaluate(functional(graph, found, [a]), [np.float64(2)]))


def test_exponential_integrals_near_zero() -> None:
    """The tensors contain values near zero, where JAX's continued fraction takes 1 / x steps."""
    orders, xs = np.meshgrid(np.arange(6.0), [1e-300, 1e-9, 0.3, 1.0, 1.5])
    with Graph() as graph:
        x = placeholder(xs.shape, "float64", name="x")
        y = gc.expn(orders, x)
    (got,) = evaluate(functional(graph, [y], [x]), [xs])
    assert_near(got, special.expn(orders.astype(int), xs), rtol=1e-12)


@pytest.mark.slow
def test_hypergeometric_derivatives() -> None:
    """The derivative in x uses a formula; the others are compared with JAX's series."""
    xs = np.array([-5.0, 0.3, 0.8])
    a, b, c = 1.7, 2.4, 3.3
    with Graph() as graph:
        first = placeholder((), "float64", name="a")
        x = placeholder((3,), "float64", name="x")
        y = gc.hyp2f1(first, np.float64(b), np.float64(c), x)
        found = gradients([gc.sum(y)], [x, first])
    of_x, of_a = evaluate(functional(graph, found, [first, x]), [np.float64(a), xs])
    wanted = a * b / c * special.hyp2f1(a + 1, b + 1, c + 1, xs)
    assert_near(of_x, wanted, rtol=1e-9)
    above, below = (special.hyp2f1(a + s, b, c, xs).sum() for s in (STEP, -STEP))
    assert_near(of_a, (above - below) / (2 * STEP), rtol=1e-6)
