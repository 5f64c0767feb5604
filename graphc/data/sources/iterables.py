"""Generators, iterables of other libraries, and their values as arrays of NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from graphc.data.core.cursor import Cursor, Items, State
from graphc.data.core.node import Node, Run
from graphc.errors import DataError, StateError
from graphc.ir.host_values import read


@dataclass(frozen=True, eq=False)
class Iterating(Node):
    """The items of an iterator that is made anew for each epoch.

    Attributes:
        name: the name of the function that made the source.
        make: makes the iterator.
        once: the iterator can be made only once.
        convert: what is done with each item.
    """

    name: str
    make: Callable[[], Iterable[Any]]
    once: _Once | None
    convert: Callable[[Any], Any]

    def open(self, epoch: int, run: Run) -> Cursor:
        """A cursor whose iterator is made at the first `read`."""
        return _Iterated(self)

    def labels(self) -> list[str]:
        """The name of the source."""
        return [self.name]


class _Once:
    """An iterator that exists once, and how many items it has given."""

    def __init__(self, items: Iterator[Any]) -> None:
        self.items = items
        self.given = 0


class Iter:
    """A function that iterates over an iterable anew."""

    def __init__(self, items: Any) -> None:
        self._items = items

    def __call__(self) -> Any:
        return iter(self._items)


def same(item: Any) -> Any:
    """The item itself."""
    return item


def once(items: Iterator[Any]) -> _Once:
    """A source that cannot begin anew."""
    return _Once(items)


class _Iterated(Cursor):
    """Counts the items of an iterator. If the iterator has its own state, that is used."""

    def __init__(self, node: Iterating) -> None:
        self._node = node
        self._items: Iterator[Any] | None = None
        self._protocol: tuple[str, str] | None = None
        self._read = 0
        self._ended = False

    def _iterator(self) -> Iterator[Any]:
        if self._items is None:
            once = self._node.once
            if once is None:
                self._items = self._made()
            elif once.given > self._read:
                raise DataError(
                    f"{self._node.name}: the generator has given {once.given} items already, and "
                    "cannot begin anew",
                    source=self._node.made_at,
                    hint="pass the generator function itself, not its result: it is then called "
                    "for each epoch, and after an error or an interrupt",
                )
            else:
                self._items = once.items
            self._protocol = _protocol(self._items)
        return self._items

    def _made(self) -> Iterator[Any]:
        made: Any = self._node.make()
        if not hasattr(made, "__iter__"):
            raise DataError(
                f"{self._node.name}: the function returned {type(made).__name__}, not an iterator",
                source=self._node.made_at,
                hint="pass a generator function, or a function that returns an iterable",
            )
        return iter(made)

    def _taken(self, n: int) -> list[Any]:
        if self._ended:
            return []
        items: list[Any] = []
        for item in islice(self._iterator(), n):
            items.append(item)
            self._read += 1
            if self._node.once is not None:
                self._node.once.given += 1
        self._ended = len(items) < n
        return items

    def read(self, n: int) -> Items:
        try:
            return [self._node.convert(item) for item in self._taken(n)]
        except Exception as error:
            where = f" at {self._node.made_at}" if self._node.made_at else ""
            error.add_note(f"in {self._node.name} of a pipeline{where}\n  item {self._read}")
            raise

    def skip(self, n: int) -> int:
        return len(self._taken(n))

    def state(self) -> State:
        tree: State = {"read": self._read, "ended": self._ended}
        if self._protocol is not None and self._read:
            own = getattr(self._items, self._protocol[0])()
            if isinstance(own, dict):
                tree["own"] = own
        return tree

    def continue_at(self, tree: Mapping[str, Any]) -> None:
        if "own" in tree:
            items = self._iterator()
            if self._protocol is None:
                raise StateError(
                    f"{self._node.name}: the state is of an iterator that can restore itself, but "
                    f"{type(items).__name__} cannot",
                    source=self._node.made_at,
                )
            getattr(items, self._protocol[1])(tree["own"])
            self._read = tree["read"]
        else:
            missing = tree["read"] - self.skip(tree["read"])
            if missing:
                raise StateError(
                    f"{self._node.name}: the source ended {missing} items before the position",
                    source=self._node.made_at,
                    hint="the source must give the same items as when the state was taken",
                )
        self._ended = tree["ended"]

    def origin(self) -> str:
        return f"item {self._read - 1} of {self._node.name}"

    def close(self) -> None:
        if self._items is not None and self._node.once is None and hasattr(self._items, "close"):
            self._items.close()
        self._items = None


def _protocol(items: object) -> tuple[str, str] | None:
    """The names of the methods by which an iterator gives and takes its state."""
    for names in (("state", "restore"), ("get_state", "set_state")):
        if all(callable(getattr(items, name, None)) for name in names):
            return names
    return None


class Sequence:
    """Records of an object with `len` and `[]`."""

    workers = 0
    processes = False

    def __init__(self, name: str, items: Any) -> None:
        self._name, self._items = name, items

    def __len__(self) -> int:
        return len(self._items)

    def record(self, index: int) -> Any:
        """One record, with arrays of NumPy."""
        return to_numpy(self._items[index])

    def gather(self, indices: np.ndarray[Any, Any]) -> None:
        """Batches are stacked from records."""

    def origin(self, index: int) -> str:
        """The number of the record, or what the object itself says."""
        own = getattr(self._items, "origin", None)
        return str(own(index)) if callable(own) else f"record {index} of {self._name}"


def is_sequence(value: Any) -> bool:
    """Whether it can be indexed by the numbers of its records."""
    kind = type(value)
    return hasattr(kind, "__len__") and hasattr(kind, "__getitem__")


def to_numpy(value: Any) -> Any:
    """A nest with its arrays and tensors of any library as arrays of NumPy.

    Lists of numbers become arrays, as the columns of Hugging Face datasets are.
    """
    if value is None or isinstance(value, (str, bytes, bool, int, float, np.ndarray, np.generic)):
        return value
    if isinstance(value, Mapping):
        return {key: to_numpy(each) for key, each in value.items()}
    if isinstance(value, tuple):
        rows = [to_numpy(each) for each in value]
        return type(value)(*rows) if hasattr(value, "_fields") else tuple(rows)
    if isinstance(value, list):
        return _of_list(value)
    if hasattr(value, "detach"):  # a tensor of PyTorch that requires a gradient is not readable
        value = value.detach()
        value = value.cpu() if hasattr(value, "cpu") else value
    if any(hasattr(value, name) for name in ("__array__", "__array_interface__", "__dlpack__")):
        return _array(value)
    return value


def _array(value: Any) -> np.ndarray[Any, Any]:
    """A tensor as an array. Texts are not offered to DLPack: TensorFlow aborts the process."""
    try:
        array = np.asanyarray(value)
    except Exception:  # its dtype is unknown to NumPy: `read` tries other ways
        return read(value)
    return array if array.dtype.kind == "O" else read(array)


def _of_list(value: list[Any]) -> Any:
    rows = [to_numpy(each) for each in value]
    if rows and all(isinstance(row, (bool, int, float, np.generic)) for row in rows):
        return np.asarray(rows)
    if rows and all(isinstance(row, np.ndarray) for row in rows):
        same = len({row.shape for row in rows}) == 1
        lists = all(isinstance(each, list) for each in value)
        return np.stack(rows) if same and lists else rows
    return rows
