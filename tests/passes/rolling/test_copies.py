"""RollRepeats: loops that would copy parameters for little work."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import graphc as gc
from graphc.passes.rolling.roll_repeats import RollRepeats
from graphc.runtime.targets.prepare import Prepared, prepare
from tests.near import assert_near
from tests.passes.rolling.models import loops

WIDTH, LAYERS = 256, 8  # 256 KiB for each matrix
FEW, MANY = 8, 8192  # rows


def roll(worth: int, trained: bool = False) -> RollRepeats:
    return RollRepeats(turns=3, saved=4, work=0, copied=worth, trained=trained)


def test_the_body_of_a_loop_has_no_loop_that_copies_its_operands() -> None:
    """Such as the steps of a text generator: each would copy all parameters."""

    def generate(ws: list[jax.Array], x: jax.Array) -> jax.Array:
        def step(_: int, x: jax.Array) -> jax.Array:
            for w in ws:
                x = jnp.tanh(x @ w)
            return x

        return jax.lax.fori_loop(0, 5, step, x)

    with gc.Graph(seed=0) as graph:
        x = gc.placeholder((FEW, WIDTH), name="x")
        fed = [gc.placeholder((WIDTH, WIDTH), name=f"w{i}") for i in range(LAYERS)]
        y = gc.from_jax(generate)(fed, x)
    program = prepare(graph, [y], [x, *fed], gc.CompileOptions()).program

    def inner(a_pass: RollRepeats) -> bool:
        (loop,) = (node for node in a_pass.run(program).program.nodes if node.regions)
        return any(node.op.name == "Scan" for body in loop.regions for node in body.nodes)

    assert inner(roll(FEW // 2 - 1))
    assert not inner(roll(FEW // 2 + 1))


def test_micro_batches_keep_their_loops() -> None:
    """Their loop takes the parameters as they are stored, in stacks."""
    with gc.Graph(seed=0) as graph:
        x = y = gc.placeholder((FEW, WIDTH), name="x", batch_axis=0)
        for i in range(12):
            y = gc.tanh(gc.matmul(y, gc.variable(np.eye(WIDTH, dtype="f4"), name=f"w{i}"))) + 1.0
            y = gc.tanh(y * 0.5) + 0.5
        train = gc.minimize(gc.reduce_mean(y), optax.sgd(0.1), accumulate=2)
    step = gc.Session(graph).compile(train, feeds={x: np.zeros((FEW, WIDTH), "f4")})
    (loop,) = (node for node in step.program.nodes if node.op.name == "Scan")
    assert sum(node.op.name == "Scan" for node in loop.regions[0].nodes) == 2


def layers(rows: int, kind: str, width: int = WIDTH, count: int = LAYERS) -> Prepared:
    """Layers `x = tanh(x @ w)`, with matrices that are feeds, constants, or variables."""
    with gc.Graph(seed=0) as graph:
        x = gc.placeholder((rows, width), name="x")
        fed, y = [x], x
        for i in range(count):
            value = np.full((width, width), i + 1, np.float32)
            if kind == "feed":
                w = gc.placeholder((width, width), name=f"w{i}")
                fed.append(w)
            elif kind == "constant":
                w = gc.constant(value)
            else:
                w = gc.variable(value, name=f"w{i}").read()
            y = gc.tanh(gc.matmul(y, w))
    return prepare(graph, [y], fed, gc.CompileOptions())


# FLOPs of an iteration for each byte: 2 * rows / 4
@pytest.mark.parametrize("kind", ["constant", "variable"])
@pytest.mark.parametrize(("worth", "rolled"), [(FEW * LAYERS // 2 + 8, False), (FEW, True)])
def test_parameters_that_nobody_changes_need_work_in_all_iterations(
    kind: str, worth: int, rolled: bool
) -> None:
    program = layers(FEW, kind).program
    assert bool(loops(program, roll(worth))) == rolled
    assert loops(program, roll(0)) == [(LAYERS, 2)]


def test_feeds_need_as_much_work_in_each_iteration() -> None:
    program = layers(FEW, "feed").program
    assert loops(program, roll(FEW // 2 + 1)) == []
    assert loops(program, roll(FEW // 2 - 1)) == [(LAYERS, 2)]


@pytest.mark.parametrize(("width", "few"), [(WIDTH, []), (WIDTH - 1, [(1025, 2)])])
def test_many_nodes_are_worth_the_copies_of_small_feeds(
    width: int, few: list[tuple[int, int]]
) -> None:
    """A layer is two nodes; 2048 nodes compile quickly without a loop."""
    assert loops(layers(1, "feed", width, count=1024).program, roll(1 << 20)) == []
    assert loops(layers(1, "feed", width, count=1025).program, roll(1 << 20)) == few


def test_state_that_steps_change_costs_nothing() -> None:
    """It is stored as a stack, whichever program changes it."""
    program = layers(FEW, "variable").program
    assert loops(program, roll(1 << 20, trained=True)) == [(LAYERS, 2)]
    assert loops(program, roll(1 << 20, trained=False)) == []
    with gc.Graph(seed=0) as graph:
        x = y = gc.placeholder((FEW, WIDTH), name="x")
        for i in range(LAYERS):
            y = gc.tanh(gc.matmul(y, gc.variable(np.eye(WIDTH, dtype="f4"), name=f"w{i}")))
        train = gc.minimize(gc.reduce_mean(y), optax.sgd(0.1))
    prepared = prepare(graph, [train], [x], gc.CompileOptions())
    assert len(loops(prepared.program, roll(1 << 20))) == 2  # forward and backward


def test_both_directions_have_loops_or_none() -> None:
    """Alone, the backward pass would do enough work for a loop."""

    def loss(ws: list[jax.Array], x: jax.Array) -> jax.Array:
        for w in ws:
            x = jnp.tanh(x @ w)
        return jnp.mean(x)

    ws = [jnp.eye(WIDTH) for _ in range(LAYERS)]
    with gc.Graph(seed=0) as graph:
        x = gc.placeholder((FEW, WIDTH), name="x")
        fed = [gc.placeholder((WIDTH, WIDTH), name=f"w{i}") for i in range(LAYERS)]
        gradients = gc.from_jax(jax.grad(loss))(fed, x)
    assert len(ws) == len(gradients)
    program = prepare(graph, gradients, [x, *fed], gc.CompileOptions()).program
    found = {worth: len(loops(program, roll(worth))) for worth in range(1, 3 * FEW)}
    assert set(found.values()) == {0, 2}
    assert found[FEW // 2 - 1] == 2 and found[3 * FEW - 1] == 0


@pytest.mark.parametrize(("trains", "rolled"), [(False, False), (True, True)])
def test_forward_passes_over_few_rows_have_loops_only_if_the_graph_trains(
    trains: bool, rolled: bool
) -> None:
    session, x, y = trained_or_not(trains)
    step = session.compile(y, feeds={x: np.zeros((FEW, WIDTH), "f4")})
    assert ("Scan" in str(step.program)) == rolled


def test_the_key_of_a_forward_pass_says_whether_the_graph_trains() -> None:
    """An executable from the cache must not depend on who stored it."""
    keys = set()
    for trains in (False, True):
        session, x, y = trained_or_not(trains)
        step = session.compile(y, feeds={x: np.zeros((FEW, WIDTH), "f4")})
        keys.add(step.cache_key)
    assert len(keys) == 2 and None not in keys


def test_a_function_over_parameters_has_no_loops_for_few_rows() -> None:
    def forward(ws: list[jax.Array], x: jax.Array) -> jax.Array:
        for w in ws:
            x = jnp.tanh(x @ w) + 1.0
        return x

    ws, x = [jnp.eye(WIDTH) * 0.5 for _ in range(24)], jnp.ones((FEW, WIDTH))
    function = gc.jit(forward)
    assert_near(function(ws, x), jax.jit(forward)(ws, x), 1e-5)
    assert "Scan" not in str(function.executable.program)


def trained_or_not(trains: bool) -> tuple[gc.Session, gc.Tensor, gc.Tensor]:
    with gc.Graph(seed=0) as graph:
        x = y = gc.placeholder((FEW, WIDTH), name="x")
        for i in range(24):
            w = gc.variable(np.eye(WIDTH, dtype="f4"), name=f"w{i}")
            y = gc.tanh(gc.matmul(y, w)) + 1.0
        if trains:
            gc.minimize(gc.reduce_mean(y), optax.sgd(0.1))
    return gc.Session(graph), x, y
