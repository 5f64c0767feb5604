"""The stages `map` and `filter`: a function of the user's for each item."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphc.data.core.cursor import Cursor, Following, Items, State
from graphc.data.core.node import Run, Stage
from graphc.data.stages.parallel import Parallel, Told, Workers, make_pool, name_of
from graphc.data.stages.reading import open_records


@dataclass(frozen=True)
class Call:
    """A function of the user's as it is called for one item. It can be pickled if the function can.

    Attributes:
        function: of the item, and of a random generator if there is a seed.
        seed: None, or the seed of the generator.
    """

    function: Callable[..., Any]
    seed: int | None

    def __call__(self, item: Any, epoch: int, number: int) -> Any:
        """The result for an item with its number in its epoch."""
        if self.seed is None:
            return self.function(item)
        return self.function(item, np.random.default_rng((self.seed, epoch, number)))


@dataclass(frozen=True, eq=False)
class Map(Stage):
    """The results of a function, in order.

    Attributes:
        call: the function.
        workers: who calls it.
    """

    call: Call
    workers: Workers

    def open(self, epoch: int, run: Run) -> Cursor:
        """A cursor that calls the function, inline or by the workers that all epochs share."""
        upstream = open_records(self.upstream, epoch, run)
        told = Told(f"map({name_of(self.call.function)})", self.made_at)
        if not self.workers.count:
            return _Mapping(upstream, self.call, epoch, told)
        pool = run.shared(id(self), lambda: make_pool(self.call, self.workers, told))
        return Parallel(upstream, pool, epoch, 2 * self.workers.count, told)

    @property
    def label(self) -> str:
        """The stage with its seed; any function may take the place of another."""
        return "map" if self.call.seed is None else f"map(seed={self.call.seed})"


@dataclass(frozen=True, eq=False)
class Filter(Stage):
    """The items for which a function is true.

    Attributes:
        function: of an item.
    """

    function: Callable[..., object]
    count = None  # not known
    label = "filter"

    def open(self, epoch: int, run: Run) -> Cursor:
        """A cursor that calls the function for each item."""
        told = Told(f"filter({name_of(self.function)})", self.made_at)
        return _Filtering(open_records(self.upstream, epoch, run), self.function, told)


class _Calling(Following):
    """A cursor that calls a function of the user's for each item. It counts the items."""

    def __init__(self, upstream: Cursor, told: Told) -> None:
        super().__init__(upstream)
        self._told = told
        self._number = 0

    def add(self, item: Any, number: int, found: list[Any]) -> None:
        """Calls the function for an item, and appends what the stage gives for it."""
        raise NotImplementedError

    def read(self, n: int) -> Items:
        found: list[Any] = []
        while len(found) < n:
            items = self.upstream.read(1)
            if not len(items):
                break
            try:
                self.add(items[0], self._number, found)
            except StopIteration as error:
                raise self._told.no_stop(error, self._number, self.origin()) from error
            except Exception as error:
                self._told.add_to(error, self._number, self.origin())
                raise
            self._number += 1
        return found

    def state(self) -> State:
        return {"number": self._number, "upstream": self.upstream.state()}

    def continue_at(self, tree: Mapping[str, Any]) -> None:
        self._number = tree["number"]
        self.upstream.restore(tree["upstream"])


class _Mapping(_Calling):
    def __init__(self, upstream: Cursor, call: Call, epoch: int, told: Told) -> None:
        super().__init__(upstream, told)
        self._call, self._epoch = call, epoch

    def add(self, item: Any, number: int, found: list[Any]) -> None:
        found.append(self._call(item, self._epoch, number))

    def skip(self, n: int) -> int:
        done = self.upstream.skip(n)
        self._number += done
        return done


class _Filtering(_Calling):
    def __init__(self, upstream: Cursor, function: Callable[..., object], told: Told) -> None:
        super().__init__(upstream, told)
        self._function = function

    def add(self, item: Any, number: int, found: list[Any]) -> None:
        if self._function(item):
            found.append(item)
