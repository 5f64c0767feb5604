"""Which nodes work element by element; their layout rules know."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from graphc.errors import LayoutError
from graphc.ir.layouts import REPLICATED, Layout, Sharded
from graphc.ir.node import Node, Tensor
from graphc.ir.program import is_pure
from graphc.ir.types import TensorType

_PLAIN = frozenset(("int", "float", "bool", "str", "dtype"))  # kinds of attributes: no sizes
_ANY_REPLICAS: Any = SimpleNamespace(replicas=2)


def is_elementwise(node: Node) -> bool:
    """Whether each element of the result depends on the operands' elements in its place alone.

    So says the layout rule, if any axis may be cut; a scalar has none, so its operator is asked
    how it would take a vector. Operators with sizes or axes among their attributes look at them.
    """
    rule = node.op.layout
    if rule is None or len(node.outputs) != 1 or node.regions or not is_pure(node):
        return False
    if not {attr.kind for attr in node.op.attrs.values()} <= _PLAIN:
        return False
    shape = node.outputs[0].type.shape
    if any(t.type.shape not in (shape, ()) for t in node.inputs):
        return False
    probe = (2,) * max(len(shape), 1)  # a size of 1 would be taken for a broadcast one
    like = {shape: probe, (): probe if shape == () else ()}

    def stand_in(tensor: Tensor) -> Tensor:
        return Tensor(TensorType(tensor.type.dtype, like[tensor.type.shape]))

    node = node.replace(
        inputs=tuple(map(stand_in, node.inputs)), outputs=tuple(map(stand_in, node.outputs))
    )
    for axis in range(len(probe)):
        given: list[Layout] = [
            Sharded(axis) if t.type.shape == probe else REPLICATED for t in node.inputs
        ]
        try:
            plan = rule(_ANY_REPLICAS, node, *given)
        except LayoutError:  # a collective: it has no layout, for its program is replicated already
            return False
        asks = plan.attrs is not None or plan.regions is not None or bool(plan.fold_replica)
        if asks or list(plan.operands) != given or list(plan.results) != [Sharded(axis)]:
            return False
    return True
