"""The gradient of a loop: a loop in the reverse direction, over values that the forward loop
saved."""

from __future__ import annotations

from collections.abc import Sequence

from graphc.ir.dtypes import is_inexact
from graphc.ir.graph import Graph
from graphc.ir.node import Node, Tensor, is_among
from graphc.ir.opdef import GradientContext
from graphc.ir.program import region
from graphc.ir.scopes import building
from graphc.ops.control.backward import drop_forward
from graphc.ops.control.bodies import Parts, inline, parts_of, split, stacked_type
from graphc.ops.core.emit import emit_node, graph_of


def scan_gradient(
    ctx: GradientContext, node: Node, *adjoints: Tensor | None
) -> list[Tensor | None]:
    """A scan in the reverse direction, over the values that the forward body computed.

    The forward scan stacks the values that the backward body needs, so nothing is computed twice.
    Source: Griewank & Walther, Evaluating Derivatives, 2008, chapter 12.
    """
    graph = graph_of(node.inputs)
    node = graph.node(node.name)  # it may have additional results by now
    return BackwardScan(ctx, graph, node, adjoints).build()


class BackwardScan:
    """Builds one backward loop step by step."""

    def __init__(
        self, ctx: GradientContext, graph: Graph, node: Node, adjoints: Sequence[Tensor | None]
    ) -> None:
        self.ctx, self.graph, self.node = ctx, graph, node
        self.body = node.regions[0]
        self.outer = parts_of(node, node.inputs)
        self.consts, self.carries = len(self.outer.consts), len(self.outer.carries)
        # Results added by an earlier gradient have no adjoint.
        self.adjoints = [*adjoints, *[None] * (len(node.outputs) - len(adjoints))]
        # Indices: carries and ys whose adjoints flow in; consts and xs that may get an adjoint.
        results = self.body.output_tensors()
        consts = self.outer.consts
        self.flowing = [i for i in range(self.carries) if is_inexact(results[i].type.dtype)]
        self.stacked = [
            i for i in range(self.carries, len(results)) if self.adjoints[i] is not None
        ]
        self.summed = [
            i
            for i, t in enumerate(consts)
            if is_inexact(t.type.dtype) and not is_among(t, consts[:i])
        ]
        self.sliced = [i for i, t in enumerate(self.outer.xs) if is_inexact(t.type.dtype)]
        self.child = Graph(name=f"{self.body.name}_grad", parent=graph)

    def build(self) -> list[Tensor | None]:
        """Emits the backward loop and returns the adjoint of each operand of the forward loop."""
        with building(self.child):
            self.copy_body()
            outputs = self.differentiate()
        saved = self.save(outputs)
        adjoints = iter(self.emit(outputs, saved))
        found: list[Tensor | None] = [None] * len(self.node.inputs)
        for i in self.flowing:
            found[self.consts + i] = next(adjoints)
        for i in self.live_consts:
            found[i] = next(adjoints)
        for i in self.live_xs:
            found[self.consts + self.carries + i] = next(adjoints)
        return found

    def copy_body(self) -> None:
        """Copies the forward body to differentiate it. `save` later removes the copied nodes."""
        child = self.child
        inner = parts_of(self.node, self.body.input_tensors())
        self.const_args = [child.adopt(t) for t in self.outer.consts]
        self.carry_args = [child.add_input(t.type, t.name) for t in inner.carries]
        self.x_args = [child.add_input(t.type, t.name) for t in inner.xs]
        args = [*self.const_args, *self.carry_args, *self.x_args]
        self.copies = inline(child, self.body, args)
        self.forward = set(child.nodes)

    def differentiate(self) -> list[Tensor]:
        """The results of the backward body: adjoints of carries and xs, sums for consts."""
        child, results = self.child, self.body.output_tensors()
        self.d_carries = [child.add_input(results[i].type, f"d_carry{i}") for i in self.flowing]
        self.d_ys = [child.add_input(results[i].type, f"d_y{i}") for i in self.stacked]
        gradients = self.ctx.gradients(
            [self.copies[results[i]] for i in (*self.flowing, *self.stacked)],
            [
                *(self.const_args[i] for i in self.summed),
                *(self.carry_args[i] for i in self.flowing),
                *(self.x_args[i] for i in self.sliced),
            ],
            [*self.d_carries, *self.d_ys],
        )
        parts = split(gradients, len(self.summed), len(self.flowing))
        of_consts = {i: g for i, g in zip(self.summed, parts.consts, strict=True) if g is not None}
        of_xs = {i: g for i, g in zip(self.sliced, parts.xs, strict=True) if g is not None}
        self.live_consts, self.live_xs = list(of_consts), list(of_xs)
        self.sums = [
            child.add_input(self.outer.consts[i].type, f"sum{i}") for i in self.live_consts
        ]
        new_carries = [
            self.zeros(d) if g is None else g
            for g, d in zip(parts.carries, self.d_carries, strict=True)
        ]
        new_sums = [total + g for total, g in zip(self.sums, of_consts.values(), strict=True)]
        return [child.adopt(t) for t in (*new_carries, *new_sums, *of_xs.values())]

    def emit(
        self, outputs: Sequence[Tensor], saved: Sequence[tuple[Tensor, Tensor]]
    ) -> Sequence[Tensor]:
        """The results of the backward loop. `saved` holds pairs (tensor in its body, stack
        outside)."""
        child, outer = self.child, self.outer
        reads = [outputs, *(node.inputs for node in child.nodes)]
        used = [i for i, t in enumerate(self.x_args) if any(is_among(t, row) for row in reads)]
        inside = Parts(
            tuple(child.captures.values()),
            (*self.d_carries, *self.sums),
            (*(inner for inner, _ in saved), *(self.x_args[i] for i in used), *self.d_ys),
        )
        outside = Parts(
            tuple(child.captures),
            (
                *(self.adjoint_or_zeros(i) for i in self.flowing),
                *(self.zeros(outer.consts[i]) for i in self.live_consts),
            ),
            (
                *(stack for _, stack in saved),
                *(outer.xs[i] for i in used),
                *(t for i in self.stacked if (t := self.adjoints[i]) is not None),
            ),
        )
        return self.loop(inside, outside, outputs)

    def loop(self, inside: Parts, outside: Parts, outputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """Adds the backward loop, with `inside` as the inputs of its body."""
        body = region(self.child.name, inside.all(), self.child.nodes, outputs)
        attrs = {
            **self.node.attrs,
            "consts": len(outside.consts),
            "carries": len(outside.carries),
            "reverse": not self.node.attrs["reverse"],
        }
        return emit_node(self.node.op, outside.all(), regions=(body,), **attrs).outputs

    def zeros(self, like: Tensor) -> Tensor:
        result: Tensor = self.ctx.ops.zeros_like(like)
        return result

    def adjoint_or_zeros(self, carry: int) -> Tensor:
        adjoint = self.adjoints[carry]
        return self.zeros(self.outer.carries[carry]) if adjoint is None else adjoint

    def save(self, outputs: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
        """Makes the forward loop stack the body tensors that the gradient nodes use.

        Drops the copied forward nodes. Returns pairs (tensor in the backward body, stack).
        """
        self.body, used = drop_forward(self.child, self.body, self.copies, self.forward, outputs)
        outside = {*self.const_args, *self.x_args}
        needed = {t: copy for t, copy in used.items() if copy not in outside}
        stacks = self.stack(list(needed))
        return list(zip(needed.values(), stacks, strict=True))

    def stack(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The stacked results of these body tensors. Adds the missing ones to the forward loop."""
        results = self.body.output_tensors()
        position = {t: i for i, t in enumerate(results) if i >= self.carries}
        missing = [t for t in tensors if t not in position]
        length = self.node.attrs["length"]
        new = [Tensor(stacked_type(t.type, length), f"{self.node.name}:saved") for t in missing]
        if missing:
            body = region(
                self.body.name,
                self.body.input_tensors(),
                self.body.nodes,
                [*results, *missing],
            )
            regions = (body, *self.node.regions[1:])
            changed = self.node.replace(outputs=(*self.node.outputs, *new), regions=regions)
            self.graph.replace_node(self.node, changed)
            self.node, self.body = changed, body
            for i, t in enumerate(missing):
                position[t] = len(results) + i
        return [self.node.outputs[position[t]] for t in tensors]
