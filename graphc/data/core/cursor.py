"""`Cursor`: a position in the items of one stage, which can be saved and restored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

Record: TypeAlias = Any
"""One item of a pipeline: any object; for `batch` a nest (lists, tuples, dicts) of arrays and
numbers."""

State: TypeAlias = dict[str, Any]
"""A nest of dicts, lists, strings, numbers and None that JSON can represent."""

Items: TypeAlias = Sequence[Any] | np.ndarray[Any, Any]

_SKIPPED_AT_ONCE = 1024
_MARKED = 256


class Cursor:
    """Reads the items of a stage once, in order.

    Attributes:
        weight: how many items `state` lists, about. A reader of a heavy cursor takes its state less
            often.
    """

    weight = 1

    def read(self, n: int) -> Items:
        """The next `n` items; fewer only at the end. No item after these is read."""
        raise NotImplementedError

    def skip(self, n: int) -> int:
        """Passes over `n` items and returns how many there were."""
        done = 0
        while done < n:
            wanted = min(n - done, _SKIPPED_AT_ONCE)
            got = len(self.read(wanted))
            done += got
            if got < wanted:
                break
        return done

    def state(self) -> State:
        """The position after the items read so far. `restore` of a new cursor of the same stage
        continues there."""
        raise NotImplementedError

    def continue_at(self, tree: Mapping[str, Any]) -> None:
        """`restore` without the key "skip"."""
        raise NotImplementedError

    def restore(self, tree: Mapping[str, Any]) -> None:
        """Goes to a position that `state` returned. Called before the first `read`.

        Any state may have the key "skip": how many more items of this cursor to pass over.
        """
        self.continue_at(tree)
        if tree.get("skip"):
            self.skip(tree["skip"])

    def origin(self) -> str:
        """Where the last item that was read comes from: a file and a line, or a number."""
        return ""

    def close(self) -> None:
        """Ends threads and closes files."""


class Following(Cursor):
    """A cursor that reads another one.

    Args:
        upstream: the cursor of the stage before.
    """

    def __init__(self, upstream: Cursor) -> None:
        self.upstream = upstream

    @property
    def weight(self) -> int:  # type: ignore[override]
        """That of the cursor before it."""
        return self.upstream.weight

    def state(self) -> State:
        """The position of the cursor before it, if a stage adds nothing to it."""
        return {"upstream": self.upstream.state()}

    def continue_at(self, tree: Mapping[str, Any]) -> None:
        """Restores the cursor before it."""
        self.upstream.restore(tree["upstream"])

    def origin(self) -> str:
        """That of the cursor before it."""
        return self.upstream.origin()

    def close(self) -> None:
        """Closes the cursor before it."""
        self.upstream.close()


class Mark:
    """A position of a cursor: a state, and the number of items after it.

    Several marks share one state, since taking a state may cost more than reading an item.
    """

    __slots__ = ("after", "base")

    def __init__(self, base: State, after: int) -> None:
        self.base = base
        self.after = after

    def plus(self, items: int) -> State:
        """The state at this position, and `items` later."""
        skip = self.base.get("skip", 0) + self.after + items
        return {**self.base, "skip": skip} if skip else self.base


class Marked:
    """Reads a cursor and knows its position after every item.

    Args:
        cursor: the cursor, which only this object reads from now on.
    """

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self._base: State | None = None
        self._after = 0

    def mark(self) -> Mark:
        """The position after the last item."""
        if self._base is None or self._after * _MARKED > self.cursor.weight:
            self._base = self.cursor.state()
            self._after = 0
        return Mark(self._base, self._after)

    def read(self, n: int) -> Items:
        """The next `n` items; fewer only at the end."""
        items = self.cursor.read(n)
        self._after += len(items)
        return items

    def skip(self, n: int) -> int:
        """Passes over `n` items."""
        done = self.cursor.skip(n)
        self._after += done
        return done

    def restore(self, tree: Mapping[str, Any]) -> None:
        """Goes to a position."""
        self.cursor.restore(tree)
        self._base, self._after = None, 0


def joined(parts: Sequence[Items]) -> Items:
    """Several runs of items as one."""
    if len(parts) == 1:
        return parts[0]
    if any(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate(parts)
    return [item for part in parts for item in part]
