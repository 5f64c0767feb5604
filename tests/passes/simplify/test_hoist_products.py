"""Hoist products: products added to a carry become one product after the loop; exceptions."""

from __future__ import annotations

from typing import Any

import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphc as gc
from graphc.ir.program import Program
from graphc.ir.verify import verify
from graphc.ops.structure.collective import EXCHANGES
from graphc.passes.core.validate import check_meaning
from graphc.passes.simplify.hoist_products import HoistProducts
from tests.near import assert_near
from tests.passes.check import check, check_stays, program
from tests.passes.evaluate import evaluate

HEAD = "h: f32[2, 9], x: f32[4, 2, 8], u: f32[4, 2, 9]"


def loop(body: str, results: str = "h = %h, g = %g, y = %y", start: str = "0.0") -> str:
    """A program with a loop that carries h and a matrix g from `start`, over x and u, and stacks
    %d. `body` computes %g of an iteration."""
    return f"""program p({HEAD}) {{
  %0 = Constant() {{value=f32[] {start}}} : f32[]
  %1 = BroadcastTo(%0) {{shape=[8, 9]}} : f32[8, 9]
  %h, %g, %y = Scan(h, %1, x, u) {{consts=0, carries=2, length=4, reverse=true}}
      : f32[2, 9], f32[8, 9], f32[4, 2, 9]
      with body(h: f32[2, 9], g: f32[8, 9], x: f32[2, 8], u: f32[2, 9]) {{
    %d = Multiply(u, h) : f32[2, 9]
    %n = Tanh(h) : f32[2, 9]
    {body}
    return r0 = %n, r1 = %g, r2 = %d
  }}
  return {results}
}}"""


PLAIN = """%p = MatMul(x, %d) {transpose_a=true} : f32[8, 9]
    %g = Add(g, %p) : f32[8, 9]"""
HOISTED = f"""program p({HEAD}) {{
  %h, %y = Scan(h, u) {{consts=0, carries=1, length=4, reverse=true}} : f32[2, 9], f32[4, 2, 9]
      with body(a0: f32[2, 9], a1: f32[2, 9]) {{
    %d = Multiply(a1, a0) : f32[2, 9]
    %n = Tanh(a0) : f32[2, 9]
    return r0 = %n, r1 = %d
  }}
  %g = DotGeneral(x, %y) {{lhs_contract=[0, 1], rhs_contract=[0, 1]}} : f32[8, 9]
  return h = %h, g = %g, y = %y
}}"""
OWN = """%e = Exp(%d) : f32[2, 9]
    %p = MatMul(x, %e) {transpose_a=true} : f32[8, 9]
    %g = Add(%p, g) : f32[8, 9]"""
OWN_HOISTED = f"""program p({HEAD}) {{
  %0 = Constant() {{value=f32[] 2.0}} : f32[]
  %1 = BroadcastTo(%0) {{shape=[8, 9]}} : f32[8, 9]
  %h, %y, %es = Scan(h, u) {{consts=0, carries=1, length=4, reverse=true}}
      : f32[2, 9], f32[4, 2, 9], f32[4, 2, 9]
      with body(a0: f32[2, 9], a1: f32[2, 9]) {{
    %d = Multiply(a1, a0) : f32[2, 9]
    %n = Tanh(a0) : f32[2, 9]
    %e = Exp(%d) : f32[2, 9]
    return r0 = %n, r1 = %d, r2 = %e
  }}
  %p = DotGeneral(x, %es) {{lhs_contract=[0, 1], rhs_contract=[0, 1]}} : f32[8, 9]
  %g = Add(%1, %p) : f32[8, 9]
  return h = %h, g = %g, y = %y
}}"""
NARROW = """%a = Cast(x) {dtype=bf16} : bf16[2, 8]
    %b = Cast(%d) {dtype=bf16} : bf16[2, 9]
    %p = MatMul(%a, %b) {transpose_a=true} : bf16[8, 9]
    %w = Cast(%p) {dtype=f32} : f32[8, 9]
    %g = Add(g, %w) : f32[8, 9]"""
NARROW_HOISTED = HOISTED.replace(
    "%g = DotGeneral(x, %y) {lhs_contract=[0, 1], rhs_contract=[0, 1]} : f32[8, 9]",
    """%a = Cast(x) {dtype=bf16} : bf16[4, 2, 8]
  %b = Cast(%y) {dtype=bf16} : bf16[4, 2, 9]
  %p = DotGeneral(%a, %b) {lhs_contract=[0, 1], rhs_contract=[0, 1]} : bf16[8, 9]
  %g = Cast(%p) {dtype=f32} : f32[8, 9]""",
)
TWICE = """%t = Transpose(u) {perm=[1, 0]} : f32[9, 2]
    %p = MatMul(x, %d) {transpose_a=true} : f32[8, 9]
    %q = DotGeneral(x, u) {lhs_contract=[0], rhs_contract=[0]} : f32[8, 9]
    %s = Add(%p, %q) : f32[8, 9]
    %g = Add(g, %s) : f32[8, 9]"""
TWICE_HOISTED = HOISTED.replace(
    "%g = DotGeneral(x, %y) {lhs_contract=[0, 1], rhs_contract=[0, 1]} : f32[8, 9]",
    """%p = DotGeneral(x, %y) {lhs_contract=[0, 1], rhs_contract=[0, 1]} : f32[8, 9]
  %q = DotGeneral(x, u) {lhs_contract=[0, 1], rhs_contract=[0, 1]} : f32[8, 9]
  %g = Add(%p, %q) : f32[8, 9]""",
)


def test_operands_whose_stacks_are_there() -> None:
    check(HoistProducts(), loop(PLAIN), HOISTED)


def test_an_operand_is_stacked_and_the_start_added() -> None:
    check(HoistProducts(), loop(OWN, start="2.0"), OWN_HOISTED)


def test_casts_come_after_the_loop() -> None:
    check(HoistProducts(), loop(NARROW), NARROW_HOISTED)


def test_two_products_in_an_iteration() -> None:
    check(HoistProducts(), loop(TWICE), TWICE_HOISTED)


@pytest.mark.parametrize("body", [PLAIN, OWN, TWICE])
@pytest.mark.parametrize("start", ["0.0", "2.0"])
def test_it_preserves_meaning(body: str, start: str) -> None:
    before = program(loop(body, start=start))
    result = HoistProducts().run(before)
    assert result.changed == 1
    verify(result.program, "functional")
    for seed in range(2):
        assert check_meaning(before, result.program, evaluate, seed) is None


@pytest.mark.parametrize("a", ["x: f32[2, 8]", "x: f32[8, 2]"])
@pytest.mark.parametrize("b", ["u: f32[2, 9]", "u: f32[9, 2]"])
@pytest.mark.parametrize("op", ["MatMul", "DotGeneral"])
def test_transposed_operands(a: str, b: str, op: str) -> None:
    left, right = (port.split("[")[1] for port in (a, b))
    ta, tb = a.endswith("[2, 8]"), b.endswith("[9, 2]")
    attrs = f"transpose_a={str(ta).lower()}, transpose_b={str(tb).lower()}"
    if op == "DotGeneral":
        attrs = f"lhs_contract=[{1 - ta}], rhs_contract=[{int(tb)}]"
    before = program(f"""program p(g: f32[8, 9], x: f32[4, {left}, u: f32[4, {right}) {{
      %g = Scan(g, x, u) {{consts=0, carries=1, length=4}} : f32[8, 9]
          with body(g: f32[8, 9], {a}, {b}) {{
        %p = {op}(x, u) {{{attrs}}} : f32[8, 9]
        %n = Add(g, %p) : f32[8, 9]
        return r0 = %n
      }}
      return g = %g
    }}""")
    result = HoistProducts().run(before)
    assert result.changed == 1
    assert check_meaning(before, result.program, evaluate, 0) is None


def test_in_a_loop_in_a_loop() -> None:
    before = program("""
    program p(g: f32[5, 4], x: f32[2, 3, 2, 5], u: f32[2, 3, 2, 4]) {
      %2 = Scan(g, x, u) {consts=0, carries=1, length=2} : f32[5, 4]
          with outer(g: f32[5, 4], x: f32[3, 2, 5], u: f32[3, 2, 4]) {
        %0 = Scan(g, x, u) {consts=0, carries=1, length=3} : f32[5, 4]
            with inner(g: f32[5, 4], x: f32[2, 5], u: f32[2, 4]) {
          %0 = MatMul(x, u) {transpose_a=true} : f32[5, 4]
          %1 = Add(g, %0) : f32[5, 4]
          return r0 = %1
        }
        return r0 = %0
      }
      return g = %2
    }""")
    result = HoistProducts().run(before)
    assert result.changed == 2
    (node,) = [node for node in result.program.nodes if node.op.name == "DotGeneral"]
    assert node.attrs["lhs_contract"] == (0, 1, 2)
    assert check_meaning(before, result.program, evaluate, 0) is None


STAYS = {
    "the carry is an operand": """%p = MatMul(x, %d) {transpose_a=true} : f32[8, 9]
    %q = Multiply(g, %p) : f32[8, 9]
    %g = Add(%q, %p) : f32[8, 9]""",
    "the product is read": """%p = MatMul(x, %d) {transpose_a=true} : f32[8, 9]
    %e = Exp(%p) : f32[8, 9]
    %s = Add(g, %p) : f32[8, 9]
    %g = Add(%s, %e) : f32[8, 9]""",
    "the carry decays": """%p = MatMul(x, %d) {transpose_a=true} : f32[8, 9]
    %q = Add(g, g) : f32[8, 9]
    %g = Add(%q, %p) : f32[8, 9]""",
    "the carry is subtracted from": """%p = MatMul(x, %d) {transpose_a=true} : f32[8, 9]
    %g = Subtract(g, %p) : f32[8, 9]""",
    "float16 may overflow": """%a = Cast(x) {dtype=f16} : f16[2, 8]
    %b = Cast(%d) {dtype=f16} : f16[2, 9]
    %p = MatMul(%a, %b) {transpose_a=true} : f16[8, 9]
    %w = Cast(%p) {dtype=f32} : f32[8, 9]
    %g = Add(g, %w) : f32[8, 9]""",
    "both operands have no stacks": """%a = Exp(x) : f32[2, 8]
    %b = Exp(%d) : f32[2, 9]
    %p = MatMul(%a, %b) {transpose_a=true} : f32[8, 9]
    %g = Add(g, %p) : f32[8, 9]""",
    "no product": """%p = ReduceSum(%d) {axes=[0]} : f32[9]
    %q = BroadcastTo(%p) {shape=[8, 9]} : f32[8, 9]
    %g = Add(g, %q) : f32[8, 9]""",
}


@pytest.mark.parametrize("name", STAYS)
def test_stays(name: str) -> None:
    check_stays(HoistProducts(), loop(STAYS[name]))


def test_a_carry_that_is_read_stays() -> None:
    body = PLAIN + "\n    %r = Tanh(g) : f32[8, 9]"
    read = loop(body).replace("r2 = %d", "r2 = %d, r3 = %r")
    read = read.replace("%h, %g, %y =", "%h, %g, %y, %z =").replace("y = %y", "y = %y, z = %z")
    check_stays(HoistProducts(), read.replace("f32[4, 2, 9]\n", "f32[4, 2, 9], f32[4, 8, 9]\n"))


def own(rows: int, turns: int = 4) -> str:
    """A loop that must stack `rows` rows of 9 numbers in each iteration."""
    return f"""program p(g: f32[8, 9], x: f32[{turns}, {rows}, 8], u: f32[{turns}, {rows}, 9]) {{
      %g = Scan(g, x, u) {{consts=0, carries=1, length={turns}}} : f32[8, 9]
          with body(g: f32[8, 9], x: f32[{rows}, 8], u: f32[{rows}, 9]) {{
        %d = Exp(u) : f32[{rows}, 9]
        %p = MatMul(x, %d) {{transpose_a=true}} : f32[8, 9]
        %n = Add(g, %p) : f32[8, 9]
        return r0 = %n
      }}
      return g = %g
    }}"""


def test_many_rows_stay() -> None:
    """With 4 rows, a stack moves as many bytes as half of the matrix; with 5 rows, more."""
    assert HoistProducts().run(program(own(4))).changed == 1
    check_stays(HoistProducts(), own(5))


def test_a_long_loop_stays() -> None:
    """4 rows of 8 iterations take as much memory as 4 matrices."""
    assert HoistProducts().run(program(own(4, turns=8))).changed == 1
    check_stays(HoistProducts(), own(4, turns=9))


def test_a_budget() -> None:
    """The stack of 4 rows in 8 iterations is larger than the matrix that it replaces."""
    assert HoistProducts(budget=10**6).run(program(own(4, turns=8))).changed == 1
    check_stays(HoistProducts(budget=100), own(4, turns=8))


def test_a_length_that_is_not_known_stays() -> None:
    check_stays(HoistProducts(), own(1).replace("[4, 1", "[n, 1").replace("length=4", "length=n"))
    check_stays(HoistProducts(), own(1).replace("[4, 1, ", "[4, b, ").replace("[1, ", "[b, "))


@st.composite
def bodies(draw: st.DrawFn) -> str:
    """A body that adds products in some order and with some casts. Some bodies must not be
    changed."""
    lines, terms = ["%e = Exp(%d) : f32[2, 9]", "%f = Negative(x) : f32[2, 8]"], ["g"]
    for i in range(draw(st.integers(1, 3))):
        left, right = draw(st.sampled_from(["x", "%f"])), draw(st.sampled_from(["u", "%d", "%e"]))
        wide = draw(st.booleans())
        if wide:
            lines.append(f"%a{i} = Cast({left}) {{dtype=f64}} : f64[2, 8]")
            lines.append(f"%b{i} = Cast({right}) {{dtype=f64}} : f64[2, 9]")
            left, right = f"%a{i}", f"%b{i}"
        kind = "f64" if wide else "f32"
        if draw(st.booleans()):
            lines.append(f"%p{i} = MatMul({left}, {right}) {{transpose_a=true}} : {kind}[8, 9]")
        else:
            axes = "{lhs_contract=[0], rhs_contract=[0]}"
            lines.append(f"%p{i} = DotGeneral({left}, {right}) {axes} : {kind}[8, 9]")
        if wide:
            lines.append(f"%c{i} = Cast(%p{i}) {{dtype=f32}} : f32[8, 9]")
        terms.append(f"%c{i}" if wide else f"%p{i}")
    if draw(st.integers(0, 4)) == 0:
        terms.append(draw(st.sampled_from(terms)))  # the carry or a product is used twice
    while len(terms) > 1:
        a, b = (terms.pop(draw(st.integers(0, len(terms) - 1))) for _ in "ab")
        name = f"%s{len(terms)}" if terms else "%g"
        lines.append(f"{name} = Add({a}, {b}) : f32[8, 9]")
        terms.append(name)
    return "\n    ".join(lines)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(body=bodies(), start=st.sampled_from(["0.0", "2.0"]), seed=st.integers(0, 3))
def test_generated_bodies_mean_the_same(body: str, start: str, seed: int) -> None:
    before = program(loop(body, start=start))
    after, changed = HoistProducts().run(before)
    assert (after is before) == (changed == 0)
    verify(after, "functional")
    assert check_meaning(before, after, evaluate, seed) is None


# -- training -------------------------------------------------------------------------------

BATCH, TIME, UNITS = 8, 12, 16


def recurrent(accumulate: int = 1) -> tuple[gc.Graph, list[Any]]:
    graph = gc.Graph(seed=0, name="recurrent")
    with graph:
        x = gc.placeholder(("batch", TIME, UNITS), "float32", name="x")
        h = gc.nn.LSTM(UNITS, name="a")(x)
        h = gc.nn.LSTM(UNITS, name="b")(h)
        loss = gc.reduce_mean(gc.square(h - 0.1), name="loss")
        more: dict[str, Any] = {} if accumulate == 1 else {"accumulate": accumulate}
        train = gc.minimize(loss, optax.sgd(0.5), name="train", **more)
    return graph, [loss, train]


def stepped(
    accumulate: int = 1, strategy: Any = None, **options: Any
) -> tuple[dict[str, Any], Program]:
    """The variables after two steps, and the program that ran."""
    graph, fetches = recurrent(accumulate)
    made = gc.CompileOptions(**options)
    x = np.random.default_rng(0).normal(size=(BATCH, TIME, UNITS)).astype(np.float32)
    with gc.Session(graph, options=made, strategy=strategy) as session:
        for _ in range(2):
            session.run(fetches, {"x": x})
        values = {name: np.asarray(value) for name, value in session.values().items()}
        return values, session.executables[0].stages.local


def in_loops(program: Program, loops: int = 0) -> list[tuple[int, ...]]:
    """The shapes of matrices that loops carry."""
    found: list[tuple[int, ...]] = []
    for node in program.nodes:
        if node.op.name == "Scan":
            first = node.attrs["consts"]
            carried = node.inputs[first : first + node.attrs["carries"]]
            found += [t.type.shape for t in carried]  # type: ignore[misc]
        for body in node.regions:
            found += in_loops(body)
    return found


def exchanges(program: Program) -> list[tuple[str, tuple[int, ...]]]:
    """The exchanges between replicas, and the shapes of their results."""
    found: list[tuple[str, tuple[int, ...]]] = []
    for node in program.nodes:
        if node.op.name in EXCHANGES:
            found += [(node.op.name, t.type.shape) for t in node.outputs]  # type: ignore[misc]
        for body in node.regions:
            found += exchanges(body)
    return sorted(found)


OPTIONS: dict[str, dict[str, Any]] = {
    "float32": {},
    "bf16": {"precision": "bf16"},
    "micro-batches": {"accumulate": 2},
    "two devices": {"strategy": gc.devices.DataParallel(2)},
    "two devices, bf16": {"strategy": gc.devices.DataParallel(2), "precision": "bf16"},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_training_is_as_without(name: str) -> None:
    got, local = stepped(**OPTIONS[name])
    want, plain = stepped(**OPTIONS[name], without_passes=("hoist-products",))
    carried = (UNITS, 4 * UNITS)
    assert in_loops(plain).count(carried) == in_loops(local).count(carried) + 2
    assert exchanges(local) == exchanges(plain)  # one per sum, as before
    near = 2e-3 if "bf16" in name else 1e-6
    for key, value in want.items():
        assert_near(got[key], value, rtol=1e-7, atol=near)
