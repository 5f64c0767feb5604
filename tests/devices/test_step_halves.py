"""A step divided in two halves: together they compute the step. Which nodes each half has."""

from __future__ import annotations

import numpy as np
import optax
import pytest

import graphc as gc
from graphc.devices.step_halves import Halves, step_halves
from graphc.errors import GraphError
from graphc.ir.program import Program
from graphc.ir.rewrite import bind_sizes
from graphc.ir.verify import verify
from graphc.passes.simplify.functionalize import RNG_COUNTER, RNG_KEY
from graphc.runtime.feeds.feeds import bind_feeds
from graphc.runtime.feeds.fetches import FetchNest
from graphc.runtime.state.initial import initial_values
from graphc.runtime.targets.prepare import evaluate, prepare
from tests.near import assert_near

ROWS = 8


def hand_written():
    """Unmarked momentum, weight decay and counts, and all kinds of other assignments."""
    graph = gc.Graph(seed=1)
    with graph:
        x = gc.placeholder((None, 4), "float64", name="x")
        w = gc.variable(np.cos(np.arange(12.0)).reshape(4, 3), name="w")
        m = gc.variable(np.full((4, 3), 0.1), name="m")
        average = gc.variable(np.ones(4), name="average")
        seen = gc.variable(np.int32(5), name="seen")
        last = gc.variable(np.float64(0), name="last")
        h = gc.random.dropout(gc.matmul(x, w), 0.5)
        loss = gc.reduce_mean(gc.square(h), name="loss")
        (slope,) = gc.gradients(loss, [w])
        updates = gc.group(
            w.assign_sub(0.1 * m.assign(m * 0.9 + slope) + 0.01 * w),
            average.assign_sub((average - gc.reduce_mean(x, axis=0)) * 0.1),
            seen.assign(gc.where(gc.reduce_sum(x) > 0, seen + 2, seen - 1)),
            last.assign(loss),
        )
    return graph, [updates, loss, w, seen, last], x


def marked():
    """`minimize` with a schedule, batch norm, and a counter that the forward pass reads."""
    graph = gc.Graph(seed=1)
    with graph:
        x = gc.placeholder((None, 4), name="x")
        step = gc.variable(np.int32(3), name="step")
        count = step.assign_add(1)
        h = gc.nn.BatchNorm(name="norm")(x, training=True)
        y = gc.nn.Dense(2, name="out")(h) * gc.cast(count, "float32")
        loss = gc.reduce_mean(gc.square(y), name="loss")
        schedule = optax.linear_schedule(0.1, 0.0, 10)
        train = gc.minimize(loss, optax.adamw(schedule), name="train")
    return graph, [train, loss, step, "norm/mean"], x


def two_steps():
    """The forward pass of the second step uses variables that the first step updates."""
    graph = gc.Graph(seed=1)
    with graph:
        x = gc.placeholder((None, 4), "float64", name="x")
        a = gc.variable(np.full((4, 2), 0.5), name="a")
        b = gc.variable(np.full((2,), 0.5), name="b")
        first = gc.reduce_mean(gc.square(gc.matmul(x, a) * b))
        train_a = gc.minimize(first, optax.sgd(0.1), variables=[a], name="train_a")
        with gc.control_dependencies([train_a]):
            second = gc.reduce_mean(gc.exp(gc.matmul(x, a.read()) * b))
            train_b = gc.minimize(second, optax.adam(0.1), variables=[b], name="train_b")
    return graph, [train_a, train_b, first, second, a, b], x


def in_a_loop():
    """The assignments of a loop that contains the forward pass."""
    graph = gc.Graph(seed=1)
    with graph:
        x = gc.placeholder((None, 4), "float64", name="x")
        w = gc.variable(np.full((4,), 0.5), name="w")
        total = gc.variable(np.float64(1), name="total", trainable=False)

        def body(carry, row):
            moved = total.assign_add(gc.reduce_sum(row))
            return carry + gc.reduce_sum(row * w) * gc.stop_gradient(moved), ()

        loss, _ = gc.scan(body, gc.constant(0.0, "float64"), x)
        train = gc.minimize(loss, optax.sgd(0.001), name="train")
    return graph, [train, loss, total], x


GRAPHS = [hand_written, marked, two_steps, in_a_loop]


def halves_of(make, **options) -> tuple[Program, Halves, gc.Graph]:
    graph, fetches, x = make()
    nest = FetchNest(graph, fetches)
    prepared = prepare(graph, nest.distinct, [x], gc.CompileOptions(**options))
    shapes = [(ROWS, *x.shape[1:])]
    program = prepared.functional
    program = bind_sizes(program, bind_feeds(program, shapes, prepared.sources))
    found = step_halves(program)
    for half in (found.worker, found.server):
        verify(half, "bound")
    return program, found, graph


def run(program: Program, values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    outputs = evaluate(program, [values[port.name] for port in program.inputs])
    keys = [(port.kind, port.name) for port in program.outputs]
    return dict(zip(keys, outputs, strict=True))


@pytest.mark.parametrize("make", GRAPHS)
def test_the_halves_one_after_the_other_mean_the_step(make) -> None:
    program, found, graph = halves_of(make)
    values = initial_values(graph)
    x = np.random.default_rng(0).normal(size=(ROWS, 4)) + 0.5
    values["x"] = x.astype(program.ports("feed")[0].tensor.type.dtype)
    whole = run(program, values)
    computed = run(found.worker, values)
    crossing = {name: v for (_, name), v in computed.items() if name.startswith("crossing/")}
    applied = run(found.server, {**values, **crossing})
    assert whole.keys() == (computed.keys() | applied.keys()) - {("fetch", n) for n in crossing}
    for key, value in whole.items():
        there = applied if key in applied else computed
        assert_near(there[key], value, rtol=1e-6, err_msg=str(key))
    fetches = [port.name for port in program.ports("fetch")]
    assert found.on_server == tuple(("fetch", name) in applied for name in fetches)


def operators(program: Program) -> list[str]:
    return [node.op.name for node in program.nodes]


def names(program: Program, kind: str) -> set[str]:
    return {port.name for port in program.inputs if port.kind == kind}


def test_products_are_the_workers_and_updates_the_servers() -> None:
    _, found, _ = halves_of(hand_written)
    assert "MatMul" in operators(found.worker) and "Dropout" in operators(found.worker)
    assert not {"MatMul", "Dropout", "FoldIn"} & set(operators(found.server))
    # The server reads all variables that it modifies. The worker reads parameters and random state.
    assert names(found.server, "state") == {"w", "m", "average", "seen", RNG_COUNTER}
    assert names(found.worker, "state") == {"w"}
    assert names(found.worker, "feed") == {"x", RNG_KEY, RNG_COUNTER}
    assert found.draws == (RNG_KEY, RNG_COUNTER)
    shapes = [port.tensor.type.shape for port in found.server.ports("feed")]
    assert sorted(shapes) == [(), (), (4,), (4, 3)]  # loss, condition, mean and gradient


def test_averages_and_slots_are_read_where_they_are_updated() -> None:
    _, found, _ = halves_of(marked)
    assert {"norm/mean", "step", "train/2/count"} <= names(found.server, "state")
    worker = names(found.worker, "state")
    assert "step" in worker  # the forward pass reads this worker's copy
    assert worker.isdisjoint({"norm/mean", "out/kernel/train/0/mu"})
    assert found.on_server == (False, True, True)


def test_the_gradients_keep_their_mark_for_mixed_precision() -> None:
    _, found, _ = halves_of(marked)
    marks = [[n for n in p.nodes if n.op.name == "Gradients"] for p in (found.worker, found.server)]
    assert [len(each) for each in marks] == [1, 1]
    assert len(marks[1][0].outputs) == len(marks[0][0].outputs) == 4


def test_gradients_are_divided_by_the_scale_that_they_have() -> None:
    """The server's scale may have changed by then."""
    _, found, _ = halves_of(marked, precision="f16")
    assert "Reciprocal" in operators(found.worker) and "Reciprocal" not in operators(found.server)


def test_the_second_step_is_computed_from_an_update_of_the_workers_own() -> None:
    _, found, _ = halves_of(two_steps)
    assert "Exp" in operators(found.worker) and "Exp" not in operators(found.server)
    assert "MatMul" not in operators(found.server)
    assert found.on_server == (False, False, True, True)


def test_a_loop_that_the_gradients_need_is_not_run_twice() -> None:
    _, found, _ = halves_of(in_a_loop)
    assert "Scan" in operators(found.worker) and "Scan" not in operators(found.server)


def test_what_assigns_nothing_has_no_halves() -> None:
    def make():
        graph, (_, loss, *_), x = two_steps()
        return graph, ["Multiply:0"], x

    with pytest.raises(GraphError, match=r"(?s)no fetch assigns a variable.*training step"):
        halves_of(make)


def test_the_host_is_never_called_twice() -> None:
    def make():
        graph = gc.Graph()
        with graph:
            x = gc.placeholder((None, 4), name="x")
            a = gc.variable(np.ones(4, np.float32), name="a")
            train = gc.minimize(gc.reduce_mean(x * a), optax.sgd(0.1), name="first")
            with gc.control_dependencies([train]):
                seen = gc.py_callback(lambda v: v, gc.TensorSpec((4,), "float32"), a.read())
                loss = gc.reduce_mean(gc.square(x * a * gc.stop_gradient(seen)))
                again = gc.minimize(loss, optax.sgd(0.1), name="second")
        return graph, [train, again], x

    with pytest.raises(GraphError, match=r"(?s)called twice in a step.*at test_step_halves.py"):
        halves_of(make)
