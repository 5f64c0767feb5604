"""`Call`: what a rule is given to write one node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from graphc.exporters.onnx.sizes import Sizes
from graphc.exporters.onnx.values import Value
from graphc.exporters.onnx.writer import INT64, Writer
from graphc.ir.dims import Dim
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program

WriteBody: TypeAlias = Callable[[Writer, Program, Sequence[Value]], list[Value]]
"""Writes a region for the values of its inputs, and returns the values of its outputs."""


@dataclass(frozen=True)
class Call:
    """One node to write.

    Attributes:
        xs: the operands.
        w: writes nodes.
        sizes: gives sizes as values.
        write_body: writes a region of the node.
        narrow: of a product whose operands are all widened from int8, these.
    """

    node: Node
    xs: Sequence[Value]
    w: Writer
    sizes: Sizes
    write_body: WriteBody
    narrow: Sequence[Value] = ()

    @property
    def attrs(self) -> Mapping[str, Any]:
        return self.node.attrs

    def shape(self, position: int = 0) -> tuple[Dim, ...]:
        """The shape of an operand."""
        return self.node.inputs[position].type.shape

    @property
    def y(self) -> Tensor:
        """The first result."""
        return self.node.outputs[0]

    def reshape(self, x: Value, dims: Sequence[Dim]) -> Value:
        """`x` in another shape."""
        zero = {"allowzero": 1} if 0 in dims else {}
        return self.w.op("Reshape", x, self.sizes.target(dims), rank=len(dims), **zero)

    def count(self, size: Dim) -> Value:
        """The vector 0, 1, ..., size - 1, in int64."""
        zero, one = (self.w.constant(i, INT64) for i in (0, 1))
        return self.w.op("Range", zero, self.sizes.scalar(size), one, rank=1)

    def expand(self, x: Value, dims: Sequence[Dim]) -> Value:
        """`x` broadcast to a shape."""
        return self.w.op("Expand", x, self.sizes.vector(dims), rank=len(dims))


Rule: TypeAlias = Callable[[Call], Value | Sequence[Value]]
