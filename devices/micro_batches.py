"""Finds which nodes of a training step run once for each micro-batch, and the layouts of their
values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from graphc.errors import GraphcError, LayoutError
from graphc.ir.layouts import REPLICATED, Layout, LayoutContext, LayoutPlan, Partial, Replicated
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import PURE
from graphc.ir.program import Program
from graphc.ir.rewrite import used_from
from graphc.ops.core.layout_rules import replicated
from graphc.ops.structure.collective import EXCHANGES
from graphc.ops.structure.training import GRADIENTS


@dataclass
class MicroBatches:
    """The nodes of a program, grouped by when they run. One traversal finds them.

    To a layout rule, micro-batches are the same as replicas: pieces of a whole batch. A rule that
    needs a whole value needs all micro-batches.

    Attributes:
        before: nodes that do not depend on a feed with a batch axis. They run once.
        inside: those that run for each micro-batch, with the rule's answer.
        after: users of gradients, and other nodes that need the value of a whole batch. They run
            once, at the end.
        made: the layout of each tensor that is computed before or inside.
    """

    program: Program
    context: LayoutContext
    needed: set[Node]  # the nodes on which the gradients depend
    inputs: Mapping[Tensor, Layout]
    before: list[Node] = field(default_factory=list)
    inside: list[tuple[Node, LayoutPlan]] = field(default_factory=list)
    after: list[Node] = field(default_factory=list)
    made: dict[Tensor, Layout] = field(default_factory=dict)
    looped: set[Tensor] = field(default_factory=set)  # the results of the nodes inside

    @staticmethod
    def of(
        program: Program, context: LayoutContext, inputs: Mapping[Tensor, Layout]
    ) -> MicroBatches:
        """Groups the nodes.

        Raises:
            LayoutError: a gradient depends on a value of the whole batch.
        """
        needed = used_from(program.nodes, (), lambda node: node.op is GRADIENTS)
        found = MicroBatches(program, context, set(needed), inputs)
        found.made.update(inputs)
        late: set[Tensor] = set()
        for node in program.nodes:
            if node.op is GRADIENTS or not late.isdisjoint(node.inputs) or not found._place(node):
                found.after.append(node)
                late.update(node.outputs)
        return found

    def _place(self, node: Node) -> bool:
        """Puts a node before or inside. Returns whether it can be there."""
        layouts = [self.made[t] for t in node.inputs]
        pieces = any(type(layout) is not Replicated for layout in layouts)
        if not pieces and self.looped.isdisjoint(node.inputs):
            self.before.append(node)
            self.made.update(dict.fromkeys(node.outputs, REPLICATED))
            return True
        rule = node.op.layout or replicated
        plan = rule(self.context, node, *layouts)
        whole = [
            i
            for i, (have, wanted) in enumerate(zip(layouts, plan.operands, strict=True))
            if have != wanted and type(have) is not Replicated
        ]
        exchanges = any(n.op in EXCHANGES for body in plan.regions or () for n in body.walk())
        if whole or exchanges or node.op.effects is not PURE:
            if node in self.needed:
                raise _needs_whole(node, whole)
            return False
        self.inside.append((node, plan))
        self.made.update(zip(node.outputs, plan.results, strict=True))
        self.looped.update(node.outputs)
        return True


def _needs_whole(node: Node, operands: list[int]) -> GraphcError:
    details = [f"{node.op.operand_label(i)}  {node.inputs[i].type}" for i in operands]
    return LayoutError(
        f"minimize(accumulate=): {node.op.name} {node.name!r} needs a value of the whole batch "
        "before the gradients are computed, but micro-batches run one after the other",
        details=details,
        source=node.source,
        hint="batch norm: gc.nn.BatchNorm(local=True) uses each micro-batch's own mean and "
        "variance; otherwise write the loss as a sum or mean over examples",
    )


def summed(layout: Layout) -> bool:
    """Whether micro-batches produce terms of a sum."""
    return layout == Partial("sum")
