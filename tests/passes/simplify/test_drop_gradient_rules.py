"""Nodes that only define derivatives are removed from programs that take no gradient."""

from __future__ import annotations

import numpy as np

import graphc as gc
from graphc.ir.program import Program
from graphc.ops.control.custom_gradient import undifferentiable, with_gradient
from graphc.passes.simplify.drop_marks import DropGradientRules
from tests.near import assert_near
from tests.passes.check import check, check_stays

RULES = """
    program p(x: f32[4, 3]) {
      %0 = Sin(x) : f32[4, 3]
      %1 = CustomGradient(%0, x) {count=1} : f32[4, 3]
          with rule(a0: f32[4, 3], a1: f32[4, 3]) {
        %0 = Cos(a0) : f32[4, 3]
        %1 = Multiply(a1, %0) : f32[4, 3]
        return r0 = %1
      }
      %2 = Undifferentiable(%1) {reason="none"} : f32[4, 3]
      %3 = Tanh(%2) : f32[4, 3]
      return y = %3
    }
"""
PLAIN = """
    program p(x: f32[4, 3]) {
      %0 = Sin(x) : f32[4, 3]
      %1 = Tanh(%0) : f32[4, 3]
      return y = %1
    }
"""


def test_they_become_their_operands() -> None:
    check(DropGradientRules(), RULES, PLAIN)


def test_others_stay() -> None:
    check_stays(DropGradientRules(), PLAIN)


def operators(program: Program) -> list[str]:
    return [node.op.name for node in program.walk()]


def test_what_is_compiled_has_none() -> None:
    """No gradient is taken after compilation. A region has global types, which no replica has."""
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((None, 3), "float32", name="x")
        (y,) = with_gradient([gc.sin(x)], [x], lambda xs, dys: [dys[0] * gc.cos(xs[0])])
        y = undifferentiable(gc.tanh(y), "none")
    value = np.linspace(0, 1, 12, dtype=np.float32).reshape(4, 3)
    options = gc.CompileOptions(memory_limit="1GiB", verify=True, cache=None)
    step = gc.compile(
        graph, [y], {"x": (4, 3)}, strategy=gc.devices.DataParallel(2), options=options
    )
    assert operators(step.program) == ["Sin", "Tanh"]
    assert operators(step.stages.local) == ["Sin", "Tanh"]
    (got,), _ = step(step.init(), {"x": value})
    assert_near(got, np.tanh(np.sin(value)), rtol=1e-6)
