"""What a program on a mesh does not spread, in words for `Executable.notes`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from graphc.ir.node import Node
from graphc.ir.program import Program
from graphc.ir.types import TensorType
from graphc.lowering.even_shards import uneven_axes

_MOST = 5  # notes of one kind


def uneven_notes(program: Program, mesh: Mapping[str, int]) -> list[str]:
    """Notes on the nodes that make an axis which divides by the mesh into one that does not.

    Such an axis is whole on each device from there on (see `lowering.even_shards`), so what
    follows is no longer shared among the devices along it.

    Args:
        mesh: the size of each of its axes.
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


def _sizes(type: TensorType) -> tuple[int, ...]:
    return tuple([int(size) for size in type.shape])  # type: ignore[arg-type]
