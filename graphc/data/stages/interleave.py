"""The stage `interleave`: items of several pipelines in turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from graphc.data.core.cursor import Cursor, Following, Items, Mark, State
from graphc.data.core.kept import Kept
from graphc.data.core.node import Node, Run, Stage
from graphc.data.stages.parallel import Told, name_of
from graphc.data.stages.reading import open_records


@dataclass(frozen=True, eq=False)
class Interleave(Stage):
    """Makes a pipeline of each item, and reads `cycle` of them in turn.

    Attributes:
        function: item -> the node of a pipeline.
        cycle: how many to read at the same time.
        block: how many items to take from one before the next.
    """

    function: Callable[[Any], Node]
    cycle: int
    block: int
    count = None  # not known

    def open(self, epoch: int, run: Run) -> Cursor:
        """A cursor that has opened none of them yet."""
        return _Interleaving(self, open_records(self.upstream, epoch, run), epoch, run)

    @property
    def label(self) -> str:
        """The stage with its options."""
        return f"interleave({self.cycle}, {self.block})"


class _Part:
    """One of the pipelines that are read."""

    def __init__(self, number: int, before: Mark, node: Node, epoch: int, run: Run) -> None:
        self.number = number  # of the item that the pipeline was made of
        self.before = before  # its position
        self._whole, self._run = run, run.part()
        self.cursor = open_records(node, epoch, self._run)

    def close(self) -> None:
        self.cursor.close()
        self._whole.drop(self._run)


class _Interleaving(Following):
    def __init__(self, node: Interleave, upstream: Cursor, epoch: int, run: Run) -> None:
        super().__init__(upstream)
        self._node, self._epoch, self._run = node, epoch, run
        self._told = Told(f"interleave({name_of(node.function)})", node.made_at)
        self._source = Kept(upstream)
        self._parts: list[_Part] = []
        self._turn = 0
        self._given = 0  # in this turn
        self._ended = False
        self._origin = ""

    @property
    def weight(self) -> int:  # type: ignore[override]
        return self.upstream.weight + sum(part.cursor.weight for part in self._parts)

    def _next_part(self) -> _Part | None:
        if self._ended:
            return None
        fresh = self._source.read()
        if fresh is None:
            self._ended = True
            return None
        return self._part_of(fresh)

    def _part_of(self, fresh: tuple[Any, int, Mark, str]) -> _Part:
        item, number, before, origin = fresh
        try:
            return _Part(number, before, self._node.function(item), self._epoch, self._run)
        except Exception as error:
            self._told.add_to(error, number, origin)
            raise

    def read(self, n: int) -> Items:
        found: list[Any] = []
        while len(found) < n:
            if self._turn >= len(self._parts):
                part = self._next_part() if len(self._parts) < self._node.cycle else None
                if part is not None:
                    self._parts.append(part)
                elif not self._parts:
                    break
                else:
                    self._turn = 0
                continue
            self._take(found, n)
        return found

    def _take(self, found: list[Any], n: int) -> None:
        """Adds items of the part that is next."""
        part = self._parts[self._turn]
        wanted = min(self._node.block - self._given, n - len(found))
        items = part.cursor.read(wanted)
        found.extend(items)
        self._given += len(items)
        self._origin = part.cursor.origin() or self._origin
        if len(items) < wanted:
            part.close()
            self._given = 0
            following = self._next_part()
            if following is None:
                del self._parts[self._turn]
            else:
                self._parts[self._turn] = following
        elif self._given == self._node.block:
            self._turn += 1
            self._given = 0

    def state(self) -> State:
        marks = {part.number: part.before for part in self._parts}
        oldest = min(marks, default=0)
        return {
            "turn": self._turn,
            "given": self._given,
            "kept": [part.number - oldest for part in self._parts],
            "parts": [part.cursor.state() for part in self._parts],
            **self._source.state(marks),
        }

    def continue_at(self, tree: Mapping[str, Any]) -> None:
        numbers = sorted(tree["kept"])
        found = dict(zip(numbers, self._source.restore(tree, numbers), strict=True))
        for number, at in zip(tree["kept"], tree["parts"], strict=True):
            part = self._part_of(found[number])
            self._parts.append(part)
            part.cursor.restore(at)
        self._turn, self._given = tree["turn"], tree["given"]

    def origin(self) -> str:
        return self._origin

    def close(self) -> None:
        for part in self._parts:
            part.close()
        self._parts = []
        self.upstream.close()
