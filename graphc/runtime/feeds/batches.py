"""The feeds of several steps as arrays with a leading axis, for `Session.run_steps`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from graphc.errors import AttributeValueError, FeedError
from graphc.runtime.feeds.feed_memory import aligned
from graphc.runtime.feeds.feeds import FeedSpec

Batch = Mapping[Any, Any]


def checked_count(n: Any, name: str = "run_steps: n") -> int:
    """`n` as a number of steps.

    Raises:
        AttributeValueError: `n` is not a number of steps.
    """
    if isinstance(n, np.integer):
        n = int(n)
    if type(n) is not int or n < 1:
        raise AttributeValueError.here(
            f"{name} must be an int of at least 1, got {n!r}",
            hint="session.run_steps(fetches, feeds, 100)" if name.startswith("run_steps") else None,
        )
    return n


def take_batches(batches: Any, n: int) -> list[Batch]:
    """The next `n` batches of an iterable of feeds. All have the same keys.

    Raises:
        FeedError: there are too few batches, they are not feeds, or they feed different tensors.
    """
    if not isinstance(batches, Iterable) or isinstance(batches, (str, bytes, np.ndarray)):
        raise FeedError.here(
            f"run_steps: batches must be feeds of {n} steps, got {type(batches).__name__}",
            hint="pass an iterable of mappings, one for each step, or one mapping of arrays with "
            f"a leading axis of {n}",
        )
    taken = list(islice(batches, n))
    for number, batch in enumerate(taken):
        if not isinstance(batch, Mapping):
            raise FeedError.here(
                f"run_steps: batch {number} must be a mapping, got {type(batch).__name__}",
                hint="feeds of one step: {x: value}, by tensor or by name",
            )
        if batch.keys() != taken[0].keys():
            raise FeedError.here(
                f"run_steps: batch {number} feeds {_names(batch)}, batch 0 {_names(taken[0])}",
                hint="feed the same tensors, by the same keys, in each step",
            )
    if len(taken) < n:
        raise FeedError.here(
            f"run_steps: the batches ended after {len(taken)} of {n} steps; nothing has run",
            hint="ask for fewer steps, or pass an iterable with more batches",
        )
    return taken


def stack(spec: FeedSpec, values: Sequence[Any]) -> Any:
    """The values of one feed in all steps, stacked: `[steps, ...]`. The memory of the result is not
    shared. Values on a device stay there.

    Raises:
        FeedError: shapes differ, or a value does not fit.
    """
    if all(isinstance(value, jax.Array) for value in values):
        arrays = [spec.convert(value) for value in values]
        _check_shapes(spec, arrays)
        where = arrays[0].sharding
        with jax.enable_x64(True):
            return _stacked(
                *[a if a.sharding == where else jax.device_put(a, where) for a in arrays]
            )
    rows = [np.asarray(spec.convert(value, copy=False)) for value in values]
    _check_shapes(spec, rows)
    result = aligned((len(rows), *rows[0].shape), spec.dtype)
    return np.stack(rows, out=result)


def leading(spec: FeedSpec, value: Any, n: int) -> Any:
    """A feed that already has a leading axis, after checks.

    Raises:
        FeedError: it has no leading axis, or one of another size.
    """
    array = spec.convert(value)
    if not array.ndim or array.shape[0] != n:
        raise FeedError(
            f"run_steps: feed {spec.label!r} must have a leading axis of {n}, one for each step, "
            f"got shape {tuple(array.shape)}",
            source=spec.source,
            hint="stack the steps' values, or pass an iterable of feeds in place of one mapping",
        )
    return array


@jax.jit
def _stacked(*arrays: jax.Array) -> jax.Array:
    return jnp.stack(arrays)


def _check_shapes(spec: FeedSpec, arrays: Sequence[Any]) -> None:
    first = arrays[0].shape
    for number, array in enumerate(arrays):
        if array.shape != first:
            raise FeedError(
                f"run_steps: feed {spec.label!r} has shape {tuple(first)} in batch 0 and "
                f"{tuple(array.shape)} in batch {number}",
                source=spec.source,
                hint="all steps of a loop need the same shapes: drop or pad a smaller last batch, "
                "or run it by itself with session.run",
            )


def _names(batch: Batch) -> str:
    return ", ".join(str(getattr(key, "name", key)) for key in batch) or "nothing"
