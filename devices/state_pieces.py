"""State of which each replica has a piece: what gradients become that go into it.

An optimizer's slots are read and written by its update alone, element by element as a rule. So a
replica may keep a piece of each, for which it needs that piece of the gradient's sum: a
reduce-scatter, half of an all-reduce. The other half is then to gather the new values of the
parameters from the pieces that were updated.

Source: S. Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter
Models, SC 2020, section 5.1 (the first stage).
"""

from __future__ import annotations

from collections.abc import Sequence

from graphc.ir.layouts import Layout, Sharded
from graphc.ir.node import Tensor
from graphc.ir.program import Program
from graphc.passes.core.elementwise import is_elementwise


def pieces_behind(program: Program, required: Sequence[Layout | None]) -> dict[Tensor, Sharded]:
    """What goes, element by element, into outputs that leave in pieces; and the layout of those.

    A partial sum among them needs not be made whole for that, even where an operator on the way
    (a square, say) cannot take it as it is.
    """
    found: dict[Tensor, Sharded] = {}
    for port, layout in zip(program.outputs, required, strict=True):
        if isinstance(layout, Sharded):
            found.setdefault(port.tensor, layout)
    for node in reversed(program.nodes):
        if len(node.outputs) != 1 or node.outputs[0] not in found or not is_elementwise(node):
            continue
        (result,) = node.outputs
        for tensor in node.inputs:
            if tensor.type.shape == result.type.shape:
                found.setdefault(tensor, found[result])
    return found
