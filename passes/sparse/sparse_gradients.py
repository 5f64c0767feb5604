"""Sparse gradients: updates only the looked-up rows of a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from graphc.errors import LayoutError
from graphc.ir.dims import Dim, Shape, product
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program, is_pure
from graphc.ir.rewrite import used_from
from graphc.ops.arrays.indexing import SCATTER_ADD
from graphc.ops.structure.training import GRADIENTS
from graphc.passes.core.base import Pass, PassResult
from graphc.passes.core.state_updates import End, in_bodies, states
from graphc.passes.sparse.row_analysis import Group, RowAnalysis, chooses_by_itself
from graphc.passes.sparse.row_writer import RowWriter


class Choice:
    """The values that are written by rows, each into the tensor that it equals elsewhere.

    Args:
        analysis: of the program.
        written: values that are written by rows in any case.

    Attributes:
        written: all such values; grows with each request.
        dense: whether a sum of looked-up rows must be computed as a whole.
    """

    def __init__(
        self, analysis: RowAnalysis, written: Mapping[Tensor, Tensor] | None = None
    ) -> None:
        self.written: dict[Tensor, Tensor] = dict(written or {})
        self.dense = False
        self._rows, self._made = analysis.rows, analysis.made
        self._done: set[Tensor] = set()

    def whole(self, tensors: Iterable[Tensor]) -> None:
        """Requests whole values: a value is written by rows if it equals one tensor elsewhere, and
        otherwise computed as before from whole operands."""
        stack = list(tensors)
        while stack:
            tensor = stack.pop()
            known = self._rows.get(tensor)
            if known is None or tensor in self._done or tensor in self.written:
                continue
            self._done.add(tensor)
            if isinstance(known.outside, Tensor):
                self.written[tensor] = known.outside
                continue
            node = self._made[tensor]
            self.dense = self.dense or node in known.group.root().sources
            stack += node.inputs

    def keeps(self, end: End) -> bool:
        """Whether a state keeps its old value except in the used rows."""
        return end.old is not None and self.written.get(end.new) is end.old


def standing(analysis: RowAnalysis, ends: Iterable[End]) -> dict[Tensor, Tensor]:
    """The values to write by rows if unused rows keep their state."""
    found: dict[Tensor, Tensor] = {}
    for new, old in ends:
        if old is not None and old.type == new.type and old not in analysis.rows:
            found[new] = old
    return found


def wanted(program: Program, analysis: RowAnalysis, group: Group) -> Iterator[Tensor]:
    """The values of the group that other nodes need as a whole."""
    for port in program.outputs:
        if analysis.belongs(port.tensor, group):
            yield port.tensor
    for node in program.nodes:
        if node in analysis.how:
            continue
        for place, tensor in enumerate(node.inputs):
            if analysis.belongs(tensor, group) and not (node in group.sources and place == 0):
                yield tensor


_MOST = 2**31  # rows and lookups that `UniqueRows` counts in int32


@dataclass(frozen=True)
class SparseGradients(Pass):
    """Updates only the rows of a table that a step looked up, if the result is the same.

    The gradient of a lookup is a sum of rows scattered into zeros as large as the table. The values
    that an optimizer computes from it are as large: the squares, the new slots, the update, the new
    table. XLA computes all of them, because it does not know that nearly all rows are zero. This
    pass derives the value of each tensor outside the used rows by algebra (0 + x is x, 0 * x is 0).
    If the table and its slots keep their values there, it computes everything on the used rows,
    each once, and writes them into the old state, which XLA does in place. Sums over all rows, as
    for the global norm, become sums over the used rows.

    Must not: change the meaning of a step. If the new state differs in any other row (momentum and
    adam decay each step), `exact` leaves the program unchanged; `lazy` keeps the state of unused
    rows, as lazy optimizers do. A product with 0 counts as 0, although a slot or a rate may be
    infinite or NaN, which the original program would propagate into all rows. Sums over rows are
    added in another order.

    Attributes:
        lazy: whether unused rows keep their state even if the optimizer would update them.
        fewest: the minimum ratio of rows to lookups. On CPU, both ways take the same time at four.
        smallest: the number of elements of the smallest table to which it applies. If `lazy`
            changes the meaning, neither limit applies, because the meaning must not depend on
            sizes.
    """

    # Not validated: for random state, the root of a negative slot is NaN, and 0 * NaN counts as 0.
    exact: ClassVar[bool] = False
    lazy: bool = False
    fewest: int = 4
    smallest: int = 1 << 16

    def run(self, program: Program) -> PassResult:
        return self._run(program, states(program))

    def _run(self, program: Program, ends: list[End]) -> PassResult:
        program, changed = in_bodies(program, self._run)
        if not any(map(self._may_pay, program.nodes)):
            return PassResult(program, changed)
        live = used_from(program.nodes, program.output_tensors(), lambda node: not is_pure(node))
        analysis = RowAnalysis(live)
        for group in analysis.groups():
            if self.lazy:
                _check_no_micro_batches(live, analysis, group)
            try:
                choice = self._choice(program, analysis, group, ends)
                if choice is not None and not chooses_by_itself(program, group):
                    program = RowWriter(program, analysis, group, choice.written).run()
                    changed += 1
            except Exception as error:
                raise self.fault(group.sources[0], error) from error
        return PassResult(program, changed)

    def _choice(
        self, program: Program, analysis: RowAnalysis, group: Group, ends: list[End]
    ) -> Choice | None:
        """The values to write by rows; None for none."""
        lookups = group.lookups()
        if group.rows + (lookups if isinstance(lookups, int) else 0) >= _MOST:
            return None
        own = [end for end in ends if analysis.belongs(end.new, group)]
        choice = Choice(analysis)
        choice.whole(end.new for end in own)
        kept = [choice.keeps(end) for end in own]
        if self.lazy and not all(kept):
            choice = Choice(analysis, standing(analysis, own))
            choice.whole(end.new for end in own)
            if not choice.written:
                return None
        elif choice.dense or not any(kept) or not self._is_worth(group):
            return None
        choice.whole(wanted(program, analysis, group))
        return choice

    def _may_pay(self, node: Node) -> bool:
        """Whether a group with this source might be large enough."""
        if node.op is not SCATTER_ADD:
            return False
        table, indices = node.inputs[0].type.shape, node.inputs[1].type.shape
        return self.lazy or self._pays(table, table[node.attrs["axis"]], product(indices))

    def _is_worth(self, group: Group) -> bool:
        return self._pays(group.sources[0].inputs[0].type.shape, group.rows, group.lookups())

    def _pays(self, table: Shape, rows: Dim, lookups: Dim) -> bool:
        size = product(table)
        if not (isinstance(size, int) and isinstance(rows, int) and isinstance(lookups, int)):
            return False  # until sizes are bound
        return size >= self.smallest and lookups * self.fewest <= rows


def _check_no_micro_batches(nodes: Iterable[Node], analysis: RowAnalysis, group: Group) -> None:
    """Raises an error if gradients by rows are summed over micro-batches before they are used,
    because lazy updates would then update all rows and have another meaning."""
    for node in nodes:
        if node.op is GRADIENTS and any(analysis.belongs(t, group) for t in node.inputs):
            raise LayoutError(
                f'sparse_updates="lazy" cannot be combined with minimize(accumulate='
                f"{node.attrs['accumulate']}): each micro-batch looks up its own rows",
                source=node.source or group.sources[0].source,
                hint='use sparse_updates="exact", under which all rows are updated, or '
                "accumulate=1",
            )
