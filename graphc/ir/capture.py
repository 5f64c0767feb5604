"""From a graph to a program: selects the nodes that the fetches need, in program order."""

from __future__ import annotations

from collections.abc import Sequence

from graphc.errors import FeedError, FetchError, GraphError
from graphc.ir.dims import DimExpr
from graphc.ir.graph import Graph
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Effects, OpDef
from graphc.ir.program import Port, Program
from graphc.ir.rewrite import map_dims
from graphc.ir.variable import Variable

Fetch = Tensor | Node | Variable


def capture(
    graph: Graph,
    fetches: Sequence[Fetch],
    feeds: Sequence[Tensor],
    read_op: OpDef,
    *,
    control: bool = True,
) -> Program:
    """The program that computes `fetches` given values for `feeds`.

    Only the fetches select nodes, through operands and control inputs. Nodes that are needed only
    for a fed tensor are left out. A fetched node has no output port; a fetched variable is read
    after everything else. The program still reads and assigns variables: `functionalize` makes it
    pure.

    Args:
        read_op: the operator that reads a variable.
        control: whether control inputs select nodes. For initial values, they do not: what is
            computed before the first run has no part in the order of a run.

    Raises:
        FetchError: a fetch belongs to another graph.
        FeedError: a selected placeholder is not fed, or a feed belongs to another graph.
    """
    _check_owners(graph, fetches, feeds)
    fed = set(feeds)
    chosen = choose(graph, fetches, fed, control=control)
    nodes = [node for node in graph.nodes if node in chosen]
    _check_all_fed(graph, fetches, nodes, fed)
    nodes = [_without_fed(node, fed) for node in nodes if not node.op.effects & Effects.FEED]
    outputs = []
    for fetch in fetches:
        if isinstance(fetch, Variable):
            tensor = Tensor(fetch.type, fetch.name)
            attrs = {"variable": fetch.name, "dtype": fetch.type.dtype, "shape": fetch.type.shape}
            nodes.append(
                Node(read_op, (), (tensor,), attrs, name=f"{fetch.name}/fetch", source=fetch.source)
            )
            outputs.append(Port(fetch.name, "fetch", tensor))
        elif isinstance(fetch, Tensor):
            outputs.append(Port(port_name(fetch), "fetch", fetch))
    inputs = [Port(port_name(tensor), "feed", tensor) for tensor in feeds]
    program = Program(
        graph.name, tuple(inputs), tuple(nodes), tuple(_unique(outputs)),
        equalities=tuple(graph.constraints.others), batch_axes=_batch_axes(graph, feeds),
    )  # fmt: skip
    find = graph.constraints.finder()
    return program if find is None else map_dims(program, find)


def port_name(tensor: Tensor) -> str:
    """The name of a feed or fetch: `x` for `x:0`, otherwise the tensor's full name."""
    return tensor.name.removesuffix(":0")


def choose(
    graph: Graph, fetches: Sequence[Fetch], fed: set[Tensor], *, control: bool = True
) -> set[Node]:
    """The nodes that `fetches` need, up to the tensors in `fed`."""
    chosen: set[Node] = set()
    pending: list[Node] = []

    def choose_node(node: Node) -> None:
        if node not in chosen:
            chosen.add(node)
            pending.append(node)

    def want(tensor: Tensor) -> None:
        if tensor not in fed:
            choose_node(graph.producer(tensor))

    for fetch in fetches:
        if isinstance(fetch, Tensor):
            want(fetch)
        elif isinstance(fetch, Node):
            choose_node(fetch)
    while pending:
        node = pending.pop()
        for tensor in node.inputs:
            want(tensor)
        if not control:
            continue
        for name in node.control_inputs:
            choose_node(graph.node(name))
        for body in node.regions:
            for inner in body.walk():
                for name in inner.control_inputs:  # of the body itself, or from outside
                    other = graph.find_node(name)
                    if other is not None:
                        choose_node(other)
    return chosen


def _check_owners(graph: Graph, fetches: Sequence[Fetch], feeds: Sequence[Tensor]) -> None:
    for fetch in fetches:
        mine = graph.has_node(fetch) if isinstance(fetch, Node) else fetch.graph is graph
        if not mine:
            raise FetchError.here(
                f"fetch {fetch.name!r} is not of graph {graph.name!r}",
                hint="fetch tensors of the session's own graph; a body's tensors must be "
                "returned from it",
            )
    for tensor in feeds:
        if tensor.graph is not graph:
            raise FeedError.here(
                f"feed {tensor.name!r} is not of graph {graph.name!r}",
                hint="feed tensors of the session's own graph",
            )


def _check_all_fed(
    graph: Graph, fetches: Sequence[Fetch], nodes: Sequence[Node], fed: set[Tensor]
) -> None:
    for node in nodes:
        if node.op.effects & Effects.FEED and node.outputs[0] not in fed:
            fetch = next(fetch for fetch in fetches if node in choose(graph, [fetch], fed))
            raise FeedError(
                f"placeholder {node.name!r} ({node.outputs[0].type}) is needed and not fed",
                details=[f"the fetch {fetch.name!r} depends on it"],
                source=node.source,
                hint=f'feed it: {{"{node.name}": value}}',
            )


def _without_fed(node: Node, fed: set[Tensor]) -> Node:
    """The node without its fed results. It was selected for another result, or as a control
    input."""
    if fed.isdisjoint(node.outputs):
        return node
    return node.replace(outputs=tuple(Tensor(t.type) if t in fed else t for t in node.outputs))


def _unique(ports: list[Port]) -> list[Port]:
    """The ports with unique names: a variable and a node may have the same name."""
    seen: dict[str, int] = {}
    result = []
    for port in ports:
        count = seen.get(port.name, 0)
        seen[port.name] = count + 1
        result.append(port if not count else port._replace(name=f"{port.name}.{count}"))
    return result


def _batch_axes(graph: Graph, feeds: Sequence[Tensor]) -> dict[str, int]:
    """The axes along which feeds may be split, by their names: those of placeholders, and those of
    other tensors that have the size of a placeholder's batch."""
    axes = {}
    for tensor in feeds:
        node = graph.find_producer(tensor)
        if node is None:
            raise GraphError(f"tensor {tensor.name!r} is a body's input and cannot be fed")
        if node.op.effects & Effects.FEED:
            axis = node.attrs.get("batch_axis")
        else:
            batches = _batch_sizes(graph)
            places = (i for i, size in enumerate(tensor.type.shape) if size in batches)
            axis = next(places, None)
        if axis is not None:
            axes[port_name(tensor)] = axis
    return axes


def _batch_sizes(graph: Graph) -> set[DimExpr]:
    """The named sizes of the batch axes of all placeholders."""
    rows = [
        node.outputs[0].type.shape[node.attrs["batch_axis"]]
        for node in graph.nodes
        if node.op.effects & Effects.FEED and node.attrs.get("batch_axis") is not None
    ]
    return {size for size in rows if isinstance(size, DimExpr)}
