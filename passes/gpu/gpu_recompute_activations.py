"""Activations of flat programs: the backward pass recomputes what it needs for their
derivatives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from graphc.ir.builder import Builder
from graphc.ir.costs import bytes_of_type
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ops.structure.ordering import FENCE
from graphc.passes.core.base import Pass, PassResult, run_bodies
from graphc.passes.core.elementwise import is_elementwise
from graphc.passes.simplify.prune import Prune

# Elementary functions: XLA's fusion does not recompute these automatically.
EXPENSIVE: Final = frozenset(
    (
        *("Elu", "Erf", "Erfc", "Exp", "Expm1", "Gelu", "Log", "Log1p", "Power", "Sigmoid"),
        *("Silu", "Softplus", "Tanh"),
    )
)
_MOST_NODES: Final = 64
_MOST_LEAVES: Final = 2
_SMALL: Final = 8  # a value this many times smaller than the computed one is not worth a fence


@dataclass(frozen=True)
class GpuRecomputeActivations(Pass):
    """Recomputes elementwise values that a late node uses and that could also be computed early,
    such as the derivative of `gelu(x)` in the backward pass, from a `Fence` of `x`.

    XLA finds the same `tanh(x)` in both passes, computes it once, and keeps the values that the
    backward pass needs. Then one kernel in the forward pass reads `x` and writes two results. `x`
    is in memory anyway, and reading it costs as much as reading the kept value. For GPT-2 small on
    an H100, memory traffic falls from 23.6 to 21.8 GB per step, and temporaries from 3.28 to 2.68
    GB. XLA knows neither which values stay in memory nor which nodes belong to the backward pass. A
    node is late if more kernels lead to it.

    Must not: recompute cheap functions, because XLA does that itself; keep large operands instead
    of one value.

    Attributes:
        smallest: the size in bytes of the smallest value that is recomputed.
    """

    smallest: int = 1 << 20

    def run(self, program: Program) -> PassResult:
        changed = 0
        nodes: list[Node] = []
        flow = _Flow(program)
        for node in program.nodes:
            node, inside = run_bodies(self, node)
            changed += inside
            if node.outputs and flow.is_fused(node):
                instead = {t: t for t in node.inputs}
                for tensor in instead:
                    if self._is_late(flow, tensor, node):
                        instead[tensor] = flow.again(tensor, nodes)
                        changed += 1
                node = node.replace(inputs=tuple([instead[t] for t in node.inputs]))
            nodes.append(node)
        if not changed:
            return PassResult(program, 0)
        return PassResult(Prune().run(program.replace(nodes=tuple(nodes))).program, changed)

    def _is_late(self, flow: _Flow, tensor: Tensor, user: Node) -> bool:
        """Whether it is better to recompute this operand for `user`."""
        if flow.level[tensor] >= flow.level[user.outputs[0]] or flow.is_stored(tensor):
            return False
        size = bytes_of_type(tensor.type)
        return size >= self.smallest and flow.cone(tensor).is_worth_it(size)


@dataclass(frozen=True)
class _Cone:
    """The elementwise nodes that compute a value from stored values, the `leaves`."""

    nodes: tuple[Node, ...]
    leaves: tuple[Tensor, ...]

    def is_worth_it(self, size: int) -> bool:
        large = [t for t in self.leaves if _SMALL * bytes_of_type(t.type) > size]
        return (
            len(self.nodes) <= _MOST_NODES
            and 0 < len(large) <= _MOST_LEAVES
            and any(node.op.name in EXPENSIVE for node in self.nodes)
        )


class _Flow:
    """How, and in which order, the values of a program are computed.

    Attributes:
        level: for each value, the number of consecutive kernels that lead to it and that XLA does
            not fuse.
    """

    def __init__(self, program: Program) -> None:
        self.level = dict.fromkeys(program.input_tensors(), 0)
        self._made: dict[Tensor, Node] = {}
        self._fused: dict[Node, bool] = {}
        self._stored = {*program.input_tensors(), *program.output_tensors()}
        self._again: dict[Tensor, Tensor] = {}
        for node in program.nodes:
            fused = self._fused[node] = is_elementwise(node)
            before = max((self.level[t] for t in node.inputs), default=0)
            for tensor in node.outputs:
                self._made[tensor] = node
                self.level[tensor] = before + (not fused and bool(node.inputs))
            if not fused:
                self._stored.update(node.inputs)
                self._stored.update(node.outputs)

    def is_fused(self, node: Node) -> bool:
        return self._fused.get(node, False)

    def is_stored(self, tensor: Tensor) -> bool:
        """Whether the value is in memory, regardless of its users."""
        return tensor in self._stored

    def cone(self, tensor: Tensor) -> _Cone:
        nodes: dict[Node, None] = {}
        leaves: dict[Tensor, None] = {}
        waiting = [tensor]
        while waiting and len(nodes) <= _MOST_NODES:
            one = waiting.pop()
            if self.is_stored(one):
                leaves[one] = None
            elif self._made[one] not in nodes:
                nodes[self._made[one]] = None
                waiting += self._made[one].inputs
        return _Cone(tuple(nodes), tuple(leaves))

    def again(self, tensor: Tensor, nodes: list[Node]) -> Tensor:
        """The recomputed value. New nodes are added to `nodes`; each value is recomputed once."""
        found = self._again.get(tensor)
        if found is not None:
            return found
        made = self._made.get(tensor)
        if not self.is_stored(tensor) and made is not None:
            inputs = tuple([self.again(t, nodes) for t in made.inputs])
            found = Tensor(tensor.type, f"{tensor.name}/again")
            nodes.append(made.replace(inputs=inputs, outputs=(found,)))
        elif made is None or tensor.type.rank == 0:
            found = tensor
        else:
            fence = Builder(made).add(FENCE, (tensor,), {"number": 0})
            nodes.append(fence)
            found = fence.outputs[0]
        self._again[tensor] = found
        return found
