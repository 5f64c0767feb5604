"""Passes over loops, branches and functions preserve the results of generated programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from graphc.ir.dtypes import as_dtype
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.ir.program import Port, Program
from graphc.ir.scopes import building
from graphc.ir.types import TensorType
from graphc.ops.arrays import stacking
from graphc.ops.arrays.stacking import UNSTACK
from graphc.ops.control import scan
from graphc.ops.elementwise import arithmetic
from graphc.ops.elementwise.transcendental import tanh
from graphc.passes.frozen.hoist_frozen import HoistFrozen
from graphc.passes.rolling.stack_carries import StackCarries
from graphc.passes.simplify.inline_bodies import InlineBodies
from graphc.passes.simplify.sink_constants import SinkConstants
from tests.passes.generate_bodies import with_bodies
from tests.passes.preserving import EXAMPLES, check_preserving


def test_inlining() -> None:
    # A function with one caller may have had other callers, in a branch that was never taken.
    check_preserving(InlineBodies(), with_bodies(), least=0.4, settled=False)


def test_sinking() -> None:
    check_preserving(SinkConstants(), with_bodies(), least=0.4)


def test_hoisting() -> None:
    check_preserving(HoistFrozen(), with_bodies(), least=0.4)


# -- sums over iterations ------------------------------------------------------------------------

VECTOR, STACK = (TensorType(as_dtype("f32"), dims) for dims in ((2,), (3, 2)))


@st.composite
def sums_over_turns(draw: Any) -> Program:
    """A loop with one or two stacks, whose pieces are added to carries; sometimes a near miss."""
    return _Sums(draw).build()


class _Sums:
    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw = draw
        self.graph = Graph(name="sums")

    def build(self) -> Program:
        with building(self.graph):
            sizes = self.draw(st.lists(st.integers(1, 3), min_size=1, max_size=2))
            carries = [self.graph.add_input(VECTOR, f"c{i}") for i in range(sum(sizes) + 1)]
            weights = [self.graph.add_input(VECTOR, f"w{i}") for i in range(max(sizes))]
            rows = self.graph.add_input(STACK, "rows")
            order = self.draw(st.permutations(range(len(carries))))
            last, stacks = scan.scan(
                lambda carry, row: self.turn(sizes, order, weights, carry, row),
                carries,
                rows,
                reverse=self.draw(st.booleans()),
            )
        inputs = [*carries, *weights, rows]
        outputs = [t for t in last if self.draw(st.integers(0, 4))] + [stacks]
        return Program(
            "sums",
            tuple(Port(t.name, "feed", t) for t in inputs),
            tuple(self.graph.nodes),
            tuple(Port(f"y{i}", "fetch", t) for i, t in enumerate(outputs)),
        )

    def turn(
        self,
        sizes: list[int],
        order: list[int],
        weights: list[Tensor],
        carry: list[Tensor],
        row: Tensor,
    ) -> tuple[list[Tensor], Tensor]:
        left = list(order)
        after = list(carry)
        after[left.pop()] = tanh(row)  # a carry of another kind
        seen: list[Tensor] = []
        for size in sizes:
            whole = stacking.stack(weights[:size])  # of values from outside
            if self.draw(st.integers(0, 3)):
                whole = arithmetic.multiply(whole, row)
            for piece in stacking.unstack(whole):
                number = left.pop()
                operands = (carry[number], piece)
                if self.draw(st.booleans()):
                    operands = operands[::-1]
                after[number] = arithmetic.add(*operands)
                seen += [*operands, after[number]]
                if not self.draw(st.integers(0, 9)):
                    after[number] = arithmetic.multiply(after[number], row)
        # The pass must not change these: a piece, a sum or a carry has another use.
        other = self.draw(st.sampled_from(seen))
        results = (row, other, arithmetic.subtract(row, row))
        if self.draw(st.booleans()):
            results = (row, other, arithmetic.subtract(row, other))
        return after, self.draw(st.sampled_from(results))


def test_stacking_carries() -> None:
    joined = []

    def count(before: Program, after: Program) -> None:
        joined.append(any(node.op is UNSTACK for node in after.nodes))

    check_preserving(StackCarries(), sums_over_turns(), least=0.5, compared=count)
    assert EXAMPLES // 4 < sum(joined) < len(joined)
