"""What of a group of values is written into old state by rows, and what is made whole as before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from graphc.ir.node import Tensor
from graphc.ir.program import Program
from graphc.passes.core.state_updates import End
from graphc.passes.sparse.row_analysis import Group, RowAnalysis


class Choice:
    """Which values are written by rows, each into the tensor that it equals elsewhere.

    Args:
        analysis: of the program.
        written: values that are written by rows in any case.

    Attributes:
        written: all that are; grows with what is asked for.
        dense: whether a sum of looked-up rows has to be made whole.
    """

    def __init__(
        self, analysis: RowAnalysis, written: Mapping[Tensor, Tensor] | None = None
    ) -> None:
        self.written: dict[Tensor, Tensor] = dict(written or {})
        self.dense = False
        self._rows, self._made = analysis.rows, analysis.made
        self._done: set[Tensor] = set()

    def whole(self, tensors: Iterable[Tensor]) -> None:
        """Has these there whole: written by rows where one tensor is all of the rest, or else
        computed as before from operands that are there whole."""
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
        """Whether a state keeps its old value but for rows."""
        return end.old is not None and self.written.get(end.new) is end.old


def standing(analysis: RowAnalysis, ends: Iterable[End]) -> dict[Tensor, Tensor]:
    """What is written by rows if rows that are not used stand still."""
    found: dict[Tensor, Tensor] = {}
    for new, old in ends:
        if old is not None and old.type == new.type and old not in analysis.rows:
            found[new] = old
    return found


def wanted(program: Program, analysis: RowAnalysis, group: Group) -> Iterator[Tensor]:
    """The group's values that somebody else needs whole."""
    for port in program.outputs:
        if analysis.belongs(port.tensor, group):
            yield port.tensor
    for node in program.nodes:
        if node in analysis.how:
            continue
        for place, tensor in enumerate(node.inputs):
            if analysis.belongs(tensor, group) and not (node in group.sources and place == 0):
                yield tensor
