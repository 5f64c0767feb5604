"""bfloat16 stacks of loops are stored as integers."""

from __future__ import annotations

import numpy as np

from graphc.config import CompileOptions
from graphc.passes.core.target import Target
from graphc.passes.cpu.cpu_stacked_bits import CpuStackedBits
from graphc.passes.pipelines import after_binding
from tests.passes.check import check, check_stays, program
from tests.passes.evaluate import evaluate

TWO_LOOPS = """
    program p(x: bf16[4, 2], h: f32[2]) {
      %0, %1 = Scan(h, x) {consts=0, carries=1, length=4} : f32[2], bf16[4, 2]
          with forward(a0: f32[2], a1: bf16[2]) {
        %0 = Tanh(a1) : bf16[2]
        %1 = Cast(%0) {dtype=f32} : f32[2]
        %2 = Add(a0, %1) : f32[2]
        return r0 = %2, r1 = %0
      }
      %2, %3 = Scan(%0, %1) {consts=0, carries=1, length=4, reverse=true} : f32[2], f32[4, 2]
          with backward(a0: f32[2], a1: bf16[2]) {
        %0 = Cast(a1) {dtype=f32} : f32[2]
        %1 = Add(a0, %0) : f32[2]
        return r0 = %1, r1 = %0
      }
      return out = %2, rows = %3
    }
"""


def test_what_one_loop_stacks_another_takes_as_it_is() -> None:
    check(
        CpuStackedBits(),
        TWO_LOOPS,
        """
        program p(x: bf16[4, 2], h: f32[2]) {
          %0 = Bitcast(x) {dtype=u16} : u16[4, 2]
          %1, %2 = Scan(h, %0) {consts=0, carries=1, length=4} : f32[2], u16[4, 2]
              with forward(a0: f32[2], a1: u16[2]) {
            %0 = Bitcast(a1) {dtype=bf16} : bf16[2]
            %1 = Tanh(%0) : bf16[2]
            %2 = Cast(%1) {dtype=f32} : f32[2]
            %3 = Add(a0, %2) : f32[2]
            %4 = Bitcast(%1) {dtype=u16} : u16[2]
            return r0 = %3, r1 = %4
          }
          %3, %4 = Scan(%1, %2) {consts=0, carries=1, length=4, reverse=true} : f32[2], f32[4, 2]
              with backward(a0: f32[2], a1: u16[2]) {
            %0 = Bitcast(a1) {dtype=bf16} : bf16[2]
            %1 = Cast(%0) {dtype=f32} : f32[2]
            %2 = Add(a0, %1) : f32[2]
            return r0 = %2, r1 = %1
          }
          return out = %3, rows = %4
        }
        """,
    )


def test_the_values_are_the_same() -> None:
    before = program(TWO_LOOPS)
    x = np.random.default_rng(0).normal(size=(4, 2)).astype(before.inputs[0].tensor.type.dtype)
    inputs = [x, np.ones(2, "f4")]
    after = CpuStackedBits().run(before).program
    for want, got in zip(evaluate(before, inputs), evaluate(after, inputs), strict=True):
        np.testing.assert_array_equal(want, got)


def test_other_types_and_other_devices_are_left_alone() -> None:
    check_stays(CpuStackedBits(), TWO_LOOPS.replace("bf16", "f16"))
    for platform, precision in (("gpu", "bf16"), ("any", "bf16"), ("cpu", "f16"), ("cpu", None)):
        passes = after_binding(CompileOptions(precision=precision), Target(platform))
        assert not any(isinstance(a_pass, CpuStackedBits) for a_pass in passes)
    assert CpuStackedBits() in after_binding(CompileOptions(precision="bf16"), Target("cpu"))
