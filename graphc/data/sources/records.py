"""Files of records, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from typing import Any

from graphc.data.core.cursor import Cursor, Items, State
from graphc.data.core.node import FileSource, Run


def _some(items: Any, n: int) -> list[bytes]:
    """From 1 to `n` items; none at the end."""
    if hasattr(items, "read_some"):
        return items.read_some(n)  # type: ignore[no-any-return]
    return list(islice(items, n))


@dataclass(frozen=True, eq=False)
class Records(FileSource):
    """The records of TFRecord files.

    Attributes:
        paths: the files, in order.
    """

    function = "from_records"

    def open(self, epoch: int, run: Run) -> Cursor:
        """A cursor at the first record."""
        return _RecordCursor(self.paths, import_module("graphc.data.records").read_tfrecords)


class _RecordCursor(Cursor):
    """Reads each file by a reader of its own, by its `state` if it has one."""

    def __init__(self, paths: tuple[str, ...], read_file: Callable[[str], Any]) -> None:
        self._paths, self._read_file = paths, read_file
        self._number = 0  # of the file
        self._read = 0  # in this file
        self._items: Any = None
        self._last = ""  # where the last record comes from

    def _current(self) -> Iterator[bytes] | None:
        if self._items is None and self._number < len(self._paths):
            self._items = iter(self._read_file(self._paths[self._number]))
        found: Iterator[bytes] | None = self._items
        return found

    def read(self, n: int) -> Items:
        found: list[bytes] = []
        while len(found) < n and (items := self._current()) is not None:
            records = _some(items, n - len(found))
            found.extend(records)
            self._read += len(records)
            if records:
                self._last = f"{self._paths[self._number]}, record {self._read - 1}"
            else:
                self.close()
                self._number, self._read = self._number + 1, 0
        return found

    def _has_state(self) -> bool:
        return hasattr(self._items, "state") and hasattr(self._items, "restore")

    def state(self) -> State:
        tree: State = {"file": self._number, "read": self._read}
        if self._read and self._has_state():
            tree["own"] = self._items.state()
        return tree

    def continue_at(self, tree: Mapping[str, Any]) -> None:
        self.close()
        self._number = tree["file"]
        self._read = 0
        if tree["read"] and self._current() is not None:
            if "own" in tree and self._has_state():
                self._items.restore(tree["own"])
                self._read = tree["read"]
            else:
                self.skip(tree["read"])

    def origin(self) -> str:
        return self._last

    def close(self) -> None:
        if hasattr(self._items, "close"):
            self._items.close()
        self._items = None
