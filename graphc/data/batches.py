"""Shuffled mini-batches of arrays in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from graphc.errors import AttributeValueError, DTypeError, FeedError
from graphc.ir.calls import explained
from graphc.ir.host_values import read
from graphc.ir.source import current_source


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

    @explained
    def __init__(self, arrays: Mapping[str, ArrayLike], size: int, *, seed: int = 0) -> None:
        given: Any = arrays
        if not isinstance(given, Mapping) or not given:
            raise AttributeValueError(
                f"Batches: takes arrays by the names of their feeds, got {type(arrays).__name__}",
                source=current_source(),
                hint='gc.data.Batches({"x": x, "t": t}, 32)',
            )
        self.arrays = {name: _as_array(name, array) for name, array in arrays.items()}
        lengths = {name: len(array) for name, array in self.arrays.items()}
        if len(set(lengths.values())) != 1:
            raise FeedError(
                "the arrays must have one length",
                details=[f"{name}: {length}" for name, length in lengths.items()],
                source=current_source(),
                hint="the first axis of each array counts the examples",
            )
        self.examples = next(iter(lengths.values()))
        if not 0 < size <= self.examples:
            raise FeedError(
                f"a batch of {size} out of {self.examples} examples",
                source=current_source(),
                hint=f"a size from 1 to {self.examples}",
            )
        self.size = size
        self.seed = seed

    def __iter__(self) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
        rng = np.random.default_rng(self.seed)
        while True:
            order = rng.permutation(self.examples)
            for start in range(0, self.examples - self.size + 1, self.size):
                chosen = order[start : start + self.size]
                yield {name: array[chosen] for name, array in self.arrays.items()}


def _as_array(name: str, value: Any) -> np.ndarray[Any, Any]:
    try:
        return read(value)
    except DTypeError as error:
        raise FeedError(
            f"Batches: {name!r}: {error.what}",
            details=error.details,
            source=current_source(),
            hint=error.hint,
        ) from error.__cause__
