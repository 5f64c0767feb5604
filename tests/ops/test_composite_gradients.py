"""Gradients of composite functions, compared with those of JAX's functions."""

from __future__ import annotations

import jax
import numpy as np
from jax import numpy as jnp
from jax.scipy import special

import graphc as gc
from graphc.autodiff.reverse import gradients
from graphc.build.placeholders import placeholder
from graphc.ir.graph import Graph
from tests.laws.harness import evaluate, functional
from tests.near import assert_near

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 5))
V = RNG.normal(size=(5,))
UNIT = 1 / (1 + np.exp(-X))
HOLES = np.where(np.arange(20).reshape(4, 5) % 3 == 0, np.nan, X)
UP = np.array([0.0, 1.0, 1.5, 3.0, 4.0])
FEW = np.array([0, 2, 2])

# (a name, a call of both modules, the operands)
CALLS = [
    ("exp2", lambda m, s, x: m.exp2(x), X),
    ("log2", lambda m, s, x: m.log2(x), UNIT),
    ("logaddexp2", lambda m, s, x, y: m.logaddexp2(x, y), X, V),
    ("copysign", lambda m, s, x: m.copysign(x, -1.0), X),
    ("nan_to_num", lambda m, s, x: m.nan_to_num(x), HOLES),
    ("fmax", lambda m, s, x, y: m.fmax(x, y), HOLES, V),
    ("logit", lambda m, s, x: s.logit(x), UNIT),
    ("ndtr", lambda m, s, x: s.ndtr(x), X),
    ("entr", lambda m, s, x: s.entr(x), UNIT),
    ("kl_div", lambda m, s, x, y: s.kl_div(x, y), UNIT, UNIT[::-1]),
    ("gamma", lambda m, s, x: s.gamma(x), X),
    ("betaln", lambda m, s, x, y: s.betaln(x, y), UNIT, UNIT[0]),
    ("std", lambda m, s, x: m.std(x, 1, ddof=1), X),
    ("median", lambda m, s, x: m.median(x, 1), X),
    ("quantile", lambda m, s, x: m.quantile(x, np.array([0.2, 0.7]), 0), X),
    ("nanmean", lambda m, s, x: m.nanmean(x, 0), HOLES),
    ("nanmax", lambda m, s, x: m.nanmax(x, 1), HOLES),
    ("nanvar", lambda m, s, x: m.nanvar(x, 0), HOLES),
    ("average", lambda m, s, x, w: m.average(x, 1, w), X, UNIT[0]),
    ("cov", lambda m, s, x: m.cov(x), X),
    ("trapezoid", lambda m, s, x, y: m.trapezoid(x, y), X, V),
    ("interp", lambda m, s, x, y: m.interp(x, UP, y), X * 2, V),
    ("polyval", lambda m, s, p, x: m.polyval(p, x), V, X),
    ("roll", lambda m, s, x: m.roll(x, 2, 1), X),
    ("tril", lambda m, s, x: m.tril(x), X),
    ("diagonal", lambda m, s, x: m.diagonal(x), X),
    ("kron", lambda m, s, x, y: m.kron(x, y), X, V),
    ("block", lambda m, s, x, y: m.block([[x], [y]]), X, V),
    ("select", lambda m, s, x: m.select([x > 1, x > 0], [x * 2, x**2], -x), X),
    ("linspace", lambda m, s, x: m.linspace(x, 2.0, 4), V),
    ("x[i, j]", lambda m, s, x: x[FEW, FEW + 1], X),
    ("x[i, :, j]", lambda m, s, x: x[None][np.zeros(3, int), :, FEW], X),
    ("set", lambda m, s, x, y: x.at[1].set(y), X, V),
    ("set a column", lambda m, s, x, y: x.at[:, 2].set(y[:4]), X, V),
    ("set twice", lambda m, s, x, y: x.at[:, FEW].set(y[:3]), X, V),
    ("set steps", lambda m, s, x, y: x.at[::-2, ::2].set(y[:3]), X, V),
    ("add", lambda m, s, x, y: x.at[FEW].add(y), X, V),
    ("mul a window", lambda m, s, x, y: x.at[1:3].mul(y), X, V),
    ("pad", lambda m, s, x: m.pad(x, 2, mode="reflect"), X),
]


def weighted(y):
    return y * np.linspace(0.5, 1.5, int(np.prod(y.shape))).reshape(y.shape)


def test_gradients_as_jax() -> None:
    graph = Graph()
    feeds, arrays, found, calls = [], [], [], []
    with graph:
        for i, (name, call, *operands) in enumerate(CALLS):
            xs = [placeholder(a.shape, "float64", name=f"x{i}_{j}") for j, a in enumerate(operands)]
            feeds += xs
            arrays += operands
            found.append(gradients([gc.sum(weighted(call(gc, gc, *xs)))], xs))
            calls.append((name, call, operands))
    flat = [g for row in found for g in row]
    values = iter(evaluate(functional(graph, flat, feeds), arrays))

    def losses(every):
        return sum(
            jnp.sum(weighted(call(jnp, special, *xs)))
            for (_, call, _), xs in zip(calls, every, strict=True)
        )

    with jax.enable_x64(True):
        wanted = jax.jit(jax.grad(losses))([[jnp.asarray(a) for a in c[2]] for c in calls])
    for (name, _, operands), row in zip(calls, wanted, strict=True):
        for k in range(len(operands)):
            assert_near(next(values), row[k], rtol=1e-7, atol=1e-9, err_msg=f"{name}, operand {k}")


def test_spreads_of_constants_are_flat() -> None:
    with Graph() as graph:
        x = placeholder((2, 3), "float64", name="x")
        slopes = [gradients(gc.sum(spread(x, 1)), x) for spread in (gc.std, gc.nanstd)]
    for slope in gc.Session(graph).run(slopes, {x: np.full((2, 3), 2.0)}):
        np.testing.assert_array_equal(slope, np.zeros((2, 3)))
