"""Common subexpression elimination: equal nodes, and nodes that only look equal."""

from __future__ import annotations

import numpy as np
import pytest

from graphc.ir.node import Node, Tensor
from graphc.ir.program import Port, Program
from graphc.ir.types import TensorType
from graphc.ops.core.emit import CONSTANT
from graphc.passes.simplify.eliminate_common import EliminateCommon
from tests.passes.check import check, check_pair, check_stays, program

RULES = {
    "the first of equal nodes stands for all": """
        x: f32[n], y: f32[n]
          %0 = Subtract(x, y) : f32[n]
          %1 = Subtract(x, y) : f32[n]
          %2 = Exp(%0) : f32[n]
          %3 = Exp(%1) : f32[n]
          %4 = Multiply(%2, %3) : f32[n]
          return out = %4, other = %3
        =>
          %0 = Subtract(x, y) : f32[n]
          %1 = Exp(%0) : f32[n]
          %2 = Multiply(%1, %1) : f32[n]
          return out = %2, other = %1
    """,
    "operands of a commutative operator in either order": """
        x: f32[n], y: f32[n]
          %0 = Add(x, y) : f32[n]
          %1 = Add(y, x) : f32[n]
          return a = %0, b = %1
        =>
          %0 = Add(x, y) : f32[n]
          return a = %0, b = %0
    """,
    "of others in this one only": """
        x: f32[n], y: f32[n]
          %0 = Subtract(x, y) : f32[n]
          %1 = Subtract(y, x) : f32[n]
          return a = %0, b = %1
        => stays
    """,
    "other attributes": """
        x: f32[n, 3]
          %0 = ReduceSum(x) {axes=[0]} : f32[3]
          %1 = ReduceSum(x) {axes=[1]} : f32[n]
          return a = %0, b = %1
        => stays
    """,
    "constants by content": """
        x: f32[n]
          %0 = Constant() {value=f32[2] [1, 2]} : f32[2]
          %1 = Constant() {value=f32[2] [1, 2]} : f32[2]
          return a = %0, b = %1
        =>
          %0 = Constant() {value=f32[2] [1, 2]} : f32[2]
          return a = %0, b = %0
    """,
    "to the bit, and of one dtype": """
        x: f32[n]
          %0 = Constant() {value=f32[] 0.0} : f32[]
          %1 = Constant() {value=f32[] -0.0} : f32[]
          %2 = Constant() {value=i32[] 0} : i32[]
          return a = %0, b = %1, c = %2
        => stays
    """,
    "a NaN is equal to itself here": """
        x: f32[n]
          %0 = Constant() {value=f32[] nan} : f32[]
          %1 = Constant() {value=f32[] nan} : f32[]
          return a = %0, b = %1
        =>
          %0 = Constant() {value=f32[] nan} : f32[]
          return a = %0, b = %0
    """,
    "draws with one key are one draw": """
        key: u32[2], other: u32[2]
          %0 = RandomNormal(key) {shape=[3], dtype=f32} : f32[3]
          %1 = RandomNormal(key) {shape=[3], dtype=f32} : f32[3]
          %2 = RandomNormal(other) {shape=[3], dtype=f32} : f32[3]
          return a = %0, b = %1, c = %2
        =>
          %0 = RandomNormal(key) {shape=[3], dtype=f32} : f32[3]
          %1 = RandomNormal(other) {shape=[3], dtype=f32} : f32[3]
          return a = %0, b = %0, c = %1
    """,
    "inside a body, but not with what is outside": """
        x: f32[3], xs: f32[5, 3]
          %0 = Negative(x) : f32[3]
          %1, %2 = Scan(x, %0, xs) {consts=1, carries=1, length=5} : f32[3], f32[5, 3]
              with body(a0: f32[3], a1: f32[3], a2: f32[3]) {
            %0 = Negative(a0) : f32[3]
            %1 = Negative(a0) : f32[3]
            %2 = Add(%0, a2) : f32[3]
            %3 = Add(a1, %1) : f32[3]
            return r0 = %2, r1 = %3
          }
          return a = %1, b = %2
        =>
          %0 = Negative(x) : f32[3]
          %1, %2 = Scan(x, %0, xs) {consts=1, carries=1, length=5} : f32[3], f32[5, 3]
              with body(a0: f32[3], a1: f32[3], a2: f32[3]) {
            %0 = Negative(a0) : f32[3]
            %1 = Add(%0, a2) : f32[3]
            %2 = Add(a1, %0) : f32[3]
            return r0 = %1, r1 = %2
          }
          return a = %1, b = %2
    """,
}


@pytest.mark.parametrize("name", RULES)
def test_rule(name: str) -> None:
    check_pair(EliminateCommon(), RULES[name])


LOOP = """
  %{i} = Scan(x, xs) {{consts=0, carries=1, length=5}} : f32[3] with body(a0: f32[3], a1: f32[3]) {{
    %0 = {op}(a0, a1) : f32[3]
    return r0 = %0
  }}
"""


def loops(*ops: str) -> str:
    bodies = "".join(LOOP.format(i=i, op=op) for i, op in enumerate(ops))
    results = ", ".join(f"r{i} = %{i}" for i in range(len(ops)))
    return f"program p(x: f32[3], xs: f32[5, 3]) {{{bodies}  return {results}\n}}"


def test_loops_with_the_same_body_are_one_loop() -> None:
    after = loops("Add").replace("r0 = %0\n}", "r0 = %0, r1 = %0\n}")
    check(EliminateCommon(), loops("Add", "Add"), after)


def test_loops_with_other_bodies_are_not() -> None:
    check_stays(EliminateCommon(), loops("Add", "Multiply"))


def test_nodes_placed_on_two_devices_are_not_merged() -> None:
    start = program(
        """
        program p(x: f32[3]) {
          %0 = Negative(x) : f32[3]
          %1 = Negative(x) : f32[3]
          return a = %0, b = %1
        }
        """
    )
    first, second = start.nodes
    nodes = (first.replace(device="/device:GPU:0"), second.replace(device="/device:GPU:1"))
    assert EliminateCommon().run(start.replace(nodes=nodes)).changed == 0


def test_large_arrays_that_agree_in_a_sample_are_compared_whole() -> None:
    first = np.zeros(10_000, np.float32)
    second, third = first.copy(), first.copy()
    second[5001] = 1.0
    tensors = [Tensor(TensorType(first.dtype, first.shape)) for _ in range(3)]
    nodes = [
        Node(CONSTANT, (), (t,), {"value": v})
        for t, v in zip(tensors, (first, second, third), strict=True)
    ]
    outputs = tuple(Port(f"out{i}", "fetch", t) for i, t in enumerate(tensors))
    result = EliminateCommon().run(Program("p", (), tuple(nodes), outputs))
    assert result.program.nodes == (nodes[0], nodes[1])
    assert result.program.output_tensors() == [tensors[0], tensors[1], tensors[0]]
