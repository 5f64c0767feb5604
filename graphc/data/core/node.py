"""`Node`: the description of a source or a stage, from which every iteration makes a cursor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from graphc.data.core.cursor import Cursor
from graphc.interrupts import uninterrupted
from graphc.ir.source import Source

T = TypeVar("T")


class RandomAccess(Protocol):
    """A source whose records can be read in any order."""

    def __len__(self) -> int:
        """The number of records."""

    def record(self, index: int) -> Any:
        """One record."""

    def gather(self, indices: np.ndarray[Any, Any]) -> Any:
        """A batch of records. None: the records are to be read one by one and stacked."""

    def origin(self, index: int) -> str:
        """Where a record comes from, for errors."""

    @property
    def workers(self) -> int:
        """How many workers read records; 0: the reader itself."""

    @property
    def processes(self) -> bool:
        """Whether the workers are processes."""


class Closing(Protocol):
    """What a run of a pipeline closes at its end."""

    def close(self) -> None:
        """Ends threads and processes."""


class Run:
    """What the cursors of one iterator share through all epochs: pools of workers."""

    def __init__(self) -> None:
        self._owned: dict[Hashable, Closing] = {}

    def shared(self, key: Hashable, make: Callable[[], T]) -> T:
        """The object for a key, made at the first call. It must have `close`."""
        if key not in self._owned:
            uninterrupted(self._make, key, make)
        return self._owned[key]  # type: ignore[return-value]

    def _make(self, key: Hashable, make: Callable[[], Any]) -> None:
        self._owned[key] = make()

    def part(self) -> Run:
        """A run that this one closes, unless `drop` does so before."""
        made = Run()
        self._owned[id(made)] = made
        return made

    def drop(self, part: Run) -> None:
        """Closes a part."""
        self._owned.pop(id(part), None)
        part.close()

    def close(self) -> None:
        """Closes all shared objects."""
        owned, self._owned = list(self._owned.values()), {}
        for each in owned:
            each.close()


@dataclass(frozen=True, eq=False)
class Node(ABC):
    """A source or a stage.

    Attributes:
        made_at: the user's line.
    """

    made_at: Source | None

    @abstractmethod
    def open(self, epoch: int, run: Run) -> Cursor:
        """A cursor at the first item of an epoch. It gives indices if `indexed` is a source."""

    @property
    def indexed(self) -> RandomAccess | None:
        """The source, if the items of this node are indices of its records."""
        return None

    @property
    def count(self) -> int | None:
        """The number of items in an epoch; None if it is not known or not finite."""
        return None

    @property
    def endless(self) -> bool:
        """Whether the items certainly never end."""
        return False

    @property
    def shuffles(self) -> int:
        """The number of shuffle stages up to this one: each has random numbers of its own."""
        return 0

    @abstractmethod
    def labels(self) -> list[str]:
        """The stages up to this one, as far as positions depend on them."""


@dataclass(frozen=True, eq=False)
class FileSource(Node):
    """A source that reads files.

    Attributes:
        paths: the files, in order.
    """

    function: ClassVar[str]  # the user's name of it
    paths: tuple[str, ...]

    def labels(self) -> list[str]:
        """The source with its number of files."""
        return [f"{self.function}: {len(self.paths)} files"]


@dataclass(frozen=True, eq=False)
class Stage(Node):
    """A node that reads another one.

    Attributes:
        upstream: the node that it reads.
    """

    upstream: Node

    @property
    def count(self) -> int | None:
        """As many items as the stage before it."""
        return self.upstream.count

    @property
    def endless(self) -> bool:
        """Endless as the stage before it."""
        return self.upstream.endless

    @property
    def shuffles(self) -> int:
        """Those of the stage before it."""
        return self.upstream.shuffles

    @property
    def label(self) -> str | None:
        """The name of the stage and what positions depend on; None if they do not depend on it."""
        return None

    def labels(self) -> list[str]:
        """Those of the stage before it, and its own."""
        own = self.label
        return [*self.upstream.labels(), *([] if own is None else [own])]
