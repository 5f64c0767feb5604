"""Records of arrays in memory, and of anything else that can be indexed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from graphc.data.core.cursor import Cursor, Items, State
from graphc.data.core.node import Node, RandomAccess, Run
from graphc.errors import DTypeError, FeedError
from graphc.ir.dtypes import Array
from graphc.ir.host_values import read


@dataclass(frozen=True, eq=False)
class Indexed(Node):
    """The records of a random-access source, in their order.

    Attributes:
        name: the name of the function that made the source.
        source: the records.
    """

    name: str
    source: RandomAccess

    def open(self, epoch: int, run: Run) -> Cursor:
        """A cursor over all indices."""
        return Indices(len(self.source))

    @property
    def indexed(self) -> RandomAccess:
        """The source itself."""
        return self.source

    @property
    def count(self) -> int:
        """The number of records."""
        return len(self.source)

    def labels(self) -> list[str]:
        """The source with its number of records."""
        return [f"{self.name}: {len(self.source)} records"]


class Indices(Cursor):
    """0, 1, ..., count - 1."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._next = 0

    def read(self, n: int) -> Items:
        """The next indices."""
        start, self._next = self._next, min(self._next + n, self._count)
        return np.arange(start, self._next)

    def skip(self, n: int) -> int:
        """Moves the position only."""
        start, self._next = self._next, min(self._next + n, self._count)
        return self._next - start

    def state(self) -> State:
        """The next index."""
        return {"next": self._next}

    def continue_at(self, tree: Mapping[str, Any]) -> None:
        """Moves the position."""
        self._next = tree["next"]


class Arrays:
    """Nests of arrays that share their leading axis."""

    workers = 0
    processes = False

    def __init__(self, arrays: Any) -> None:
        self._tree: Any
        given, self._tree = jax.tree.flatten(arrays, is_leaf=_is_array_like)
        paths = jax.tree_util.tree_leaves_with_path(arrays, is_leaf=_is_array_like)
        names = [jax.tree_util.keystr(path) or "the array" for path, _ in paths]
        self._arrays = [_checked(n, v) for n, v in zip(names, given, strict=True)]
        if not self._arrays:
            raise FeedError.here(
                f"from_arrays: takes arrays, got {type(arrays).__name__} without any",
                hint='gc.data.from_arrays({"x": x, "y": y})',
            )
        lengths = [len(array) for array in self._arrays]
        if len(set(lengths)) != 1:
            rows = zip(names, lengths, strict=True)
            raise FeedError.here(
                "from_arrays: the arrays must have one length",
                details=[f"{name}: {length}" for name, length in rows],
                hint="the first axis of each array counts the records",
            )
        self._length = lengths[0]
        self._single = len(self._arrays) == 1 and self._tree == jax.tree.structure(0)

    def __len__(self) -> int:
        return self._length

    def record(self, index: int) -> Any:
        """Row `index` of each array, copied."""
        rows = [array[index] for array in self._arrays]
        rows = [row.copy() if type(row) is np.ndarray else row for row in rows]
        return rows[0] if self._single else self._tree.unflatten(rows)

    def gather(self, indices: Array) -> Any:
        """The rows of each array as new arrays."""
        rows = [array.take(indices, 0) for array in self._arrays]
        return rows[0] if self._single else self._tree.unflatten(rows)

    def origin(self, index: int) -> str:
        """The number of the row."""
        return f"record {index} of from_arrays"


def _is_array_like(value: Any) -> bool:
    """Whether it is a list of numbers, and not a nest of arrays."""
    return isinstance(value, list) and not any(
        hasattr(each, "__array__") or isinstance(each, (dict, tuple)) for each in value
    )


def _checked(name: str, value: Any) -> Array:
    try:
        array = read(value)
    except DTypeError as error:
        raise FeedError.here(
            f"from_arrays: {name}: {error.what}", details=error.details, hint=error.hint
        ) from error.__cause__
    if array.ndim == 0:
        raise FeedError.here(
            f"from_arrays: {name} is {type(value).__name__}, not an array with a leading axis",
            hint='gc.data.from_arrays({"x": x, "y": y}), with arrays [records, ...]',
        )
    return array
