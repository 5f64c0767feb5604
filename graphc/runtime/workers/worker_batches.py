"""The feeds of the workers of `Session.run_workers`: one iterable for all, or one per worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import count
from threading import Lock
from typing import Any

import numpy as np

from graphc.errors import FeedError
from graphc.runtime.feeds.batches import Batch


class WorkerBatches:
    """Batches with their tickets. Each batch goes to one worker.

    Args:
        batches: an iterable of feeds that the workers share, or a list of one iterable per worker.
        workers: the number of workers.

    Raises:
        FeedError: `batches` is neither.
    """

    def __init__(self, batches: Any, workers: int) -> None:
        rows = _rows(batches, workers)
        self._shared = (iter(batches), Lock()) if rows is None else None
        self._rows = [(iter(row), Lock()) for row in rows or ()]
        self._tickets = count()

    @property
    def is_shared(self) -> bool:
        """Whether the workers share one iterable, so that more workers may join."""
        return self._shared is not None

    def take(self, worker: int, stopping: Callable[[], bool]) -> tuple[int, Batch] | None:
        """The next batch for a worker and its ticket; None at the end. Passes on what `next`
        raises.

        If workers share the batches, tickets are 0, 1, ... in the order of the batches.

        Raises:
            FeedError: the batch is not a mapping.
        """
        batches, lock = self._shared or self._rows[worker]
        with lock:
            if stopping():
                return None
            try:
                batch = next(batches)
            except StopIteration:
                return None
            if not isinstance(batch, Mapping):
                raise FeedError(
                    f"run_workers: a batch must be a mapping, got {type(batch).__name__}",
                    hint="feeds of one step: {x: value}, by tensor or by name",
                )
            return next(self._tickets), batch


def _rows(batches: Any, workers: int) -> list[Iterable[Any]] | None:
    """The iterables, one per worker; None if the workers share one."""
    if not _is_iterable(batches):
        raise FeedError.here(
            f"run_workers: batches must be an iterable of feeds, got {type(batches).__name__}",
            hint="pass an iterable of mappings, which the workers share, or a list of as many "
            "such iterables as there are workers",
        )
    if not isinstance(batches, (list, tuple)) or any(isinstance(row, Mapping) for row in batches):
        return None
    if batches and not all(map(_is_iterable, batches)):
        odd = next(row for row in batches if not _is_iterable(row))
        raise FeedError.here(
            f"run_workers: {odd!r} in the list of batches is neither feeds nor an iterable of them",
            hint="pass a list of mappings, or of iterables of mappings, one for each worker",
        )
    if len(batches) not in (0, workers):
        raise FeedError.here(
            f"run_workers: {len(batches)} iterables of batches for {workers} workers",
            hint="pass one for each worker, or one iterable that they share",
        )
    return list(batches) or None


def _is_iterable(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, np.ndarray, Mapping))
