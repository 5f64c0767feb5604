"""`LoopView`: the named parts of a loop, for passes that add parts or remove them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program, region
from graphc.ir.rewrite import substitute
from graphc.ops.control.bodies import Parts, fresh, parts_of

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
        outer, inner, *others = [
            parts_of(node, items)
            for items in (node.inputs, *(body.input_tensors() for body in node.regions))
        ]
        body, carries = node.regions[0], len(outer.carries)
        results, outputs = tuple(body.output_tensors()), node.outputs
        ends = results[:carries], results[carries:], outputs[:carries], outputs[carries:]
        return cls(node, outer, inner, body.nodes, *ends, tuple(others))

    def order(self) -> range:
        """The positions in the stacks, in the order of the iterations of a `Scan`."""
        length: int = self.node.attrs["length"]
        return range(length - 1, -1, -1) if self.node.attrs["reverse"] else range(length)

    def with_consts(
        self, pairs: Iterable[tuple[Tensor, Tensor]], others: Sequence[Sequence[Tensor]] = ()
    ) -> LoopView:
        """Adds values that are the same in each iteration, as pairs (outside, inside).

        Args:
            others: for each other region the inputs that represent them; new ones by default.
        """
        rows = tuple(pairs)
        return self._with("consts", [row[0] for row in rows], [row[1] for row in rows], others)

    def with_carries(
        self,
        rows: Iterable[tuple[Tensor, Tensor, Tensor, Tensor]],
        others: Sequence[Sequence[Tensor]] = (),
    ) -> LoopView:
        """Adds carries, as rows (initial, inside, following, final).

        Args:
            others: for each other region the inputs that represent them; new ones by default.
        """
        rows = tuple(rows)
        view = self._with("carries", [row[0] for row in rows], [row[1] for row in rows], others)
        return replace(
            view,
            following=(*self.following, *[row[2] for row in rows]),
            finals=(*self.finals, *[row[3] for row in rows]),
        )

    def _with(
        self, role: str, outer: list[Tensor], inner: list[Tensor], own: Sequence[Sequence[Tensor]]
    ) -> LoopView:
        new = own or [list(map(fresh, inner)) for _ in self.others]
        return replace(
            self,
            outer=_more(self.outer, role, outer),
            inner=_more(self.inner, role, inner),
            others=tuple([_more(o, role, t) for o, t in zip(self.others, new, strict=True)]),
        )

    def with_xs(self, pairs: Iterable[tuple[Tensor, Tensor]]) -> LoopView:
        """Adds stacks whose slices the body takes, as pairs (stack, slice)."""
        rows = tuple(pairs)
        return replace(
            self,
            outer=_more(self.outer, "xs", [stack for stack, _ in rows]),
            inner=_more(self.inner, "xs", [inside for _, inside in rows]),
        )

    def without_carries(self, gone: Collection[int]) -> LoopView:
        """Removes carries by index. The body must not use them."""
        return replace(
            self,
            outer=_fewer(self.outer, "carries", gone),
            inner=_fewer(self.inner, "carries", gone),
            following=_left(self.following, gone),
            finals=_left(self.finals, gone),
            others=tuple([_fewer(other, "carries", gone) for other in self.others]),
        )

    def without_xs(self, gone: Collection[int]) -> LoopView:
        """Removes input stacks by index. The body must not use their slices as inputs."""
        return replace(
            self, outer=_fewer(self.outer, "xs", gone), inner=_fewer(self.inner, "xs", gone)
        )

    def with_ys(self, pairs: Iterable[tuple[Tensor, Tensor]]) -> LoopView:
        """Adds values to stack, as pairs (inside, stack)."""
        rows = tuple(pairs)
        return replace(
            self,
            ys=(*self.ys, *[inside for inside, _ in rows]),
            stacks=(*self.stacks, *[stack for _, stack in rows]),
        )

    def only_stacks(self, kept: Collection[Tensor]) -> LoopView:
        """Removes the output stacks that are not in `kept`."""
        rows = [(y, stack) for y, stack in zip(self.ys, self.stacks, strict=True) if stack in kept]
        return replace(
            self,
            ys=tuple([inside for inside, _ in rows]),
            stacks=tuple([stack for _, stack in rows]),
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


def _more(parts: Parts, role: str, new: Sequence[Tensor]) -> Parts:
    return parts._replace(**{role: (*getattr(parts, role), *new)})


def _fewer(parts: Parts, role: str, gone: Collection[int]) -> Parts:
    return parts._replace(**{role: _left(getattr(parts, role), gone)})


def _left(items: Tensors, gone: Collection[int]) -> Tensors:
    return tuple([item for i, item in enumerate(items) if i not in gone])
