"""Rows of data-dependent control flow, primitives without an operator, and all kinds of indices."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp
from jax.experimental.ode import odeint

from tests.jaxpr.functions import of, row
from tests.jaxpr.more_functions import KEY

ROWS_OF = np.array([2, 0, 2])
COLUMNS = np.array([1, -1, 7])
SEVERAL = np.array([3, 1, 0, 2])
WORDS = np.array([4, 0, 2**31 - 1, 6], np.uint32)


def newton(x: Any) -> Any:
    """The square root, by as many steps as necessary."""
    return lax.while_loop(
        lambda s: jnp.any(jnp.abs(s[0] ** 2 - x) > 1e-10),
        lambda s: ((s[0] + x / s[0]) / 2, s[1] + 1),
        (x, 0),
    )


def keyed(x: Any, key: Any) -> Any:
    """Draws in a loop with a computed length, and in a branch."""
    start = jax.random.wrap_key_data(key)

    def draw(state: Any) -> Any:
        key, total = state
        key, own = jax.random.split(key)
        return key, total + jax.random.uniform(own, x.shape, x.dtype)

    key, total = lax.while_loop(lambda s: s[1].sum() < 20.0, draw, (start, x))
    return lax.cond(total[0] > 0, lambda k: jax.random.normal(k, (2,)), lambda k: x[:2], key)


def chosen(x: Any, w: Any) -> Any:
    """Branches in a scan; one branch contains a loop."""

    def step(carry: Any, a: Any) -> Any:
        index = (carry > 0).sum()
        carry = lax.switch(
            index,
            [lambda c: c + a, lambda c: jnp.tanh(c @ w), lambda c: lax.fori_loop(0, 3, turn, c)],
            carry,
        )
        return carry, index

    def turn(i: Any, c: Any) -> Any:
        return jnp.sin(c) - i

    return lax.scan(step, x[0], x)


CONTROL = [
    of("while", newton, (4,), low=0.5, high=3.0, gradient=False),
    row("a computed bound",
        lambda x, n: lax.fori_loop(0, n, lambda i, c: c + x[i] * i, 0.0), (7,), np.array(5),
        gradient=False),
    row("assigning in a loop",
        lambda x, n: lax.fori_loop(1, n, lambda i, c: c.at[i].set(c[i - 1] * x[i]), x), (7,),
        np.array(6), gradient=False),
    row("draws in a loop", keyed, (3,), KEY, gradient=False),
    row("a branch", lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x), (4, 3)),
    row("a branch with several results",
        lambda x, y: lax.cond(x[0] > y[0], lambda a, b: (a, b * 2), lambda a, b: (b, a), x, y),
        (3,), (3,)),
    row("branches in a scan", chosen, (5, 3), (3, 3)),
    row("gradient of a branch",
        jax.grad(lambda x: jnp.sum(lax.cond(x[0] > 5, jnp.exp, jnp.sin, x) ** 2)), (4,)),
    row("branches of a vmap",
        lambda x: jax.vmap(lambda a: lax.cond(a > 0, jnp.sin, jnp.cos, a))(x), (5,)),
    of("pure_callback",
       lambda x: jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x) + x,
       (3,), gradient=False, dtype="float32"),  # JAX itself truncates 64-bit values
    of("platform_index",
       lambda x: lax.platform_dependent(x, cpu=jnp.sin, cuda=jnp.cos, default=jnp.exp), (3,)),
    row("branches of platforms without a default",
        lambda x: lax.platform_dependent(x, cpu=jnp.sin, cuda=jnp.cos), (3,)),
    row("a loop of a vmap",
        lambda x: jax.vmap(lambda v: lax.while_loop(
            lambda s: s[0].sum() < 20.0, lambda s: (s[0] * 2, s[1] + 1), (v, 0)))(x),
        (4, 2), low=0.5, high=3.0, gradient=False),
    of("psum", lambda x: jax.vmap(lambda v: v / lax.psum(v, "i"), axis_name="i")(x), (4, 3)),
    of("pmax",
       lambda x: jax.vmap(
           lambda v: v - lax.pmax(v, "i") + lax.pmin(v * 2, "i") * lax.axis_index("i"),
           axis_name="i")(x),
       (4, 3), gradient=False),
    row("ppermute of a vmap",
        lambda x: jax.vmap(lambda v: lax.ppermute(v, "i", [(0, 1), (1, 2), (2, 0)]),
                           axis_name="i")(x),
        (3, 2)),
    of("reduce",
       lambda x: lax.reduce(x, np.float64(1), lambda a, b: a + b + a * b, (0, 2)), (3, 2, 5),
       low=-0.5, high=0.5),
    row("a reduction of pairs",
        lambda x, y: lax.reduce(
            (x, y), (np.float64(-np.inf), np.float64(0)),
            lambda a, b: (jnp.maximum(a[0], b[0]), jnp.where(a[0] >= b[0], a[1], b[1])), (1,)),
        (3, 7), (3, 7), gradient=False),
    row("complex numbers in order",
        lambda x, y: (jnp.sort(x + 1j * y).real, lax.sort((jnp.round(x) + 1j * y, y))[1]),
        (9,), (9,)),
    row("an integral of odeint",
        lambda x: odeint(lambda y, t: -y * t, x, jnp.linspace(0.0, 1.0, 4)), (3,)),
]  # fmt: skip


def spd(x: Any) -> Any:
    """A matrix that has every decomposition."""
    return x @ x.mT + 3 * jnp.eye(x.shape[-1])


LINALG = [
    row("cholesky", lambda x: jnp.linalg.cholesky(spd(x)), (3, 3)),
    of("custom_linear_solve", lambda x, y: jnp.linalg.solve(spd(x), y), (2, 3, 3), (2, 3, 2)),
    row("gradient of a solution",
        jax.grad(lambda x, y: jnp.sum(jnp.linalg.solve(spd(x), y) ** 2), (0, 1)), (3, 3), (3,)),
    row("inverse and determinant",
        lambda x: (jnp.linalg.inv(spd(x)), jnp.linalg.det(spd(x)), jnp.linalg.slogdet(spd(x))),
        (3, 3)),
    row("lu", lambda x: jax.scipy.linalg.lu(spd(x)), (3, 3)),
    row("qr", lambda x: jnp.linalg.qr(x), (4, 3)),
    row("raw qr", lambda x: jnp.linalg.qr(x, mode="raw"), (4, 3), gradient=False),
    row("svd", lambda x: jnp.linalg.svd(x, full_matrices=False)[1], (4, 3)),
    row("eigh", lambda x: jnp.linalg.eigh(spd(x))[0], (2, 3, 3)),
    row("triangular", lambda x, y: jax.scipy.linalg.solve_triangular(spd(x), y, lower=True),
        (3, 3), (3, 2)),
    row("conjugate gradients", lambda x, y: jax.scipy.sparse.linalg.cg(spd(x), y)[0], (3, 3), (3,),
        gradient=False),
    row("expm", lambda x: jax.scipy.linalg.expm(x), (3, 3), gradient=False),
    of("fft", lambda x: (jnp.fft.fft(x).real, jnp.fft.fft2(x).imag), (4, 6)),
    row("rfft", lambda x: jnp.fft.irfft(jnp.fft.rfft(x) * 2), (4, 6)),
]  # fmt: skip

SPECIAL = [
    of("lgamma", jax.scipy.special.gammaln, (4,), low=0.5),
    of("digamma", jax.scipy.special.digamma, (4,), low=0.5),
    of("polygamma", lambda x: jax.scipy.special.polygamma(1, x), (4,), low=0.5, gradient=False),
    of("zeta", lambda x: jax.scipy.special.zeta(x + 1, 2.0), (4,), low=0.5, gradient=False),
    of("igamma", jax.scipy.special.gammainc, (4,), (4,), low=0.5, gradient=False),
    of("igamma_grad_a", lax.igamma_grad_a, (4,), (4,), low=0.5, gradient=False),
    of("igammac", jax.scipy.special.gammaincc, (4,), (4,), low=0.5, gradient=False),
    of("regularized_incomplete_beta", lambda x, y: jax.scipy.special.betainc(x, y, 0.3),
       (4,), (4,), low=0.5, gradient=False),
    of("bessel_i0e", jax.scipy.special.i0e, (4,)),
    of("bessel_i1e", jax.scipy.special.i1e, (4,)),
    of("population_count", lax.population_count, WORDS, gradient=False),
    of("clz", lax.clz, WORDS, gradient=False),
    of("cumlogsumexp", lambda x: lax.cumlogsumexp(x, 1), (3, 4)),
    row("gamma distribution",
        lambda x, key: (jax.random.gamma(key, x, dtype=x.dtype), jax.random.beta(key, x, x)),
        (4,), KEY, low=0.5),
    row("poisson", lambda x, key: jax.random.poisson(key, x), (4,), KEY, low=0.5, gradient=False),
    row("searched", lambda x: (jnp.searchsorted(jnp.sort(x), x), jnp.unique(x, size=3)), (5,),
        gradient=False),
    row("counted", lambda x: (jnp.nonzero(x > 0, size=4), jnp.histogram(x)[0]), (7,),
        gradient=False),
    row("interpolated", lambda x, y: jnp.interp(x, jnp.arange(5.0), y), (4,), (5,),
        gradient=False),
    row("conv over space", lambda x, w: lax.conv(x, w, (1, 1, 1), "SAME"), (1, 2, 3, 4, 3),
        (2, 2, 2, 2, 2)),
]  # fmt: skip


def updated(how: str, *index: Any) -> Any:
    """`x.at[index].<how>(y)`."""

    def function(x: Any, y: Any) -> Any:
        target = x.at[index]
        return getattr(target, how)(y)

    return function


def many_windows(x: Any, i: Any) -> Any:
    return jax.vmap(lambda start: lax.dynamic_slice(x, (start, 1), (2, 2)))(i)


INDEXING = [
    row("set rows", updated("set", SEVERAL[:3]), (4, 3), (3, 3)),
    row("set elements", updated("set", np.array([0, 1, 3]), np.array([2, -1, 0])), (4, 3), (3,)),
    row("set out of range", updated("set", np.array([1, 9])), (4, 3), (2, 3)),
    row("set slices", updated("set", slice(1, 3), 1), (4, 3), (2,)),
    row("set every second", updated("set", slice(None, None, 2)), (5, 3), (3, 3)),
    row("set by a mask", updated("set", np.arange(12).reshape(4, 3) % 5 == 0), (4, 3), (3,)),
    row("set computed windows",
        lambda x, y: jax.vmap(lambda a, b, i: lax.dynamic_update_slice(a, b, (i,)))(
            x, y, jnp.array([2, 0])), (2, 5), (2, 3)),
    row("add rows twice", updated("add", ROWS_OF), (4, 3), (3, 3)),
    row("add elements", updated("add", ROWS_OF, COLUMNS % 3), (4, 3), (3,)),
    row("subtract", updated("subtract", ROWS_OF), (4, 3), (3, 3)),
    row("multiply rows", updated("multiply", ROWS_OF), (4, 3), (3, 3), gradient=False),
    row("divide", updated("divide", np.array([1, 3])), (4, 3), (2, 3), low=0.5, gradient=False),
    row("smallest of rows", updated("min", ROWS_OF), (4, 3), (3, 3)),
    row("largest of elements", updated("max", ROWS_OF, COLUMNS % 3), (4, 3), (3,)),
    row("largest of a slice", updated("max", slice(1, 3)), (4, 3), (2, 3)),
    row("set columns in each matrix",
        lambda x, y: jax.vmap(lambda a, b, i: a.at[:, i].set(b))(
            x, y, jnp.array([[0, 2], [-1, 9]])), (2, 3, 4), (2, 3, 2)),
    row("largest in each column",
        lambda x, y: jax.vmap(lambda a, b, i: a.at[i].max(b), (1, 1, 0), 1)(
            x, y, jnp.array([[0, 2], [1, 1], [3, 0]])), (4, 3), (2, 3)),
    row("smallest at apart indices",
        lambda x, y: x.at[ROWS_OF, :, COLUMNS % 3].min(y, mode="clip"), (4, 2, 3), (3, 2)),
    row("get, with another filling",
        lambda x: x.at[np.array([0, 9, -1])].get(mode="fill", fill_value=-3.0), (4, 3)),
    row("many windows", many_windows, (5, 4), np.array([0, 3, 9])),
    row("windows added", jax.grad(lambda x: jnp.sum(many_windows(x, ROWS_OF) ** 2)), (5, 4)),
    row("segments", lambda x: jax.ops.segment_max(x, SEVERAL // 2, 2), (4, 3)),
]  # fmt: skip


def windows(of_what: Any, initial: Any, **options: Any) -> Any:
    return lambda x: lax.reduce_window(x, initial, of_what, (2, 1), (1, 1), "VALID", **options)


# Forms that graphc's own operators do not have: nodes that hold JAX's primitive.
WINDOWS = [
    row("windows of integers", windows(lax.add, np.int32(0)),
        np.arange(12, dtype=np.int32).reshape(4, 3), gradient=False),
    row("windows over gaps", windows(lax.min, np.float64(np.inf), base_dilation=(2, 1)), (4, 3),
        gradient=False),
    row("sums of windows with gaps", windows(lax.add, np.float64(0), window_dilation=(2, 1)),
        (4, 3)),
    row("conv of integers", lambda x: lax.conv(x, x[:1], (1,), "SAME"),
        np.arange(24, dtype=np.int32).reshape(2, 3, 4), gradient=False),
    row("conv of complex numbers",
        lambda x, w: lax.conv(x + 1j * x[::-1], w - 2j * w, (1,), "SAME").imag, (2, 3, 4),
        (5, 3, 2)),
    row("conv without space",
        lambda x, w: lax.conv_general_dilated(x, w, (), "VALID", precision="highest"), (2, 3),
        (5, 3)),
    row("largest complex numbers", lambda x: jnp.max(x[0] + 1j * x[1], 0).imag, (2, 4, 3),
        gradient=False),
]  # fmt: skip

ANY = (*CONTROL, *LINALG, *SPECIAL, *INDEXING, *WINDOWS)
