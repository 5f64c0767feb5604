"""`Kept`: items that a stage has read and not yet given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphc.data.core.cursor import Cursor, Mark, Marked, State
from graphc.errors import StateError


class Kept:
    """Items that a stage has read and not yet given, which can be read again.

    Their state is their numbers, not the items: buffers of records would make files large. The
    state of the stage before belongs to the oldest of them. `restore` reads the items again.
    """

    def __init__(self, upstream: Cursor) -> None:
        self.upstream = Marked(upstream)
        self.read_count = 0

    def read(self) -> tuple[Any, int, Mark, str] | None:
        """The next item, its number, the position before it and its origin; None at the end."""
        mark = self.upstream.mark()
        items = self.upstream.read(1)
        if not len(items):
            return None
        self.read_count += 1
        return items[0], self.read_count - 1, mark, self.upstream.cursor.origin()

    def state(self, numbers: Mapping[int, Mark]) -> State:
        """The state of the stage before, and the numbers of the kept items after it.

        Args:
            numbers: of the kept items, with their positions.
        """
        if not numbers:
            return {"upstream": self.upstream.mark().plus(0), "read": 0}
        oldest = min(numbers)
        return {"upstream": numbers[oldest].plus(0), "read": self.read_count - oldest}

    def restore(
        self, tree: Mapping[str, Any], numbers: list[int]
    ) -> list[tuple[Any, int, Mark, str]]:
        """Goes to a position, and returns what `read` returned for the kept items.

        Args:
            tree: of `state`.
            numbers: of the kept items, counted from the oldest, in ascending order.
        """
        self.upstream.restore(tree["upstream"])
        self.read_count = 0
        found = []
        for number in numbers:
            self.read_count += self.upstream.skip(number - self.read_count)
            again = self.read()
            if again is None:
                raise StateError(
                    "restore: the source ended before an item that it gave earlier",
                    hint="the source must give the same items again",
                )
            found.append(again)
        self.read_count += self.upstream.skip(tree["read"] - self.read_count)
        return found
