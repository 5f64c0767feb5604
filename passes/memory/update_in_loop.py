"""UpdateInLoop: a layer's gradient is applied in the iteration that computes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from graphc.ir.costs import bytes_of
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ops.control.scan import SCAN
from graphc.passes.core.base import Pass, PassResult
from graphc.passes.core.peak import peak
from graphc.passes.core.state_updates import End, carries, in_bodies, states
from graphc.passes.memory.loop_updates import find
from graphc.passes.memory.loop_updates_write import written


@dataclass(frozen=True)
class UpdateInLoop(Pass):
    """Moves the optimizer's update of stacked parameters into the loop that computes their
    gradients.

    `RollRepeats` makes the backward pass of layers with the same structure a `Scan` that stacks the
    gradients of all layers, and `GroupAlike` makes the optimizer one `Map` over these stacks. All
    gradients are then in memory until the update runs: as many bytes as the parameters. After this
    pass, the loop carries the parameters and slots. Each iteration reads the slices of one layer,
    computes its gradient, and writes the new slices over the old ones. XLA does not move work into
    a loop.

    The order in an iteration makes XLA write in place; without it, XLA copies whole stacks in every
    iteration. All reads of an old slice come before the write of the new slice. Each stack is
    written by a separate expression. A node that needs the new value of another stack reads that
    stack.

    If replicas exchange gradients in the loop (`ExchangeInLoops`), the sum is applied in the
    iteration that exchanges it.

    Must not: move an update that depends on all gradients (clipping by their norm, a loss scale);
    move updates by gradients that are exchanged after the loop, fetched, or used by anything else;
    move updates of a replica's pieces, or updates that are not elementwise; overwrite a stack that
    is read after the loop. The pass report says why an update stays. If gradients are summed over
    micro-batches, the sums are written in the loop, and the update stays outside.

    Attributes:
        smallest: bytes of the smallest stack of gradients for which the pass is profitable.
        slice: bytes of the smallest gradient of one layer for which it is profitable: with smaller
            ones, XLA does not fuse reading and writing on GPUs. None: only if memory is short.
        whole: also moves updates into loops that XLA would not compile as loops (`unroll` of all
            iterations); they are then compiled as loops.
        budget: bytes, as for `Recompute`. If a program needs more, `whole` is also applied,
            whatever the value of `slice`.
    """

    smallest: int = 1 << 20
    slice: int | None = 0
    whole: bool = False
    budget: int | None = None

    def run(self, program: Program) -> PassResult:
        """Runs on loops first; then, if memory is still short, on loops that would be compiled
        without a loop."""
        result = self._run(program, states(program))
        if self.budget is None or self.whole or peak(result.program) <= self.budget:
            return result
        more = replace(self, whole=True, slice=0).run(result.program)
        return PassResult(more.program, result.changed + more.changed)

    def notes(self, program: Program) -> tuple[str, ...]:
        return tuple(self._reasons(program, states(program)))

    def _reasons(self, program: Program, ends: Sequence[End]) -> Iterator[str]:
        for node in program.nodes:
            for number, body in enumerate(node.regions):
                yield from self._reasons(body, carries(node, number))
        for node in self._loops(program, ends):
            yield from find(program, node, ends, self._pays)[1]

    def _run(self, program: Program, ends: Sequence[End]) -> PassResult:
        program, changed = in_bodies(program, self._run)
        node: Node | None = None
        try:
            for node in self._loops(program, ends):
                found, _ = find(program, node, ends, self._pays)
                if found:
                    program = written(program, node, found)
                    changed += len(found)
        except Exception as error:
            raise self.fault(node, error) from error
        return PassResult(program, changed)

    def _loops(self, program: Program, ends: Sequence[End]) -> list[Node]:
        """The loops of a program that overwrites some state."""
        if all(end.old is None for end in ends):
            return []
        return [node for node in program.nodes if node.op is SCAN and self._is_loop(node)]

    def _is_loop(self, node: Node) -> bool:
        length, unroll = node.attrs["length"], node.attrs["unroll"]
        return type(length) is int and length > 1 and (unroll < length or self.whole)

    def _pays(self, gradients: Sequence[Tensor]) -> bool:
        sizes, least = list(map(bytes_of, gradients)), self.slice
        if least is None or sum(sizes) < self.smallest:
            return False
        lengths = [t.type.shape[0] for t in gradients]
        return any(
            isinstance(n, int) and size >= n * least for n, size in zip(lengths, sizes, strict=True)
        )
