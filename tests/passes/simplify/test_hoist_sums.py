"""Hoist sums: rows added to a carry are added after the loop; exceptions."""

from __future__ import annotations

import pytest

from graphc.ir.verify import verify
from graphc.passes.core.validate import check_meaning
from graphc.passes.simplify.hoist_sums import HoistSums
from tests.passes.check import check, check_stays, program
from tests.passes.evaluate import evaluate

HEAD = "h: f32[3], i: i32[4, 2], u: f32[4, 2, 3]"
ZEROS = """
  %0 = Constant() {value=f32[] 0.0} : f32[]
  %1 = BroadcastTo(%0) {shape=[9, 3]} : f32[9, 3]
"""


def loop(body: str, results: str, head: str = HEAD) -> str:
    """A program with a loop that carries h and a table g from 0, over i and u. `body` computes v,
    the rows of an iteration."""
    return f"""program p({head}) {{{ZEROS}
  %h, %g = Scan(h, %1, i, u) {{consts=0, carries=2, length=4, reverse=true}} : f32[3], f32[9, 3]
      with body(h: f32[3], g: f32[9, 3], i: i32[2], u: f32[2, 3]) {{
    %v = Multiply(u, h) : f32[2, 3]
    %n = Tanh(h) : f32[3]
    {body}
  }}
  return {results}
}}"""


ADDED = """%z = Constant() {value=f32[] 0.0} : f32[]
    %0 = BroadcastTo(%z) {shape=[9, 3]} : f32[9, 3]
    %1 = ScatterAdd(%0, i, %v) {axis=0, mode="clip"} : f32[9, 3]
    %2 = Add(g, %1) : f32[9, 3]
    return r0 = %n, r1 = %2"""
HOISTED = f"""program p({HEAD}) {{{ZEROS}
  %h, %vs = Scan(h, u) {{consts=0, carries=1, length=4, reverse=true}} : f32[3], f32[4, 2, 3]
      with body(a0: f32[3], a1: f32[2, 3]) {{
    %v = Multiply(a1, a0) : f32[2, 3]
    %n = Tanh(a0) : f32[3]
    return r0 = %n, r1 = %v
  }}
  %g = ScatterAdd(%1, i, %vs) {{axis=0, mode="clip"}} : f32[9, 3]
  return h = %h, g = %g
}}"""
DIRECT = """%0 = ScatterAdd(g, i, %v) {axis=0, mode="clip"} : f32[9, 3]
    return r0 = %n, r1 = %0"""
TWICE = """%0 = ScatterAdd(g, i, %v) {axis=0, mode="clip"} : f32[9, 3]
    %j = Negative(i) : i32[2]
    %z = Constant() {value=f32[] 0.0} : f32[]
    %1 = BroadcastTo(%z) {shape=[9, 3]} : f32[9, 3]
    %2 = ScatterAdd(%1, %j, %v) {axis=0} : f32[9, 3]
    %3 = Add(%2, %0) : f32[9, 3]
    return r0 = %n, r1 = %3"""


@pytest.mark.parametrize("body", [ADDED, DIRECT], ids=["of zeros", "onto the carry"])
def test_a_sum_into_a_carry(body: str) -> None:
    check(HoistSums(), loop(body, "h = %h, g = %g"), HOISTED)


def test_two_sums_in_an_iteration_one_with_indices_of_its_own() -> None:
    after = f"""program p({HEAD}) {{{ZEROS}
  %h, %vs, %js = Scan(h, i, u) {{consts=0, carries=1, length=4, reverse=true}}
      : f32[3], f32[4, 2, 3], i32[4, 2]
      with body(a0: f32[3], a1: i32[2], a2: f32[2, 3]) {{
    %v = Multiply(a2, a0) : f32[2, 3]
    %n = Tanh(a0) : f32[3]
    %j = Negative(a1) : i32[2]
    return r0 = %n, r1 = %v, r2 = %j
  }}
  %a = ScatterAdd(%1, i, %vs) {{axis=0, mode="clip"}} : f32[9, 3]
  %g = ScatterAdd(%a, %js, %vs) {{axis=0}} : f32[9, 3]
  return h = %h, g = %g
}}"""
    check(HoistSums(always=True), loop(TWICE, "h = %h, g = %g"), after)


@pytest.mark.parametrize("body", [ADDED, DIRECT, TWICE])
@pytest.mark.parametrize("seed", [0, 1])
def test_it_preserves_meaning(body: str, seed: int) -> None:
    before = program(loop(body, "h = %h, g = %g"))
    after = HoistSums(always=True).run(before).program
    verify(after, "functional")
    assert check_meaning(before, after, evaluate, seed) is None


def test_in_a_loop_in_a_loop() -> None:
    """The sum leaves the inner loop first, and then the outer loop."""
    before = program("""
    program p(i: i32[2, 3], u: f32[2, 3, 4]) {
      %0 = Constant() {value=f32[] 0.0} : f32[]
      %1 = BroadcastTo(%0) {shape=[9, 4]} : f32[9, 4]
      %2 = Scan(%1, i, u) {consts=0, carries=1, length=2} : f32[9, 4]
          with outer(g: f32[9, 4], i: i32[3], u: f32[3, 4]) {
        %0 = Scan(g, i, u) {consts=0, carries=1, length=3} : f32[9, 4]
            with inner(g: f32[9, 4], i: i32[], u: f32[4]) {
          %0 = ScatterAdd(g, i, u) {axis=0} : f32[9, 4]
          return r0 = %0
        }
        return r0 = %0
      }
      return g = %2
    }""")
    result = HoistSums().run(before)
    assert result.changed == 2
    assert [n.inputs[1].type.shape for n in result.program.nodes if n.op.name == "ScatterAdd"] == [
        (2, 3)
    ]
    assert check_meaning(before, result.program, evaluate, 0) is None


STAYS = {
    "the carry is read": """%0 = ScatterAdd(g, i, %v) {axis=0} : f32[9, 3]
    %1 = ReduceSum(g) {axes=[0]} : f32[3]
    return r0 = %1, r1 = %0""",
    "so far, the sum is read": """%0 = ScatterAdd(g, i, %v) {axis=0} : f32[9, 3]
    %1 = ReduceSum(%0) {axes=[0]} : f32[3]
    return r0 = %1, r1 = %0""",
    "the carry decays": """%0 = Multiply(g, g) : f32[9, 3]
    %1 = ScatterAdd(%0, i, %v) {axis=0} : f32[9, 3]
    return r0 = %n, r1 = %1""",
    "a table is added that is not of zeros": """%0 = Exp(g) : f32[9, 3]
    return r0 = %n, r1 = %0""",
}


@pytest.mark.parametrize("name", STAYS)
def test_stays(name: str) -> None:
    check_stays(HoistSums(always=True), loop(STAYS[name], "h = %h, g = %g"))


def test_more_rows_than_the_table_has_stay() -> None:
    few = loop(DIRECT, "h = %h, g = %g").replace("[9, 3]", "[7, 3]")
    check_stays(HoistSums(), few)
    assert HoistSums(always=True).run(program(few)).changed == 1
