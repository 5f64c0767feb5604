"""Which layout every tensor of a program has, given the layouts of its inputs.

Layouts flow forward through the operators' rules. Partial values pass through linear operators
untouched; where one must become whole decides how many collectives a step has, and how much they
carry. A first round finds the consumers that need a partial value whole. Such a value is then
made whole once, as far up as that carries no more data: a gradient that goes into both
`m * b1 + g * (1 - b1)` and `g * g` is made whole where it comes out of its matrix product, not
once in each of the two. Every value so marked may make others need it, hence the rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from graphc.devices.uneven import is_uneven, plan_unevenly
from graphc.errors import LayoutError
from graphc.ir.layouts import (
    REPLICATED,
    Layout,
    LayoutContext,
    LayoutPlan,
    Partial,
    Replicated,
    Sharded,
)
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import PURE
from graphc.ir.program import Port, Program
from graphc.ops.core.layout_rules import SUM, replicated

# Two or three are enough as a rule. What is still needed whole after these is made so where it
# is used: right all the same, with more collectives perhaps.
_MOST_ROUNDS = 8


class LayoutFlow:
    """The layouts of one program.

    Args:
        program: bound, with global types.
        inputs: a layout for each of its inputs.
        required: for each output the layout it must leave in; None takes what comes.
        partial_leaves: whether an output for which that is None may leave as a partial value, or
            as pieces of an uneven batch, which inputs may then be too: those of a region.
        context: what the rules may ask.
        fault: makes the error to raise for a rule that fails at a node.
        pieces: the partial sums that are not to be made whole but cut: see `pieces_behind`.

    Attributes:
        plans: for each node what its rule answered; None where it computes what it always did,
            from whole operands.
        made: how each tensor comes from its node, or from the caller.
        settled: partial tensors that are made whole, or into pieces, as soon as they are there.
    """

    def __init__(
        self,
        program: Program,
        inputs: Sequence[Layout],
        required: Sequence[Layout | None],
        partial_leaves: bool,
        context: LayoutContext,
        fault: Callable[[Node, Exception], Exception],
        pieces: Mapping[Tensor, Sharded] | None = None,
    ) -> None:
        self.program = program
        self.plans: list[LayoutPlan | None] = [None] * len(program.nodes)
        self.settled: dict[Tensor, Layout] = {}
        self._pieces = pieces or {}
        self.made: dict[Tensor, Layout] = dict(zip(program.input_tensors(), inputs, strict=True))
        self._required = required
        self._partial_leaves = partial_leaves
        self._context = context
        self._fault = fault
        self._found = dict(self.made)  # how the users of each tensor find it
        self._seen: list[list[Layout] | None] = [None] * len(program.nodes)
        # partial tensor -> the one to make whole in its stead, further up
        self._origin: dict[Tensor, Tensor] = {}
        for _ in range(_MOST_ROUNDS):
            needed = self._round()
            if not needed:
                break
            self.settled.update(needed)
            self._found.update(needed)
        else:
            self._round()

    def layout(self, tensor: Tensor) -> Layout:
        """How the users of a tensor find it."""
        return self._found[tensor]

    def leaving(self, tensor: Tensor, required: Layout | None) -> Layout:
        """The layout in which an output leaves."""
        if required is not None:
            return required
        have = self._found[tensor]
        stays = self._partial_leaves or not (type(have) is Partial or is_uneven(have))
        return have if stays else REPLICATED

    def entering(self, tensor: Tensor) -> Layout:
        """The layout in which an input comes. A region gets pieces of an uneven batch, a program
        the whole of it: nobody but the program itself knows of padding."""
        have = self.made[tensor]
        return REPLICATED if is_uneven(have) and not self._partial_leaves else have

    def _round(self) -> dict[Tensor, Layout]:
        """Sends the layouts through all nodes once; gives what to settle for the next, and how."""
        found, seen, plans = self._found, self._seen, self.plans
        self._origin = {}
        needed: dict[Tensor, Layout] = {}
        for i, node in enumerate(self.program.nodes):
            layouts = [found[t] for t in node.inputs]
            if layouts == seen[i]:
                plan = plans[i]
            else:
                seen[i] = layouts
                plan = plans[i] = self._plan(node, layouts)
                self._set_results(node, plan)
            if plan is None:
                continue
            for tensor, have, wanted in zip(node.inputs, layouts, plan.operands, strict=True):
                if type(have) is Partial and wanted != have:
                    self._settle(tensor, needed)
            for layout in plan.results:
                if type(layout) is Partial:
                    self._trace_origin(node, plan, layouts)
                    break
        for port, required in zip(self.program.outputs, self._required, strict=True):
            have = found[port.tensor]
            if type(have) is Partial and self.leaving(port.tensor, required) != have:
                self._settle(port.tensor, needed)
        return needed

    def _settle(self, tensor: Tensor, needed: dict[Tensor, Layout]) -> None:
        """Notes that a partial tensor cannot stay so: what is settled for that, and how."""
        first = self._origin.get(tensor, tensor)
        for each in (first, tensor):
            if each in self._pieces and self._found[each] == SUM:
                needed[each] = self._pieces[each]
                return
        needed[first] = REPLICATED

    def _plan(self, node: Node, layouts: list[Layout]) -> LayoutPlan | None:
        op = node.op
        if op.effects is PURE:
            for layout in layouts:
                if type(layout) is not Replicated:
                    break
            else:
                return None  # each replica does what one device would
        try:
            if any(map(is_uneven, layouts)):
                plan = plan_unevenly(self._context, node, layouts)
            else:
                plan = (op.layout or replicated)(self._context, node, *layouts)
            if (len(plan.operands), len(plan.results)) != (len(layouts), len(node.outputs)):
                raise LayoutError(f"the layout rule of {op.name} does not fit its operands")
        except Exception as error:
            raise self._fault(node, error) from error
        return plan

    def is_asked_for(self, user: Node | Port) -> bool:
        """Whether to gather for `user` is a part of what was asked for: new values, made in
        pieces because what belongs to them lies in pieces."""
        return bool(self._pieces) and isinstance(user, Port) and user.kind != "fetch"

    def _set_results(self, node: Node, plan: LayoutPlan | None) -> None:
        for i, tensor in enumerate(node.outputs):
            layout = self.made[tensor] = REPLICATED if plan is None else plan.results[i]
            # What was partial in an earlier round, and is settled for that, may be cut by now.
            settled = type(layout) is Partial and tensor in self.settled
            self._found[tensor] = self.settled[tensor] if settled else layout

    def _trace_origin(self, node: Node, plan: LayoutPlan, layouts: Sequence[Layout]) -> None:
        """Notes for partial results that their one partial operand could be made whole instead.

        That is as good where the operand is not larger, and better where several such results
        come from it or it is smaller.
        """
        if node.regions:
            return
        source: Tensor | None = None
        for tensor, have, wanted in zip(node.inputs, layouts, plan.operands, strict=True):
            if type(have) is Partial and wanted == have and (source is None or source is tensor):
                source = tensor
            elif type(have) is not Replicated or isinstance(wanted, Sharded):
                return
        if source is None:
            return
        results = [
            tensor
            for tensor, layout in zip(node.outputs, plan.results, strict=True)
            if type(layout) is Partial
        ]
        if _elements(source) <= sum(map(_elements, results)):
            first = self._origin.get(source, source)
            self._origin.update((tensor, first) for tensor in results)


def _elements(tensor: Tensor) -> int:
    count = 1
    for dim in tensor.type.shape:
        count *= dim  # type: ignore[assignment]  # the program is bound
    return count
