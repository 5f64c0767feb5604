"""Loss scaling: scaled steps, skipped steps, and values that a skipped step keeps."""

from __future__ import annotations

from typing import Any

import numpy as np
import optax
import pytest

import graphc as gc
from graphc.passes.precision.scale_loss import FIRST_SCALE, GOOD_STEPS, LOSS_SCALE, ScaleLoss
from graphc.passes.simplify.drop_marks import DropMarks
from tests.near import assert_near
from tests.passes.check import check, check_stays, program
from tests.passes.evaluate import evaluate

BEFORE = """
    program p(x: f32[], w: state f32[]) {
      %0 = Constant() {value=f32[] 1} : f32[]
      %1 = LossAdjoint(%0) {step="train"} : f32[]
      %2 = Multiply(%1, x) : f32[]
      %3 = Gradients(%2) {step="train"} : f32[]
      %4 = Subtract(w, %3) : f32[]
      %5 = Updated(w, %4) {step="train"} : f32[]
      return state w = %5
    }
"""
AFTER = """
    program p(
      x: f32[],
      w: state f32[],
      __loss_scale__/scale: state f32[],
      __loss_scale__/good_steps: state i32[]
    ) {
      %0 = Constant() {value=f32[] 1} : f32[]
      %1 = Multiply(%0, __loss_scale__/scale) : f32[]
      %2 = LossAdjoint(%1) {step="train"} : f32[]
      %3 = Multiply(%2, x) : f32[]
      %4 = Gradients(%3) {step="train"} : f32[]
      %5 = Reciprocal(__loss_scale__/scale) : f32[]
      %6 = Multiply(%4, %5) : f32[]
      %7 = IsFinite(%6) : bool[]
      %8 = ReduceAll(%7) {axes=[]} : bool[]
      %9 = Stack(%8) : bool[1]
      %10 = ReduceAll(%9) {axes=[0]} : bool[]
      %11 = Subtract(w, %6) : f32[]
      %12 = Where(%10, %11, w) : f32[]
      %13 = Constant() {value=i32[] 0} : i32[]
      %14 = Constant() {value=i32[] 1} : i32[]
      %15 = Add(__loss_scale__/good_steps, %14) : i32[]
      %16 = Constant() {value=i32[] 2000} : i32[]
      %17 = GreaterEqual(%15, %16) : bool[]
      %18 = Constant() {value=f32[] 2} : f32[]
      %19 = Multiply(__loss_scale__/scale, %18) : f32[]
      %most = Constant() {value=f32[] 8.507059173023462e+37} : f32[]
      %twice = Minimum(%19, %most) : f32[]
      %20 = Constant() {value=f32[] 0.5} : f32[]
      %21 = Multiply(__loss_scale__/scale, %20) : f32[]
      %22 = Constant() {value=f32[] 1} : f32[]
      %23 = Maximum(%21, %22) : f32[]
      %24 = Where(%17, %twice, __loss_scale__/scale) : f32[]
      %25 = Where(%17, %13, %15) : i32[]
      %26 = Where(%10, %24, %23) : f32[]
      %27 = Where(%10, %25, %13) : i32[]
      return state w = %12, state __loss_scale__/scale = %26, state __loss_scale__/good_steps = %27
    }
"""


def test_the_whole_of_it() -> None:
    check(ScaleLoss(), BEFORE, AFTER)


def test_without_a_training_step_nothing_is_scaled() -> None:
    check_stays(
        ScaleLoss(), "program p(x: f32[2]) {\n  %0 = Tanh(x) : f32[2]\n  return out = %0\n}"
    )


@pytest.mark.parametrize(
    ("x", "scale", "count", "want"),
    [
        (0.25, 4.0, 0, (0.75, 4.0, 1)),
        (0.25, 4.0, 1999, (0.75, 8.0, 0)),
        (0.0, 2.0**126, 1999, (1.0, 2.0**126, 0)),  # XLA flushes 2**-127 to 0: no learning
        (np.inf, 4.0, 1999, (1.0, 2.0, 0)),
        (np.nan, 4.0, 7, (1.0, 2.0, 0)),
        (np.inf, 1.0, 0, (1.0, 1.0, 0)),
    ],
)
def test_the_scale_after_a_step(x: float, scale: float, count: int, want: tuple[Any, ...]) -> None:
    scaled = ScaleLoss().run(program(BEFORE)).program
    marks = ("LossAdjoint", "Gradients")
    assert [n.op.name for n in scaled.nodes if n.op.name in marks] == list(marks)
    inputs = [np.float32(x), np.float32(1), np.float32(scale), np.int32(count)]
    got = evaluate(DropMarks().run(scaled).program, inputs)
    assert tuple(value.item() for value in got) == want


def network(tx: Any) -> tuple[gc.Graph, Any, Any, Any]:
    """A product, batch norm, and a count of runs that does not depend on them."""
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((4, 3), "float32", name="x")
        h = gc.nn.BatchNorm(name="norm")(gc.nn.Dense(5, name="in")(x), training=True)
        loss = 0.01 * gc.reduce_mean(gc.square(gc.nn.Dense(1, name="out")(h)))
        runs = gc.variable(0, trainable=False, name="runs")
        counted = runs.assign_add(1)
        train = gc.minimize(loss, tx, name="train")
    return graph, x, [train, counted, loss], loss


def test_a_bad_step_changes_nothing_that_comes_from_it() -> None:
    graph, x, fetches, _ = network(optax.adam(1e-2))
    session = gc.Session(graph, options=gc.CompileOptions(precision="f16", cache=None))
    data = np.sin(np.arange(12.0, dtype="f4")).reshape(4, 3)
    session.run(fetches, {x: data})
    before = {name: np.asarray(session.get(name)) for name in graph.variables}
    assert float(session.get(LOSS_SCALE)) == FIRST_SCALE
    assert int(session.get(GOOD_STEPS)) == 1
    session.run(fetches, {x: 1e5 * data})  # more than f16 can represent
    after = {name: np.asarray(session.get(name)) for name in graph.variables}
    assert after.pop("runs") == before.pop("runs") + 1
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value, err_msg=name)
    assert float(session.get(LOSS_SCALE)) == FIRST_SCALE / 2
    assert int(session.get(GOOD_STEPS)) == 0
    session.run(fetches, {x: data})
    assert not np.array_equal(session.get("in/kernel"), before["in/kernel"])
    assert int(session.get("train/0/count")) == 2


def test_gradients_too_small_for_f16_arrive() -> None:
    """A fetch sums their squares; without a scale they would be 0."""
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((2, 2), "float32", name="x")
        w = gc.variable(np.eye(2, dtype="f4"), name="w")
        loss = gc.reduce_sum(gc.matmul(x, w)) * 1e-8
        train = gc.minimize(loss, optax.sgd(1e8), name="train")
    for precision, moved in (("f16", 2.0), (None, 2.0)):
        session = gc.Session(graph, options=gc.CompileOptions(precision=precision, cache=None))
        session.run(train, {x: np.ones((2, 2), "f4")})
        assert_near(session.get("w"), np.eye(2) - moved, rtol=2e-3, atol=2e-3)
