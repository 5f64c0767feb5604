"""Cost rules shared by many operators; `graphc.ir.costs` defines what counts as an operation."""

from __future__ import annotations

import math
from typing import Any

from graphc.ir.costs import Cost, CostContext, CostRule, bytes_of, size_of
from graphc.ir.node import Node


def free(ctx: CostContext, node: Node) -> Cost:
    """No work and no memory traffic: for marker operators, and for results that reuse an operand's
    buffer."""
    return Cost(0, 0)


def moves_only(ctx: CostContext, node: Node) -> int:
    """Operands are read and results are written; there is no arithmetic."""
    return 0


def picks(ctx: CostContext, node: Node) -> Cost:
    """Only as many bytes of the first operand are read as the results have; no arithmetic."""
    return Cost(0, bytes_of(*node.inputs[1:]) + 2 * bytes_of(*node.outputs))


def times_result(count: int) -> CostRule:
    """`count` operations for each element of the first result."""
    return lambda ctx, node: count * size_of(node.outputs[0])


def times_operand(count: int, position: int = 0) -> CostRule:
    """`count` operations for each element of one operand."""
    return lambda ctx, node: count * size_of(node.inputs[position])


def once(ctx: CostContext, node: Node) -> Cost:
    """One execution of the single region."""
    return ctx.of_region(node.regions[0])


def every_iteration(ctx: CostContext, node: Node) -> Cost:
    """`length` executions of all regions; one execution if `length` is None."""
    length: Any = node.attrs["length"]
    bodies = [ctx.of_region(region) for region in node.regions]
    return scaled(bodies, 1 if length is None else length)


def scaled(bodies: list[Cost], count: int) -> Cost:
    """`count` times the sum of the costs of `bodies`."""
    return Cost(count * sum(c.flops for c in bodies), count * sum(c.bytes for c in bodies))


def comparisons(elements: int, among: int) -> int:
    """The number of comparisons that find the position of each of `elements` among `among` others.

    There is one comparison for each level of a binary tree. Source: Knuth, The Art of Computer
    Programming 3, sections 5.2.4 (merging) and 6.2.1 (binary search).
    """
    return elements * max(1, math.ceil(math.log2(max(among, 2))))
