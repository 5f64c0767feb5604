"""Mixed precision: programs before and after, and training."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphc.errors import AttributeValueError
from graphc.ir.dtypes import FLOAT32
from graphc.ir.opdef import PRECISIONS
from graphc.ir.program import Program
from graphc.ir.rewrite import bind_sizes
from graphc.ir.text import print_program
from graphc.ir.verify import verify
from graphc.ops.catalogue import CATALOGUE
from graphc.passes.core.validate import random_inputs
from graphc.passes.precision.mixed_precision import MixedPrecision
from graphc.passes.precision.narrowing import Narrowing
from graphc.passes.precision.precision_roles import updating
from tests.near import assert_near
from tests.passes.check import check, check_stays, program
from tests.passes.evaluate import evaluate
from tests.passes.generate import programs

BF16, F16 = MixedPrecision("bf16"), MixedPrecision("f16")


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_operator_states_a_class(name: str) -> None:
    assert CATALOGUE[name].precision in PRECISIONS


def test_products_and_what_is_elementwise_are_narrow_and_sums_wide() -> None:
    check(
        BF16,
        """
        program p(x: f32[n, 4], w: state f32[4, 3], b: state f32[3]) {
          %0 = MatMul(x, w) : f32[n, 3]
          %1 = Add(%0, b) : f32[n, 3]
          %2 = Relu(%1) : f32[n, 3]
          %3 = ReduceSum(%2) {axes=[0]} : f32[3]
          return out = %3
        }
        """,
        """
        program p(x: f32[n, 4], w: state f32[4, 3], b: state f32[3]) {
          %0 = Cast(x) {dtype=bf16} : bf16[n, 4]
          %1 = Cast(w) {dtype=bf16} : bf16[4, 3]
          %2 = MatMul(%0, %1) : bf16[n, 3]
          %3 = Cast(b) {dtype=bf16} : bf16[3]
          %4 = Add(%2, %3) : bf16[n, 3]
          %5 = Relu(%4) : bf16[n, 3]
          %6 = Cast(%5) {dtype=f32} : f32[n, 3]
          %7 = ReduceSum(%6) {axes=[0]} : f32[3]
          return out = %7
        }
        """,
    )


def test_norms_are_wide_inside_and_give_what_they_got() -> None:
    check(
        BF16,
        """
        program p(x: f32[n, 4], w: state f32[4, 4], s: state f32[4]) {
          %0 = MatMul(x, w) : f32[n, 4]
          %1 = LayerNorm(%0, s, s) {epsilon=1e-05} : f32[n, 4]
          %2 = MatMul(%1, w) : f32[n, 4]
          %3 = Add(%2, %0) : f32[n, 4]
          return out = %3
        }
        """,
        """
        program p(x: f32[n, 4], w: state f32[4, 4], s: state f32[4]) {
          %0 = Cast(x) {dtype=bf16} : bf16[n, 4]
          %1 = Cast(w) {dtype=bf16} : bf16[4, 4]
          %2 = MatMul(%0, %1) : bf16[n, 4]
          %3 = Cast(%2) {dtype=f32} : f32[n, 4]
          %4 = LayerNorm(%3, s, s) {epsilon=1e-05} : f32[n, 4]
          %5 = Cast(%4) {dtype=bf16} : bf16[n, 4]
          %6 = MatMul(%5, %1) : bf16[n, 4]
          %7 = Add(%6, %2) : bf16[n, 4]
          %8 = Cast(%7) {dtype=f32} : f32[n, 4]
          return out = %8
        }
        """,
    )


def test_beside_a_float32_feed_it_is_float32() -> None:
    check(
        BF16,
        """
        program p(x: f32[n, 4], w: state f32[4], target: f32[n]) {
          %0 = MatMul(x, w) : f32[n]
          %1 = Subtract(%0, target) : f32[n]
          %2 = Abs(%1) : f32[n]
          return out = %2
        }
        """.replace("MatMul(x, w)", "DotGeneral(x, w) {lhs_contract=[1], rhs_contract=[0]}"),
        """
        program p(x: f32[n, 4], w: state f32[4], target: f32[n]) {
          %0 = Cast(x) {dtype=bf16} : bf16[n, 4]
          %1 = Cast(w) {dtype=bf16} : bf16[4]
          %2 = DotGeneral(%0, %1) {lhs_contract=[1], rhs_contract=[0]} : bf16[n]
          %3 = Cast(%2) {dtype=f32} : f32[n]
          %4 = Subtract(%3, target) : f32[n]
          %5 = Abs(%4) : f32[n]
          return out = %5
        }
        """,
    )


CONSTANT_BESIDE_A_PRODUCT = """
    program p(x: f32[2, 2]) {{
      %0 = Constant() {{value=f32[] {value}}} : f32[]
      %1 = MatMul(x, x) : f32[2, 2]
      %2 = Multiply(%1, %0) : f32[2, 2]
      return out = %2
    }}
"""
AS_IT_IS = """
    program p(x: f32[2, 2]) {{
      %0 = Constant() {{value=f32[] {value}}} : f32[]
      %1 = Cast(x) {{dtype=f16}} : f16[2, 2]
      %2 = MatMul(%1, %1) : f16[2, 2]
      %3 = Cast(%2) {{dtype=f32}} : f32[2, 2]
      %4 = Multiply(%3, %0) : f32[2, 2]
      return out = %4
    }}
"""
ROUNDED = """
    program p(x: f32[2, 2]) {{
      %0 = Cast(x) {{dtype=f16}} : f16[2, 2]
      %1 = MatMul(%0, %0) : f16[2, 2]
      %2 = Constant() {{value=f16[] {value}}} : f16[]
      %3 = Multiply(%1, %2) : f16[2, 2]
      %4 = Cast(%3) {{dtype=f32}} : f32[2, 2]
      return out = %4
    }}
"""


@pytest.mark.parametrize(
    ("value", "after"), [("0.5", ROUNDED), ("-1e9", AS_IT_IS), ("1e-12", AS_IT_IS)]
)
def test_a_constant_that_f16_cannot_hold_keeps_its_operator_wide(value: str, after: str) -> None:
    check(F16, CONSTANT_BESIDE_A_PRODUCT.format(value=value), after.format(value=value))


def test_what_follows_the_gradients_is_float32_products_too() -> None:
    check(
        BF16,
        """
        program p(x: f32[4, 4], w: state f32[4, 4]) {
          %0 = MatMul(x, w) : f32[4, 4]
          %1 = Gradients(%0) {step="train"} : f32[4, 4]
          %2 = MatMul(%1, %1) : f32[4, 4]
          %3 = Subtract(w, %2) : f32[4, 4]
          %4 = Updated(w, %3) {step="train"} : f32[4, 4]
          return state w = %4
        }
        """,
        """
        program p(x: f32[4, 4], w: state f32[4, 4]) {
          %0 = Cast(x) {dtype=bf16} : bf16[4, 4]
          %1 = Cast(w) {dtype=bf16} : bf16[4, 4]
          %2 = MatMul(%0, %1) : bf16[4, 4]
          %3 = Cast(%2) {dtype=f32} : f32[4, 4]
          %4 = Gradients(%3) {step="train"} : f32[4, 4]
          %5 = MatMul(%4, %4) : f32[4, 4]
          %6 = Subtract(w, %5) : f32[4, 4]
          %7 = Updated(w, %6) {step="train"} : f32[4, 4]
          return state w = %7
        }
        """,
    )


def test_without_marks_what_leads_to_state_alone_is_float32() -> None:
    check(
        BF16,
        """
        program p(x: f32[4, 4], w: state f32[4, 4]) {
          %0 = MatMul(x, w) : f32[4, 4]
          %1 = Constant() {value=f32[] 0.1} : f32[]
          %2 = Multiply(%0, %1) : f32[4, 4]
          %3 = Subtract(w, %2) : f32[4, 4]
          return state w = %3
        }
        """,
        """
        program p(x: f32[4, 4], w: state f32[4, 4]) {
          %0 = Cast(x) {dtype=bf16} : bf16[4, 4]
          %1 = Cast(w) {dtype=bf16} : bf16[4, 4]
          %2 = MatMul(%0, %1) : bf16[4, 4]
          %3 = Constant() {value=f32[] 0.1} : f32[]
          %4 = Cast(%2) {dtype=f32} : f32[4, 4]
          %5 = Multiply(%4, %3) : f32[4, 4]
          %6 = Subtract(w, %5) : f32[4, 4]
          return state w = %6
        }
        """,
    )


def test_loops_take_and_stack_narrow_values_and_carry_wide_ones() -> None:
    check(
        BF16,
        """
        program p(x: f32[5, 2, 4], h: f32[2, 4], w: state f32[4, 4]) {
          %0, %1 = Scan(w, h, x) {consts=1, carries=1, length=5} : f32[2, 4], f32[5, 2, 4]
              with step(a0: f32[4, 4], a1: f32[2, 4], a2: f32[2, 4]) {
            %0 = MatMul(a2, a0) : f32[2, 4]
            %1 = Tanh(%0) : f32[2, 4]
            %2 = Add(a1, %1) : f32[2, 4]
            return r0 = %2, r1 = %1
          }
          return last = %0, all = %1
        }
        """,
        """
        program p(x: f32[5, 2, 4], h: f32[2, 4], w: state f32[4, 4]) {
          %0 = Cast(w) {dtype=bf16} : bf16[4, 4]
          %1 = Cast(x) {dtype=bf16} : bf16[5, 2, 4]
          %2, %3 = Scan(%0, h, %1) {consts=1, carries=1, length=5} : f32[2, 4], bf16[5, 2, 4]
              with step(a0: bf16[4, 4], a1: f32[2, 4], a2: bf16[2, 4]) {
            %0 = MatMul(a2, a0) : bf16[2, 4]
            %1 = Tanh(%0) : bf16[2, 4]
            %2 = Cast(%1) {dtype=f32} : f32[2, 4]
            %3 = Add(a1, %2) : f32[2, 4]
            return r0 = %3, r1 = %1
          }
          %4 = Cast(%3) {dtype=f32} : f32[5, 2, 4]
          return last = %2, all = %4
        }
        """,
    )


def test_bodies_of_calls_are_narrow_inside() -> None:
    check(
        BF16,
        """
        program p(x: f32[4, 4], w: state f32[4, 4]) {
          %0 = Call(x, w) : f32[4, 4] with f(a0: f32[4, 4], a1: f32[4, 4]) {
            %0 = MatMul(a0, a1) : f32[4, 4]
            return r0 = %0
          }
          return out = %0
        }
        """,
        """
        program p(x: f32[4, 4], w: state f32[4, 4]) {
          %0 = Call(x, w) : f32[4, 4] with f(a0: f32[4, 4], a1: f32[4, 4]) {
            %0 = Cast(a0) {dtype=bf16} : bf16[4, 4]
            %1 = Cast(a1) {dtype=bf16} : bf16[4, 4]
            %2 = MatMul(%0, %1) : bf16[4, 4]
            %3 = Cast(%2) {dtype=f32} : f32[4, 4]
            return r0 = %3
          }
          return out = %0
        }
        """,
    )


@pytest.mark.parametrize(
    "text",
    [
        "program p(x: f64[2, 2]) { %0 = MatMul(x, x) : f64[2, 2] return out = %0 }",
        "program p(x: i32[2, 2]) { %0 = MatMul(x, x) : i32[2, 2] return out = %0 }",
        "program p(x: f32[2, 2]) { %0 = Tanh(x) : f32[2, 2] return out = %0 }",
    ],
    ids=["float64", "integers", "no product"],
)
def test_left_alone(text: str) -> None:
    for brace in ("{ %0", " return", " }"):
        text = text.replace(brace, brace.replace(" ", "\n ", 1), 1)
    check_stays(BF16, text)


def test_another_dtype_is_refused() -> None:
    with pytest.raises(AttributeValueError, match="one of bf16, f16, got 'float16'"):
        MixedPrecision("float16")


@settings(
    max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(before=programs(nodes=24), seed=st.integers(0, 3))
def test_the_rewriting_preserves_meaning(before: Program, seed: int) -> None:
    """In bf16 results differ by rounding; with float64 as the "narrow" type they hardly differ."""
    narrowing = Narrowing(np.dtype("float64"), updating(before))
    for port in before.inputs:
        narrowing.take(port.tensor, free=False)
    for node in before.nodes:
        narrowing.add(node)
    for tensor in before.output_tensors():
        narrowing.wide(tensor)
    after = before.replace(nodes=tuple(narrowing.nodes))
    verify(after, "functional")
    verify(BF16.run(before).program, "functional")
    sizes = dict.fromkeys(before.symbols(), 3)
    inputs = [
        np.rint(2 * x).astype(x.dtype) for x in random_inputs(bind_sizes(before, sizes), seed)
    ]
    wanted, got = (evaluate(bind_sizes(p, sizes), inputs) for p in (before, after))
    for want, have in zip(wanted, got, strict=True):
        assert want.dtype == have.dtype
        if np.isfinite(want).all():
            scale = float(np.abs(want).max(initial=1))
            assert_near(have, want, rtol=1e-7, atol=1e-4 * scale, err_msg=print_program(before))


def test_narrow_is_narrow() -> None:
    """The results equal NumPy's own rounding to bf16."""
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=(4, 4)).astype(FLOAT32) for _ in range(2))
    p = program(
        """
        program p(x: f32[4, 4], w: f32[4, 4]) {
          %0 = MatMul(x, w) : f32[4, 4]
          return out = %0
        }
        """
    )
    (got,) = evaluate(BF16.run(p).program, [x, w])
    bf16 = ml_dtypes.bfloat16
    want = (x.astype(bf16).astype("f4") @ w.astype(bf16).astype("f4")).astype(bf16)
    np.testing.assert_array_equal(got, want.astype("f4"))
    assert np.abs(got - x @ w).max() > 1e-3
