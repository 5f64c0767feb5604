"""Moving averages of parameters, compared with formulas and with a strategy."""

from __future__ import annotations

from typing import Any

import numpy as np
import optax
import pytest

import graphc as gc
from graphc.devices import DataParallel
from graphc.errors import (
    AttributeValueError,
    DTypeError,
    GraphError,
    ShapeError,
    UnknownNameError,
)
from tests.near import assert_near


def counting(dtype="float64", **options):
    """w takes the values 2, 4, 6, ... starting at 1, n counts the steps; averages of w."""
    with gc.Graph() as graph:
        w = gc.variable(np.array([1.0, -1.0]).astype(dtype), name="w")
        n = gc.variable(np.int32(0), name="n")
        counted = n.assign_add(1)
        step = w.assign(gc.cast(counted, dtype) * gc.constant(np.array([2, -2], dtype)))
        if "num_updates" in options:
            options["num_updates"] = n
        averages = gc.train.moving_averages([w], **options)
    return gc.Session(graph), w, step, averages


def averaged(steps: int, **options):
    """The average of w after each step."""
    session, w, step, averages = counting(**options)
    found = []
    for _ in range(steps):
        session.run([step, averages.update])
        found.append(np.asarray(session.get(averages.average(w))))
    return found


def test_they_start_as_the_variables_and_follow_by_the_decay() -> None:
    wanted = np.array([1.0, -1.0])
    for i, found in enumerate(averaged(4, decay=0.9), 1):
        wanted = 0.9 * wanted + 0.1 * np.array([2.0, -2.0]) * i
        assert_near(found, wanted, rtol=1e-12)


def test_early_decays_are_smaller_where_updates_are_counted() -> None:
    wanted = np.array([1.0, -1.0])
    for i, found in enumerate(averaged(4, decay=0.2, num_updates=True), 1):
        decay = min(0.2, (1 + i) / (10 + i))
        wanted = decay * wanted + (1 - decay) * np.array([2.0, -2.0]) * i
        assert_near(found, wanted, rtol=1e-12)


def test_without_bias_the_weights_of_what_was_seen_add_up_to_one() -> None:
    for i, found in enumerate(averaged(4, decay=0.9, zero_debias=True), 1):
        weights = 0.9 ** np.arange(i)[::-1]
        values = np.array([2.0, -2.0]) * np.arange(1, i + 1)[:, None]
        assert_near(found, weights @ values / weights.sum(), rtol=1e-12)


def test_narrow_variables_are_averaged_in_float32() -> None:
    found = averaged(50, decay=0.999, dtype="bfloat16")
    assert found[-1].dtype == np.float32
    wanted = 1.0
    for i in range(1, 51):
        wanted += 0.001 * (2 * i - wanted)
    assert_near(found[-1], [wanted, -wanted], rtol=1e-3)


def test_swapped_in_for_evaluation_and_back() -> None:
    session, w, step, averages = counting(dtype="bfloat16", decay=0.5)
    session.run([step, averages.update])
    with pytest.raises(RuntimeError, match="stop"), averages.swapped(session):
        assert session.get(w).dtype == "bfloat16"
        assert np.asarray(session.run(w)).tolist() == [1.5, -1.5]
        raise RuntimeError("stop")
    assert np.asarray(session.get(w)).tolist() == [2, -2]
    assert averages.average(w).name == "w/average" and averages.variables == (w,)


def test_on_four_devices_they_are_those_of_one() -> None:
    """The batch does not divide evenly, and the decay is a tensor of the graph."""
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((None, 3), "float64", name="x")
        y = gc.nn.Dense(2, dtype="float64", name="out")(x)
        train = gc.minimize(gc.reduce_mean(gc.square(y - 1.0)), optax.adam(0.1))
        steps = graph.variable("train/0/count")
        averages = gc.train.moving_averages(decay=gc.constant(0.99), num_updates=steps)
        step = gc.group(train, averages.update)
    one, four = gc.Session(graph), gc.Session(graph, strategy=DataParallel(4))
    for session in (one, four):
        for i in range(3):
            session.run(step, {x: np.random.default_rng(i).normal(size=(6, 3))})
    values, others = one.values(), four.values()
    assert not np.allclose(values["out/kernel"], values["out/kernel/average"])
    for name, value in values.items():
        assert_near(others[name], value, rtol=1e-9, err_msg=name)


def test_errors() -> None:
    with pytest.raises(GraphError, match="no graph is being built"):
        gc.train.moving_averages()
    with gc.Graph():
        with pytest.raises(GraphError, match="no variables to average"):
            gc.train.moving_averages()
        w = gc.variable(np.zeros(3), name="w")
        n = gc.variable(np.int32(0), name="n")
        with pytest.raises(AttributeValueError, match=r"decay must be in \[0, 1\), got 1.0"):
            gc.train.moving_averages([w], 1.0)
        with pytest.raises(DTypeError, match="'n' must be floating or complex"):
            gc.train.moving_averages([n])
        with pytest.raises(GraphError, match="3 is not a variable"):
            gc.train.moving_averages([3])
        with pytest.raises(DTypeError, match="decay must be a floating scalar, got i32"):
            gc.train.moving_averages([w], n)
        with pytest.raises(ShapeError, match="decay must be a floating scalar"):
            gc.train.moving_averages([w], w)
        averages = gc.train.moving_averages([w], name="slow")
        with pytest.raises(UnknownNameError, match="no moving average is kept of 'n'"):
            averages.average(n)


def test_averages_start_at_the_values_before_the_step_that_they_follow() -> None:
    with gc.Graph() as graph:
        x = gc.placeholder((), name="x")
        w = gc.variable(1.0, name="w")
        train = gc.minimize((w - x) ** 2, optax.sgd(0.1))
        with gc.control_dependencies([train]):
            averages = gc.train.moving_averages([w], decay=0.9)
    session = gc.Session(graph)
    assert session.get("w/average") == 1.0
    session.run(averages.update, {x: 2.0})
    assert_near(session.get("w"), 1.2, rtol=1e-6)
    assert_near(session.get("w/average"), 1.02, rtol=1e-6)


def test_averages_in_a_branch() -> None:
    with gc.Graph() as graph:
        p = gc.placeholder((), "bool", name="p")
        w = gc.variable(np.float32([1, 2]), name="w")

        def averaged() -> Any:
            with gc.control_dependencies([gc.train.moving_averages([w], decay=0.5).update]):
                return gc.constant(1.0)

        got = gc.cond(p, averaged, lambda: gc.constant(0.0))
    session = gc.Session(graph)
    session.set("w", np.float32([3, 4]))
    session.run(got, {p: False})
    assert np.array_equal(session.get("w/average"), [1, 2])
    session.run(got, {p: True})
    assert np.array_equal(session.get("w/average"), [2, 3])
