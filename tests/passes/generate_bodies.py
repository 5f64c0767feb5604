"""Random programs with nested bodies (loops, branches, functions, maps): a hypothesis strategy.

The programs contain what passes look for: constant flags and numbers, state and values of state
alone, functions with one caller and with two. All values are finite, except those from requested
faults.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from hypothesis import strategies as st

from graphc.ir.dtypes import as_dtype
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.ir.program import Port, Program, region
from graphc.ir.scopes import building
from graphc.ir.types import TensorType
from graphc.ops.arrays import shape
from graphc.ops.control import branching, scan
from graphc.ops.control.bodies import close_body, open_body
from graphc.ops.control.calling import function
from graphc.ops.control.mapping import MAP
from graphc.ops.control.while_loops import while_loop
from graphc.ops.core.emit import constant, emit_node
from graphc.ops.elementwise import arithmetic, comparison, powers
from graphc.ops.elementwise.transcendental import tanh
from graphc.ops.reductions import reduction
from graphc.ops.structure.state import read

T = TypeVar("T")
TURNS = 3
VECTOR, STACK = (TensorType(as_dtype("f32"), dims) for dims in ((2,), (TURNS, 2)))
FLAG, NUMBER = TensorType(as_dtype("bool"), ()), TensorType(as_dtype("i32"), ())
PLANTED = "planted"  # the name of nodes that produce a NaN or an infinity


@st.composite
def with_bodies(draw: Any, faults: int = 0) -> Program:
    """A program of state and feeds. `faults` nodes, some in bodies, make a NaN or an infinity."""
    return _Builder(draw, faults).build()


@dataclass
class _Known:
    """The values that can be used at a position.

    Attributes:
        frozen: vectors that depend on state and constants alone.
        rows: vectors that contain the number of the iteration.
        functions: functions of two vectors.
    """

    vectors: list[Tensor]
    frozen: list[Tensor]
    flags: list[Tensor]
    numbers: list[Tensor]
    stacks: list[Tensor]
    rows: list[Tensor] = field(default_factory=list)
    functions: list[Callable[..., Any]] = field(default_factory=list)

    def inside(self, *vectors: Tensor) -> _Known:
        """The values that can be used in a body that takes `vectors`."""
        return replace(
            self,
            vectors=[*self.vectors, *vectors],
            frozen=[*self.frozen],
            flags=[*self.flags],
            numbers=[*self.numbers],
            rows=[*self.rows],
            functions=[*self.functions],
        )


class _Builder:
    def __init__(self, draw: Callable[[Any], Any], faults: int) -> None:
        self.draw = draw
        self.graph = Graph(name="bodies")
        self.faults = faults
        self.inputs: list[Port] = []

    def build(self) -> Program:
        with building(self.graph):
            state = [self.input(f"w{i}", "state", VECTOR) for i in range(2)]
            feeds = [self.input(f"x{i}", "feed", VECTOR) for i in range(2)]
            numbers = [self.input("number", "feed", NUMBER), constant(self.some(2))]
            known = _Known(
                vectors=[*feeds, *state],
                frozen=[*state],
                flags=[self.input("on", "state", FLAG), constant(self.flag())],
                numbers=numbers,
                stacks=[self.input("stack", "feed", STACK)],
            )
            self.constants(known)
            self.one_of(self.bodies())(known, 1)
            self.steps(known, 2, most=4)
            while self.faults:
                self.plant(known)
        outputs = [*known.vectors[-3:], known.flags[-1]]
        ports = [Port(f"y{i}", "fetch", t) for i, t in enumerate(outputs)]
        return Program("bodies", tuple(self.inputs), tuple(self.graph.nodes), tuple(ports))

    # -- choosing ---------------------------------------------------------------------------

    def input(self, name: str, kind: str, type: TensorType) -> Tensor:
        self.inputs.append(Port(name, kind, self.graph.add_input(type, name)))
        return self.inputs[-1].tensor

    def some(self, most: int) -> int:
        return int(self.draw(st.integers(0, most)))

    def flag(self) -> bool:
        return bool(self.draw(st.booleans()))

    def one_of(self, items: Sequence[T]) -> T:
        return items[self.some(len(items) - 1)]

    # -- steps ------------------------------------------------------------------------------

    def steps(self, known: _Known, depth: int, most: int = 3) -> None:
        """Makes several steps. Each adds to the values that can be used."""
        plain = (self.binary, self.frozen, self.constants, self.chosen, self.compared)
        for _ in range(1 + self.some(most - 1)):
            if self.faults and not self.some(3):
                self.plant(known)
            if depth and self.some(2):
                self.one_of(self.bodies())(known, depth - 1)
            else:
                self.one_of(plain)(known)

    def block(self, known: _Known, depth: int) -> Tensor:
        """Makes the steps of a body; the result does not grow with the iterations."""
        if self.faults and not self.some(2):
            self.plant(known)
        self.steps(known, depth)
        return tanh(self.mixed(known.vectors[-1], self.one_of(known.vectors)))

    def mixed(self, a: Tensor, b: Tensor) -> Tensor:
        ops = (arithmetic.add, arithmetic.subtract, arithmetic.maximum)
        return self.one_of(ops)(a, b)

    def binary(self, known: _Known) -> None:
        known.vectors.append(self.mixed(known.vectors[-1], self.one_of(known.vectors)))

    def frozen(self, known: _Known) -> None:
        """A value of state and constants alone; sometimes one number, repeated."""
        made = self.mixed(tanh(self.one_of(known.frozen)), self.one_of(known.frozen))
        if not self.some(2):
            made = shape.broadcast_to(reduction.reduce_max(made), (2,))
        known.frozen.append(made)
        known.vectors.append(arithmetic.add(known.vectors[-1], made))

    def constants(self, known: _Known) -> None:
        known.flags.append(constant(self.flag()))
        known.numbers.append(constant(self.some(5) - 1))
        size = self.one_of((2, 2, 40))  # 40: too large to be copied into bodies
        made = constant(np.full(size, self.some(3), np.float32))
        known.frozen.append(made if size == 2 else made[:2])
        known.vectors.append(known.frozen[-1])

    def chosen(self, known: _Known) -> None:
        a, b = self.one_of(known.vectors), self.one_of(known.vectors)
        known.vectors.append(comparison.where(self.one_of(known.flags), a, b))

    def compared(self, known: _Known) -> None:
        a, b = (reduction.reduce_max(self.one_of(known.vectors)) for _ in range(2))
        known.flags.append(comparison.greater(a, b))

    def plant(self, known: _Known) -> None:
        """Makes a fault, in each iteration or from a later one on."""
        self.faults -= 1
        if known.rows and self.some(2):
            made = powers.sqrt(arithmetic.subtract(0.5, known.rows[-1]), name=PLANTED)
        elif self.flag():
            lower = arithmetic.subtract(-1.0, arithmetic.abs(known.vectors[-1]))
            made = powers.sqrt(lower, name=PLANTED)
        else:
            zero = arithmetic.multiply(known.vectors[-1], 0.0)
            made = powers.reciprocal(zero, name=PLANTED)
        known.vectors.append(made)

    # -- bodies -----------------------------------------------------------------------------

    def bodies(self) -> Sequence[Callable[[_Known, int], None]]:
        return self.scan, self.branches, self.function, self.loop, self.map, self.again

    def scan(self, known: _Known, depth: int) -> None:
        rows = np.repeat(np.arange(TURNS, dtype=np.float32), 2).reshape(TURNS, 2)

        def body(carry: Tensor, xs: list[Tensor]) -> tuple[Tensor, Tensor]:
            inner = known.inside(xs[0], carry)
            inner.rows.append(xs[1])
            if self.faults and self.flag():
                self.plant(inner)
            return self.block(inner, depth), carry

        start, xs = known.vectors[-1], [self.one_of(known.stacks), rows]
        last, stack = scan.scan(body, start, xs, reverse=self.flag())
        known.vectors.append(last)
        known.stacks = [*known.stacks, stack]

    def loop(self, known: _Known, depth: int) -> None:
        trips = self.one_of(known.numbers)

        def body(carry: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            return arithmetic.add(carry[0], 1), self.block(known.inside(carry[1]), depth)

        start = (constant(0), known.vectors[-1])
        known.vectors.append(while_loop(lambda c: comparison.less(c[0], trips), body, start)[1])

    def map(self, known: _Known, depth: int) -> None:
        rows = self.one_of(known.stacks)
        with open_body("map_body") as child:
            row = child.add_input(VECTOR, "row")
            body = close_body(child, [self.block(known.inside(row), depth)], read)
        inner = region(child.name, [row, *body.inner], child.nodes, body.results)
        inputs = [rows, *body.captured]
        node = emit_node(MAP, inputs, regions=(inner,), mapped=1, length=TURNS)
        known.stacks = [*known.stacks, node.outputs[0]]
        known.vectors.append(reduction.reduce_max(node.outputs[0], axis=0))

    def branches(self, known: _Known, depth: int) -> None:
        def branch(x: Tensor) -> Tensor:
            return self.block(known.inside(x), depth)

        x = known.vectors[-1]
        if not self.some(2):
            made = branching.cond(self.one_of(known.flags), branch, branch, x)
        else:
            count = self.one_of((2, 3, 1))
            index = self.one_of(known.numbers)
            if self.some(2):  # in range or not
                index = constant(self.one_of((count + 1, count, 0, -1)))
            made = branching.switch(index, [branch] * count, x)
        known.vectors.append(made)

    def function(self, known: _Known, depth: int) -> None:
        outer = known.inside()  # another call of this body may know other values

        def f(x: Tensor, y: Tensor) -> Tensor:
            return self.block(outer.inside(x, y), depth)

        known.functions.append(function(f))
        self.again(known, depth)

    def again(self, known: _Known, depth: int) -> None:
        """Calls an existing function."""
        if known.functions:
            operands = [known.vectors[-1], self.one_of(known.vectors)]
            known.vectors.append(known.functions[-1](*operands))
