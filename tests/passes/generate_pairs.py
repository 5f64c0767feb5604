"""Random programs with a loop and a second, reverse loop over the stacks of the first one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from graphc.ir.dtypes import as_dtype
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.ir.program import Port, Program
from graphc.ir.scopes import building
from graphc.ir.types import TensorType
from graphc.ops.control import scan
from tests.passes.generate_repeated import MATRIX, STEPS


@st.composite
def loop_pairs(draw: Any) -> Program:
    """Two loops of 2 to 8 iterations. Values of the first may be fetched or used elsewhere."""
    return _Builder(draw).build()


class _Builder:
    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw = draw
        self.graph = Graph(name="pair")
        self.turns = draw(st.integers(2, 8))
        self.inputs: list[Port] = []
        self.outputs: list[Port] = []

    def build(self) -> Program:
        with building(self.graph):
            stack = TensorType(as_dtype("f32"), (self.turns, *MATRIX.shape))
            consts = [self.input(f"w{i}", MATRIX) for i in range(self.draw(st.integers(1, 2)))]
            xs = [self.input(f"x{i}", stack) for i in range(self.draw(st.integers(1, 2)))]
            if self.flag():  # a stack that only these loops use
                xs.append(STEPS[2](xs[0], xs[-1]))
            carries = [self.input(f"c{i}", MATRIX) for i in range(self.draw(st.integers(1, 2)))]
            reverse = self.flag()
            final, made = self.loop(carries, xs, consts, self.draw(st.integers(2, 6)), reverse)
            taken = [*made, *(x for x in xs if self.flag())]
            last, slopes = self.loop([*final[:1], *consts[:1]], taken, consts, 1, not reverse)
            for tensor in (*last, *final, *slopes, *(t for t in made if not self.some(5))):
                self.outputs.append(Port(f"y{len(self.outputs)}", "fetch", tensor))
        return Program("pair", tuple(self.inputs), tuple(self.graph.nodes), tuple(self.outputs))

    def loop(
        self,
        carries: Sequence[Tensor],
        xs: Sequence[Tensor],
        consts: Sequence[Tensor],
        results: int,
        reverse: bool,
    ) -> tuple[list[Tensor], list[Tensor]]:
        """A loop with a random body: its final carries, and `results` stacks of values in it."""

        def body(carry: list[Tensor], x: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
            values = [*consts, *x, *carry]
            made = []
            for _ in range(self.draw(st.integers(2, 7))):
                step = STEPS[self.some(len(STEPS) - 1)]
                a, b = values[-1], values[self.some(len(values) - 1)]
                values.append(step(a, b))
                made.append(values[-1])
            stacked = [([*carry, *made])[self.some(len(carry) + len(made) - 1)]
                       for _ in range(results)]  # fmt: skip
            return made[-len(carry) :], stacked

        return scan.scan(body, list(carries), list(xs), length=self.turns, reverse=reverse)

    def input(self, name: str, type: TensorType) -> Tensor:
        tensor = self.graph.add_input(type, name)
        self.inputs.append(Port(name, "feed", tensor))
        return tensor

    def flag(self) -> bool:
        return bool(self.draw(st.booleans()))

    def some(self, most: int) -> int:
        return int(self.draw(st.integers(0, most)))
