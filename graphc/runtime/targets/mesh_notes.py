"""Notes on what a program on a mesh does not distribute, for `Executable.notes`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import jax

from graphc.ir.node import Node, Tensor, position_of
from graphc.ir.program import Program, region
from graphc.ir.sharding import Spec, names_of
from graphc.ir.types import TensorType
from graphc.lowering.emit_jax import needs_x64, to_function
from graphc.lowering.even_shards import uneven_axes
from graphc.lowering.partitioner_rules import whole_axes
from graphc.ops.structure.sharding import SHARD

_MOST = 5  # notes of one kind


def uneven_notes(program: Program, mesh: Mapping[str, int]) -> list[str]:
    """Notes on nodes where the mesh divides the size of an operand's axis, but not the result's.

    The axis is whole on each device from that node on (see `lowering.even_shards`), so the devices
    no longer share the work along it.

    Args:
        mesh: the axes and their sizes.
    """
    notes = list(dict.fromkeys(_notes(program, mesh)))
    more = len(notes) - _MOST
    return [*notes[:_MOST], f"and {more} more such axes"] if more > 0 else notes


def _notes(program: Program, mesh: Mapping[str, int]) -> Iterator[str]:
    grid = " x ".join(f"{name}={size}" for name, size in mesh.items())
    for node in program.walk():
        for type in (result.type for result in node.outputs):
            for axis in uneven_axes(_sizes(type), mesh):
                if _divided_before(node, type, axis, mesh):
                    where = f" at {node.source}" if node.source is not None else ""
                    yield (
                        f"{node.op.name} {node.name!r}{where}: axis {axis} of {type} does not "
                        f"divide by the mesh ({grid}); it is whole on each device"
                    )


def _divided_before(node: Node, type: TensorType, axis: int, mesh: Mapping[str, int]) -> bool:
    """Whether an operand of the same rank may be cut along that axis."""
    operands = [_sizes(t.type) for t in node.inputs if t.type.rank == type.rank]
    return any(x[axis] > 1 and axis not in uneven_axes(x, mesh) for x in operands)


def gathered_notes(program: Program, grid: jax.sharding.Mesh) -> list[str]:
    """Notes on the nodes that take the result of a `gc.shard` whole along an axis that it cuts.

    These are the direct users of the result that XLA's partitioner would compute wrongly.
    """
    specs = {n.outputs[0]: n.attrs["spec"] for n in program.walk() if n.op is SHARD}
    notes = []
    for node in program.walk():
        if node.op is SHARD or node.regions:
            continue
        for tensor in dict.fromkeys(node.inputs):
            cut = _cut_axes(specs.get(tensor, ()), grid)
            for axis in sorted(cut & _taken_whole(node, tensor, grid)) if cut else ():
                where = f" at {node.source}" if node.source is not None else ""
                notes.append(
                    f"{node.op.name} {node.name!r}{where} takes {tensor.name!r} whole along axis "
                    f"{axis}, which XLA cannot cut there"
                )
    return list(dict.fromkeys(notes))[:_MOST]


def _cut_axes(spec: Spec, grid: jax.sharding.Mesh) -> set[int]:
    return {i for i, entry in enumerate(spec) if any(grid.shape[n] > 1 for n in names_of(entry))}


def _taken_whole(node: Node, operand: Tensor, grid: jax.sharding.Mesh) -> set[int]:
    """The axes of an operand that the first operations of the node's lowering must not cut."""
    operands = list(dict.fromkeys(node.inputs))
    alone = region("alone", operands, [node], node.outputs)
    shapes = [jax.ShapeDtypeStruct(_sizes(t.type), t.type.dtype) for t in operands]
    with jax.enable_x64(needs_x64(alone)):
        jaxpr = jax.make_jaxpr(to_function(alone, mesh=grid))(*shapes).jaxpr
    variable = jaxpr.invars[position_of(operand, operands)]
    found: set[int] = set()
    for eqn in jaxpr.eqns:
        for atom, axes in zip(eqn.invars, whole_axes(eqn, grid)[0], strict=True):
            found.update(axes if atom is variable else ())
    return found


def _sizes(type: TensorType) -> tuple[int, ...]:
    return tuple([int(size) for size in type.shape])  # type: ignore[arg-type]
