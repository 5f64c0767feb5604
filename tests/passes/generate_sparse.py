"""Random programs that update tables by sums of looked-up rows: a hypothesis strategy.

The programs contain what optimizers do: slots, factors per row, sums over all rows, conditions.
Every value stays finite, since the pass counts a product with 0 as 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from hypothesis import strategies as st

from graphc.ir.dtypes import INT32, as_dtype
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.ir.opdef import OpDef
from graphc.ir.program import Port, Program
from graphc.ir.types import TensorType
from graphc.ops.arrays.indexing import SCATTER_ADD, TAKE
from graphc.ops.arrays.shape import BROADCAST_TO, TRANSPOSE
from graphc.ops.core.declaring import record
from graphc.ops.core.emit import CONSTANT
from graphc.ops.elementwise.arithmetic import ABS, ADD, DIVIDE, MULTIPLY, NEGATIVE, SUBTRACT
from graphc.ops.elementwise.comparison import GREATER, IS_FINITE, WHERE
from graphc.ops.elementwise.powers import SQUARE
from graphc.ops.elementwise.transcendental import tanh
from graphc.ops.reductions.reduction import REDUCE_ALL, REDUCE_MEAN, REDUCE_SUM

T = TypeVar("T")
FLOAT64 = as_dtype("float64")
ROWS, WIDTH = 7, 2
TABLE = (ROWS, WIDTH)


@st.composite
def sparse_programs(draw: Any, nodes: int = 14) -> Program:
    """A program with a table, slots by element and by row, and one to three lookups."""
    return _Builder(draw).build(nodes)


class _Builder:
    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw = draw
        self.graph = Graph(name="sparse")
        self.states = [
            self.input(shape, f"s{i}") for i, shape in enumerate((TABLE, TABLE, (ROWS, 1)))
        ]
        self.feeds: list[Tensor] = []
        self.tables: list[Tensor] = []
        self.scalars = [self.number(v) for v in (0.0, 1.0, -0.5)]

    def build(self, nodes: int) -> Program:
        gradients = [self.gradient() for _ in range(self.draw(st.integers(1, 3)))]
        self.tables = [*gradients, *gradients, *self.states]
        steps = (
            self.binary, self.binary, self.unary, self.where, self.divided, self.by_row,
            self.summed, self.scaled, self.zeros, self.guarded, self.turned, self.looked_up,
        )  # fmt: skip
        for _ in range(self.draw(st.integers(1, nodes))):
            self.one_of(steps)()
        outputs = [Port(f"s{i}", "state", self.update(s)) for i, s in enumerate(self.states)]
        outputs += [Port("y", "fetch", self.one_of([*self.scalars, *self.tables]))]
        inputs = [Port(f"s{i}", "state", s) for i, s in enumerate(self.states)]
        inputs += [Port(t.name, "feed", t) for t in self.feeds]
        return Program("sparse", tuple(inputs), tuple(self.graph.nodes), tuple(outputs))

    def one_of(self, items: Sequence[T]) -> T:
        return self.draw(st.sampled_from(items))

    def input(self, shape: tuple[int, ...], name: str, dtype: Any = FLOAT64) -> Tensor:
        return self.graph.add_input(TensorType(dtype, shape), name)

    def feed(self, shape: tuple[int, ...], dtype: Any = FLOAT64) -> Tensor:
        self.feeds.append(self.input(shape, f"f{len(self.feeds)}", dtype))
        return self.feeds[-1]

    def add(self, op: OpDef, *inputs: Tensor, **attrs: Any) -> Tensor:
        return self.graph.add(op, inputs, attrs).outputs[0]

    def number(self, value: Any, dtype: Any = FLOAT64) -> Tensor:
        return self.add(CONSTANT, value=np.asarray(value, dtype))

    def gradient(self) -> Tensor:
        """A sum of rows, at indices that may be below 0, out of range or repeated."""
        count = self.draw(st.integers(1, 4))
        moved = self.number([self.draw(st.integers(-9, 9)) for _ in range(count)], INT32)
        indices = self.add(ADD, self.feed((count,), INT32), moved)
        mode = self.one_of(("clip", "drop"))
        into = self.filled(0.0)
        if self.tables and self.draw(st.booleans()):
            into = self.one_of(self.tables)
        found = self.add(SCATTER_ADD, into, indices, self.feed((count, WIDTH)), axis=0, mode=mode)
        self.tables.append(found)
        return found

    def filled(self, value: float, shape: tuple[int, ...] = TABLE) -> Tensor:
        return self.add(BROADCAST_TO, self.number(value), shape=shape)

    def table(self) -> Tensor:
        """A value of any shape that fits a table."""
        found = self.one_of(self.tables)
        return found if found.type.shape == TABLE else self.add(BROADCAST_TO, found, shape=TABLE)

    def keep(self, tensor: Tensor) -> None:
        self.tables.append(tensor)

    # -- steps -------------------------------------------------------------------------------

    def binary(self) -> None:
        self.keep(self.add(self.one_of((ADD, SUBTRACT, MULTIPLY)), self.table(), self.table()))

    def unary(self) -> None:
        self.keep(self.add(self.one_of((NEGATIVE, SQUARE, ABS, record(tanh))), self.table()))

    def where(self) -> None:
        condition = self.add(GREATER, self.table(), self.one_of([self.scalars[0], self.table()]))
        self.keep(self.add(WHERE, condition, self.table(), self.table()))

    def divided(self) -> None:
        positive = self.add(ADD, self.add(ABS, self.table()), self.scalars[1])
        self.keep(self.add(DIVIDE, self.table(), positive))

    def by_row(self) -> None:
        self.keep(self.add(REDUCE_SUM, self.table(), axes=(1,), keepdims=True))

    def summed(self) -> None:
        total = self.add(self.one_of((REDUCE_SUM, REDUCE_MEAN)), self.table(), axes=(0, 1))
        self.scalars.append(self.add(record(tanh), total))

    def scaled(self) -> None:
        self.keep(self.add(MULTIPLY, self.one_of(self.scalars), self.table()))

    def zeros(self) -> None:
        self.keep(self.filled(self.one_of((0.0, 1.0))))

    def guarded(self) -> None:
        every = self.add(REDUCE_ALL, self.add(IS_FINITE, self.table()), axes=(0, 1))
        self.keep(self.add(WHERE, every, self.table(), self.table()))

    def turned(self) -> None:
        """Transposes columns to rows, and back."""
        turned = self.add(NEGATIVE, self.add(TRANSPOSE, self.table(), perm=(1, 0)))
        self.keep(self.add(TRANSPOSE, turned, perm=(1, 0)))

    def looked_up(self) -> None:
        """Looks up rows of a new value, whose gradient is sparse too."""
        indices = self.feed((2,), INT32)
        rows = self.add(TAKE, self.table(), indices, axis=0, mode="clip")
        self.keep(self.add(SCATTER_ADD, self.filled(0.0), indices, rows, axis=0, mode="clip"))

    def update(self, state: Tensor) -> Tensor:
        """A new value of a state; usually it changes the old one only in rows."""
        fits = [t for t in self.tables if t.type == state.type]
        change = self.one_of(fits)
        way = self.draw(st.integers(0, 3))
        if way == 0:
            return change
        factor = self.one_of([t for t in fits if t is not state] or fits)
        step = change if way == 1 else self.add(MULTIPLY, factor, change)
        return self.add(self.one_of((ADD, SUBTRACT)), state, step)
