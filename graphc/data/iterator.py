"""The iterator of a pipeline: its position can be saved at any time."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from threading import RLock
from typing import Any, Self
from weakref import finalize

from graphc.closing import Closing
from graphc.copying import Uncopied
from graphc.data.core.cursor import Cursor, Mark, Marked, State
from graphc.data.core.node import Node, Run
from graphc.data.stages.reading import open_records
from graphc.errors import StateError
from graphc.interrupts import uninterrupted

_FORM = 1
_BATCH = re.compile(r"batch\((\d+)(.*)\)")
_SHARD = re.compile(r"shard\(\d+, (\d+)\)")


class PipelineIterator(Iterator[Any], Closing, Uncopied):
    """An iterator over one pass of a pipeline: the result of `iter(pipeline)`.

    `state` is the position after the items that `next` returned, whatever has been read ahead. If
    `next` raises an error or is interrupted, the position stays as it was before the call, and the
    next call continues there.

    Threads, processes and files are closed after the last item, by `close`, at the end of a `with`,
    when there are no references to the iterator, and at the end of the process. Several threads may
    share an iterator: each item goes to one of them.

    Examples:
        >>> numbers = gc.data.from_arrays(np.arange(6)).shuffle(seed=1).batch(2).repeat()
        >>> items = iter(numbers)
        >>> first = next(items)
        >>> position = items.state()
        >>> second = next(items)
        >>> again = iter(numbers)
        >>> again.restore(position)
        >>> bool((next(again) == second).all())
        True
    """

    instead = "keep its state(), and restore it in a new iterator of the same pipeline"

    def __init__(self, node: Node, epoch: int = 0) -> None:
        self._node = node
        self._open = _Open(epoch)
        # The position, None at the beginning, and the items before it: assigned together, since a
        # signal handler may ask for the state at any time.
        self._at: tuple[Mark | None, int] = None, 0
        self._ended = False
        self._closed = False
        self._lock = RLock()
        self._finalizer = finalize(self, self._open.close)
        self._finalizer.atexit = False  # the pools themselves handle the end of the process

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        with self._lock:
            if self._ended or self._closed:
                raise StopIteration
            try:
                marked = self._open.marked
                if marked is None:
                    marked = self._open.start(self._node, self._at[0])
                items = marked.read(1)
                mark = marked.mark()
            except BaseException:
                self._open.close()  # the next call begins at the last position
                raise
            if not len(items):
                self._ended = True
                self._open.close()
                raise StopIteration
            item = items[0]
            self._at = mark, self._at[1] + 1
            return item

    @property
    def count(self) -> int:
        """The number of items that `next` has returned, those before `restore` included.

        Examples:
            >>> items = iter(gc.data.from_arrays(np.arange(6)))
            >>> next(items), next(items), items.count
            (np.int64(0), np.int64(1), 2)
        """
        return self._at[1]

    def state(self) -> State:
        """The position after the items that `next` has returned: a nest that JSON can represent.

        Examples:
            >>> items = iter(gc.data.from_arrays(np.arange(6)).take(4))
            >>> next(items), items.state()["count"]
            (np.int64(0), 1)
        """
        with self._lock:
            mark, count = self._at
            at = None if mark is None else copy.deepcopy(mark.plus(0))
            return {
                "form": _FORM,
                "stages": _stages(self._node),
                "count": count,
                "ended": self._ended,
                "at": at,
            }

    def restore(self, tree: Mapping[str, object]) -> None:
        """Goes to a position that `state` returned, also in another process.

        The pipeline must have the same source and stages. The functions of its stages and the
        numbers of workers may differ.

        Args:
            tree: what `state` returned.

        Raises:
            StateError: `tree` is no such state, or the state of another pipeline.

        Examples:
            >>> numbers = gc.data.from_arrays(np.arange(6))
            >>> first = iter(numbers)
            >>> next(first), next(first)
            (np.int64(0), np.int64(1))
            >>> items = iter(numbers)
            >>> items.restore(first.state())
            >>> next(items)
            np.int64(2)
        """
        given = self._checked(tree)
        with self._lock:
            self._open.close()
            at = given["at"]
            mark = None if at is None else Mark(copy.deepcopy(dict(at)), 0)
            self._at = mark, int(given["count"])
            self._ended = bool(given["ended"])
            self._closed = False

    def _checked(self, tree: Any) -> Mapping[str, Any]:
        own = _stages(self._node)
        keys = {"form", "stages", "count", "ended", "at"}
        if not isinstance(tree, Mapping) or not keys <= tree.keys():
            raise StateError.here(
                "restore: this is not the state of a pipeline's iterator",
                details=[f"got {type(tree).__name__}"],
                hint="pass what state() of the iterator returned",
            )
        if tree["form"] != _FORM:
            raise StateError.here(
                f"restore: the state has form {tree['form']}, this graphc reads form {_FORM}"
            )
        if not _continues(list(tree["stages"]), own):
            raise StateError.here(
                "restore: the state belongs to another pipeline",
                details=[f"the state: {' . '.join(tree['stages'])}", f"this: {' . '.join(own)}"],
                hint="restore it into an iterator of the same source and stages; with another "
                "number of shards, all together must give as many items at a time",
            )
        return tree

    def close(self) -> None:
        """Ends the threads and processes of the stages. `next` then raises StopIteration, and
        `state` still gives the position.

        Examples:
            >>> items = iter(gc.data.from_arrays(np.arange(6)))
            >>> next(items)
            np.int64(0)
            >>> items.close()
        """
        with self._lock:
            self._closed = True
            self._open.close()


class _Open:
    """The open cursors of an iterator. It does not refer to the iterator, which may be garbage."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self.marked: Marked | None = None
        self._cursor: Cursor | None = None
        self._run = Run()

    def start(self, node: Node, mark: Mark | None) -> Marked:
        """Opens the cursors at a position."""
        self._run = Run()
        self._cursor = open_records(node, self._epoch, self._run)
        marked = Marked(self._cursor)
        if mark is not None:
            marked.restore(mark.plus(0))
        self.marked = marked
        return marked

    def close(self) -> None:
        """Closes the cursors, then what they share."""
        uninterrupted(self._close)

    def _close(self) -> None:
        cursor, self._cursor = self._cursor, None
        self.marked = None
        try:
            if cursor is not None:
                cursor.close()
        finally:
            self._run.close()


def _stages(node: Node) -> list[str]:
    """The stages of a pipeline in its positions, which are alike for all of its shards."""
    return [_SHARD.sub(r"shard(\1)", label) for label in node.labels()]


def _continues(there: list[str], own: list[str]) -> bool:
    """Whether a position in the stages `there` is one in `own`, too: they are the same; or only the
    number of shards differs, and all shards together give as many items at a time."""
    if there == own:
        return True
    first, second = _sharded(there), _sharded(own)
    return first is not None and first == second


def _sharded(stages: list[str]) -> tuple[list[str], list[str], int] | None:
    """The stages before the only shard, the kinds of those after it, and how many items all shards
    give at a time. None if the position of a later stage depends on the number of shards."""
    at = [i for i, label in enumerate(stages) if label.startswith("shard(")]
    if len(at) != 1:
        return None
    together, kinds = int(stages[at[0]][6:-1]), []
    for label in stages[at[0] + 1 :]:
        batch = _BATCH.fullmatch(label)
        if batch is None and label not in ("map", "pad"):
            return None
        together *= 1 if batch is None else int(batch[1])
        kinds.append(label if batch is None else f"batch{batch[2]}")
    return stages[: at[0]], kinds, together
