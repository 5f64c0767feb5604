"""State that is stored in pieces, one on each replica, and the gradients that update it.

Only the update of an optimizer reads and writes its slots, usually element by element. So each
replica may hold a piece of each slot, and needs only that piece of the gradient's sum. This takes a
reduce-scatter, which is half of an all-reduce. The other half gathers the new values of the
parameters from the updated pieces.

Source: S. Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter
Models, SC 2020, section 5.1 (the first stage).
"""

from __future__ import annotations

from collections.abc import Sequence

from graphc.ir.layouts import Layout, Sharded
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ops.control.mapping import MAP
from graphc.passes.core.elementwise import is_elementwise


def pieces_behind(program: Program, required: Sequence[Layout | None]) -> dict[Tensor, Sharded]:
    """The tensors that reach outputs in pieces through elementwise operators only, with the layouts
    of these outputs.

    A partial sum among them need not be made whole for these outputs, even if an operator on the
    path (such as a square) cannot take a partial value. A `Map` of elementwise operators counts as
    elementwise, except along the axis that it maps over.
    """
    found: dict[Tensor, Sharded] = {}
    for port, layout in zip(program.outputs, required, strict=True):
        if isinstance(layout, Sharded):
            found.setdefault(port.tensor, layout)
    for node in reversed(program.nodes):
        if node.op is MAP:
            found = {**_behind_map(node, found), **found}
        if len(node.outputs) != 1 or node.outputs[0] not in found or not is_elementwise(node):
            continue
        (result,) = node.outputs
        for tensor in node.inputs:
            if tensor.type.shape == result.type.shape:
                found.setdefault(tensor, found[result])
    return found


def inside(layout: Layout | None) -> Sharded | None:
    """The layout of a slice along the leading axis; None if that axis is split."""
    if not isinstance(layout, Sharded) or layout.axis == 0:
        return None
    return Sharded(layout.axis - 1)


def _behind_map(node: Node, found: dict[Tensor, Sharded]) -> dict[Tensor, Sharded]:
    """The mapped operands of a `Map` that reach its results in pieces, with their layouts."""
    (body,) = node.regions
    layouts = pieces_behind(body, [inside(found.get(t)) for t in node.outputs])
    mapped = zip(node.inputs[: node.attrs["mapped"]], body.input_tensors(), strict=False)
    return {o: Sharded(layouts[i].axis + 1) for o, i in mapped if i in layouts}
