"""The gradient of `scan`: a scan the other way, over what the forward one saved."""

from __future__ import annotations

from collections.abc import Sequence

from graphc.ir.dtypes import is_inexact
from graphc.ir.graph import Graph
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import GradientContext
from graphc.ir.program import is_pure, region
from graphc.ir.scopes import building
from graphc.ir.types import TensorType
from graphc.ops.bodies import inline, split
from graphc.ops.emit import emit_node, graph_of


def scan_gradient(
    ctx: GradientContext, node: Node, *adjoints: Tensor | None
) -> list[Tensor | None]:
    """A scan the other way, over the values that the forward body computed.

    What the backward body needs of the forward one is stacked by the forward scan: nothing is
    computed twice. Source: Griewank & Walther, Evaluating Derivatives, 2008, chapter 12.
    """
    graph = graph_of(node.inputs)
    node = graph.node(node.name)  # it may have been given more results meanwhile
    backward = _BackwardScan(ctx, graph, node, adjoints)
    return backward.build()


class _BackwardScan:
    """The parts of one backward scan, put together step by step."""

    def __init__(
        self,
        ctx: GradientContext,
        graph: Graph,
        node: Node,
        adjoints: Sequence[Tensor | None],
    ) -> None:
        self.ctx, self.graph, self.node = ctx, graph, node
        self.consts: int = node.attrs["consts"]
        self.carries: int = node.attrs["carries"]
        self.body = node.regions[0]
        self.outer = split(node.inputs, self.consts, self.carries)
        # Results added by an earlier gradient have no adjoint.
        self.adjoints = [*adjoints, *[None] * (len(node.outputs) - len(adjoints))]

    def zeros(self, like: Tensor) -> Tensor:
        result: Tensor = self.ctx.ops.zeros_like(like)
        return result

    def adjoint_or_zeros(self, carry: int) -> Tensor:
        adjoint = self.adjoints[carry]
        return self.zeros(self.outer.carries[carry]) if adjoint is None else adjoint

    def build(self) -> list[Tensor | None]:
        consts, carries = self.consts, self.carries
        outer, inner = self.outer, split(self.body.input_tensors(), consts, carries)
        results = self.body.output_tensors()
        flowing = [i for i in range(carries) if is_inexact(results[i].type.dtype)]
        summed = [i for i in range(consts) if is_inexact(outer.consts[i].type.dtype)]
        sliced = [i for i in range(len(outer.xs)) if is_inexact(outer.xs[i].type.dtype)]
        stacked = [i for i in range(carries, len(results)) if self.adjoints[i] is not None]
        child = Graph(name=f"{self.body.name}_grad", parent=self.graph)
        with building(child):
            # The forward body once more, to differentiate; what of it survives is replaced by
            # saved values below.
            const_args = [child.adopt(t) for t in outer.consts]
            carry_args = [child.add_input(t.type, t.name) for t in inner.carries]
            x_args = [child.add_input(t.type, t.name) for t in inner.xs]
            copies = inline(child, self.body, [*const_args, *carry_args, *x_args])
            forward = set(child.nodes)
            d_carries = [child.add_input(results[i].type, f"d_carry{i}") for i in flowing]
            d_ys = [child.add_input(results[i].type, f"d_y{i}") for i in stacked]
            sums = [child.add_input(outer.consts[i].type, f"sum{i}") for i in summed]
            wanted = [
                *(const_args[i] for i in summed),
                *(carry_args[i] for i in flowing),
                *(x_args[i] for i in sliced),
            ]
            gradients = self.ctx.gradients(
                [copies[results[i]] for i in (*flowing, *stacked)], wanted, [*d_carries, *d_ys]
            )
            g_consts = gradients[: len(summed)]
            g_carries = gradients[len(summed) : len(summed) + len(flowing)]
            g_xs = gradients[len(summed) + len(flowing) :]
            live = [k for k, g in enumerate(g_consts) if g is not None]
            new_sums = [sums[k] + g for k in live if (g := g_consts[k]) is not None]
            new_carries = [
                self.zeros(d) if g is None else g for g, d in zip(g_carries, d_carries, strict=True)
            ]
            live_xs = [k for k, g in enumerate(g_xs) if g is not None]
            new_xs = [g_xs[k] for k in live_xs]
            outputs = [child.adopt(t) for t in (*new_carries, *new_sums, *new_xs) if t is not None]
        saved = self.save(child, forward, copies, outputs, carry_args)
        used_x = [i for i, t in enumerate(x_args) if _is_used(t, child, outputs)]
        body = region(
            child.name,
            [
                *child.captures.values(),
                *d_carries,
                *(sums[k] for k in live),
                *(inside for inside, _ in saved),
                *(x_args[i] for i in used_x),
                *d_ys,
            ],
            child.nodes,
            outputs,
        )
        inputs = [
            *child.captures,
            *(self.adjoint_or_zeros(i) for i in flowing),
            *(self.zeros(outer.consts[summed[k]]) for k in live),
            *(outside for _, outside in saved),
            *(outer.xs[i] for i in used_x),
            *(self.adjoints[i] for i in stacked),
        ]
        backward = emit_node(
            self.node.op,
            [t for t in inputs if t is not None],
            regions=(body,),
            consts=len(child.captures),
            carries=len(d_carries) + len(live),
            length=self.node.attrs["length"],
            reverse=not self.node.attrs["reverse"],
        )
        found: list[Tensor | None] = [None] * len(self.node.inputs)
        values = iter(backward.outputs)
        for i in flowing:
            found[consts + i] = next(values)
        for k in live:
            found[summed[k]] = next(values)
        for k in live_xs:
            found[consts + carries + sliced[k]] = next(values)
        return found

    def save(
        self,
        child: Graph,
        forward: set[Node],
        copies: dict[Tensor, Tensor],
        outputs: Sequence[Tensor],
        carry_args: Sequence[Tensor],
    ) -> list[tuple[Tensor, Tensor]]:
        """Makes the forward scan stack what the gradient nodes of `child` use of its body.

        Drops the copied forward nodes from `child`; gives (tensor in the backward body, stack).
        """
        self.share_inner_loops(child, forward, copies)
        constants = {n for n in forward if not n.inputs and not n.regions and is_pure(n)}
        gradient_nodes = [n for n in child.nodes if n not in forward]
        used = {t for n in gradient_nodes for t in n.inputs} | set(outputs)
        child.nodes = [n for n in child.nodes if n in constants or n not in forward]
        made_here = {t for n in child.nodes for t in n.outputs}
        needed = [
            (original, copy)
            for original, copy in copies.items()
            if copy in used
            and copy not in made_here
            and (copy in carry_args or any(copy in n.outputs for n in forward))
        ]
        stacks = self.stack([original for original, _ in needed])
        return [(copy, stack) for (_, copy), stack in zip(needed, stacks, strict=True)]

    def share_inner_loops(
        self, child: Graph, forward: set[Node], copies: dict[Tensor, Tensor]
    ) -> None:
        """Gives loops in the forward body the results that their copies in `child` were given.

        Else the backward scan would have to run them again, and with them what they draw and
        assign. The copies count as copied forward nodes, and so are dropped.
        """
        nodes = []
        for node in self.body.nodes:
            copy = child.producer(copies[node.outputs[0]]) if node.outputs else None
            if copy is not None and len(copy.outputs) > len(node.outputs):
                forward.add(copy)
                added = copy.outputs[len(node.outputs) :]
                new = [Tensor(t.type, t.name) for t in added]
                copies.update(zip(new, added, strict=True))
                node = node.replace(outputs=(*node.outputs, *new), regions=copy.regions)
            nodes.append(node)
        self.body = self.body.replace(nodes=tuple(nodes))

    def stack(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The forward scan's stacked results of these body tensors, added where missing."""
        results = self.body.output_tensors()
        position = {t: i for i, t in enumerate(results) if i >= self.carries}
        missing = [t for t in tensors if t not in position]
        length = self.node.attrs["length"]
        new = [
            Tensor(TensorType(t.type.dtype, (length, *t.type.shape)), f"{self.node.name}:saved")
            for t in missing
        ]
        if missing:
            body = region(
                self.body.name,
                self.body.input_tensors(),
                self.body.nodes,
                [*results, *missing],
            )
            changed = self.node.replace(outputs=(*self.node.outputs, *new), regions=(body,))
            self.graph.replace_node(self.node, changed)
            self.node, self.body = changed, body
            for i, t in enumerate(missing):
                position[t] = len(results) + i
        return [self.node.outputs[position[t]] for t in tensors]


def _is_used(tensor: Tensor, graph: Graph, outputs: Sequence[Tensor]) -> bool:
    return tensor in outputs or any(tensor in node.inputs for node in graph.nodes)
