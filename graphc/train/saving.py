"""`Saves`: the checkpoints of a training loop."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from graphc.checkpoints.checkpointer import Checkpointer
from graphc.errors import AttributeValueError, StateError
from graphc.runtime.session import Session
from graphc.train.callbacks.base import Callback

_FORM = 1
_SECONDS = 600.0


class Saves:
    """Writes checkpoints when they are due.

    Args:
        checkpoint: a folder, a Checkpointer or None.
        steps: write one each time after this number of steps.
        seconds: write one each time after this number of seconds; 600 without `steps`.
    """

    def __init__(
        self,
        checkpoint: str | os.PathLike[str] | Checkpointer | None,
        steps: int | None,
        seconds: float | None,
    ) -> None:
        self.saver: Any = checkpoint
        self._owned = isinstance(checkpoint, (str, os.PathLike))
        if isinstance(checkpoint, (str, os.PathLike)):
            self.saver = Checkpointer(checkpoint)
        self._steps = steps
        self._seconds = seconds if seconds is not None or steps is not None else _SECONDS
        self._check = getattr(self.saver, "check", None)
        self.saved_at: int | None = None
        self._due_at = self._next_time()
        self._is_joint = self._is_demanded = False

    def _next_time(self) -> float:
        if self.saver is None or self._seconds is None:
            return float("inf")
        return time.perf_counter() + self._seconds

    def next_step(self, step: int) -> int | None:
        """The next step after which a checkpoint is due."""
        if self.saver is None or self._steps is None:
            return None
        return (step // self._steps + 1) * self._steps

    @property
    def due_at(self) -> float:
        """The value of `time.perf_counter` at which a checkpoint is due."""
        return float("inf") if self._is_joint else self._due_at

    def wait_for_all(self) -> None:
        """Lets no time make a checkpoint due, only `demand`: the processes of a cluster have clocks
        of their own, but must write after the same step."""
        self._is_joint = True

    def demand(self) -> None:
        """Makes a checkpoint due now."""
        self._is_demanded = True

    @property
    def is_late(self) -> bool:
        """Whether it is time for a checkpoint that has not been demanded."""
        return not self._is_demanded and time.perf_counter() >= self._due_at

    def is_due(self, step: int) -> bool:
        """Whether a checkpoint is due after this step."""
        if self.saver is None or step == self.saved_at:
            return False
        by_step = self._steps is not None and step > 0 and step % self._steps == 0
        return by_step or self._is_demanded or time.perf_counter() >= self.due_at

    def check(self) -> None:
        """Raises the error of a checkpoint that could not be written."""
        if self._check is not None:
            self._check()

    def save(
        self,
        session: Session,
        step: int,
        extra: Mapping[str, Any],
        metrics: Mapping[str, float],
        *,
        wait: bool,
    ) -> None:
        """Writes a checkpoint."""
        self.saver.save(session, step, extra=extra, metrics=metrics, wait=wait)
        self.saved_at = step
        self._is_demanded = False
        self._due_at = self._next_time()

    def restore(self, session: Session) -> Any:
        """Restores the latest checkpoint; None if there is none."""
        restored = None if self.saver is None else self.saver.restore(session)
        if restored is not None:
            self.saved_at = restored.step
        return restored

    def finish(self) -> None:
        """Waits for the checkpoint being written, and closes a Checkpointer created by this
        object."""
        if self.saver is None:
            return
        try:
            self.saver.wait()
        finally:
            if self._owned:
                self.saver.close()


def states_of(callbacks: Sequence[Callback]) -> list[dict[str, Any]]:
    """The states of callbacks that a checkpoint stores.

    Raises:
        AttributeValueError: one is no mapping.
    """
    found = [(type(callback).__name__, callback.state()) for callback in callbacks]
    for kind, state in found:
        if not isinstance(state, Mapping):
            raise AttributeValueError(
                f"fit: {kind}.state() must return a dict, got {type(state).__name__}",
                hint="return {} if there is nothing to save",
            )
    return [{"kind": kind, "state": dict(state)} for kind, state in found]


def give_states(callbacks: Sequence[Callback], states: Sequence[Mapping[str, Any]]) -> None:
    """Gives callbacks the states of a checkpoint. The first callback of a class gets the first
    state of that class, and so on. Callbacks without a state in the checkpoint start afresh."""
    left = list(states)
    for callback in callbacks:
        found = next((s for s in left if s["kind"] == type(callback).__name__), None)
        if found is not None:
            left.remove(found)
            if found["state"]:
                callback.restore(found["state"])


def extra_of(
    step: int,
    epoch: int,
    validated_at: int,
    position: Mapping[str, Any],
    validation: Mapping[str, float],
    callbacks: Sequence[Callback],
) -> dict[str, Any]:
    """The tree that a checkpoint of `fit` stores in addition to the variables."""
    return {
        "fit": {
            "form": _FORM,
            "step": step,
            "epoch": epoch,
            "validated_at": validated_at,
            "position": dict(position),
            "validation": dict(validation),
            "callbacks": states_of(callbacks),
        }
    }


def checked_extra(extra: Any) -> Mapping[str, Any]:
    """The tree of a checkpoint that `fit` has written.

    Raises:
        StateError: `fit` has not written the tree.
    """
    found = extra.get("fit") if isinstance(extra, Mapping) else None
    if not isinstance(found, Mapping) or found.get("form") != _FORM:
        raise StateError(
            "fit: the latest checkpoint was not written by fit, so the position of the batches is "
            "not known",
            hint="restore it with Checkpointer.restore, and give fit another folder",
        )
    return found
