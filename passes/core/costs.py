"""The cost of each node of a program, estimated from shapes alone: nothing is compiled.

The cost rule of each operator computes it: see `graphc.ir.costs`. `Executable.cost` gives XLA's own
figures, after fusion.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from graphc.errors import ShapeError
from graphc.ir.costs import Cost, bytes_of
from graphc.ir.node import Node
from graphc.ir.opdef import OpDef
from graphc.ir.program import Program
from graphc.ops.catalogue import CATALOGUE


class _Costs:
    """The context of cost rules."""

    catalogue: Mapping[str, OpDef] = CATALOGUE

    def of_node(self, node: Node) -> Cost:
        return node_cost(node)

    def of_region(self, region: Program) -> Cost:
        return total(map(node_cost, region.nodes))


_COSTS = _Costs()


def program_costs(program: Program) -> list[tuple[Node, Cost]]:
    """Every node with its cost, in program order. The cost of a loop includes all its iterations.

    Raises:
        ShapeError: a size is not bound.
    """
    if program.symbols():
        raise ShapeError(
            f"{program.name}: costs need sizes, which these names do not have: "
            f"{', '.join(program.symbols())}",
            hint="bind them: give the shapes of the feeds",
        )
    return [(node, node_cost(node)) for node in program.nodes]


def total(costs: Iterable[Cost]) -> Cost:
    """The sum of several costs."""
    flops = moved = 0
    for cost in costs:
        flops, moved = flops + cost.flops, moved + cost.bytes
    return Cost(flops, moved)


def node_cost(node: Node) -> Cost:
    """The cost of one node whose sizes are all known."""
    cost = node.op.cost(_COSTS, node)
    return cost if isinstance(cost, Cost) else Cost(cost, bytes_of(*node.inputs, *node.outputs))
