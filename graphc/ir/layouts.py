"""Layouts: how a tensor lies on the replicas of a data-parallel run.

An operator's layout rule takes the layouts its operands have and answers with a `LayoutPlan`:
the layouts it requires them to be in, the layouts of its results, and its attributes made
local. The replicate pass inserts the collective or slice wherever the two differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Concatenate, Protocol, TypeVar
from weakref import WeakSet

from graphc.errors import LayoutError

if TYPE_CHECKING:
    from graphc.ir.node import Node
    from graphc.ir.opdef import OpDef
    from graphc.ir.program import Program


@dataclass(frozen=True)
class Replicated:
    """Every replica holds the whole value."""

    def __str__(self) -> str:
        return "replicated"


@dataclass(frozen=True)
class Sharded:
    """Each replica holds an equal piece, cut along `axis` in replica order.

    Attributes:
        rows: None where the axis divides by the replicas. Otherwise it is cut as a batch of so
            many rows is: into pieces of ceil(rows / replicas) rows, of which the last ones hold
            padding behind the real rows. An axis of another size, where a row is several
            elements, is cut between the same rows. Layout rules never see it.
    """

    axis: int
    rows: int | None = None

    def __str__(self) -> str:
        return f"sharded({self.axis})" + ("" if self.rows is None else f" of {self.rows} rows")


@dataclass(frozen=True)
class Partial:
    """Each replica holds a term; the whole is their `op`: "sum", "max" or "min"."""

    op: str

    def __str__(self) -> str:
        return f"partial({self.op})"


Layout = Replicated | Sharded | Partial
Fill = str | int

REPLICATED = Replicated()


def axis_of(layout: Layout) -> int | None:
    """The axis along which the layout is cut, or None."""
    return layout.axis if isinstance(layout, Sharded) else None


@dataclass(frozen=True)
class LayoutPlan:
    """The answer of a layout rule.

    Attributes:
        operands: the layout each operand must be in (one per operand).
        results: the layout each result then has (one per result).
        attrs: attributes to change so that the node computes its local part; None for none.
        regions: the node's regions made local; None where they stay.
        fold_replica: the operand positions of random keys that must differ per replica.
        fill: where results take elements of sharded operands together, as sums do: what must
            stand in the padding of a batch that does not divide by the replicas, for the results
            to be those of the real rows. By the position of an operand, "sum", "max" or "min" for
            what leaves that of others as it is, or the position of another operand, whose
            elements it then holds. None: nothing is known that would do, and such an operand is
            gathered. Results that are all sharded need no word on it: an operator that may be
            cut between any two rows keeps what is in the padding there.
    """

    operands: Sequence[Layout]
    results: Sequence[Layout]
    attrs: Mapping[str, Any] | None = None
    regions: Sequence[Program] | None = None
    fold_replica: Sequence[int] = ()
    fill: Mapping[int, Fill] | None = None


class LayoutContext(Protocol):
    """What a layout rule may ask of the replicate pass."""

    @property
    def catalogue(self) -> Mapping[str, OpDef]:
        """The operators by name."""

    @property
    def replicas(self) -> int | Fraction:
        """By what the sizes of sharded axes divide.

        How many replicas there are; of five rows in pieces of two there are 5/2 pieces, and it is
        that fraction.
        """

    def replicate_region(
        self,
        region: Program,
        inputs: Sequence[Layout],
        required: Sequence[Layout | None],
    ) -> tuple[Program, list[Layout]]:
        """The region made local for inputs lying so, and the layouts of its outputs.

        Outputs are brought into the layout `required`; None takes what comes.
        """


# `layout(ctx, node, *operand_layouts) -> LayoutPlan`; the node's types are global.
LayoutRule = Callable[Concatenate[LayoutContext, "Node", ...], LayoutPlan]
Rule = TypeVar("Rule", bound=LayoutRule)


def of_elements(rule: Rule) -> Rule:
    """Marks the layout rule of operators each of whose results' elements depends on the operands'
    elements in its place alone, broadcasting apart. See `OpDef.is_elementwise`."""
    _OF_ELEMENTS.add(rule)
    return rule


def is_of_elements(rule: LayoutRule | None) -> bool:
    """Whether `rule` is marked by `of_elements`."""
    return rule in _OF_ELEMENTS


_OF_ELEMENTS: WeakSet[LayoutRule] = WeakSet()


@dataclass(frozen=True)
class Pieces:
    """What a layout rule may ask for where a single node is cut into pieces, without replicas.

    Attributes:
        catalogue: the operators by name.
        replicas: how many pieces there are.
    """

    catalogue: Mapping[str, OpDef]
    replicas: int | Fraction

    def replicate_region(
        self,
        region: Program,
        inputs: Sequence[Layout],
        required: Sequence[Layout | None],
    ) -> tuple[Program, list[Layout]]:
        """Refused: whoever cuts a node does so only without regions."""
        raise LayoutError(f"{region.name}: a node with regions is not cut into pieces")
