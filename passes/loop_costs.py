"""What a loop over turns costs and saves, estimated from shapes."""

from __future__ import annotations

from graphc.ir.dims import product
from graphc.ir.node import Node, Tensor
from graphc.passes.costs import node_cost
from graphc.passes.recurrence import Recurrence

_UNKNOWN = 1 << 20  # elements of a tensor with a named size
_TINY = 2048  # elements: about as long as a turn of a loop itself takes on a CPU
_AT_ONCE = 4


def elements_of(found: Recurrence) -> int:
    """How many elements a turn computes."""
    return sum(_elements(t) for node in found.turns[0] for t in node.outputs)


def _elements(tensor: Tensor) -> int:
    size = product(tensor.type.shape)
    return size if isinstance(size, int) else _UNKNOWN


def work_of(node: Node) -> int:
    """The floating-point operations of a node; of one with named sizes, its elements."""
    if all(t.type.is_static for t in (*node.inputs, *node.outputs)):
        return node_cost(node).flops
    return sum(map(_elements, node.outputs))


def unroll_of(found: Recurrence, state: set[Tensor]) -> int:
    """How many turns the compiled loop should take at once.

    Measured on CPU with 48 to 128 turns: four at once make tiny turns over shared weights (an
    unrolled recurrent network) 6 to 10 % faster; turns with parameters of their own become 1.2
    to 1.5 times slower, and all take longer to compile.
    """
    own_parameters = any(state.issuperset(stack) for stack in found.stacks)
    return 1 if own_parameters or elements_of(found) > _TINY else _AT_ONCE
