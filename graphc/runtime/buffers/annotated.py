"""The shardings of variables and feeds on a mesh that the user set with `gc.shard`, by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from graphc.ir.graph import Graph
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ir.sharding import Spec
from graphc.ir.source import Source
from graphc.ir.variable import Variable
from graphc.ops.structure.sharding import SHARD
from graphc.runtime.buffers.layout import OWN, STACKED, Buffer


def annotated(graph: Graph, program: Program) -> tuple[Program, dict[str, Source | None]]:
    """A functional program with the annotations of its variables, and their source lines."""
    names = [port.name for port in (*program.ports("state"), *program.new_state())]
    found = {name: _annotation(graph, name) for name in dict.fromkeys(names)}
    specs = {name: v.shard for name, v in found.items() if v is not None and v.shard is not None}
    lines = {name: v.shard_source for name, v in found.items() if v is not None}
    return (program.replace(shards=specs) if specs else program), lines


def _annotation(graph: Graph, name: str) -> Variable | None:
    """The variable whose annotation applies to this one. It is normally the variable itself. For a
    value stored for a parameter, such as an optimizer slot, it is the parameter: the name of the
    value begins with the parameter's name, and the shapes are equal."""
    variable = graph.variables.get(name)
    if variable is None or variable.shard is not None or variable.trainable:
        return variable
    above = name
    while "/" in above:
        above = above.rpartition("/")[0]
        found = graph.variables.get(above)
        if found is not None:
            return found if found.type.shape == variable.type.shape else None
    return None


def specs_of(nodes: Iterable[Node], tensors: Sequence[Tensor]) -> dict[Tensor, Spec]:
    """The shardings that nodes among `nodes` set directly for `tensors`. The first one applies."""
    wanted = set(tensors)
    found: dict[Tensor, Spec] = {}
    for node in nodes:
        if node.op is SHARD and node.inputs[0] in wanted:
            found.setdefault(node.inputs[0], node.attrs["spec"])
    return found


def feed_specs(program: Program) -> dict[str, Spec]:
    """The shardings of feeds that a `gc.shard` of the placeholder sets, by name."""
    ports = program.ports("feed")
    found = specs_of(program.nodes, [port.tensor for port in ports])
    return {port.name: found[port.tensor] for port in ports if port.tensor in found}


def buffer_spec(buffer: Buffer, shards: Mapping[str, Spec]) -> Spec:
    """The sharding of a state buffer. It is the sharding of its variable. Stacked variables must
    all have the same sharding. Buffers without annotation, and flat buffers, are not sharded:
    each device has all of the buffer."""
    first, *others = [shards.get(name) for name in buffer.members]
    if first is None or any(spec != first for spec in others):
        return ()
    if buffer.kind == OWN:
        return first
    return (None, *first) if buffer.kind == STACKED else ()
