"""Constant folding: nodes that are computed once, and nodes that must stay."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from graphc.errors import PassError
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Port, Program
from graphc.ir.rewrite import bind_sizes
from graphc.ir.types import TensorType
from graphc.ops.core.emit import CONSTANT
from graphc.ops.elementwise.arithmetic import NEGATIVE
from graphc.passes.simplify.fold_constants import FoldConstants
from tests.passes.check import check_pair, program

FOLDS = {
    "a chain becomes its value": """
        x: f32[n]
          %0 = Constant() {value=f32[] 2.0} : f32[]
          %1 = Constant() {value=f32[] 3.0} : f32[]
          %2 = Multiply(%0, %1) : f32[]
          %3 = Negative(%2) : f32[]
          %4 = Add(x, %3) : f32[n]
          return out = %4
        =>
          %0 = Constant() {value=f32[] -6.0} : f32[]
          %1 = Add(x, %0) : f32[n]
          return out = %1
    """,
    "several results": """
        x: f32[2]
          %0 = Constant() {value=f32[3] [1, 2, 3]} : f32[3]
          %1, %2 = Split(%0) {axis=0, sizes=[1, 2]} : f32[1], f32[2]
          %3 = Add(x, %2) : f32[2]
          %4 = Add(x, %1) : f32[2]
          return a = %3, b = %4
        =>
          %0 = Constant() {value=f32[1] [1]} : f32[1]
          %1 = Constant() {value=f32[2] [2, 3]} : f32[2]
          %2 = Add(x, %1) : f32[2]
          %3 = Add(x, %0) : f32[2]
          return a = %2, b = %3
    """,
    "dtypes stay exactly": """
        x: f32[n]
          %0 = Constant() {value=bf16[2] [1, 2]} : bf16[2]
          %1 = ReduceSum(%0) {axes=[0]} : bf16[]
          %2 = Constant() {value=i8[2] [100, 100]} : i8[2]
          %3 = ReduceSum(%2) {axes=[0]} : i8[]
          return a = %1, b = %3
        =>
          %0 = Constant() {value=bf16[] 3.0} : bf16[]
          %1 = Constant() {value=i8[] -56} : i8[]
          return a = %0, b = %1
    """,
    "inside bodies": """
        x: f32[3], xs: f32[5, 3]
          %0 = Scan(x, xs) {consts=0, carries=1, length=5} : f32[3]
              with body(a0: f32[3], a1: f32[3]) {
            %0 = Constant() {value=f32[] 2.0} : f32[]
            %1 = Square(%0) : f32[]
            %2 = Multiply(a0, %1) : f32[3]
            %3 = Add(%2, a1) : f32[3]
            return r0 = %3
          }
          return out = %0
        =>
          %0 = Scan(x, xs) {consts=0, carries=1, length=5} : f32[3]
              with body(a0: f32[3], a1: f32[3]) {
            %0 = Constant() {value=f32[] 4.0} : f32[]
            %1 = Multiply(a0, %0) : f32[3]
            %2 = Add(%1, a1) : f32[3]
            return r0 = %2
          }
          return out = %0
    """,
    "integers computed across positions of an iota": """
        x: i32[4]
          %0 = Constant() {value=i32[] 2} : i32[]
          %1 = Iota() {shape=[4], axis=0, dtype=i32} : i32[4]
          %2 = Multiply(%0, %1) : i32[4]
          %3 = CumSum(%2) {axis=0} : i32[4]
          %4 = Negative(%3) : i32[4]
          %5 = Add(x, %4) : i32[4]
          %6 = Add(%5, %2) : i32[4]
          return out = %6
        =>
          %0 = Constant() {value=i32[] 2} : i32[]
          %1 = Iota() {shape=[4], axis=0, dtype=i32} : i32[4]
          %2 = Multiply(%0, %1) : i32[4]
          %3 = Constant() {value=i32[4] [0, -2, -6, -12]} : i32[4]
          %4 = Add(x, %3) : i32[4]
          %5 = Add(%4, %2) : i32[4]
          return out = %5
    """,
    "but not sums of floats": """
        x: f32[4]
          %0 = Iota() {shape=[4], axis=0, dtype=f32} : f32[4]
          %1 = CumSum(%0) {axis=0} : f32[4]
          %2 = Add(x, %1) : f32[4]
          return out = %2
        => stays
    """,
    "nor many integers": """
        x: i32[4097]
          %0 = Iota() {shape=[4097], axis=0, dtype=i32} : i32[4097]
          %1 = CumSum(%0) {axis=0} : i32[4097]
          %2 = Add(x, %1) : i32[4097]
          return out = %2
        => stays
    """,
    "a repeated scalar stays small": """
        x: f32[2]
          %0 = Constant() {value=f32[] 2.0} : f32[]
          %1 = BroadcastTo(%0) {shape=[100, 100]} : f32[100, 100]
          return out = %1
        => stays
    """,
    "so does an iota": """
        x: f32[2]
          %0 = Iota() {shape=[100], axis=0, dtype=i32} : i32[100]
          return out = %0
        => stays
    """,
    "nor does an outer product become a table": """
        x: f32[2]
          %0 = Constant() {value=f32[3, 1] [[1], [2], [3]]} : f32[3, 1]
          %1 = Constant() {value=f32[1, 4] [[1, 2, 3, 4]]} : f32[1, 4]
          %2 = Multiply(%0, %1) : f32[3, 4]
          return out = %2
        => stays
    """,
    "a named size is unknown": """
        x: f32[n]
          %0 = DimValue() {dim=n, dtype=f32} : f32[]
          return out = %0
        => stays
    """,
    "a result of unknown size": """
        x: f32[n]
          %0 = Constant() {value=f32[] 2.0} : f32[]
          %1 = BroadcastTo(%0) {shape=[n]} : f32[n]
          return out = %1
        => stays
    """,
    "floats that an integer has no room for, which XLA clips": """
        x: i32[n]
          %0 = Constant() {value=f32[] 260.0} : f32[]
          %1 = Cast(%0) {dtype=u8} : u8[]
          return out = %1
        => stays
    """,
    "division by zero, which XLA answers in its own way": """
        x: i32[n]
          %0 = Constant() {value=i32[] 0} : i32[]
          %1 = Constant() {value=i32[] 7} : i32[]
          %2 = FloorDivide(%1, %0) : i32[]
          return out = %2
        => stays
    """,
    "a NaN as an integer": """
        x: i32[n]
          %0 = Constant() {value=f32[] nan} : f32[]
          %1 = Cast(%0) {dtype=i32} : i32[]
          return out = %1
        => stays
    """,
    "the logarithm of a negative number": """
        x: i32[n]
          %0 = Constant() {value=f32[] -1.0} : f32[]
          %1 = Log(%0) : f32[]
          return out = %1
        => stays
    """,
}


@pytest.mark.parametrize("name", FOLDS)
def test_fold(name: str) -> None:
    check_pair(FoldConstants(), FOLDS[name])


def test_a_size_is_a_constant_once_it_is_bound() -> None:
    symbolic = program(
        """
        program p(x: f32[n]) {
          %0 = DimValue() {dim=n, dtype=f32} : f32[]
          %1 = Reciprocal(%0) : f32[]
          return out = %1
        }
        """
    )
    result = FoldConstants().run(bind_sizes(symbolic, {"n": 8}))
    last = result.program.nodes[-1]
    assert last.op is CONSTANT
    assert last.attrs["value"] == np.float32(0.125)
    assert result.changed == 2


@pytest.mark.parametrize(("rows", "changed"), [(8192, 1), (8193, 0)])
def test_a_result_of_more_than_64_kib_is_left_to_xla(rows: int, changed: int) -> None:
    type = TensorType(np.dtype(np.float32), (rows, 2))
    x, y = Tensor(type), Tensor(type)
    nodes = (
        Node(CONSTANT, (), (x,), {"value": np.ones((rows, 2), np.float32)}),
        Node(NEGATIVE, (x,), (y,)),
    )
    result = FoldConstants().run(Program("p", (), nodes, (Port("out", "fetch", y),)))
    assert result.changed == changed


def bad_fold(result: Any) -> Any:
    def fold(x: Any) -> Any:
        if isinstance(result, Exception):
            raise result
        return result

    return fold


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (np.float32([1, 2]), r"fold gave float32\[2\] in place of f32\[\]"),
        (np.int32(1), r"fold gave int32\[\] in place of f32\[\]"),
        (IndexError("out of range"), "IndexError: out of range"),
    ],
)
def test_a_fold_that_is_wrong_is_the_operators_fault(result: Any, text: str) -> None:
    start = program(
        """
        program p() {
          %0 = Constant() {value=f32[] 2.0} : f32[]
          %1 = Exp(%0) : f32[]
          return out = %1
        }
        """
    )
    constant, exp = start.nodes
    exp = exp.replace(op=replace(exp.op, fold=bad_fold(result)))
    with pytest.raises(PassError, match=text) as info:
        FoldConstants().run(start.replace(nodes=(constant, exp)))
    assert "pass fold-constants failed at Exp" in str(info.value)
    assert "at model.py:3" in str(info.value)


def test_folded_arrays_are_read_only_and_own_their_memory() -> None:
    start = program(
        """
        program p() {
          %0 = Constant() {value=f32[3] [1, 2, 3]} : f32[3]
          %1 = Slice(%0) {starts=[0], limits=[2], strides=[1]} : f32[2]
          return out = %1
        }
        """
    )
    value = FoldConstants().run(start).program.nodes[-1].attrs["value"]
    assert value.base is None
    assert not value.flags.writeable
