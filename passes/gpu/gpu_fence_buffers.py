"""Slices of shared buffers are cut before they are used: kernels of equal layers stay equal."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from graphc.ir.builder import Builder
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ops.arrays.joining import SPLIT
from graphc.ops.arrays.slicing import SLICE
from graphc.ops.core.emit import emit_one
from graphc.ops.structure.ordering import FENCE
from graphc.passes.core.base import Pass, PassResult, rewrite_nodes


@dataclass(frozen=True)
class GpuFenceBuffers(Pass):
    """Puts a `Fence` after each slice of a flat buffer that many small variables share.

    XLA:GPU compiles equal kernels once. It fuses the slice of a buffer into the kernel that uses
    it. Slices start at different offsets, so the norms of equal layers become different kernels.
    With fences, GPT-2 small compiles in 4.9 s of CPU time instead of 13.4 s. XLA cannot know which
    slices belong to layers that are otherwise equal.

    Must not: change buffers of few variables, because each fenced slice becomes a kernel.

    Attributes:
        fewest: the smallest number of slices of one buffer for which fences are added.
    """

    fewest: int = 16

    def run(self, program: Program) -> PassResult:
        buffers = {t for t in program.input_tensors() if t.type.rank == 1}
        cuts: Counter[Tensor] = Counter()
        for node in program.nodes:
            if node.op in (SLICE, SPLIT):
                cuts[node.inputs[0]] += len(node.outputs)

        def fenced(node: Node) -> Node | list[Node]:
            cut = node.op in (SLICE, SPLIT) and node.inputs[0] in buffers
            return _fenced(node) if cut and cuts[node.inputs[0]] >= self.fewest else node

        return rewrite_nodes(self, program, fenced)


def _fenced(node: Node) -> list[Node]:
    """The node, and fences that define the node's original results."""
    cut = tuple([Tensor(t.type, f"{t.name}/cut") for t in node.outputs])
    with Builder(node) as builder:
        fenced = [emit_one(FENCE, (tensor,), number=0) for tensor in cut]
        builder.define(*zip(fenced, node.outputs, strict=True))
    return [node.replace(outputs=cut), *builder.nodes]
