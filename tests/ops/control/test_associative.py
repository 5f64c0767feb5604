"""`associative_scan` compared with loops in NumPy; gradients, loops, replicas and errors."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gc
from graphc.devices.strategy import DataParallel
from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.runtime.session import Session
from tests.near import assert_near
from tests.ops.table import Row, check

RNG = np.random.default_rng(0)


def affine(first, later):
    """First x -> a x + b, then the later one: linear recurrences consist of these."""
    a, b = first
    c, d = later
    return a * c, b * c + d


def recurrence(a, b):
    """All h with h = a h + b from h = 0, along the first axis."""
    states = [np.zeros_like(b[0])]
    for own, other in zip(a, b, strict=True):
        states.append(own * states[-1] + other)
    return np.stack(states[1:])


def states(a, b, **options):
    return gc.associative_scan(affine, (a, b), **options)[1]


def test_values() -> None:
    a, b = RNG.uniform(-1, 1, (2, 7, 3))
    rows = [
        Row(f"sums of {n}", lambda x: gc.associative_scan(gc.add, x),
            lambda x: np.cumsum(x, 0), [np.arange(2.0 * n).reshape(n, 2)])
        for n in (0, 1, 2, 3, 4, 5, 8, 11)
    ]  # fmt: skip
    check(
        [
            *rows,
            Row("recurrence", states, recurrence, [a, b]),
            Row("axis", lambda a, b: states(a, b, axis=-1),
                lambda a, b: recurrence(a.T, b.T).T, [a.T, b.T]),
            Row("reverse", lambda a, b: states(a, b, reverse=True),
                lambda a, b: recurrence(a[::-1], b[::-1])[::-1], [a, b]),
            Row("matrices", lambda m: gc.associative_scan(gc.matmul, m),
                lambda m: np.stack([m[0], m[0] @ m[1], m[0] @ m[1] @ m[2]]),
                [RNG.normal(size=(3, 2, 2))]),
            Row("dict", lambda x: gc.associative_scan(
                    lambda a, b: {"most": gc.maximum(a["most"], b["most"])}, {"most": x})["most"],
                np.maximum.accumulate, [np.array([3, 1, 4, 1, 5, 9, 2], np.int32)]),
        ]
    )  # fmt: skip


def test_it_takes_few_calls() -> None:
    calls = []

    def add(a, b):
        calls.append(a.shape)
        return a + b

    with gc.Graph():
        gc.associative_scan(add, gc.placeholder((1024, 2)))
    assert len(calls) == 19 and sum(shape[0] for shape in calls) < 2 * 1024


def test_gradients() -> None:
    """The gradient of the sum of all states, by the reverse recurrence."""
    a, b = RNG.uniform(-1, 1, (2, 6, 2))
    with gc.Graph() as graph:
        x, y = gc.placeholder((6, 2), "float64"), gc.placeholder((6, 2), "float64")
        slopes = gc.gradients(states(x, y), [x, y])
    found = Session(graph).run(slopes, {x: a, y: b})
    h = recurrence(a, b)
    back = recurrence(np.concatenate([a[:0:-1], a[:1]])[[5, 0, 1, 2, 3, 4]], np.ones((6, 2)))[::-1]
    assert_near(found[1], back, rtol=1e-12)
    assert_near(found[0], back * np.concatenate([0 * h[:1], h[:-1]]), rtol=1e-12)


def test_replicas_loops_and_several_steps() -> None:
    """The batch is sharded, not the scanned axis; in a loop of the graph, and in `run_steps`."""
    a = RNG.uniform(-1, 1, (3, 4, 5)).astype(np.float32)
    with gc.Graph() as graph:
        x = gc.placeholder((4, 5), "float32", name="x", batch_axis=0)
        y = states(x, x * x, axis=1)
        z = gc.scan(lambda c, _: (states(c, x, axis=1), None), x, length=2)[0]
    wanted = [recurrence(v.T, (v * v).T).T for v in a]
    inner = [recurrence(recurrence(v.T, v.T), v.T).T for v in a]
    for strategy in (None, DataParallel(2)):
        session = Session(graph, strategy=strategy)
        once = session.run([y, z], {x: a[0]})
        assert_near(once[0], wanted[0], rtol=1e-5, atol=1e-6)
        assert_near(once[1], inner[0], rtol=1e-5, atol=1e-6)
        several = session.run_steps(y, {x: a}, 3)
        assert_near(several, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x: gc.associative_scan(gc.add, []), AttributeValueError, "there are no elements"),
        (lambda x: gc.associative_scan(gc.add, x, axis=2), AttributeValueError, "axis 2 is out"),
        (lambda x: gc.associative_scan(affine, (x, x[1:])), ShapeError, "axis differ, 4 and 3"),
        (lambda x: gc.associative_scan(lambda a, b: (a, b), x), AttributeValueError, "f gives"),
        (lambda x: gc.associative_scan(lambda a, b: a[:1], x), ShapeError, "another shape"),
        (lambda x: gc.associative_scan(gc.less, x), DTypeError, "another dtype"),
        (
            lambda x: gc.associative_scan(gc.add, gc.placeholder(("n",), name="n")),
            ShapeError,
            "must be known.*gc.scan takes named sizes",
        ),
    ],
)
def test_errors(call, error, words) -> None:
    with gc.Graph():
        x = gc.placeholder((4, 3))
        with pytest.raises(error, match=rf"(?s){words}"):
            call(x)
