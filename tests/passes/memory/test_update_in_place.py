"""The order of nodes before state is overwritten, so that XLA copies nothing."""

from __future__ import annotations

import re

import numpy as np
import optax
import pytest

import graphc as gc
from graphc.config import CompileOptions
from graphc.passes.memory.update_in_place import UpdateInPlace
from graphc.passes.pipelines import on_device
from tests.near import assert_near
from tests.passes.check import check, check_stays

IN_PLACE = UpdateInPlace(smallest=4)


def test_an_update_waits_for_the_gradient_that_reads_the_old_value() -> None:
    check(
        IN_PLACE,
        """
        program p(w: state f32[2, 3], x: f32[4, 2], dy: f32[4, 3]) {
          %0 = MatMul(x, dy) {transpose_a=true} : f32[2, 3]
          %1 = Add(w, %0) : f32[2, 3]
          %2 = MatMul(dy, w) {transpose_b=true} : f32[4, 2]
          return dx = %2, state w = %1
        }
        """,
        """
        program p(w: state f32[2, 3], x: f32[4, 2], dy: f32[4, 3]) {
          %0 = MatMul(x, dy) {transpose_a=true} : f32[2, 3]
          %1 = Add(w, %0) : f32[2, 3]
          %2 = MatMul(dy, w) {transpose_b=true} : f32[4, 2]
          %3 = After(%1, %2) : f32[2, 3]
          return dx = %2, state w = %3
        }
        """,
    )


def test_what_is_fused_is_followed_to_what_is_not() -> None:
    """XLA computes squares of the weights inside their sum, and a transpose as well."""
    check(
        IN_PLACE,
        """
        program p(w: state f32[2, 3], x: f32[4, 2]) {
          %0 = Multiply(w, w) : f32[2, 3]
          %1 = Transpose(%0) {perm=[1, 0]} : f32[3, 2]
          %2 = ReduceSum(%1) {axes=[0, 1]} : f32[]
          %3 = MatMul(x, w) : f32[4, 3]
          %4 = Tanh(w) : f32[2, 3]
          return y = %3, total = %2, state w = %4
        }
        """,
        """
        program p(w: state f32[2, 3], x: f32[4, 2]) {
          %0 = Multiply(w, w) : f32[2, 3]
          %1 = Transpose(%0) {perm=[1, 0]} : f32[3, 2]
          %2 = ReduceSum(%1) {axes=[0, 1]} : f32[]
          %3 = MatMul(x, w) : f32[4, 3]
          %4 = Tanh(w) : f32[2, 3]
          %5 = After(%4, %3, %2) : f32[2, 3]
          return y = %3, total = %2, state w = %5
        }
        """,
    )


@pytest.mark.parametrize(
    "nodes",
    [
        # no other node reads the variable
        "%0 = MatMul(x, w) : f32[2, 2]\n%1 = Add(w, %0) : f32[2, 2]\nreturn state w = %1",
        # the old value is fetched
        "%0 = Add(w, x) : f32[2, 2]\nreturn old = w, state w = %0",
        "%0 = Add(w, x) : f32[2, 2]\n%1 = Tanh(w) : f32[2, 2]\nreturn t = %1, state w = %0",
        # the node that reads it needs the new value
        "%0 = Add(w, x) : f32[2, 2]\n%1 = MatMul(w, %0) : f32[2, 2]\nreturn y = %1, state w = %0",
        # it is not assigned, or a feed or the variable itself is assigned
        "%0 = MatMul(w, x) : f32[2, 2]\nreturn y = %0",
        "%0 = MatMul(w, x) : f32[2, 2]\nreturn y = %0, state w = x",
        "%0 = MatMul(w, x) : f32[2, 2]\nreturn y = %0, state w = w",
    ],
)
def test_what_stays(nodes: str) -> None:
    check_stays(IN_PLACE, f"program p(w: state f32[2, 2], x: f32[2, 2]) {{\n{nodes}\n}}")


def test_small_state_stays() -> None:
    text = """
        program p(w: state f32[2, 3], x: f32[4, 2]) {
          %0 = MatMul(x, w) : f32[4, 3]
          %1 = Tanh(w) : f32[2, 3]
          return y = %0, state w = %1
        }
        """
    check_stays(UpdateInPlace(smallest=7), text)


def test_carries_of_loops_are_state() -> None:
    check(
        IN_PLACE,
        """
        program p(h: f32[2, 2], xs: f32[5, 2, 2]) {
          %0, %1 = Scan(h, xs) {consts=0, carries=1, length=5} : f32[2, 2], f32[5, 2, 2]
              with step(a0: f32[2, 2], a1: f32[2, 2]) {
            %0 = MatMul(a1, a0) : f32[2, 2]
            %1 = Tanh(a0) : f32[2, 2]
            return r0 = %1, r1 = %0
          }
          return last = %0, ys = %1
        }
        """,
        """
        program p(h: f32[2, 2], xs: f32[5, 2, 2]) {
          %0, %1 = Scan(h, xs) {consts=0, carries=1, length=5} : f32[2, 2], f32[5, 2, 2]
              with step(a0: f32[2, 2], a1: f32[2, 2]) {
            %0 = MatMul(a1, a0) : f32[2, 2]
            %1 = Tanh(a0) : f32[2, 2]
            %2 = After(%1, %0) : f32[2, 2]
            return r0 = %2, r1 = %0
          }
          return last = %0, ys = %1
        }
        """,
    )


def test_it_runs_on_cpu_and_from_o2() -> None:
    def names(pipeline: str, platform: str, **kept: bool) -> list[str]:
        options = CompileOptions(pipeline=pipeline, **kept)
        return [a_pass.name for a_pass in on_device(options, platform, None)]

    assert names("O3", "cpu") == [
        "stack-less",
        "hoist-products",
        "carry-shifted",
        "update-in-loop",
        "cpu-update-by-rows",
        "update-in-place",
    ]
    assert names("O2", "cpu") == [
        "stack-less",
        "hoist-products",
        "carry-shifted",
        "update-in-loop",
        "update-in-place",
    ]
    assert "update-in-place" not in names("O3", "gpu")
    assert names("O3", "cpu", donate=False) == ["stack-less", "hoist-products", "carry-shifted"]
    assert names("O1", "cpu") == []


WIDTH, BATCH = 512, 16


def deep() -> tuple[gc.Graph, list[gc.Node | gc.Tensor]]:
    graph = gc.Graph(seed=0)
    with graph:
        h = x = gc.placeholder((BATCH, WIDTH), "float32", name="x")
        for i in range(3):
            h = gc.nn.Dense(WIDTH, activation=gc.nn.relu, name=f"dense{i}")(h)
        loss = gc.reduce_mean(gc.square(h - x))
        train = gc.minimize(loss, optax.sgd(0.1, momentum=0.9))
    return graph, [train, loss]


def large_copies(step: gc.Executable) -> int:
    """The number of weights that XLA copies in a step."""
    return len(re.findall(rf" = f32\[{WIDTH},{WIDTH}\]\S* copy\(", step.hlo()))


def test_xla_copies_no_weights() -> None:
    """Without the pass, XLA copies the weights of both layers whose input has a gradient. If this
    fails, XLA no longer needs the pass, and the pass can be removed."""
    losses = {}
    copies = {}
    x = np.random.default_rng(0).standard_normal((BATCH, WIDTH)).astype(np.float32)
    for without in ((), ("update-in-place",)):
        graph, fetches = deep()
        options = CompileOptions(
            pipeline="O2", without_passes=("roll-repeats", *without), cache=None
        )
        step = gc.compile(graph, fetches, {"x": x.shape}, options=options)
        copies[without] = large_copies(step)
        state, got = step.init(), []
        for _ in range(5):
            (_, loss), state = step(state, {"x": x})
            got.append(float(loss))
        losses[without] = got
    assert copies == {(): 0, ("update-in-place",): 2}
    assert_near(losses[()], losses["update-in-place",], rtol=1e-5)
