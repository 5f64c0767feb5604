"""Marks are dropped after their use; casts are spread before loops are made."""

from __future__ import annotations

from graphc.passes.simplify.drop_marks import DropMarks
from graphc.passes.simplify.spread_casts import SpreadCasts
from tests.passes.check import check, check_pair, check_stays

MARKED = """
    program p(x: f32[], w: state f32[]) {{
      %0 = Constant() {{value=f32[] 1}} : f32[]
      %1 = LossAdjoint(%0) {{step="train"}} : f32[]
      %2 = Multiply(%1, x) : f32[]
      %3 = Gradients(%2) {{step="train", accumulate={count}}} : f32[]
      %4 = Subtract(w, %3) : f32[]
      %5 = Updated(w, %4) {{step="train"}} : f32[]
      return state w = %5
    }}
"""


def test_marks_go() -> None:
    check(
        DropMarks(),
        MARKED.format(count=1),
        """
        program p(x: f32[], w: state f32[]) {
          %0 = Constant() {value=f32[] 1} : f32[]
          %1 = Multiply(%0, x) : f32[]
          %2 = Subtract(w, %1) : f32[]
          return state w = %2
        }
        """,
    )


def test_but_those_of_gradients_that_are_summed_over_micro_batches() -> None:
    check(
        DropMarks(),
        MARKED.format(count=4),
        """
        program p(x: f32[], w: state f32[]) {
          %0 = Constant() {value=f32[] 1} : f32[]
          %1 = Multiply(%0, x) : f32[]
          %2 = Gradients(%1) {step="train", accumulate=4} : f32[]
          %3 = Subtract(w, %2) : f32[]
          return state w = %3
        }
        """,
    )


def test_each_user_widens_for_itself() -> None:
    check_pair(
        SpreadCasts(),
        """
        x: bf16[2]
          %0 = Cast(x) {dtype=f32} : f32[2]
          %1 = Tanh(%0) : f32[2]
          %2 = Multiply(%0, %1) : f32[2]
          return out = %2
        =>
          %0 = Cast(x) {dtype=f32} : f32[2]
          %1 = Tanh(%0) : f32[2]
          %2 = Cast(x) {dtype=f32} : f32[2]
          %3 = Multiply(%2, %1) : f32[2]
          return out = %3
        """,
    )


def test_each_user_of_a_variable_rounds_it() -> None:
    check(
        SpreadCasts(),
        """
        program p(x: bf16[2, 2], w: state f32[2, 2]) {
          %0 = Cast(w) {dtype=bf16} : bf16[2, 2]
          %1 = MatMul(x, %0) : bf16[2, 2]
          %2 = MatMul(%1, %0) : bf16[2, 2]
          return out = %2
        }
        """,
        """
        program p(x: bf16[2, 2], w: state f32[2, 2]) {
          %0 = Cast(w) {dtype=bf16} : bf16[2, 2]
          %1 = MatMul(x, %0) : bf16[2, 2]
          %2 = Cast(w) {dtype=bf16} : bf16[2, 2]
          %3 = MatMul(%1, %2) : bf16[2, 2]
          return out = %3
        }
        """,
    )


def test_what_is_computed_is_rounded_once() -> None:
    check_stays(
        SpreadCasts(),
        """
        program p(x: f32[2]) {
          %0 = Tanh(x) : f32[2]
          %1 = Cast(%0) {dtype=bf16} : bf16[2]
          %2 = Multiply(%1, %1) : bf16[2]
          %3 = Add(%2, %1) : bf16[2]
          return out = %3
        }
        """,
    )


def test_products_that_do_without_a_cast_get_their_own() -> None:
    check(
        SpreadCasts(of_products=True),
        """
        program p(x: i8[2, 2], w: i8[2, 2], v: i8[2, 2]) {
          %0 = Cast(x) {dtype=i32} : i32[2, 2]
          %1 = Cast(w) {dtype=i32} : i32[2, 2]
          %2 = Cast(v) {dtype=i32} : i32[2, 2]
          %3 = MatMul(%0, %1) : i32[2, 2]
          %4 = MatMul(%2, %1) : i32[2, 2]
          %5 = Add(%4, %2) : i32[2, 2]
          return out = %3, other = %5
        }
        """,
        """
        program p(x: i8[2, 2], w: i8[2, 2], v: i8[2, 2]) {
          %0 = Cast(v) {dtype=i32} : i32[2, 2]
          %1 = Cast(x) {dtype=i32} : i32[2, 2]
          %2 = Cast(w) {dtype=i32} : i32[2, 2]
          %3 = MatMul(%1, %2) : i32[2, 2]
          %4 = Cast(w) {dtype=i32} : i32[2, 2]
          %5 = MatMul(%0, %4) : i32[2, 2]
          %6 = Add(%5, %0) : i32[2, 2]
          return out = %3, other = %6
        }
        """,
    )


def test_casts_one_after_the_other_are_spread_together() -> None:
    """The gradient of a variable that is rounded to bfloat16 and used in float32 has such casts."""
    check(
        SpreadCasts(),
        """
        program p(x: f32[2], w: state f32[2]) {
          %0 = Cast(w) {dtype=bf16} : bf16[2]
          %1 = Cast(%0) {dtype=f32} : f32[2]
          %2 = Multiply(x, %1) : f32[2]
          %3 = Add(%2, %1) : f32[2]
          return out = %3, rounded = %0
        }
        """,
        """
        program p(x: f32[2], w: state f32[2]) {
          %0 = Cast(w) {dtype=bf16} : bf16[2]
          %1 = Cast(w) {dtype=bf16} : bf16[2]
          %2 = Cast(%1) {dtype=f32} : f32[2]
          %3 = Multiply(x, %2) : f32[2]
          %4 = Cast(w) {dtype=bf16} : bf16[2]
          %5 = Cast(%4) {dtype=f32} : f32[2]
          %6 = Add(%3, %5) : f32[2]
          return out = %6, rounded = %0
        }
        """,
    )
