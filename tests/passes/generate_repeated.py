"""Random programs that contain repeated blocks, forward and backward, with near misses.

They resemble deep networks: a chain of blocks with parameters, constants and shared values. Some
programs have more chains over all or some of these blocks, forward or backward, that use values of
the earlier chains. Then each parameter is updated. Blocks may differ, or two kinds may alternate.
Values of single blocks may be fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from hypothesis import strategies as st

from graphc.ir.dtypes import as_dtype
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.ir.program import Port, Program
from graphc.ir.scopes import building
from graphc.ir.types import TensorType
from graphc.ops.arrays import joining, shape
from graphc.ops.control import scan
from graphc.ops.core import emit
from graphc.ops.elementwise import arithmetic
from graphc.ops.matrices import matrix_product
from graphc.ops.reductions import reduction

T = TypeVar("T")
MATRIX = TensorType(as_dtype("f32"), (2, 2))
ZEROS = np.zeros(2, np.float32)


def _halves(a: Tensor, b: Tensor) -> Tensor:
    """Uses both results of a node."""
    top, bottom = joining.split(a, 2, 0)
    return joining.concatenate([bottom, arithmetic.add(top, reduction.reduce_max(b))], 0)


def _half(a: Tensor, b: Tensor) -> Tensor:
    """Uses the second result alone."""
    return arithmetic.add(a, joining.split(b, 2, 0)[1])


def _loop(a: Tensor, b: Tensor) -> Tensor:
    """A node with a body."""
    total, _ = scan.scan(lambda c, row: (arithmetic.add(c, row), None), ZEROS, b)
    return arithmetic.subtract(a, total)


# The operations of a step on values of one type; all of them preserve the type.
STEPS: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    arithmetic.add,
    arithmetic.subtract,
    arithmetic.multiply,
    arithmetic.maximum,
    matrix_product.matmul,
    lambda a, b: arithmetic.negative(a),
    lambda a, b: shape.transpose(a),
    lambda a, b: arithmetic.add(a, reduction.reduce_max(b)),
    _halves,
    _half,
    _loop,
)
Plan = list[tuple[int, int, int]]
Row = dict[int, Tensor]  # for each block that has one, another tensor


@st.composite
def repeated(draw: Any) -> Program:
    """A program of 3 to 6 blocks of 2 to 6 steps, over state and one feed."""
    return _Builder(draw).build()


class _Builder:
    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw = draw
        self.graph = Graph(name="repeated")
        self.turns = draw(st.integers(3, 6))
        self.inputs: list[Port] = []
        self.outputs: list[Port] = []
        self.rows: list[Row] = []  # what later chains may use
        self.slopes: Row = {}
        self.made: list[Tensor] = []

    def build(self) -> Program:
        with building(self.graph):
            x = self.input("x", "feed")
            self.parameters = [self.input(f"block{i}/w", "state") for i in range(self.turns)]
            self.rows.append(dict(enumerate(self.parameters)))
            shared = [self.input("shared", "state"), emit.constant(self.matrix())]
            carries = [x, shared[0]][: self.draw(st.integers(1, 2))]
            for number in range(self.draw(st.integers(1, 3))):
                carries = self.chain(carries, shared, number)
            if self.one_of((True, True, False)):
                self.update()
            for i, tensor in enumerate(carries):
                self.output(f"last{i}", "fetch", tensor)
            for _ in range(self.draw(st.integers(0, 3))):
                tensor = self.one_of(self.made)
                self.output(f"inner{len(self.outputs)}", "fetch", tensor)
        nodes = tuple(self.graph.nodes)
        return Program("repeated", tuple(self.inputs), nodes, tuple(self.outputs))

    def chain(self, carries: list[Tensor], shared: list[Tensor], number: int) -> list[Tensor]:
        """Blocks in order, over some or all of the parameters, forward or backward."""
        order = list(range(self.turns))
        if number:
            first = self.one_of((0, 0, 1))
            order = order[first : self.turns - self.one_of((0, 0, 1))]
        if number and self.one_of((True, True, False)):
            order.reverse()
        rows = self.taken(order, number)
        if number and self.flag():
            shared = [*shared, self.one_of(self.made)]
        kinds = self.one_of((1, 1, 1, 2))
        values = len(carries) + len(shared) + len(rows)
        plans = [self.plan(values) for _ in range(kinds)]
        odd = self.one_of((-1, -1, order[0], order[-1], order[len(order) // 2]))
        holds = len(carries) == 2 and self.flag()  # a value for the block after the next one
        made: dict[int, list[Tensor]] = {}
        entering: dict[int, list[Tensor]] = {}
        for place, turn in enumerate(order):
            entering[turn] = carries
            given = [*carries, *shared, *(row[turn] for row in rows)]
            if turn == odd:
                given[0] = arithmetic.negative(given[0])
            following, made[turn] = self.turn(plans[place % kinds], given, len(carries))
            carries = [following[-1], carries[0]] if holds else following
        if kinds == 1:
            for results in (made, entering):
                for i in range(len(results[order[0]])):
                    self.rows.append({k: results[k][i] for k in order})
            self.slopes = self.rows[-1 - len(carries)]
        return carries

    def taken(self, order: list[int], number: int) -> list[Row]:
        """The operands that differ between blocks: rows, some of them reversed."""
        whole = [row for row in reversed(self.rows) if row.keys() >= set(order)]
        rows = [self.one_of(whole) for _ in range(self.draw(st.integers(1, 2 + bool(number))))]
        for i in range(len(rows)):
            if self.one_of((False, False, False, True)):
                turned = [rows[i][k] for k in reversed(order)]
                rows[i] = dict(zip(order, turned, strict=True))
        if self.flag():
            constant = emit.constant(self.matrix())
            same = self.flag()  # one constant for all blocks, or one for each
            rows.append({k: constant if same else emit.constant(self.matrix()) for k in order})
        return rows

    def update(self) -> None:
        """Updates in another order, as optimizers sort parameters by name."""
        rate = emit.constant(self.matrix())
        slopes = self.slopes or dict(enumerate(self.parameters))
        if self.one_of((True, False)):
            total = emit.constant(np.float32(0))
            for slope in slopes.values():
                total = arithmetic.add(total, reduction.reduce_max(slope))
            slopes = {k: arithmetic.multiply(slope, total) for k, slope in slopes.items()}
        for turn in self.draw(st.permutations(sorted(slopes))):
            memory = self.input(f"block{turn}/w/memory", "state")
            slope = _half(arithmetic.multiply(memory, rate), slopes[turn])
            new = arithmetic.subtract(self.parameters[turn], slope)
            self.output(f"block{turn}/w/memory", "state", slope)
            self.output(f"block{turn}/w", "state", new)

    def plan(self, values: int) -> Plan:
        """The steps of a block: each step's operation and operands, mostly the latest value."""
        steps: Plan = []
        latest = 0  # a carry
        for place in range(values, values + self.draw(st.integers(2, 6))):
            first, second = (self.draw(st.integers(0, place - 1)) for _ in range(2))
            if self.draw(st.integers(0, 4)):
                first = latest
            steps.append((self.draw(st.integers(0, len(STEPS) - 1)), first, second))
            latest = place
        return steps

    def turn(
        self, plan: Plan, values: list[Tensor], carries: int
    ) -> tuple[list[Tensor], list[Tensor]]:
        before = len(values)
        for step, a, b in plan:
            values.append(STEPS[step](values[a], values[b]))
        made = values[before:]
        self.made += made
        return made[-carries:], made

    def input(self, name: str, kind: str) -> Tensor:
        tensor = self.graph.add_input(MATRIX, name)
        self.inputs.append(Port(name, kind, tensor))
        return tensor

    def output(self, name: str, kind: str, tensor: Tensor) -> None:
        self.outputs.append(Port(name, kind, tensor))

    def matrix(self) -> np.ndarray[Any, Any]:
        numbers = self.draw(st.lists(st.integers(-2, 2), min_size=4, max_size=4))
        return np.array(numbers, np.float32).reshape(2, 2)

    def flag(self) -> bool:
        return bool(self.draw(st.booleans()))

    def one_of(self, items: Sequence[T]) -> T:
        return items[self.draw(st.integers(0, len(items) - 1))]
