"""Costs: how many floating-point operations a node performs, and how many bytes it moves.

An operator's cost rule, `OpDef.cost`, computes the costs from types and attributes only. Nothing
is compiled. A sum, a product, a comparison and an elementary function (exp, tanh, ...) count as
one operation each. Integer, logical and complex operations count in the same way. The bytes are
those of operands and results. Each value is read or written once, as if nothing were fused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from graphc.ir.node import Node, Tensor
    from graphc.ir.opdef import OpDef
    from graphc.ir.program import Program
    from graphc.ir.types import TensorType


class Cost(NamedTuple):
    """Floating-point operations, and bytes read and written."""

    flops: int
    bytes: int


class CostContext(Protocol):
    """The information available to a cost rule."""

    catalogue: Mapping[str, OpDef]

    def of_node(self, node: Node) -> Cost:
        """The cost of another node."""

    def of_region(self, region: Program) -> Cost:
        """The total cost of the nodes of a region, each counted once."""


# `cost(ctx, node)`. An int is the number of operations; the bytes are then those of operands and
# results. All sizes in the node's types are ints.
CostRule = Callable[[CostContext, "Node"], Cost | int]


def one_per_result(ctx: CostContext, node: Node) -> int:
    """One operation for each element of the results. This is the default rule."""
    return sum(map(size_of, node.outputs))


def size_of(tensor: Tensor) -> int:
    """The number of elements of a tensor; named sizes count as one."""
    return math.prod(dim for dim in tensor.type.shape if isinstance(dim, int))


def dims_of(tensor: Tensor) -> list[int]:
    """The shape of a tensor whose sizes are known."""
    shape: Any = tensor.type.shape
    return [int(dim) for dim in shape]


def bytes_of_type(type: TensorType) -> int:
    """The size of a value in bytes; named sizes count as one."""
    return math.prod(d for d in type.shape if isinstance(d, int)) * type.dtype.itemsize


def bytes_of(*tensors: Tensor) -> int:
    """The total size of the tensors' values in bytes; named sizes count as one."""
    return sum(bytes_of_type(tensor.type) for tensor in tensors)
