"""Updates: `x.at[...]`, along an axis, by segments, and gradients that JAX does not have."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gc
from graphc.autodiff.reverse import gradients
from graphc.build.placeholders import placeholder
from graphc.errors import DTypeError, FeedError, ShapeError
from graphc.ir.graph import Graph
from tests.laws.harness import evaluate, functional
from tests.near import assert_near
from tests.ops.table import Row, check

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 5, 6)).astype(np.float32)
FEW = np.array([0, 2, -1], np.int32)
J = np.array([[1], [4]], np.int32)
MASK = X[..., 0] > 0

MEET = {
    "set": lambda x, u: u,
    "add": np.add,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}
INDICES = {
    "int": 1,
    "negative": (-1, 2),
    "slice": slice(1, 3),
    "inner": (slice(1, -1), slice(2, None)),
    "steps": (slice(None, None, 2), slice(1, None, 3)),
    "backwards": (slice(None, None, -1), slice(3, 0, -2)),
    "new axis": (slice(None), None, 2),
    "dots": (..., 0),
    "all": ...,
    "empty": slice(2, 2),
    "rows": "i",
    "columns": (slice(None), "i"),
    "in a window": (slice(1, 3), "i", 2),
    "apart": ("i", slice(None), "j"),
    "int apart": (1, slice(None), "i"),
    "apart by no axes": (slice(None), "i", ..., "j"),
    "int apart by no axes": (slice(None), 1, ..., "i"),
    "together": (slice(None), "i", "j"),
    "known mask": MASK[:, 0],
}


def named(index, i, j):
    parts = index if isinstance(index, tuple) else (index,)
    return tuple({"i": i, "j": j}[part] if isinstance(part, str) else part for part in parts)


def changed(index, op):
    def oracle(x, i, j):
        result = x.copy()
        where = named(index, i, j)
        result[where] = MEET[op](result[where], 0.5)
        return result

    return oracle


def test_places_as_in_numpy() -> None:
    """No index here occurs twice."""
    rows = [
        Row(
            f"{op} {label}",
            lambda x, i, j, index=index, op=op: getattr(x.at[named(index, i, j)], op)(0.5),
            changed(index, op),
            (X, FEW, J),
        )
        for label, index in INDICES.items()
        for op in MEET
    ]
    rows += [
        Row(
            f"get {label}",
            lambda x, i, j, index=index: x.at[named(index, i, j)].get(),
            lambda x, i, j, index=index: x[named(index, i, j)],
            (X, FEW, J),
        )
        for label, index in INDICES.items()
    ]
    check(rows)


def test_values_of_the_shape_of_what_is_read() -> None:
    window, chosen = X[1:3, ::-2] + 1, X[:, FEW] * 2
    check(
        [
            Row("window", lambda x, u: x.at[1:3, ::-2].set(u), lambda x, u: x_with(x, u),
                (X, window)),
            Row("chosen", lambda x, i, u: x.at[:, i].set(u), lambda x, i, u: columns_with(x, i, u),
                (X, FEW, chosen)),
            Row("mask", lambda x, m: x.at[m].mul(np.arange(6)),
                lambda x, m: np.where(m[..., None], x * np.arange(6), x), (X, MASK)),
            Row("twice", lambda x: x.at[[0, 0, 1]].add(1), lambda x: x + np.c_[[2, 1, 0, 0]],
                (X[..., 0],)),
            Row("out of range", lambda x, i: x.at[i].set(7),
                lambda x, i: np.where(np.arange(4) == 1, 7, x), (X[:, 0, 0], [4, 1, -5])),
        ]
    )  # fmt: skip


@pytest.mark.parametrize("lead", [0, 1, 2, 3])
def test_values_of_arrays_that_are_apart(lead: int) -> None:
    """Dots that stand for no axes move the axes of the arrays to the front, as in NumPy."""

    def oracle(x, i, j, u):
        x[:, i, ..., j] = u
        return x

    values = (X[:, FEW, ..., J] * 2)[(0,) * lead]
    check([Row("set", lambda x, i, j, u: x.at[:, i, ..., j].set(u), oracle, (X, FEW, J, values))])


@pytest.mark.parametrize("lead", [0, 1, 2, 3])
def test_arrays_that_are_apart_before_an_axis(lead: int) -> None:
    def oracle(x, i, u):
        x[:, i, ..., i, :] = u
        return x

    x = X.reshape(4, 5, 3, 2)
    values = (x[:, FEW, ..., FEW, :] * 2)[(0,) * lead]
    check(
        [
            Row("get", lambda x, i: x[:, i, ..., i, :], lambda x, i: x[:, i, ..., i, :], (x, FEW)),
            Row("set", lambda x, i, u: x.at[:, i, ..., i, :].set(u), oracle, (x, FEW, values)),
        ]
    )


def x_with(x, u):
    x[1:3, ::-2] = u
    return x


def columns_with(x, i, u):
    x[:, i] = u
    return x


def along(op):
    def oracle(x, i, u):
        result = x.copy()
        for where in np.ndindex(i.shape):
            to = (where[0], i[where], where[2])
            result[to] = MEET[op](result[to], u[where])
        return result

    return oracle


def test_along_an_axis() -> None:
    places = RNG.permuted(np.broadcast_to(np.arange(5)[:, None], (4, 5, 6)), axis=1)[:, :3]
    u = RNG.normal(size=places.shape).astype(np.float32)
    check(
        [
            *[
                Row(f"put {op}",
                    lambda x, i, u, op=op: gc.put_along_axis(x, i, u, 1, op), along(op),
                    (X, places, u))
                for op in MEET
            ],
            Row("put last", lambda x, i: gc.put_along_axis(x, i, 0),
                lambda x, i: x * (np.arange(6) != i), (X[0], np.array([[1], [0], [5], [2], [2]]))),
            *[
                Row(f"slices {op}",
                    lambda x, i, j, op=op: gc.scatter(x, i, 0.5, 1, op),
                    changed((slice(None), "i"), op), (X, FEW, J))
                for op in MEET
            ],
        ]
    )  # fmt: skip


IDS = np.array([2, 0, 2, -1, 0, 5, 2, 3], np.int32)
DATA = RNG.normal(size=(8, 3)).astype(np.float32)


def by_segment(function, empty):
    def oracle(data, ids):
        groups = [data[ids == segment] for segment in range(5)]
        return np.stack([function(g, axis=0) if len(g) else empty + g.sum(0) for g in groups])

    return oracle


def test_segments() -> None:
    integers = RNG.integers(-9, 9, (8, 3)).astype(np.int8)
    functions = {
        gc.segment_sum: (np.sum, 0, 0),
        gc.segment_prod: (np.prod, 1, 1),
        gc.segment_max: (np.max, -np.inf, -128),
        gc.segment_min: (np.min, np.inf, 127),
    }
    check(
        [
            *[
                Row(f.__name__, lambda d, i, f=f: f(d, i, 5), by_segment(oracle, empty),
                    (DATA, IDS))
                for f, (oracle, empty, _) in functions.items()
            ],
            *[
                Row(f.__name__, lambda d, i, f=f: f(d, i, 5), by_segment(oracle, empty),
                    (integers, IDS))
                for f, (oracle, _, empty) in functions.items()
                if f is not gc.segment_prod  # products wrap around
            ],
            Row("mean", lambda d, i: gc.segment_mean(d, i, 5), by_segment(np.mean, 0), (DATA, IDS)),
            Row("unsigned", lambda d, i: gc.segment_sum(d, i, 5), by_segment(np.sum, 0),
                (DATA, np.abs(IDS).astype(np.uint8))),
            Row("grid", lambda d, i: gc.segment_sum(d, i, 5),
                lambda d, i: by_segment(np.sum, 0)(d.reshape(8, 3), i.ravel()),
                (DATA.reshape(4, 2, 3), IDS.reshape(4, 2))),
        ]
    )  # fmt: skip


def test_segments_refuse_what_does_not_fit() -> None:
    with Graph():
        data = placeholder((4, 2), "float32", name="data")
        with pytest.raises(ShapeError, match="a row for each id"):
            gc.segment_sum(data, placeholder((3,), "int32", name="ids"), 2)
        with pytest.raises(DTypeError, match="must be integers"):
            gc.segment_max(data, placeholder((4,), "float32", name="floats"), 2)


def one_by_one(op, x, places, u, mode="drop"):
    result = x.copy()
    for place, value in zip(places, u, strict=True):
        place = place + len(x) if place < 0 else place
        if mode == "clip":
            place = min(max(place, 0), len(x) - 1)
        if 0 <= place < len(x):
            result[place] = MEET[op](result[place], value)
    return result


@pytest.mark.parametrize("mode", ["drop", "clip"])
@pytest.mark.parametrize("op", ["mul", "min", "max"])
def test_gradient_where_jax_has_none(op: str, mode: str) -> None:
    """Compared with central differences, for repeated indices, zeros and indices out of range."""
    x = RNG.normal(size=(5, 2))
    places = np.array([1, 3, 1, 9, -1, 1])
    u = RNG.normal(size=(6, 2))
    if op == "mul":
        x[3], u[0, 0], u[2, 1], u[5, 1] = 0, 0, 0, 0  # one zero, and two at one index
    weights = RNG.uniform(0.5, 1.5, x.shape)
    graph = Graph()
    with graph:
        feeds = [placeholder(a.shape, "float64", name=n) for n, a in (("x", x), ("u", u))]
        y = gc.scatter_nd(feeds[0], places[:, None], feeds[1], op, mode=mode)
        found = gradients([gc.sum(y * weights)], feeds)
    got = evaluate(functional(graph, found, feeds), [x, u])
    for value, k in zip(got, (0, 1), strict=True):
        wanted = np.zeros_like((x, u)[k])
        for index in np.ndindex(wanted.shape):
            losses = []
            for step in (1e-6, -1e-6):
                moved = [x.copy(), u.copy()]
                moved[k][index] += step
                losses.append(np.sum(one_by_one(op, moved[0], places, moved[1], mode) * weights))
            wanted[index] = (losses[0] - losses[1]) / 2e-6
        assert_near(value, wanted, rtol=1e-6, atol=1e-6, err_msg=f"operand {k}")


def test_equal_extremes_share_the_adjoint() -> None:
    graph = Graph()
    with graph:
        x = placeholder((2,), "float64", name="x")
        u = placeholder((3,), "float64", name="u")
        dx, du = gradients([gc.sum(gc.scatter(x, [0, 0, 1], u, 0, "max"))], [x, u])
    got = evaluate(
        functional(graph, [dx, du], [x, u]), [np.array([1.0, 0.0]), np.array([1.0, 1, 2])]
    )
    assert_near(got[0], [1 / 3, 0], rtol=1e-7)
    assert_near(got[1], [1 / 3, 1 / 3, 1], rtol=1e-7)


def test_updates_may_not_widen() -> None:
    with Graph():
        x = placeholder((3,), "int32", name="x")
        with pytest.raises(DTypeError, match="at: updates of float32 do not fit into int32"):
            x.at[0].set(0.5)
        with pytest.raises(ShapeError, match="does not broadcast"):
            x.at[0:2].add([1, 2, 3])
        assert x.at[0].set(2).dtype == np.int32


@pytest.mark.parametrize(
    ("shape", "mask"), [((4, 3), (1,)), ((4, 3), (4, 1)), ((1, 3), (4,)), ((None, 3), (1,)),
                        ((4, 3), (3,)), ((1, 3), (None,)), ((4, 3), (4, 3, 1))],
)  # fmt: skip
def test_a_mask_does_not_broadcast(shape, mask) -> None:
    with Graph():
        x, m = placeholder(shape, name="x"), placeholder(mask, "bool", name="m")
        with pytest.raises(ShapeError, match=r"at: (a mask of size|the mask has more axes)"):
            x.at[m].set(0)


def test_a_mask_of_named_sizes() -> None:
    graph = Graph()
    with graph:
        x = placeholder(("n", 3), name="x")
        m = placeholder(("k",), "bool", name="m")
        y = x.at[m].set(0)
    value, mask = np.ones((2, 3), np.float32), np.array([True, False])
    got = gc.Session(graph).run(y, {x: value, m: mask})
    np.testing.assert_array_equal(got, [[0, 0, 0], [1, 1, 1]])
    with pytest.raises(FeedError):
        gc.Session(graph).run(y, {x: value, m: np.ones(3, bool)})


def test_an_empty_list_is_an_index() -> None:
    with Graph() as graph:
        x = placeholder((4, 3), name="x")
        results = [x[[]], x[:, []], x[[[]]], x.at[[]].set(7)]
    value = np.arange(12, dtype=np.float32).reshape(4, 3)
    got = gc.Session(graph).run(results, {x: value})
    for a, b in zip(got, [value[[]], value[:, []], value[[[]]], value], strict=True):
        np.testing.assert_array_equal(a, b)


def test_named_sizes() -> None:
    graph = Graph()
    with graph:
        x = placeholder(("n", 3), "float32", name="x")
        last = x.at[x.shape[0] - 1].set(1)
        inner = x.at[1:-1].add(1)
        table = gc.segment_sum(x, gc.arange(x.shape[0]), x.shape[0])
    value = np.arange(12, dtype=np.float32).reshape(4, 3)
    a, b, c = gc.Session(graph).run([last, inner, table], {"x": value})
    np.testing.assert_array_equal(a, np.where(np.arange(4)[:, None] == 3, 1, value))
    np.testing.assert_array_equal(b, value + np.array([[0], [1], [1], [0]]))
    np.testing.assert_array_equal(c, value)


def test_narrow_ids_reach_all_segments() -> None:
    ids = np.array([-3, 0, 2], np.int8)
    check(
        [
            Row("segments", lambda d, i: gc.segment_sum(d, i, 200)[:4],
                lambda d, i: np.array([2.0, 0, 3, 0]), (np.array([1.0, 2, 3]), ids)),
            Row("unravel_index", lambda i: gc.unravel_index(i, (2, 300)),
                lambda i: np.unravel_index(i.astype(int), (2, 300)), (ids[1:],)),
            Row("ravel_multi_index", lambda i: gc.ravel_multi_index((i, i), (3, 300)),
                lambda i: i.astype(int) * 301, (ids[1:],)),
        ]
    )  # fmt: skip


def test_positions_in_a_scalar() -> None:
    """A scalar has one element, and no axes to index."""
    with Graph() as graph:
        assert gc.unravel_index(0, ()) == np.unravel_index(0, ()) == ()
        place = gc.ravel_multi_index((), ())
    (value,) = evaluate(functional(graph, [place], []), [])
    assert value == np.ravel_multi_index((), ())
