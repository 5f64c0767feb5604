"""Layouts: how a tensor is distributed over the replicas of a data-parallel run.

An operator's layout rule takes the layouts of its operands and returns a `LayoutPlan`: the required
layouts of the operands, the layouts of the results, and the local attributes. The replicate pass
inserts a collective or slice wherever the actual and the required layout differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, Protocol, TypeVar
from weakref import WeakSet

from graphc.errors import LayoutError

if TYPE_CHECKING:
    from graphc.ir.node import Node, Tensor
    from graphc.ir.opdef import OpDef
    from graphc.ir.program import Program


@dataclass(frozen=True)
class Replicated:
    """Every replica holds the whole value."""

    def __str__(self) -> str:
        return "replicated"


@dataclass(frozen=True)
class Sharded:
    """Each replica holds an equal piece, split along `axis` in replica order.

    Attributes:
        rows: None if the axis divides by the number of replicas. Otherwise the axis is split like a
            batch of this many rows: into pieces of ceil(rows / replicas) rows. The last pieces hold
            padding after the real rows. An axis of another size, in which a row is several
            elements, is split between the same rows. Layout rules never see this attribute.
    """

    axis: int
    rows: int | None = None

    def __str__(self) -> str:
        return f"sharded({self.axis})" + ("" if self.rows is None else f" of {self.rows} rows")


@dataclass(frozen=True)
class Partial:
    """Each replica holds a term. `op` combines the terms: "sum", "max" or "min"."""

    op: str

    def __str__(self) -> str:
        return f"partial({self.op})"


Layout = Replicated | Sharded | Partial
Fill = str | int

REPLICATED = Replicated()


def axis_of(layout: Layout) -> int | None:
    """The axis along which the layout is split, or None."""
    return layout.axis if isinstance(layout, Sharded) else None


@dataclass(frozen=True)
class LayoutPlan:
    """The result of a layout rule.

    Attributes:
        operands: the required layout of each operand.
        results: the layout of each result.
        attrs: attributes to change so that the node computes its local part, or None.
        regions: the node's regions made local; None if they are unchanged.
        fold_replica: the operand positions of random keys that must differ per replica.
        fill: for results that combine elements of sharded operands, such as sums. A batch that
            does not divide by the replicas is padded; this padding must not change the results of
            the real rows. `fill` maps the position of an operand to "sum", "max" or "min", for a
            value that does not change the result of this reduction, or to the position of another
            operand, whose elements the padding then holds. None means that no such padding is
            known, and the operand is gathered. Results that are all sharded need no `fill`: in an
            operator that may be split between any two rows, padding affects only padding.
    """

    operands: Sequence[Layout]
    results: Sequence[Layout]
    attrs: Mapping[str, Any] | None = None
    regions: Sequence[Program] | None = None
    fold_replica: Sequence[int] = ()
    fill: Mapping[int, Fill] | None = None

    def local(self, node: Node, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Node:
        """`node` as it computes its local part: with the plan's attributes and regions."""
        return node.replace(
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            attrs={**node.attrs, **self.attrs} if self.attrs else node.attrs,
            regions=node.regions if self.regions is None else tuple(self.regions),
        )


class LayoutContext(Protocol):
    """The information that the replicate pass gives to layout rules."""

    @property
    def catalogue(self) -> Mapping[str, OpDef]:
        """The operators by name."""

    @property
    def replicas(self) -> int | Fraction:
        """The number by which the sizes of sharded axes divide.

        This is the number of replicas. For an uneven batch it is a fraction: five rows in pieces of
        two make 5/2 pieces.
        """

    def replicate_region(
        self, region: Program, inputs: Sequence[Layout], required: Sequence[Layout | None]
    ) -> tuple[Program, list[Layout]]:
        """The local region for inputs with these layouts, and the layouts of its outputs.

        Outputs are converted to the layouts in `required`; None accepts any layout.
        """


# `layout(ctx, node, *operand_layouts) -> LayoutPlan`; the node's types are global.
LayoutRule = Callable[Concatenate[LayoutContext, "Node", ...], LayoutPlan]
Rule = TypeVar("Rule", bound=LayoutRule)


def of_elements(rule: Rule) -> Rule:
    """Marks the layout rule of elementwise operators: each element of a result depends only on the
    elements of the operands at its position, after broadcasting. See `OpDef.is_elementwise`."""
    _OF_ELEMENTS.add(rule)
    return rule


def is_of_elements(rule: LayoutRule | None) -> bool:
    """Whether `rule` is marked by `of_elements`."""
    return rule in _OF_ELEMENTS


_OF_ELEMENTS: WeakSet[LayoutRule] = WeakSet()


@dataclass(frozen=True)
class Pieces:
    """The `LayoutContext` for a single node that is split into pieces, without replicas.

    Attributes:
        catalogue: the operators by name.
        replicas: the number of pieces.
    """

    catalogue: Mapping[str, OpDef]
    replicas: int | Fraction

    def replicate_region(self, region: Program, *args: Any, **kwargs: Any) -> NoReturn:
        """Raises LayoutError, because only nodes without regions are split."""
        raise LayoutError(f"{region.name}: a node with regions is not cut into pieces")
