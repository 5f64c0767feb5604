"""Grids, diagonals, rearrangements and differences, compared with NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gc
from graphc.build.placeholders import placeholder
from graphc.errors import AttributeValueError, ShapeError
from graphc.ir.graph import Graph
from tests.near import assert_near
from tests.ops.table import Row, check

RNG = np.random.default_rng(0)
M = RNG.normal(size=(4, 5)).astype(np.float32)
S = RNG.normal(size=(4, 4)).astype(np.float32)
C = RNG.normal(size=(3, 4, 5)).astype(np.float32)
V = RNG.normal(size=(5,)).astype(np.float32)
W = RNG.normal(size=(3,)).astype(np.float32)
UP = np.array([0.0, 1.0, 1.5, 3.0, 4.0], np.float32)


def same(name, call, *arrays, near=2e-6):
    """A row in which graphc and NumPy are called alike: `call(module, *arrays)`."""
    return Row(
        name,
        lambda *tensors: call(gc, *tensors),
        lambda *values: call(np, *values),
        arrays,
        near,
    )


def test_grids() -> None:
    rows = [
        same("linspace", lambda n: n.linspace(1.0, 2.0, 7)),
        same("linspace open", lambda n: n.linspace(0, 3, 6, endpoint=False)),
        same("linspace of one", lambda n: n.linspace(2.0, 5.0, 1)),
        same("linspace wide", lambda n: n.linspace(-0.7, 0.1, 4, dtype="float64"), near=1e-14),
        same("linspace of tensors", lambda n, a, b: n.linspace(a, b, 4), M, V),
        same("linspace dtype", lambda n: n.linspace(0.0, 9.0, 4, dtype="int32")),
        same("logspace", lambda n: n.logspace(0.0, 2.0, 5), near=1e-5),
        same("logspace base", lambda n: n.logspace(0.0, 3.0, 4, base=2.0), near=1e-5),
        same("geomspace", lambda n: n.geomspace(1.0, 1000.0, 4), near=1e-5),
        same("meshgrid", lambda n, a, b, c: n.meshgrid(a, b, c), V, W, V[:2]),
        same("meshgrid ij", lambda n, a, b: n.meshgrid(a, b, indexing="ij"), V, W),
        same("meshgrid open", lambda n, a, b: n.meshgrid(a, b, sparse=True), V, W),
        same("meshgrid of one", lambda n, a: n.meshgrid(a), V),
        same("indices", lambda n: n.indices((2, 3))),
        same("unravel_index", lambda n, i: n.unravel_index(i, (3, 4, 5)), np.array([0, 7, 59])),
        same("ravel_multi_index", lambda n, i, j: n.ravel_multi_index((i, j), (4, 5)),
             np.array([0, 3]), np.array([2, 4])),
    ]  # fmt: skip
    check(rows)


def test_diagonals() -> None:
    rows = [
        same("eye", lambda n: n.eye(4)),
        same("eye k", lambda n: n.eye(3, 5, 1, dtype="int32")),
        same("tri", lambda n: n.tri(3, 5, -1)),
        same("outer", lambda n, a, b: n.outer(a, b), V, W),
        same("vander", lambda n, a: n.vander(a), W),
        same("vander up", lambda n, a: n.vander(a, 4, increasing=True), W),
        same("diag of a matrix", lambda n, a: n.diag(a), M),
        same("kron", lambda n, a, b: n.kron(a, b), M, S[:2]),
        same("kron of vectors", lambda n, a, b: n.kron(a, b), V, W),
        same("kron of ranks", lambda n, a, b: n.kron(a, b), W, S),
        same("diagonal of other axes", lambda n, a: n.diagonal(a, 1, 2, 0), C),
    ]
    for k in (-2, 0, 1):
        rows += [
            same(f"tril {k}", lambda n, a, k=k: n.tril(a, k), C),
            same(f"triu {k}", lambda n, a, k=k: n.triu(a, k), C),
            same(f"diag {k}", lambda n, a, k=k: n.diag(a, k), V),
            same(f"diagflat {k}", lambda n, a, k=k: n.diagflat(a, k), M[:2, :2]),
            same(f"diagonal {k}", lambda n, a, k=k: n.diagonal(a, k), M),
            same(f"diagonal of stacks {k}", lambda n, a, k=k: n.diagonal(a, k, -2, -1), C),
        ]
    check(rows)


def test_rearrangements() -> None:
    rows = [
        same("fliplr", lambda n, a: n.fliplr(a), C),
        same("flipud", lambda n, a: n.flipud(a), C),
        same("atleast", lambda n, a: (n.atleast_1d(a), n.atleast_2d(a), n.atleast_3d(a)), V),
        same("atleast of a scalar", lambda n, a: (n.atleast_1d(a), n.atleast_3d(a)), V[0]),
        same("atleast of a matrix", lambda n, a: (n.atleast_2d(a), n.atleast_3d(a)), M),
        same("broadcast_arrays", lambda n, a, b: tuple(n.broadcast_arrays(a, b, 1.0)), C, V),
        same("hstack", lambda n, a, b: n.hstack([a, b]), V, W),
        same("hstack of matrices", lambda n, a, b: n.hstack([a, b]), M, S),
        same("vstack", lambda n, a, b: n.vstack([a, b]), M, V),
        same("dstack", lambda n, a, b: n.dstack([a, b]), V, V),
        same("dstack of matrices", lambda n, a, b: n.dstack([a, b]), M, M),
        same("column_stack", lambda n, a, b: n.column_stack([a, b]), M, V[:4]),
        same("block", lambda n, a, b: n.block([[a, b], [b, a]]), S, 2 * S),
        same("block of vectors", lambda n, a, b: n.block([a, b, 3.0]), V, W),
        same("block of ranks", lambda n, a, b: n.block([[a], [b]]), M, V),
        same("append", lambda n, a, b: n.append(a, b), M, V),
        same("append along", lambda n, a, b: n.append(a, b, 1), M, S),
        same("array_split", lambda n, a: n.array_split(a, 3, 1), M),
        same("array_split, empty ones", lambda n, a: n.array_split(a, 4), W),
        same("delete", lambda n, a: n.delete(a, [1, -1], 1), M),
        same("delete raveled", lambda n, a: n.delete(a, 3), M),
        same("delete slice", lambda n, a: n.delete(a, slice(1, 4, 2), 1), M),
        same("insert", lambda n, a: n.insert(a, 1, 7.0), M),
        same("insert columns", lambda n, a: n.insert(a, [0, 5, 2], 7.0, 1), M),
        same("insert a row", lambda n, a, b: n.insert(a, 2, b, 0), M, V),
        same("insert rows", lambda n, a, b: n.insert(a, -1, b, 0), M, M[:2] * 2),
        same("insert at one place", lambda n, a, b: n.insert(a, [1], b), V, W),
        same("insert a number", lambda n, a: n.insert(a, 1, 2.0), np.int8([100, 3])),
        same("insert by first axis", lambda n, a, b: n.insert(a, 1, b[:, None], 1), C[0], W),
        same("insert across", lambda n, a, b: n.insert(a, [1, 2], b, 1), M, W[:2]),
        same("insert slice", lambda n, a: n.insert(a, slice(0, 2), 7.0), M),
        same("insert by bools", lambda n, a: n.insert(a, np.arange(5) > 2, 7.0), V),
        same("insert nowhere", lambda n, a: n.insert(a, [], 7.0), V),
        same("delete nowhere", lambda n, a: n.delete(a, []), V),
        same("delete by bools", lambda n, a: n.delete(a, np.arange(5) > 2), V),
        same("repeat all alike", lambda n, a: n.repeat(a, [2]), V),
        same("roll by arrays", lambda n, a: n.roll(a, np.array([1, 2]), (0, 1)), M),
        same("roll twice", lambda n, a: n.roll(a, (1, 2), 0), M),
        same("linspace ends", lambda n: n.equal(n.linspace(1.0, 25.0, 4)[-1], 25.0)),
        same(
            "round large ints",
            lambda n, a: n.round(a, -1),
            np.int32([123456789, -2147483641, 25, 15, -15]),
            near=0,
        ),
        same("round past all", lambda n, a: n.round(a, -3), np.int8([100, -128])),
        same(
            "take round and round",
            lambda n, a, i: n.take(a, i, mode="wrap"),
            np.arange(200.0, dtype=np.float32),
            np.int8([-1, 127, -128]),
        ),
        same("greatest of none", lambda n, a: n.max(a, axis=0, initial=5.0), M[:0]),
        same("least of none", lambda n, a: n.min(a, initial=5.0, keepdims=True), M[:0]),
        same("insert in a vector", lambda n, a, b: n.insert(a, [1, 1, 4], b), V, W),
    ]
    for k in range(-1, 4):
        rows.append(same(f"rot90 {k}", lambda n, a, k=k: n.rot90(a, k), M))
        rows.append(same(f"rot90 others {k}", lambda n, a, k=k: n.rot90(a, k, (2, 0)), C))
    for shift, axis in (
        (1, 0),
        (-2, 1),
        (7, -1),
        (3, None),
        ((1, -2), (0, 2)),
        (2, (1, 2)),
        (0, 0),
    ):
        rows.append(same(f"roll {shift} {axis}", lambda n, a, s=shift, x=axis: n.roll(a, s, x), C))
    rows.append(
        Row("roll by a tensor", lambda a, s: gc.roll(a, s, 1), lambda a, s: np.roll(a, int(s), 1),
            (M, np.int32(-7)))
    )  # fmt: skip
    for mode in ("edge", "reflect", "symmetric", "wrap"):
        rows.append(same(f"pad {mode}", lambda n, a, m=mode: n.pad(a, ((1, 2), (3, 0)), mode=m), M))
    check(rows)


def test_differences() -> None:
    wild = (np.cumsum(RNG.uniform(-9, 9, (3, 8)), 1)).astype(np.float32)
    rows = [
        same("diff", lambda n, a: n.diff(a), M),
        same("diff twice", lambda n, a: n.diff(a, 2, 0), M),
        same("diff of bools", lambda n, a: n.diff(a), M > 0),
        Row("trapezoid", lambda y: gc.trapezoid(y, dx=0.5),
            lambda y: ((y[..., 1:] + y[..., :-1]) * 0.25).sum(-1), (C,)),
        Row("trapezoid of points", lambda y, x: gc.trapezoid(y, x, axis=1),
            lambda y, x: ((y[:, 1:] + y[:, :-1]) / 2 * np.diff(x)[:, None]).sum(1), (C, UP[:4])),
        same("interp", lambda n, a, x, y: n.interp(a, x, y), M * 3, UP, V),
        same("interp at the points", lambda n, x, y: n.interp(x, x, y), UP, V),
        same("interp outside", lambda n, a, x, y: n.interp(a, x, y, 7.0, -7.0), M * 9, UP, V),
        same("polyval", lambda n, p, a: n.polyval(p, a), W, M),
        same("unwrap", lambda n, a: n.unwrap(a), wild, near=1e-5),
        same("unwrap along", lambda n, a: n.unwrap(a, axis=0, period=4.0), wild, near=1e-5),
    ]  # fmt: skip
    check(rows)


def test_choices_and_orders() -> None:
    twice = np.array([[2, 1, 2, 0], [1, 1, 0, 3]], np.int32)
    other = RNG.normal(size=(2, 4)).astype(np.float32)
    rows = [
        same("select", lambda n, a: n.select([a > 1, a > 0], [a * 2, a], -1.0), M),
        same("piecewise", lambda n, a: n.piecewise(a, [a < 0, a > 1], [lambda v: -v, 7.0]), M),
        same("piecewise with a rest",
             lambda n, a: n.piecewise(a, [a < 0, a > -1], [-1.0, lambda v: v * v, 5.0]), M),
        same("choose", lambda n, i, a: n.choose(i, [a, a * 2, a * 3, -a[0]]), twice, other),
        same("lexsort", lambda n, a, b: n.lexsort((a, b)), other, twice),
        same("lexsort along", lambda n, a, b: n.lexsort((a, b), axis=0), other, twice),
        Row("sort_together", lambda a, b: gc.sort_together([a, b], 1),
            lambda a, b: tuple(np.take_along_axis(v, np.argsort(a, 1, kind="stable"), 1)
                               for v in (a, b)), (twice, other)),
        same("cov", lambda n, a: n.cov(a), M, near=1e-5),
        same("cov of columns", lambda n, a: n.cov(a, rowvar=False, ddof=0), M, near=1e-5),
        same("cov of two", lambda n, a, b: n.cov(a, b), M, M[:2] * 2, near=1e-5),
        same("cov of one", lambda n, a: n.cov(a), V, near=1e-5),
        same("corrcoef", lambda n, a: n.corrcoef(a), M, near=1e-5),
        same("corrcoef of one", lambda n, a: n.corrcoef(a), V),
    ]  # fmt: skip
    check(rows)


def test_named_sizes() -> None:
    graph = Graph()
    with graph:
        x = placeholder(("n", 3), "float32", name="x")
        size = x.shape[0]
        fetches = [
            gc.roll(x, 1, 0),
            gc.eye(size),
            gc.linspace(0.0, 1.0, size),
            gc.diff(x, axis=0),
            gc.kron(x, x),
            gc.diagonal(gc.matmul(x, gc.transpose(x)), 1),
        ]
    value = np.arange(12, dtype=np.float32).reshape(4, 3)
    found = gc.Session(graph).run(fetches, {"x": value})
    wanted = [
        np.roll(value, 1, 0),
        np.eye(4),
        np.linspace(0, 1, 4),
        np.diff(value, axis=0),
        np.kron(value, value),
        np.diagonal(value @ value.T, 1),
    ]
    for a, b in zip(found, wanted, strict=True):
        assert_near(a, b, rtol=1e-6)


REFUSED = [
    (lambda x: gc.rot90(x, 1, (1, -1)), AttributeValueError, "two different axes"),
    (lambda x: gc.roll(x, (1, 2, 3), (0, 1)), AttributeValueError, "3 shifts for 2 axes"),
    (lambda x: gc.diagonal(x, 5), AttributeValueError, "no diagonal 5 of 2 x 3"),
    (lambda x: gc.diagonal(x[0]), ShapeError, "must be a matrix"),
    (lambda x: gc.diag(x[None]), ShapeError, "a vector or a matrix"),
    (lambda x: gc.meshgrid(x[0], indexing="yx"), AttributeValueError, 'must be "xy" or "ij"'),
    (lambda x: gc.block([x, [x]]), ShapeError, "equal depths"),
    (lambda x: gc.broadcast_arrays(x, x[:, :2]), ShapeError, "do not broadcast together"),
    (lambda x: gc.array_split(x, 0), AttributeValueError, "into 0 pieces"),
    (lambda x: gc.pad(x, 1, mode="mean"), AttributeValueError, '"edge", "reflect"'),
    (lambda x: gc.select([x > 0], [x, x]), AttributeValueError, "1 conditions for 2 choices"),
    (lambda x: gc.piecewise(x, [x > 0], [1, 2, 3]), AttributeValueError, "3 functions for 1 con"),
    (lambda x: gc.cov(x[None]), ShapeError, r"must be \[variables, observations\]"),
    (lambda x: gc.sort_together([x, x[0]]), ShapeError, "operands differ in rank"),
    (lambda x: gc.diff(x, -1), AttributeValueError, "must not be negative"),
    (lambda x: gc.ravel_multi_index((0,), (2, 3)), ShapeError, "1 indices for 2 axes"),
]


@pytest.mark.parametrize(("call", "error", "text"), REFUSED)
def test_what_they_refuse(call, error, text) -> None:
    with Graph():
        x = placeholder((2, 3), "float32", name="x")
        with pytest.raises(error, match=text):
            call(x)


@pytest.mark.parametrize("mode", ["edge", "reflect", "symmetric", "wrap"])
@pytest.mark.parametrize("width", [(0, 1), (2, 3), (4, 7)])
def test_padding_of_a_named_size(mode: str, width: tuple[int, int]) -> None:
    """Elements repeat as in NumPy, also where the padding is longer than the axis."""
    with gc.Graph() as graph:
        x = gc.placeholder((2, "n"), name="x")
        y = gc.pad(x, ((0, 0), width), mode)
        (dx,) = gc.gradients(gc.reduce_sum(y), [x])
    with gc.Session(graph) as session:
        for size in (1, 2, 3, 5):
            value = np.arange(2 * size, dtype=np.float32).reshape(2, size)
            got, slope = session.run([y, dx], {x: value})
            np.testing.assert_array_equal(got, np.pad(value, ((0, 0), width), mode))
            counts = np.bincount(np.pad(np.arange(size), width, mode), minlength=size)
            np.testing.assert_array_equal(slope, np.tile(counts, (2, 1)))


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric", "wrap"])
def test_padding_of_a_named_size_that_is_zero(mode: str) -> None:
    """As NumPy, which has no elements to repeat, whether the axis before is empty or not."""
    with gc.Graph() as graph:
        x = gc.placeholder(("m", "n"), name="x")
        widths = {width: gc.pad(x, ((0, 0), width), mode) for width in ((1, 2), (0, 1), (0, 0))}
    with gc.Session(graph) as session:
        for rows in (0, 2):
            value = np.zeros((rows, 0), np.float32)
            for width, y in widths.items():
                if mode == "constant" or width == (0, 0):
                    want = np.pad(value, ((0, 0), width), mode)
                    np.testing.assert_array_equal(session.run(y, {x: value}), want)
                    continue
                with pytest.raises(ValueError, match="empty axis"):
                    np.pad(value, ((0, 0), width), mode)
                with pytest.raises(ShapeError, match="Take: axis 1 has no elements") as caught:
                    session.run(y, {x: value})
                assert f"the feeds give m = {rows}, n = 0" in str(caught.value)
                assert "gc.pad(x, " in str(caught.value)
