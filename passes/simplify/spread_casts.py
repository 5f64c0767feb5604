"""Spread casts: each user of a cast value gets its own cast."""

from __future__ import annotations

from dataclasses import dataclass, field

from graphc.ir.dtypes import is_floating
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ops.core.emit import CAST
from graphc.ops.matrices.narrow_operands import narrow_in_products
from graphc.passes.core.base import Pass, PassResult
from graphc.passes.core.lossless import holds_all


@dataclass(frozen=True)
class SpreadCasts(Pass):
    """Copies each cast that widens a float, or that rounds a variable, to directly before each of
    its users.

    The backward pass uses values of the forward pass. If both become loops (`RollRepeats`), the
    forward loop stacks the values that the backward loop takes. After this pass it stacks the
    narrow value, which is half as large, and nothing for a variable, because both loops take slices
    of the variable. XLA merges the copies in programs without loops, and cannot change what a loop
    stacks.

    Must not: run if nothing is rolled; copy the cast of a computed value to a narrower type.

    Attributes:
        of_products: copies only casts that products do without. The iterations of a loop then take
            the narrow weights that they share.
    """

    of_products: bool = False

    def run(self, program: Program) -> PassResult:
        if self.of_products:
            narrow = narrow_in_products(program)
            casts = {n.outputs[0]: n for n in program.nodes if n.outputs and n.outputs[0] in narrow}
        else:
            state = set(program.input_tensors("state"))
            casts = {n.outputs[0]: n for n in program.nodes if _cheap(n, state)}
        if not casts:
            return PassResult(program, 0)
        spreading = _Spreading(casts)
        fetched = set(program.output_tensors())
        spreading.used.update(fetched)
        copied = spreading.casts.keys() - fetched
        for node in program.nodes:
            if node.outputs and node.outputs[0] in copied:
                continue
            own = {t: spreading.cast(t) for t in dict.fromkeys(node.inputs) if t in spreading.casts}
            if own:
                node = node.replace(inputs=tuple([own.get(t, t) for t in node.inputs]))
            spreading.nodes.append(node)
        if not spreading.changed:
            return PassResult(program, 0)
        return PassResult(program.replace(nodes=tuple(spreading.nodes)), spreading.changed)


@dataclass
class _Spreading:
    """One run of the pass.

    Attributes:
        casts: the casts by their results.
        used: results that already have a user.
        nodes: the nodes of the new program so far.
    """

    casts: dict[Tensor, Node]
    used: set[Tensor] = field(default_factory=set)
    nodes: list[Node] = field(default_factory=list)
    changed: int = 0

    def cast(self, tensor: Tensor) -> Tensor:
        """The result of a cast for one user; in a chain of casts, each cast is copied."""
        node = self.casts[tensor]
        (x,) = node.inputs
        if x in self.casts:
            x = self.cast(x)
        if tensor in self.used:  # the cast itself serves its first user
            tensor = Tensor(tensor.type, tensor.name)
            self.changed += 1
        self.used.add(tensor)
        self.nodes.append(node.replace(inputs=(x,), outputs=(tensor,)))
        return tensor


def _cheap(node: Node, state: set[Tensor]) -> bool:
    if node.op is not CAST:
        return False
    (x,), dtype = node.inputs, node.attrs["dtype"]
    if not (is_floating(x.type.dtype) and is_floating(dtype)):
        return False
    return x in state or (x.type.dtype != dtype and holds_all(dtype, x.type.dtype))
