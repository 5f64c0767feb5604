"""Shuffled mini-batches of arrays in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from graphc.errors import AttributeValueError, DTypeError, FeedError, StateError
from graphc.ir.calls import explained
from graphc.ir.host_values import read


class Batches:
    """Endless mini-batches of arrays that share their leading axis.

    Iterating gives a dict for each batch: feed name -> array [size, ...], of the dtype of its
    array.

    Args:
        arrays: feed name -> array [examples, ...].
        size: examples per batch. Examples that do not fill a batch at the end of an epoch are left
            out of that epoch. Each epoch is shuffled again.
        seed: the seed of the shuffling. The same seed gives the same batches.

    Raises:
        AttributeValueError: `arrays` is not a dict of arrays.
        FeedError: the arrays differ in length, or there are fewer examples than `size`.

    Examples:
        >>> x = np.arange(6)
        >>> batches = iter(gc.data.Batches({"x": x, "y": 10 * x}, 2, seed=1))
        >>> feeds = next(batches)
        >>> feeds["x"].shape, bool((feeds["y"] == 10 * feeds["x"]).all())
        ((2,), True)
    """

    has_positions = True  # its iterators have `state` and `restore`

    @explained
    def __init__(self, arrays: Mapping[str, ArrayLike], size: int, *, seed: int = 0) -> None:
        given: Any = arrays
        if not isinstance(given, Mapping) or not given:
            raise AttributeValueError.here(
                f"Batches: takes arrays by the names of their feeds, got {type(arrays).__name__}",
                hint='gc.data.Batches({"x": x, "t": t}, 32)',
            )
        self.arrays = {name: _as_array(name, array) for name, array in arrays.items()}
        lengths = {name: len(array) for name, array in self.arrays.items()}
        if len(set(lengths.values())) != 1:
            raise FeedError.here(
                "the arrays must have one length",
                details=[f"{name}: {length}" for name, length in lengths.items()],
                hint="the first axis of each array counts the examples",
            )
        self.examples = next(iter(lengths.values()))
        if not 0 < size <= self.examples:
            raise FeedError.here(
                f"a batch of {size} out of {self.examples} examples",
                hint=f"a size from 1 to {self.examples}",
            )
        self.size = size
        self.seed = seed

    def __iter__(self) -> BatchesIterator:
        return BatchesIterator(self)


class BatchesIterator(Iterator[dict[str, np.ndarray[Any, Any]]]):
    """An iterator over the batches of `Batches`, with a position that can be saved.

    Examples:
        >>> batches = gc.data.Batches({"x": np.arange(6)}, 2)
        >>> items = iter(batches)
        >>> first, position = next(items), items.state()
        >>> second = next(items)
        >>> again = iter(batches)
        >>> again.restore(position)
        >>> bool((next(again)["x"] == second["x"]).all())
        True
    """

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self._rng = np.random.default_rng(batches.seed)
        self._start_epoch()

    def _start_epoch(self) -> None:
        self._before = self._rng.bit_generator.state  # of the order of this epoch
        self._order = self._rng.permutation(self._batches.examples)
        self._next = 0

    def __next__(self) -> dict[str, np.ndarray[Any, Any]]:
        given = self._batches
        if self._next + given.size > given.examples:
            self._start_epoch()
        chosen = self._order[self._next : self._next + given.size]
        found = {name: array.take(chosen, 0) for name, array in given.arrays.items()}
        self._next += given.size
        return found

    def state(self) -> dict[str, object]:
        """The position after the batches that `next` has returned: a nest that JSON can represent.

        Examples:
            >>> items = iter(gc.data.Batches({"x": np.arange(6)}, 2))
            >>> batch = next(items)
            >>> items.state()["next"]
            2
        """
        given, drawn = self._batches, self._before
        word = drawn["state"]["state"], drawn["state"]["inc"]
        half = drawn["has_uint32"], drawn["uinteger"]  # of a random word, for the next draw
        return {
            "examples": given.examples,
            "size": given.size,
            "seed": given.seed,
            "rng": [hex(n) for n in (*word, *half)],  # of 128 bits
            "next": self._next,
        }

    def restore(self, tree: Mapping[str, object]) -> None:
        """Goes to a position that `state` returned, also in another process.

        Raises:
            StateError: `tree` is no such state, or that of other batches.

        Examples:
            >>> items = iter(gc.data.Batches({"x": np.arange(6)}, 2))
            >>> items.restore(items.state())
        """
        given: Any = tree
        own = self.state()
        if not isinstance(given, Mapping) or set(given) != set(own):
            raise StateError.here(
                "restore: this is not the state of an iterator of gc.data.Batches",
                hint="pass what state() of the iterator returned",
            )
        other = [name for name in ("examples", "size", "seed") if given[name] != own[name]]
        if other:
            raise StateError.here(
                "restore: the state belongs to other batches",
                details=[f"{name}: {given[name]} in the state, {own[name]} here" for name in other],
                hint="restore it into batches of the same arrays, size and seed",
            )
        state, inc, has_uint32, uinteger = [int(word, 16) for word in given["rng"]]
        self._rng.bit_generator.state = {
            **self._before,
            "state": {"state": state, "inc": inc},
            "has_uint32": has_uint32,
            "uinteger": uinteger,
        }
        self._start_epoch()
        self._next = given["next"]


def _as_array(name: str, value: Any) -> np.ndarray[Any, Any]:
    try:
        return read(value)
    except DTypeError as error:
        raise FeedError.here(
            f"Batches: {name!r}: {error.what}", details=error.details, hint=error.hint
        ) from error.__cause__
