"""Updates that are computed block by block: which ones, equal results, and less memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import optax
import pytest
from hypothesis import strategies as st

import graphc as gc
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.ir.program import Port, Program
from graphc.ir.scopes import building
from graphc.ir.types import TensorType
from graphc.ir.verify import verify
from graphc.ops.arrays import shape, slicing
from graphc.ops.elementwise import arithmetic, transcendental
from graphc.ops.matrices import matrix_product
from graphc.ops.reductions import reduction
from graphc.passes.cpu.cpu_update_by_rows import CpuUpdateByRows
from tests.near import assert_near
from tests.passes.check import check, check_stays, program
from tests.passes.cpu.test_meaning_on_cpu import F64, by_xla
from tests.passes.preserving import check_preserving

BY_ROWS = CpuUpdateByRows(smallest=8, block=3)


def test_momentum() -> None:
    """Other reads of the weights come first; the old momentum's share is computed in the loop."""
    check(
        BY_ROWS,
        """
        program p(w: state f32[4, 3], m: state f32[4, 3], r: f32[], x: f32[2, 4], dy: f32[2, 3]) {
          %0 = MatMul(x, dy) {transpose_a=true} : f32[4, 3]
          %1 = Multiply(r, m) : f32[4, 3]
          %2 = Add(%0, %1) : f32[4, 3]
          %3 = Multiply(%2, r) : f32[4, 3]
          %4 = Add(w, %3) : f32[4, 3]
          %5 = MatMul(dy, w) {transpose_b=true} : f32[2, 4]
          return dx = %5, state w = %4, state m = %2
        }
        """,
        """
        program p(w: state f32[4, 3], m: state f32[4, 3], r: f32[], x: f32[2, 4], dy: f32[2, 3]) {
          %0 = MatMul(dy, w) {transpose_b=true} : f32[2, 4]
          %1 = After(dy, %0) : f32[2, 3]
          %2, %3 = UpdateByRows(x, %1, m, w, r) {states=2, rows=2} : f32[4, 3], f32[4, 3]
              with product(a0: f32[2, 2], a1: f32[2, 3]) {
            %0 = MatMul(a0, a1) {transpose_a=true} : f32[2, 3]
            return r0 = %0
          } with update(a0: f32[2, 3], a1: f32[2, 3], a2: f32[2, 3], a3: f32[]) {
            %0 = Multiply(a3, a1) : f32[2, 3]
            %1 = Add(a0, %0) : f32[2, 3]
            return r0 = %1
          } with update(a0: f32[2, 3], a1: f32[2, 3], a2: f32[2, 3], a3: f32[]) {
            %0 = Multiply(a1, a3) : f32[2, 3]
            %1 = Add(a2, %0) : f32[2, 3]
            return r0 = %1
          }
          return dx = %0, state w = %3, state m = %2
        }
        """,
    )


HEAD = "w: state f32[4, 3], m: state f32[4, 3], x: f32[2, 4], dy: f32[2, 3]"
PRODUCT = "%0 = MatMul(x, dy) {transpose_a=true} : f32[4, 3]\n"


@pytest.mark.parametrize(
    "nodes",
    [
        # its norm is needed before the update
        """%1 = ReduceSum(%0) {axes=[0, 1]} : f32[]
        %2 = Multiply(%0, %1) : f32[4, 3]
        %3 = Add(w, %2) : f32[4, 3]
        return state w = %3""",
        # the gradient, the new value, or a value computed from them is fetched
        "%1 = Add(w, %0) : f32[4, 3]\nreturn g = %0, state w = %1",
        "%1 = Add(w, %0) : f32[4, 3]\nreturn now = %1, state w = %1",
        "%1 = Tanh(%0) : f32[4, 3]\n%2 = Add(w, %1) : f32[4, 3]\nreturn t = %1, state w = %2",
        # an element needs another row
        """%1 = Reverse(%0) {axes=[0]} : f32[4, 3]
        %2 = Add(w, %1) : f32[4, 3]
        return state w = %2""",
        # the old value is fetched too
        "%1 = Add(w, %0) : f32[4, 3]\nreturn old = w, state w = %1",
        # each new value needs the old value of the other variable
        """%1 = Add(w, %0) : f32[4, 3]
        %2 = Add(m, %0) : f32[4, 3]
        %3 = Add(%1, m) : f32[4, 3]
        %4 = Add(%2, w) : f32[4, 3]
        return state w = %3, state m = %4""",
        # no update of the old value: no buffer to overwrite
        "return state w = %0",
    ],
)
def test_what_stays(nodes: str) -> None:
    check_stays(BY_ROWS, f"program p({HEAD}) {{\n{PRODUCT}{nodes}\n}}")


def test_an_order_is_found_in_which_each_old_value_is_read_before_it_is_written() -> None:
    """The new value of m needs the old value of w, so w is written last, in any program order."""
    nodes = f"""{PRODUCT}
        %1 = Tanh(w) : f32[4, 3]
        %2 = Add(%0, %1) : f32[4, 3]
        %3 = Add(w, %2) : f32[4, 3]
        %4 = Add(m, %2) : f32[4, 3]
    """
    for ports in ("state w = %3, state m = %4", "state m = %4, state w = %3"):
        found = BY_ROWS.run(program(f"program p({HEAD}) {{\n{nodes}\nreturn {ports}\n}}"))
        assert found.changed == 1
        (node,) = found.program.nodes
        assert [t.name for t in node.inputs] == ["x", "dy", "m", "w"]


def test_an_element_of_an_old_value_for_all_rows() -> None:
    """The element is read before the loop. The broadcast of the element moves into the loop."""
    start = program(f"""program p({HEAD}) {{
        {PRODUCT}
        %1 = Slice(m) {{starts=[0, 0], limits=[1, 1], strides=[1, 1]}} : f32[1, 1]
        %2 = Reshape(%1) {{shape=[]}} : f32[]
        %3 = BroadcastTo(%2) {{shape=[4, 3]}} : f32[4, 3]
        %4 = Multiply(%0, %3) : f32[4, 3]
        %5 = Add(w, %4) : f32[4, 3]
        %6 = Add(m, %0) : f32[4, 3]
        return state w = %5, state m = %6
    }}""")
    after, changed = BY_ROWS.run(start)
    verify(after, "functional")
    assert changed == 1 and len(after.nodes) == 3
    values = [np.ones(t.type.shape, np.float32) for t in start.input_tensors()]
    for got, wanted in zip(by_xla(after, values), by_xla(start, values), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_a_product_of_what_it_updates_stays() -> None:
    text = """program p(w: state f32[4, 4], x: f32[4, 4]) {
        %0 = MatMul(w, x) {transpose_a=true} : f32[4, 4]
        %1 = Add(w, %0) : f32[4, 4]
        return state w = %1
    }"""
    check_stays(BY_ROWS, text)


def test_small_ones_stay() -> None:
    text = f"program p({HEAD}) {{\n{PRODUCT}%1 = Add(w, %0) : f32[4, 3]\nreturn state w = %1\n}}"
    check_stays(CpuUpdateByRows(smallest=13, block=3), text)


def test_narrow_ones_stay() -> None:
    text = f"program p({HEAD}) {{\n{PRODUCT}%1 = Add(w, %0) : f32[4, 3]\nreturn state w = %1\n}}"
    check_stays(BY_ROWS, text.replace("f32", "bf16"))


def test_rows_that_no_large_block_parts_stay() -> None:
    text = """program p(w: state f32[7, 3], x: f32[2, 7], dy: f32[2, 3]) {
        %0 = MatMul(x, dy) {transpose_a=true} : f32[7, 3]
        %1 = Add(w, %0) : f32[7, 3]
        return state w = %1
    }"""
    a_pass = CpuUpdateByRows(smallest=1, block=25)
    check_stays(a_pass, text.replace("7", "17"))  # only into blocks of one row, with 3 elements
    check_stays(a_pass, text.replace("7", "16"))  # all rows fit one block
    assert a_pass.run(program(text.replace("7", "18"))).changed == 1


@st.composite
def updates(draw: Any) -> Program:
    """Random updates of up to three matrices by a product; other nodes read the old values."""
    rows, width, batch = (
        draw(st.sampled_from((3, 4, 6))),
        draw(st.integers(1, 4)),
        draw(st.integers(1, 3)),
    )
    graph = Graph(name="updates")
    names = ["w", "m", "v"][: draw(st.integers(1, 3))]
    with building(graph):
        old = [graph.add_input(TensorType(F64, (rows, width)), name) for name in names]
        x = graph.add_input(TensorType(F64, (batch, rows)), "x")
        dy = graph.add_input(TensorType(F64, (batch, width)), "dy")
        rate = graph.add_input(TensorType(F64, ()), "rate")
        product = matrix_product.matmul(x, dy, transpose_a=True)

        def combined(*tensors: Tensor) -> Tensor:
            a, b = (draw(st.sampled_from(tensors)) for _ in range(2))
            kind = draw(st.integers(0, 3))
            if kind == 3:
                few = slicing.slice_(draw(st.sampled_from(old)), (0, 0), (1, 1))
                scalar = draw(st.sampled_from((rate, shape.reshape(few, ()))))
                return arithmetic.add(a, shape.broadcast_to(scalar, (rows, width)))
            if kind == 0:
                return transcendental.tanh(arithmetic.multiply(a, rate))
            return arithmetic.add(a, b) if kind == 1 else arithmetic.multiply(a, b)

        new: list[Tensor] = []
        for state in old:
            last = combined(product, state)
            for _ in range(draw(st.integers(0, 2))):
                last = combined(last, product, state, *new)
            new.append(arithmetic.add(last, product))
        fetched = [matrix_product.matmul(dy, old[0], transpose_b=True)] * draw(st.integers(0, 1))
        if draw(st.integers(0, 4)) == 0:
            fetched.append(reduction.reduce_sum(draw(st.sampled_from([product, *new, *old]))))
    state = set(old)
    return Program(
        "updates",
        tuple(Port(t.name, "state" if t in state else "feed", t) for t in graph.inputs),
        tuple(graph.nodes),
        (
            *(Port(f"y{i}", "fetch", t) for i, t in enumerate(fetched)),
            *(Port(name, "state", t) for name, t in zip(names, new, strict=True)),
        ),
    )


@pytest.mark.slow
def test_meaning() -> None:
    a_pass = CpuUpdateByRows(smallest=1, block=2)
    check_preserving(a_pass, updates(), least=0.5, evaluate=by_xla, exactly=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    "optimizer",
    [optax.sgd(0.1, momentum=0.9, nesterov=True), optax.adamw(1e-2), optax.rmsprop(1e-2)],
    ids=["nesterov", "adamw", "rmsprop"],
)
def test_a_training_step(optimizer: optax.GradientTransformation) -> None:
    """The losses are equal, and the gradient of the large layer (2,048 x 4,096) is not stored."""
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((8, 2048), "float32", name="x")
        hidden = gc.nn.Dense(4096, activation=gc.nn.relu, name="hidden")(x)
        loss = gc.reduce_mean(gc.square(gc.nn.Dense(1, name="out")(hidden) - 1))
        train = gc.minimize(loss, optimizer)
    value = np.random.default_rng(0).standard_normal((8, 2048)).astype(np.float32)
    losses, taken = [], []
    for without in ((), ("cpu-update-by-rows",)):
        options = gc.CompileOptions(pipeline="O3", without_passes=without, cache=None)
        step = gc.compile(graph, [train, loss], {"x": value.shape}, options=options)
        taken.append(step.memory()["temporaries"])
        state, found = step.init(), []
        for _ in range(3):
            (_, now), state = step(state, {"x": value})
            found.append(float(now))
        losses.append(found)
    assert_near(*losses, rtol=1e-4)
    gradient = 2048 * 4096 * 4
    assert taken[1] > gradient and taken[0] < 0.55 * gradient, taken


@pytest.mark.parametrize("penalty", [lambda w: w, gc.abs, gc.square], ids=["sum", "L1", "L2"])
def test_penalties(penalty: Any) -> None:
    """The gradients of penalties broadcast scalars to the weights' shape and read the weights."""
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((4, 2048), "float32", name="x")
        loss = gc.reduce_mean(gc.square(gc.nn.Dense(4096, name="wide")(x) - 1))
        kernel = next(v for name, v in graph.variables.items() if name.endswith("kernel"))
        loss = loss + 1e-3 * gc.reduce_mean(penalty(kernel.read()))
        train = gc.minimize(loss, optax.sgd(0.1, momentum=0.9))
    value = np.random.default_rng(0).standard_normal((4, 2048)).astype(np.float32)
    found = []
    for without in ((), ("cpu-update-by-rows",)):
        options = gc.CompileOptions(pipeline="O3", without_passes=without, cache=None)
        session = gc.Session(graph, options=options)
        found.append([session.run([train, loss], {"x": value})[1] for _ in range(3)])
        names = [node.op.name for node in session.executables[-1].stages.local.nodes]
        assert ("UpdateByRows" in names) is (not without)
    assert_near(*found, rtol=1e-5)


def test_several_steps_in_a_loop() -> None:
    """The state is a carry of the loop."""
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((4, 2048), "float32", name="x")
        loss = gc.reduce_mean(gc.square(gc.nn.Dense(4096, name="wide")(x) - 1))
        train = gc.minimize(loss, optax.sgd(0.1, momentum=0.9))
    batches = np.random.default_rng(0).standard_normal((3, 4, 2048)).astype(np.float32)
    losses = []
    for without in ((), ("cpu-update-by-rows",)):
        options = gc.CompileOptions(pipeline="O3", without_passes=without, cache=None)
        session = gc.Session(graph, options=options)
        losses.append(session.run_steps([train, loss], {"x": batches}, 3)[1])
        found = [node.op.name for node in session.executables[-1].stages.local.walk()]
        assert ("UpdateByRows" in found) is (not without)
    assert_near(*losses, rtol=1e-5)
