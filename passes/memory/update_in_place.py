"""UpdateInPlace: an update of state waits for all readers of the old value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphc.ir.builder import Builder
from graphc.ir.dims import product
from graphc.ir.node import Tensor
from graphc.ir.program import Program
from graphc.ops.structure.ordering import AFTER
from graphc.passes.core.base import Pass, PassResult, redirect
from graphc.passes.core.readers import Readers
from graphc.passes.core.state_updates import End, in_bodies, states

_MOST_READERS = 8


@dataclass(frozen=True)
class UpdateInPlace(Pass):
    """Computes the new value of a state, or of a loop's carry, after all reads of the old value.

    In a training step, the gradient of a layer's input reads the weights, and nothing specifies
    whether this read or the update comes first. XLA assigns buffers before it decides on an order.
    It therefore copies all such weights first (232 MB for AlexNet in each step), and keeps the
    copies until the end. This pass makes the update depend on one element of the reader's result,
    so XLA writes the update over the old value. XLA cannot infer this before it has an order, and
    JAX has no operation for it: barriers are removed by then.

    Must not: treat a fused reader as a reader with its own result (elementwise nodes, and nodes
    that only move elements, are followed to their users); delay a node that needs the new value.

    Attributes:
        smallest: elements of the smallest state for which the pass is profitable.
    """

    smallest: int = 1 << 16

    def run(self, program: Program) -> PassResult:
        return self._run(program, states(program))

    def _run(self, program: Program, ends: Sequence[End]) -> PassResult:
        program, changed = in_bodies(program, self._run)
        wanted = [end for end in ends if self._pays(end)]
        if not wanted:
            return PassResult(program, changed)
        reading = Readers(program, wanted)
        instead: dict[Tensor, Tensor] = {}
        added = Builder()
        for new, old in wanted:
            readers = None if old is None or new in instead else reading.of(old, new)
            if readers and len(readers) <= _MOST_READERS:
                with added.at(reading.made[new]):
                    instead[new] = added.add(AFTER, (new, *readers)).outputs[0]
        if not instead:
            return PassResult(program, changed)
        outputs = redirect(program.outputs, instead)
        nodes = (*program.nodes, *added.nodes)
        return PassResult(program.replace(nodes=nodes, outputs=outputs), changed + len(instead))

    def _pays(self, end: End) -> bool:
        if end.old is None or end.old is end.new:
            return False
        size = product(end.new.type.shape)
        return isinstance(size, int) and size >= self.smallest
