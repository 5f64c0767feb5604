"""`LoopView`: the named parts of a loop, for passes that add parts or remove them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program, region
from graphc.ir.rewrite import substitute
from graphc.ops.control.bodies import Parts, split

Tensors = tuple[Tensor, ...]


@dataclass(frozen=True, eq=False)
class LoopView:
    """The parts of a `Scan` or `While`. The methods `with_...` and `without_...` return a changed
    view. `write` returns the node that a view describes.

    Attributes:
        node: the original loop.
        outer: the operands of the loop.
        inner: the inputs of the body that correspond to them.
        nodes: the nodes of the body.
        following: the carries that the body returns.
        ys: the other values that the body returns; the loop stacks them.
        finals: the results of the loop that are final carries.
        stacks: the other results of the loop, the stacked `ys`.
        others: the inputs of the other regions. They have no xs.
    """

    node: Node
    outer: Parts
    inner: Parts
    nodes: tuple[Node, ...]
    following: Tensors
    ys: Tensors
    finals: Tensors
    stacks: Tensors
    others: tuple[Parts, ...] = ()

    @classmethod
    def of(cls, node: Node) -> LoopView:
        consts, carries = node.attrs["consts"], node.attrs["carries"]
        body, *others = node.regions
        results = tuple(body.output_tensors())
        return cls(
            node,
            split(node.inputs, consts, carries),
            split(body.input_tensors(), consts, carries),
            body.nodes,
            results[:carries],
            results[carries:],
            node.outputs[:carries],
            node.outputs[carries:],
            tuple([split(other.input_tensors(), consts, carries) for other in others]),
        )

    def with_consts(self, pairs: Iterable[tuple[Tensor, Tensor]]) -> LoopView:
        """Adds values that are the same in each iteration, as pairs (outside, inside)."""
        rows = tuple(pairs)
        return replace(
            self,
            outer=_more(self.outer, "consts", [outside for outside, _ in rows]),
            inner=_more(self.inner, "consts", [inside for _, inside in rows]),
            others=tuple([_more(o, "consts", [_copy(t) for _, t in rows]) for o in self.others]),
        )

    def with_carries(self, rows: Iterable[tuple[Tensor, Tensor, Tensor, Tensor]]) -> LoopView:
        """Adds carries, as rows (initial, inside, following, final)."""
        rows = tuple(rows)
        new = [inside for _, inside, _, _ in rows]
        return replace(
            self,
            outer=_more(self.outer, "carries", [row[0] for row in rows]),
            inner=_more(self.inner, "carries", new),
            following=(*self.following, *[row[2] for row in rows]),
            finals=(*self.finals, *[row[3] for row in rows]),
            others=tuple([_more(o, "carries", [_copy(t) for t in new]) for o in self.others]),
        )

    def without_carries(self, gone: Collection[int]) -> LoopView:
        """Removes carries by index. The body must not use them."""
        kept = [i for i in range(len(self.finals)) if i not in gone]

        def only(parts: Parts) -> Parts:
            return parts._replace(carries=tuple([parts.carries[i] for i in kept]))

        return replace(
            self,
            outer=only(self.outer),
            inner=only(self.inner),
            following=tuple([self.following[i] for i in kept]),
            finals=tuple([self.finals[i] for i in kept]),
            others=tuple(map(only, self.others)),
        )

    def without_xs(self, gone: Collection[int]) -> LoopView:
        """Removes input stacks by index. The body must not use their slices as inputs."""
        kept = [i for i in range(len(self.outer.xs)) if i not in gone]

        def only(parts: Parts) -> Parts:
            return parts._replace(xs=tuple([parts.xs[i] for i in kept]))

        return replace(self, outer=only(self.outer), inner=only(self.inner))

    def with_ys(self, pairs: Iterable[tuple[Tensor, Tensor]]) -> LoopView:
        """Adds values to stack, as pairs (inside, stack)."""
        rows = tuple(pairs)
        return replace(
            self,
            ys=(*self.ys, *[inside for inside, _ in rows]),
            stacks=(*self.stacks, *[stack for _, stack in rows]),
        )

    def with_nodes(self, nodes: Iterable[Node]) -> LoopView:
        """Replaces the nodes of the body."""
        return replace(self, nodes=tuple(nodes))

    def substituted(self, instead: Mapping[Tensor, Tensor]) -> LoopView:
        """Replaces tensors in the nodes and results of the body: keys of `instead` by values."""
        return replace(
            self,
            nodes=tuple(substitute(self.nodes, instead)),
            following=tuple([instead.get(t, t) for t in self.following]),
            ys=tuple([instead.get(t, t) for t in self.ys]),
        )

    def given(self) -> list[Tensor]:
        """The values that the body returns."""
        return [*self.following, *self.ys]

    def write(self) -> Node:
        """The node of the loop that the view describes."""
        body, *others = self.node.regions
        counts = {"consts": len(self.outer.consts), "carries": len(self.outer.carries)}
        looks: list[Program] = [
            region(other.name, taken.all(), other.nodes, other.output_tensors())
            for other, taken in zip(others, self.others, strict=True)
        ]
        return self.node.replace(
            inputs=tuple(self.outer.all()),
            outputs=(*self.finals, *self.stacks),
            attrs={**self.node.attrs, **counts},
            regions=(region(body.name, self.inner.all(), self.nodes, self.given()), *looks),
        )


def _more(parts: Parts, role: str, new: list[Tensor]) -> Parts:
    return parts._replace(**{role: (*getattr(parts, role), *new)})


def _copy(tensor: Tensor) -> Tensor:
    return Tensor(tensor.type, tensor.name)
