"""State is written last: an update waits for whoever reads the old value."""

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
    """The new value of a state, or of a loop's carry, is computed after all that reads the old one.

    In a training step the gradient of a layer's input reads the weights, and nothing says whether
    that or the update comes first. XLA decides where values lie before it decides on an order: it
    copies all such weights first, 232 MB for AlexNet at each step, and holds the copies until the
    end. One element of the reader's result, on which the update is made to depend, says it; XLA
    then writes the update over the old value. XLA cannot say it for itself before it has an order,
    and JAX has no word for it: barriers are gone by then.

    Must not: take a fused reader for one with a result of its own (what is elementwise, or only
    moves elements, is followed to its users); hold back what itself needs the new value.

    Attributes:
        smallest: elements of the smallest state for which it pays.
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
