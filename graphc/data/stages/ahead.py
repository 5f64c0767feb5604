"""The stage `prefetch`: a thread reads ahead and copies to the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from graphc.data.core.cursor import Cursor, Following, Items, Mark, Marked, State
from graphc.data.core.node import Run, Stage
from graphc.data.prefetching import told_more
from graphc.data.pump import Pump
from graphc.data.stages.reading import open_records
from graphc.errors import GraphcError, StateError
from graphc.interrupts import uninterrupted
from graphc.ir.source import Source
from graphc.runtime.core.background import own_settings
from graphc.runtime.core.forking import FORKING


@dataclass(frozen=True, eq=False)
class Ahead(Stage):
    """The items of the stage before, on a device.

    Attributes:
        place: copies an item, or a group of `steps` items, to the device.
        size: how many to read ahead.
        steps: None, or how many items form one.
    """

    place: Callable[[Any], Any]
    size: int
    steps: int | None

    def open(self, epoch: int, run: Run) -> Cursor:
        """A cursor whose thread starts at the first `read`."""
        return _ReadAhead(self, open_records(self.upstream, epoch, run))

    @property
    def count(self) -> int | None:
        """The number of groups, those that are not full left out."""
        items = self.upstream.count
        return items if items is None or self.steps is None else items // self.steps

    @property
    def label(self) -> str | None:
        """Positions depend on the number of steps only."""
        return None if self.steps is None else f"prefetch(steps={self.steps})"


class _ReadAhead(Following):
    def __init__(self, node: Ahead, upstream: Cursor) -> None:
        super().__init__(upstream)
        self._node = node
        self._source = Marked(upstream)
        self._after = self._source.mark()
        self._pump: Pump | None = None
        self._ended = False

    @property
    def weight(self) -> int:  # type: ignore[override]
        """Its state is at hand, and the thread uses the cursor before it."""
        return 1

    def _start(self) -> None:
        FORKING.use_devices()
        make = _Placed(self._node.place, self._node.made_at)
        items = _groups(self._source, self._node.steps)
        self._pump = Pump(items, make, self._node.size, own_settings())

    def _running(self) -> Pump:
        if self._pump is None:
            uninterrupted(self._start)
        if self._pump is None:
            raise StateError("prefetch: its thread did not start")
        return self._pump

    def read(self, n: int) -> Items:
        """The next items."""
        found: list[Any] = []
        while len(found) < n and not self._ended:
            try:
                item, self._after = self._running().take()
            except StopIteration:
                self._ended = True
                break
            found.append(item)
        return found

    def skip(self, n: int) -> int:
        """Before the thread runs, by the stage before."""
        if self._pump is not None or self._ended:
            return super().skip(n)
        steps = self._node.steps or 1
        done = self._source.skip(n * steps)
        self._after = self._source.mark()
        return done // steps

    def state(self) -> State:
        """That of the stage before, unless items are grouped."""
        tree = self._after.plus(0)
        return tree if self._node.steps is None else {"upstream": tree}

    def restore(self, tree: Mapping[str, Any]) -> None:
        """Restores the stage before."""
        if self._node.steps is None:
            self._source.restore(tree)
            self._after = self._source.mark()
        else:
            super().restore(tree)

    def continue_at(self, tree: Mapping[str, Any]) -> None:
        self._source.restore(tree["upstream"])
        self._after = self._source.mark()

    def origin(self) -> str:
        """Not known here: the thread is ahead."""
        return ""

    def close(self) -> None:
        """Ends the thread, then closes the stage before."""
        pump, self._pump = self._pump, None
        self._ended = True
        if pump is not None:
            pump.stop()
            if not pump.join():
                raise StateError(
                    "prefetch: its thread still waits for the stage before it",
                    source=self._node.made_at,
                    hint="a source that never returns cannot be closed",
                )
        self.upstream.close()


def _groups(source: Marked, steps: int | None) -> Iterator[tuple[Any, Mark]]:
    """The items or groups with the positions after them."""
    n = steps or 1
    while len(items := source.read(n)) == n:
        yield (items[0] if steps is None else list(items)), source.mark()


class _Placed:
    """What the thread does with each item."""

    def __init__(self, place: Callable[[Any], Any], made_at: Source | None) -> None:
        self._place, self._made_at = place, made_at

    def __call__(self, pair: tuple[Any, Mark], number: int) -> tuple[Any, Mark]:
        item, after = pair
        try:
            return self._place(item), after
        except GraphcError as error:
            told_more(error, number, self._made_at)
            raise
