"""StackLess: values that the backward pass of a loop recomputes."""

from __future__ import annotations

import pytest

from graphc.config import CompileOptions
from graphc.ir.program import Program
from graphc.passes.memory.stack_less import StackLess
from graphc.passes.pipelines import on_device
from tests.passes.check import program


def layers(width: int, dtype: str, activation: str = "Tanh") -> Program:
    """x = x + tanh(x @ w) in a loop, and a reverse loop that takes its tanhs and carries."""
    x, w = f"{dtype}[4096, {width}]", f"{dtype}[{width}, {width}]"
    stack = f"{dtype}[8, 4096, {width}]"
    return program(
        f"""
        program p(x: {x}, ws: state {dtype}[8, {width}, {width}], z: {x}) {{
          %0, %1, %2 = Scan(x, ws) {{consts=0, carries=1, length=8}} : {x}, {stack}, {stack}
              with forward(a0: {x}, a1: {w}) {{
            %0 = MatMul(a0, a1) : {x}
            %1 = {activation}(%0) : {x}
            %2 = Add(a0, %1) : {x}
            return r0 = %2, r1 = %1, r2 = a0
          }}
          %3, %4 = Scan(z, %1, %2, ws) {{consts=0, carries=1, length=8, reverse=true}}
              : {x}, {dtype}[8, {width}, {width}]
              with backward(a0: {x}, a1: {x}, a2: {x}, a3: {w}) {{
            %0 = Multiply(a0, a1) : {x}
            %1 = MatMul(%0, a3) {{transpose_b=true}} : {x}
            %2 = MatMul(a2, %0) {{transpose_a=true}} : {w}
            return r0 = %1, r1 = %2
          }}
          return y = %0, dx = %3, dw = %4
        }}
        """
    )


def stacks(before: Program, a_pass: StackLess = StackLess()) -> int:  # noqa: B008  # it is frozen
    """The number of stacks of the forward loop after the pass."""
    after = a_pass.run(before).program
    forward = next(node for node in after.nodes if node.op.name == "Scan")
    return len(forward.outputs) - 1


@pytest.mark.parametrize(
    ("width", "dtype", "left"), [(256, "bf16", 1), (8192, "bf16", 2), (256, "f32", 2)]
)
def test_only_products_that_take_less_time_than_a_stack_are_computed_again(
    width: int, dtype: str, left: int
) -> None:
    """Each iteration has a carry and a product. The carry is stacked in any case."""
    before = layers(width, dtype)
    assert stacks(before) == left
    assert (StackLess().run(before).program is before) == (left == 2)


def test_a_higher_price_of_a_stack_lets_more_be_computed_again() -> None:
    before = layers(8192, "bf16")
    assert StackLess(moves=40).run(before).changed == 1
    assert StackLess(moves=1).run(layers(256, "bf16")).changed == 0


@pytest.mark.parametrize(("width", "left"), [(32, 1), (256, 2)])
def test_products_of_small_matrices_are_computed_again_on_a_cpu(width: int, left: int) -> None:
    (found,) = [p for p in on_device(CompileOptions(), "cpu", None) if isinstance(p, StackLess)]
    before = layers(width, "f32")
    assert stacks(before, found) == left


@pytest.mark.parametrize(
    ("pipeline", "platform", "there"),
    [("O3", "gpu", True), ("O2", "gpu", True), ("O1", "gpu", False), ("O2", "cpu", True)],
)
def test_it_runs_before_memory_is_looked_at(pipeline: str, platform: str, there: bool) -> None:
    names = [p.name for p in on_device(CompileOptions(pipeline=pipeline), platform, 1 << 30)]
    assert ("stack-less" in names) == there
    assert not there or names.index("stack-less") < names.index("recompute")
