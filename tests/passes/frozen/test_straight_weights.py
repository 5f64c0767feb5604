"""Straight weights: which products get their weights as [in, out]."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gc
from graphc.passes.frozen.straight_weights import StraightWeights
from tests.near import assert_near
from tests.passes.check import check_pair

CASES = {
    "a weight of [out, in]": """
        x: f32[n, 3], w: state f32[4, 3]
          %0 = MatMul(x, w) {transpose_b=true} : f32[n, 4]
          return out = %0
        =>
          %0 = Transpose(w) {perm=[1, 0]} : f32[3, 4]
          %1 = MatMul(x, %0) : f32[n, 4]
          return out = %1
    """,
    "a weight for each matrix, of a transposed operand": """
        x: f32[5, 3, 7], w: state f32[5, 4, 3]
          %0 = MatMul(x, w) {transpose_a=true, transpose_b=true} : f32[5, 7, 4]
          return out = %0
        =>
          %0 = Transpose(w) {perm=[0, 2, 1]} : f32[5, 3, 4]
          %1 = MatMul(x, %0) {transpose_a=true} : f32[5, 7, 4]
          return out = %1
    """,
    "a widened weight, which stays a widened one": """
        x: i8[n, 3], w: state i8[4, 3]
          %0 = Cast(x) {dtype=i32} : i32[n, 3]
          %1 = Cast(w) {dtype=i32} : i32[4, 3]
          %2 = MatMul(%0, %1) {transpose_b=true} : i32[n, 4]
          return out = %2
        =>
          %0 = Cast(x) {dtype=i32} : i32[n, 3]
          %1 = Transpose(w) {perm=[1, 0]} : i8[3, 4]
          %2 = Cast(%1) {dtype=i32} : i32[3, 4]
          %3 = MatMul(%0, %2) : i32[n, 4]
          return out = %3
    """,
    "one row": """
        x: f32[1, 3], w: state f32[4, 3]
          %0 = MatMul(x, w) {transpose_b=true} : f32[1, 4]
          return out = %0
        => stays
    """,
    "one column that is transposed": """
        x: f32[3, 1], w: state f32[4, 3]
          %0 = MatMul(x, w) {transpose_a=true, transpose_b=true} : f32[1, 4]
          return out = %0
        => stays
    """,
    "already [in, out]": """
        x: f32[n, 3], w: state f32[3, 4]
          %0 = MatMul(x, w) : f32[n, 4]
          return out = %0
        => stays
    """,
    "a table of embeddings, also used as the last layer": """
        i: i32[n], w: state f32[4, 3]
          %0 = Take(w, i) {axis=0} : f32[n, 3]
          %1 = MatMul(%0, w) {transpose_b=true} : f32[n, 4]
          return out = %1
        => stays
    """,
    "a narrow table of embeddings, also used as the last layer": """
        i: i32[n], w: state bf16[4, 3]
          %0 = Take(w, i) {axis=0} : bf16[n, 3]
          %1 = Cast(%0) {dtype=f32} : f32[n, 3]
          %2 = Cast(w) {dtype=f32} : f32[4, 3]
          %3 = MatMul(%1, %2) {transpose_b=true} : f32[n, 4]
          return out = %3
        => stays
    """,
    "a table that is widened for both": """
        i: i32[n], w: state bf16[4, 3]
          %0 = Cast(w) {dtype=f32} : f32[4, 3]
          %1 = Take(%0, i) {axis=0} : f32[n, 3]
          %2 = MatMul(%1, %0) {transpose_b=true} : f32[n, 4]
          return out = %2
        => stays
    """,
    "a weight that is a result too": """
        x: f32[n, 3], w: state f32[4, 3]
          %0 = MatMul(x, w) {transpose_b=true} : f32[n, 4]
          return out = %0, weight = w
        => stays
    """,
    "both operands are data": """
        x: f32[n, 3], y: f32[4, 3]
          %0 = MatMul(x, y) {transpose_b=true} : f32[n, 4]
          return out = %0
        => stays
    """,
    "both operands are state": """
        v: state f32[2, 3], w: state f32[4, 3]
          %0 = MatMul(v, w) {transpose_b=true} : f32[2, 4]
          return out = %0
        => stays
    """,
}


@pytest.mark.parametrize("text", CASES.values(), ids=CASES)
def test_which_weights(text: str) -> None:
    check_pair(StraightWeights(), text)


def test_state_that_moves_keeps_its_order() -> None:
    text = """
        x: f32[n, 3], w: state f32[4, 3]
          %0 = MatMul(x, w) {transpose_b=true} : f32[n, 4]
          return out = %0
        => stays
    """
    check_pair(StraightWeights(moving=("w",)), text)


def test_freeze_keeps_the_transposed_weight() -> None:
    """Nothing transposes it in a run, and the graph keeps one weight only."""
    rng = np.random.default_rng(0)
    values = {name: rng.normal(size=(40, 30)).astype("float32") for name in ("x", "w")}
    graph = gc.Graph()
    with graph:
        x = gc.placeholder(("batch", 30), name="x")
        w = gc.variable(values["w"], name="w")
        y = gc.matmul(x, w, transpose_b=True, name="y")
    session = gc.Session(graph)
    frozen = gc.freeze(session, [x], [y])
    assert [variable.shape for variable in frozen.variables.values()] == [(30, 40)]
    assert {node.op.name for node in frozen.nodes} == {"Placeholder", "ReadVariable", "MatMul"}
    before, after = (s.run("y", {"x": values["x"]}) for s in (session, gc.Session(frozen)))
    assert_near(after, before, 1e-5)
    plain = gc.CompileOptions(without_passes=("straight-weights",))
    kept = gc.freeze(gc.Session(graph, options=plain), [x], [y])
    assert [variable.shape for variable in kept.variables.values()] == [(40, 30)]
