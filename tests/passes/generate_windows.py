"""Random programs that read a sequence in windows, step by step, and write the results back.

They resemble unrolled recurrent networks: slices or constant indices of an array at regular (or
almost regular) positions, a chain of equal steps, and results that are stacked, concatenated,
written one by one or, as gradients are, padded and added in any order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from graphc.ir.dtypes import as_dtype
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.ir.program import Port, Program
from graphc.ir.scopes import building
from graphc.ir.types import TensorType
from graphc.ops.arrays import dynamic_slicing, indexing, joining, shape, slicing, stacking
from graphc.ops.core import emit
from graphc.ops.elementwise import arithmetic, transcendental

F32 = as_dtype("f32")


@st.composite
def windowed(draw: Any) -> Program:
    """A program of 3 to 7 steps over one or two sequences."""
    return _Builder(draw).build()


class _Builder:
    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw = draw
        self.graph = Graph(name="windowed")
        self.inputs: list[Port] = []
        self.outputs: list[Port] = []
        self.steps = draw(st.integers(3, 7))
        self.width = draw(st.sampled_from([1, 1, 2]))
        self.axis = draw(st.sampled_from([0, 1]))

    def build(self) -> Program:
        with building(self.graph):
            starts, size = self.places()
            x = self.input("x", self.whole(size))
            if self.flag():
                x = arithmetic.multiply(x, emit.constant(np.float32(0.5)))
            state = self.input("h", self.whole(self.width))
            weight = self.input("w", self.whole(self.width), "state")
            order = list(range(self.steps))
            if self.flag():
                order.reverse()
            read, plan = self.kind(("slice", "take", "dynamic")), self.draw(st.integers(0, 3))
            results = {}
            for k in order:
                piece = self.read(x, starts[k], read)
                state = self.step(state, piece, weight, plan)
                results[k] = state
            self.output("last", state)
            for number in range(self.draw(st.integers(1, 2))):
                self.output(f"y{number}", self.written(results, starts, size))
            if self.flag():
                self.output("single", results[self.draw(st.integers(0, self.steps - 1))])
        nodes = tuple(self.graph.nodes)
        return Program("windowed", tuple(self.inputs), nodes, tuple(self.outputs))

    def places(self) -> tuple[list[int], int]:
        """The positions of the windows, and the length of the sequence."""
        step = self.width + self.draw(st.sampled_from([0, 0, 0, 1, -1]))
        step = max(step, 1)
        first = self.draw(st.integers(0, 2))
        starts = [first + step * k for k in range(self.steps)]
        if self.draw(st.integers(0, 3)) == 0:  # a near miss
            odd = self.draw(st.integers(1, self.steps - 1))
            shift = self.draw(st.sampled_from([1, -1]))
            starts[odd:] = [start + shift for start in starts[odd:]]
        return starts, starts[-1] + self.width + self.draw(st.integers(0, 2))

    def read(self, x: Tensor, start: int, how: str) -> Tensor:
        if how == "take" and self.width == 1:
            index = emit.constant(np.int32(start))
            return shape.expand_dims(indexing.take(x, index, self.axis), self.axis)
        places = [start if axis == self.axis else 0 for axis in range(2)]
        if how == "dynamic":
            return dynamic_slicing.dynamic_slice(x, places, self.whole(self.width).shape)
        limits = [p + n for p, n in zip(places, self.whole(self.width).shape, strict=True)]
        return slicing.slice_(x, places, limits)

    def step(self, state: Tensor, piece: Tensor, weight: Tensor, plan: int) -> Tensor:
        mixed = arithmetic.add(arithmetic.multiply(state, weight), piece)
        if plan % 2:
            mixed = transcendental.tanh(mixed)
        return arithmetic.subtract(mixed, piece) if plan > 1 else mixed

    def written(self, results: dict[int, Tensor], starts: list[int], size: int) -> Tensor:
        how = self.kind(("stack", "concatenate", "update", "sum", "sum"))
        pieces = [results[k] for k in range(self.steps)]
        if how == "stack":
            return stacking.stack(pieces, self.draw(st.integers(0, 2)))
        if how == "concatenate":
            return joining.concatenate(pieces, self.axis)
        order = self.draw(st.permutations(range(self.steps)))
        if how == "update":
            zeros = shape.broadcast_to(emit.constant(np.float32(0)), self.whole(size).shape)
            for k in order:
                places = [starts[k] if axis == self.axis else 0 for axis in range(2)]
                zeros = dynamic_slicing.dynamic_update_slice(zeros, pieces[k], places)
            return zeros
        return self.summed([self.padded(pieces[k], starts[k], size) for k in order], size)

    def padded(self, piece: Tensor, start: int, size: int) -> Tensor:
        pads = [(0, 0, 0), (0, 0, 0)]
        pads[self.axis] = (start, size - start - self.width, 0)
        return slicing.pad_with(piece, 0, pads)

    def summed(self, parts: list[Tensor], size: int) -> Tensor:
        """Added in a chain or in another tree, with up to two other operands."""
        for _ in range(self.draw(st.integers(0, 2))):
            other = self.input(f"other{len(self.inputs)}", self.whole(size))
            parts.insert(self.draw(st.integers(0, len(parts))), other)
        while len(parts) > 1:
            place = 0 if self.draw(st.integers(0, 3)) else self.draw(st.integers(0, len(parts) - 2))
            parts[place : place + 2] = [arithmetic.add(parts[place], parts[place + 1])]
        return parts[0]

    def whole(self, size: int) -> TensorType:
        return TensorType(F32, (size, 2) if self.axis == 0 else (2, size))

    def input(self, name: str, type: TensorType, kind: str = "feed") -> Tensor:
        tensor = self.graph.add_input(type, name)
        self.inputs.append(Port(name, kind, tensor))
        return tensor

    def output(self, name: str, tensor: Tensor) -> None:
        self.outputs.append(Port(name, "fetch", tensor))

    def flag(self) -> bool:
        return bool(self.draw(st.booleans()))

    def kind(self, names: tuple[str, ...]) -> str:
        return str(self.draw(st.sampled_from(names)))
