"""`Stepper`: the calls of a session that execute the steps of a training loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphc.runtime.session import Session
from graphc.train.callbacks.base import Callback
from graphc.train.evaluation import Metric, is_streaming

Feeds = Mapping[Any, Any]

_FAR = 1 << 62


class Stepper:
    """Runs single steps, or several in one call, with the fetches of metrics and callbacks.

    Args:
        session: the session.
        train: the fetch of one step.
        metrics: name -> metric, fetched in each step.
        callbacks: `fetch_every` of a callback determines the steps in which its `fetches` are
            fetched.

    Attributes:
        fetches: the fetches of every step.
        has_fetches: whether callbacks have fetches in every step.
        resets: the nodes that reset streaming metrics.
        of_metrics: the position of the metrics among all values.
        kept: the variables of streaming metrics.
    """

    def __init__(
        self,
        session: Session,
        train: Any,
        metrics: Mapping[str, Metric],
        callbacks: Sequence[Callback],
    ) -> None:
        self._session = session
        fetching = [c for c in callbacks if c.fetches]
        always: dict[str, Any] = {}
        for callback in fetching:
            if callback.fetch_every == 1:
                always |= callback.fetches
        self._seldom = [c for c in fetching if c.fetch_every != 1]
        self._names = list(metrics)
        self._always = list(always)
        self.has_fetches = bool(always)
        self.fetches = [*step_fetches(train, metrics), *always.values()]
        self._last = len(self.fetches) - len(always)
        self.of_metrics = slice(self._last - len(metrics), self._last)
        self.resets = [m.reset for m in metrics.values() if is_streaming(m)]
        self.kept = [v for m in metrics.values() for v in getattr(m, "variables", ())]

    def next_fetch(self, step: int) -> int | None:
        """The next step after `step` with fetches that not every step has."""
        return min((_next(step, c.fetch_every) for c in self._seldom), default=None)

    def single(self, feeds: Feeds) -> list[Any]:
        """Runs one step; returns all values."""
        values: list[Any] = self._session.run(self.fetches, feeds)
        return values

    def single_fetching(self, step: int, feeds: Feeds) -> tuple[list[Any], dict[str, Any]]:
        """Runs the step with number `step`; also returns the fetches of callbacks due in it."""
        due: dict[str, Any] = {}
        for callback in self._seldom:
            if step % callback.fetch_every == 0:
                due |= callback.fetches
        values = self._session.run([*self.fetches, *due.values()], feeds)
        own = len(self.fetches)
        found = dict(zip(due, values[own:], strict=True))
        return values[:own], found

    def several(self, feeds: list[Feeds]) -> list[Any]:
        """Runs steps in one call. Each value has a leading axis of steps.

        Raises:
            FeedError: the shapes of the feeds differ; nothing has run.
        """
        values: list[Any] = self._session.run_steps(self.fetches, feeds, len(feeds))
        return values

    def named_metrics(self, values: list[Any], index: int | None) -> dict[str, Any]:
        """Name -> value of a metric. `index` is the index of the step in a call of several."""
        return _named(self._names, values[self.of_metrics], index)

    def fetched(self, values: list[Any], index: int | None) -> dict[str, Any]:
        """Name -> value of a fetch that every step has."""
        return _named(self._always, values[self._last :], index)


def step_fetches(train: Any, metrics: Mapping[str, Metric]) -> list[Any]:
    """The fetches of a step of `fit`: the training step, then the updates of metrics, then their
    values."""
    updates = [m.update for m in metrics.values() if is_streaming(m)]
    return [train, *updates, *(m.value if is_streaming(m) else m for m in metrics.values())]


def _named(names: list[str], values: list[Any], index: int | None) -> dict[str, Any]:
    if index is None:
        return dict(zip(names, values, strict=True))
    return {n: np.asarray(v)[index, ...] for n, v in zip(names, values, strict=True)}


def _next(step: int, every: int) -> int:
    return (step // every + 1) * every


def next_boundary(step: int, callbacks: Sequence[Callback]) -> int | None:
    """The next step at which a callback uses the session. A call of several steps may end at this
    step, but must not go beyond it."""
    return min((_next(step, every) for every in _uses(callbacks)), default=None)


def largest_call(callbacks: Sequence[Callback], validates: int | None) -> int:
    """The largest number of steps that may fit into a call.

    Args:
        validates: the number of steps between two validations.
    """
    every = [c.fetch_every for c in callbacks if c.fetches and c.fetch_every > 1]
    every += [validates] if validates is not None else []
    return min([*every, *_uses(callbacks)], default=_FAR)


def _uses(callbacks: Sequence[Callback]) -> list[int]:
    """How often callbacks use the session in `on_step`."""
    used = [c.session_every for c in callbacks if type(c).on_step is not Callback.on_step]
    return [every for every in used if every is not None]
