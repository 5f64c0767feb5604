"""NumPy's further arguments and functions, compared with NumPy in one program."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from jax import numpy as jnp

import graphc as gc
from graphc.errors import AttributeValueError, DTypeError, ShapeError
from tests.near import assert_near
from tests.ops.table import Row, check

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 5)).astype(np.float32)
N = RNG.integers(-9, 9, (4, 5)).astype(np.int32)
M = RNG.random((4, 5)) < 0.6
M[:, 0] = True
ROW = M[1]
P, Q = RNG.normal(size=4).astype(np.float32), RNG.normal(size=2).astype(np.float32)
AT = np.array([0.0, 0.5, 2.0, 2.25, 4.0], np.float32)


def both(name, *arrays, **options):
    """A function that graphc and NumPy both have, with the same name and arguments."""

    def build(*t):
        return getattr(gc, name)(*t, **options)

    def oracle(*a):
        return getattr(np, name)(*a, **options)

    text = ", ".join(f"{k}={v if np.ndim(v) == 0 else 'array'}" for k, v in options.items())
    return Row(f"{name}({text})", build, oracle, arrays)


REDUCED = [
    both(name, X, axis=axis, where=mask, **more)
    for name, more in (
        ("sum", {}), ("sum", {"initial": 2.5}), ("prod", {}), ("prod", {"initial": 0.5}),
        ("mean", {}), ("var", {}), ("var", {"ddof": 1}), ("std", {"keepdims": True}),
        ("max", {"initial": -0.25}), ("min", {"initial": 0.25}), ("any", {}), ("all", {}),
    )
    for axis, mask in ((None, M), (0, M), (1, ROW))
]  # fmt: skip

ROWS = [
    *REDUCED,
    both("sum", X, initial=3.0),
    both("max", X, axis=0, initial=0.5, keepdims=True),
    both("amax", X), both("amin", X, axis=1),
    Row("sum in bfloat16", lambda t: gc.sum(t, dtype="int32"), lambda a: a.astype(int).sum(), [X]),
    Row("mean of dtype", lambda t: gc.mean(t, dtype="float32"), np.mean, [N]),
    both("round", 10 * X, decimals=1), both("round", X), both("round", N, decimals=-1),
    both("argmax", X, keepdims=True), both("argmin", X, axis=1, keepdims=True),
    both("sort", X, axis=None), both("argsort", X, axis=None),
    Row("concatenate of all", lambda a, b: gc.concatenate([a, b], None),
        lambda a, b: np.concatenate([a, b], None), [X, N]),
    Row("arange of floats", lambda: (gc.arange(0.5, 3, 0.25), gc.arange(2.5), gc.arange(3, 0, -.5)),
        lambda: (np.arange(0.5, 3, 0.25), np.arange(2.5), np.arange(3, 0, -.5)), []),
    both("diff", X, prepend=0), both("diff", X, axis=0, append=1.5, n=2),
    Row("diff between rows", lambda a, b: gc.diff(a, axis=0, prepend=b, append=b),
        lambda a, b: np.diff(a, axis=0, prepend=b, append=b), [X, X[:2]]),
    Row("ediff1d", lambda a: (gc.ediff1d(a), gc.ediff1d(a, [1.0, 2.0], -1.0)),
        lambda a: (np.ediff1d(a), np.ediff1d(a, [1.0, 2.0], -1.0)), [X]),
    Row("take wrapped", lambda a: gc.take(a, [[-7, 3], [9, 5]], 1, "wrap"),
        lambda a: np.take(a, [[-7, 3], [9, 5]], 1, mode="wrap"), [X]),
    Row("repeat", lambda a: (gc.repeat(a, [0, 2, 1, 3], 0), gc.repeat(a, 2, -1), gc.repeat(a, 3)),
        lambda a: (np.repeat(a, [0, 2, 1, 3], 0), np.repeat(a, 2, -1), np.repeat(a, 3)), [X]),
    both("gradient", P), both("gradient", X, axis=1), both("gradient", X),
    Row("gradient of places", lambda a, at: gc.gradient(a, 0.5, at),
        lambda a, at: np.gradient(a, 0.5, at), [X, AT]),
    Row("gradient of two", lambda a: gc.gradient(a, 2.0, axis=(1, 0)),
        lambda a: np.gradient(a, 2.0, axis=(1, 0)), [X]),
    Row("partition", lambda a: gc.sort(gc.partition(a, 2)[:, :2]),
        lambda a: np.sort(np.partition(a, 2)[:, :2]), [X]),
    Row("argpartition", lambda a: gc.sort(gc.argpartition(a, 2, 0)[:2], 0),
        lambda a: np.sort(np.argpartition(a, 2, 0)[:2], 0), [X]),
    Row("hsplit", lambda a: gc.hsplit(a, [1, 3]), lambda a: np.hsplit(a, [1, 3]), [X]),
    Row("vsplit", lambda a: gc.vsplit(a, 2), lambda a: np.vsplit(a, 2), [X]),
    Row("dsplit", lambda a: gc.dsplit(a, 3), lambda a: np.dsplit(a, 3), [np.ones((2, 2, 3))]),
    Row("pairs", lambda: (*gc.tril_indices(4, -1), *gc.triu_indices(3, 1, 5), *gc.diag_indices(3)),
        lambda: (*np.tril_indices(4, -1), *np.triu_indices(3, 1, 5), *np.diag_indices(3)), []),
    Row("pairs of", lambda a: (*gc.tril_indices_from(a, 1), *gc.triu_indices_from(a)),
        lambda a: (*np.tril_indices_from(a, 1), *np.triu_indices_from(a)), [X]),
    Row("matvec", gc.matvec, lambda a, b: a @ b, [X, X[0]]),
    Row("vecmat", gc.vecmat, lambda a, b: a.conj() @ b, [X[:, 0] + 1j, X]),
    both("polyadd", P, Q), both("polyadd", Q, P), both("polysub", Q, P), both("polymul", P, Q),
    both("cov", X, aweights=AT), both("cov", X, fweights=np.array([1, 0, 2, 3, 1])),
    both("cov", X, aweights=AT, fweights=np.array([1, 0, 2, 3, 1]), ddof=0),
    both("cov", X[0], aweights=AT), both("angle", X + 1j, deg=True),
    both("polyder", P), both("polyder", P, m=2), both("polyint", P),
    both("polyint", P, m=2, k=3.0), both("conjugate", X + 1j), both("invert", N),
    both("bitwise_not", M), both("rint", X), both("permute_dims", X, axes=(1, 0)),
]  # fmt: skip


def test_they_are_those_of_numpy() -> None:
    check(ROWS)


def test_a_mean_of_nothing_is_not_a_number() -> None:
    with gc.Graph() as graph:
        y = gc.mean(gc.constant(X), 1, where=np.zeros((4, 5), bool))
    assert np.isnan(gc.Session(graph).run(y)).all()


def test_gradients_pass_to_what_counts() -> None:
    with gc.Graph() as graph:
        x = gc.placeholder((4, 5), name="x")
        found = gc.gradients(gc.sum(gc.mean(x, 1, where=M) + gc.max(x, 1, where=M, initial=9.0)), x)
    slope = gc.Session(graph).run(found, {x: X})
    assert_near(slope, M / M.sum(1, keepdims=True), rtol=1e-6)


def test_named_sizes() -> None:
    with gc.Graph() as graph:
        x = gc.placeholder(("n", 5), name="x")
        y = gc.mean(x, 0, where=x > 0), gc.argmax(x, 0, keepdims=True), gc.diff(x, prepend=0)
        slope = gc.gradient(x, axis=0)
    assert y[1].shape == (1, 5) and y[2].shape == x.shape == slope.shape
    found = gc.Session(graph).run([*y, slope], {x: X})
    assert_near(found[0], np.mean(X, 0, where=X > 0), rtol=1e-6)
    assert_near(found[3], np.gradient(X, axis=0), rtol=1e-5)


def test_extremes_of_a_constant_without_elements() -> None:
    with gc.Graph() as graph:
        y = gc.max(gc.constant(X[:0]), 0, initial=-0.5)
        v = gc.variable(y, name="v")
    session = gc.Session(graph)
    for found in (session.run(y), session.get(v)):
        assert np.array_equal(found, np.full(5, -0.5))


@pytest.mark.parametrize("rows", [0, 2])
def test_extremes_of_a_named_size_that_is_zero_in_a_run(rows: int) -> None:
    def of_numpy(n: Any, x: Any) -> list[Any]:
        return [
            n.max(x, axis=0, initial=-0.5),
            n.min(x, initial=0.5, keepdims=True),
            n.max(x, axis=1, initial=0.25),
            n.min(n.round(x), axis=0, initial=-3.0),
        ]

    with gc.Graph() as graph:
        x = gc.placeholder(("n", 5), name="x")
        fetches = [*of_numpy(gc, x), *gc.from_jax(lambda x: of_numpy(jnp, x))(x)]
        slope = gc.gradients(gc.sum(fetches[0]), x)
        plain = gc.max(x, 0)
    assert [f.shape for f in fetches[:4]] == [(5,), (1, 1), (x.shape[0],), (5,)]
    session = gc.Session(graph)
    *found, slopes = session.run([*fetches, slope], {x: X[:rows]})
    for have, want in zip(found, 2 * of_numpy(jnp, jnp.asarray(X[:rows])), strict=True):
        assert_near(have, want, rtol=0)
    assert np.array_equal(slopes, X[:rows] == X[:rows].max(0, initial=-0.5))
    if rows == 0:
        with pytest.raises(ShapeError, match="no elements to reduce"):
            session.run(plain, {x: X[:0]})


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: gc.max(x, where=x > 0), AttributeValueError, "where= needs initial="),
        (lambda x: gc.sum(x, where=np.ones(3, bool)), ShapeError, "broadcast"),
        (lambda x: gc.mean(x, where=x), DTypeError, "bool"),
        (lambda x: gc.repeat(x, [1, 2], 1), ShapeError, "2 numbers for 5 elements"),
        (lambda x: gc.repeat(x, gc.constant(2)), AttributeValueError, "size"),
        (lambda x: gc.repeat(x, [1, -1, 1, 1], 0), AttributeValueError, "ints of 0 or more"),
        (lambda x: gc.delete(x, [9], 0), ShapeError, "a place out of range"),
        (lambda x: gc.insert(x, 9, 1.0, 0), ShapeError, "a place out of range"),
        (lambda x: gc.insert(x, [0.5], 1.0, 0), AttributeValueError, "no valid places"),
        (lambda x: gc.gradient(x[:1], axis=0), ShapeError, "needs 2 elements"),
        (lambda x: gc.polyder(x[0], -1), AttributeValueError, "must not be negative"),
        (lambda x: gc.arange(1.0, 2.0, 0), AttributeValueError, "step other than 0"),
        (lambda x: gc.gradient(x, 1.0, 2.0, 3.0), AttributeValueError, "3 spacings for 2 axes"),
        (lambda x: gc.partition(x, 5), ShapeError, "no element 5 of 5"),
        (lambda x: gc.hsplit(x, 2), ShapeError, "5 elements are not 2 equal pieces"),
        (lambda x: gc.tril_indices_from(x[0]), ShapeError, "takes a matrix"),
        (lambda x: gc.polyadd(x, x), ShapeError, "takes vectors of known length"),
    ],
)  # fmt: skip
def test_bad_input(call, error, text) -> None:
    with gc.Graph(), pytest.raises(error, match=text):
        call(gc.constant(X))
