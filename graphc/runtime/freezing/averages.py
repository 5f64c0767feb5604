"""Statistics of a batch, and the variables that hold moving averages of them."""

from __future__ import annotations

from collections.abc import Collection

from graphc.ir.graph import Graph
from graphc.ir.node import Node, Tensor, is_among
from graphc.ir.program import Program
from graphc.ir.variable import Variable
from graphc.ops.core.emit import CAST, CONSTANT
from graphc.ops.elementwise.arithmetic import ADD, MULTIPLY
from graphc.ops.nn.local_norm import LOCAL_BATCH_NORM
from graphc.ops.nn.normalization import BATCH_NORM
from graphc.ops.structure.state import ASSIGN, READ_VARIABLE, STOP_GRADIENT

UPDATES = "updates"  # layers (batch norm, ...) put their assignments in this collection


def moving_averages(graph: Graph) -> dict[Tensor, Variable]:
    """The statistics of batch norms that are assigned to a moving average, and their averages.

    An assignment has the form `average = average * m + statistic * (1 - m)`. Only assignments in
    the collection "updates" count, because layers put theirs there, and only statistics that a
    batch norm uses. Other averages are the user's own, and their statistics are not replaced. A
    layer that was called in the body of a loop has no assignment in the collection.
    """
    normalised_by = {t for n in graph.nodes if n.op is BATCH_NORM for t in n.inputs[1:3]}
    normalised_by |= {t for n in graph.nodes if n.op is LOCAL_BATCH_NORM for t in n.outputs[1:3]}
    found = {}
    for item in graph.collection(UPDATES):
        node = item.node if isinstance(item, Tensor) else item
        if isinstance(node, Node) and node.op is ASSIGN:
            variable = graph.variables[node.attrs["variable"]]
            statistic = _averaged(graph, node, variable)
            if statistic in normalised_by and statistic.type.shape == variable.type.shape:
                found[statistic] = variable
    return found


def by_given_statistics(program: Program, given: Collection[Tensor]) -> Program:
    """A captured program in which LocalBatchNorm is replaced by BatchNorm if its statistics are
    fed. LocalBatchNorm computes its statistics and normalises with them; BatchNorm takes them as
    operands."""
    return program.replace(nodes=tuple([_by_given(node, given) for node in program.nodes]))


def _by_given(node: Node, given: Collection[Tensor]) -> Node:
    own = node.outputs[0].node if node.op is LOCAL_BATCH_NORM else None
    if own is None or not all(is_among(t, given) for t in own.outputs[1:]):
        return node
    x, *parameters = node.inputs
    return node.replace(
        op=BATCH_NORM,
        inputs=(x, *own.outputs[1:], *parameters),
        outputs=node.outputs[:1],
        attrs=BATCH_NORM.complete({"epsilon": node.attrs["epsilon"]}),
    )


def _averaged(graph: Graph, assign: Node, variable: Variable) -> Tensor | None:
    total = graph.find_producer(assign.inputs[0])
    if total is None or total.op is not ADD:
        return None
    kept: dict[bool, tuple[Tensor, float]] = {}  # key: whether the term has the variable itself
    for term in total.inputs:
        product = graph.find_producer(term)
        if product is None or product.op is not MULTIPLY:
            return None
        tensor, factor = product.inputs
        constant = graph.find_producer(factor)
        if constant is None or constant.op is not CONSTANT or factor.type.shape:
            return None
        maker = graph.find_producer(tensor)
        own = maker is not None and maker.op is READ_VARIABLE
        if own and maker is not None and maker.attrs["variable"] != variable.name:
            return None
        kept[own] = (tensor, float(constant.attrs["value"]))
    if len(kept) != 2 or abs(kept[True][1] + kept[False][1] - 1) > 1e-2:  # allows for bfloat16
        return None
    statistic = kept[False][0]
    maker = graph.find_producer(statistic)
    while maker is not None and maker.op in (CAST, STOP_GRADIENT):
        statistic = maker.inputs[0]
        maker = graph.find_producer(statistic)
    return statistic
