"""Finds the layout of every tensor of a program, given the layouts of its inputs.

Layouts flow forward through the operators' rules. Partial values pass through linear operators
unchanged. The place where a partial value is made whole determines the number of collectives in a
step and their size. A first round finds the consumers that need a partial value whole. Such a value
is then made whole once, as early in the program as possible without exchanging more data. For
example, a gradient that goes into both `m * b1 + g * (1 - b1)` and `g * g` is made whole after its
matrix product, not once for each use. Each value that is made whole may change what other values
need, so there are several rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from graphc.devices.uneven import is_uneven, plan_unevenly
from graphc.errors import LayoutError
from graphc.ir.costs import size_of
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
from graphc.ops.structure.collective import WHOLE

# Two or three rounds are usually enough. A value that is still needed whole after the last round is
# made whole where it is used. This is correct, but may take more collectives.
_MOST_ROUNDS = 8


class LayoutFlow:
    """The layouts of one program.

    Args:
        program: bound, with global types.
        inputs: a layout for each of its inputs.
        required: for each output the layout that it must have; None accepts any layout.
        partial_leaves: whether an output without a required layout may be a partial value, or
            pieces of an uneven batch. Inputs may then be such pieces too. True for regions.
        context: the context that the layout rules query.
        fault: creates the error for a rule that fails at a node.
        pieces: the partial sums that become pieces, not whole values: see `pieces_behind`.

    Attributes:
        plans: the answer of each node's rule; None if the node is unchanged and takes whole
            operands.
        made: the layout in which each tensor comes from its node, or from the caller.
        settled: partial tensors that are made whole, or into pieces, directly after they are
            computed.
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
        self._found = dict(self.made)  # the layout of each tensor for its users
        self._seen: list[list[Layout] | None] = [None] * len(program.nodes)
        # partial tensor -> the earlier tensor to make whole instead
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
        """The layout of a tensor for its users."""
        return self._found[tensor]

    def leaving(self, tensor: Tensor, required: Layout | None) -> Layout:
        """The layout of an output."""
        if required is not None:
            return required
        have = self._found[tensor]
        stays = self._partial_leaves or not (type(have) is Partial or is_uneven(have))
        return have if stays else REPLICATED

    def entering(self, tensor: Tensor) -> Layout:
        """The layout of an input. A region receives pieces of an uneven batch. A program receives
        the whole batch, because padding is internal to the program."""
        have = self.made[tensor]
        return REPLICATED if is_uneven(have) and not self._partial_leaves else have

    def _round(self) -> dict[Tensor, Layout]:
        """Propagates the layouts through all nodes once. Returns the tensors to settle in the next
        round, with their layouts."""
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
        """Handles a partial tensor that must not stay partial: returns the tensor to settle, and
        its layout."""
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
                return None  # each replica computes what a single device would
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
        """Whether a gather for `user` is expected: it gathers parameters that are stored in pieces,
        or new values that are computed in pieces because their optimizer state is."""
        if isinstance(user, Node) and user.op is WHOLE:
            return True
        return bool(self._pieces) and isinstance(user, Port) and user.kind != "fetch"

    def _set_results(self, node: Node, plan: LayoutPlan | None) -> None:
        for i, tensor in enumerate(node.outputs):
            layout = self.made[tensor] = REPLICATED if plan is None else plan.results[i]
            # A tensor that was partial in an earlier round, and was settled for that reason, may be
            # sharded now.
            settled = type(layout) is Partial and tensor in self.settled
            self._found[tensor] = self.settled[tensor] if settled else layout

    def _trace_origin(self, node: Node, plan: LayoutPlan, layouts: Sequence[Layout]) -> None:
        """Records that partial results could be avoided by making their only partial operand whole.

        This costs no more if the operand is not larger. It costs less if the operand is smaller, or
        if several such results depend on it.
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
        if size_of(source) <= sum(map(size_of, results)):
            first = self._origin.get(source, source)
            self._origin.update((tensor, first) for tensor in results)
