"""`fit`: the function that trains a job."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from graphc.checkpoints.checkpointer import Checkpointer
from graphc.data.batches import Batches
from graphc.data.core.checks import check_count
from graphc.errors import AttributeValueError
from graphc.ir.calls import explained
from graphc.runtime.feeds.batches import checked_count
from graphc.runtime.session import Session
from graphc.train.call_size import checked_setting
from graphc.train.callbacks.base import Callback
from graphc.train.callbacks.progress import Progress
from graphc.train.callbacks.quiet import Quiet
from graphc.train.callbacks.sign_of_life import signs
from graphc.train.callbacks.time_limit import TimeLimit
from graphc.train.evaluation import Validation
from graphc.train.history import History
from graphc.train.job import Job
from graphc.train.loop import Loop
from graphc.train.saving import Saves


@explained
def fit(
    session: Session,
    job: Job,
    *,
    steps: int | None = None,
    epochs: int | None = None,
    validation: Validation | None = None,
    callbacks: Sequence[Callback] = (),
    checkpoint: str | os.PathLike[str] | Checkpointer | None = None,
    checkpoint_steps: int | None = None,
    checkpoint_seconds: float | None = None,
    resume: bool = True,
    steps_per_call: str | int = "auto",
    progress: bool = True,
    prefetch: int | None = None,
) -> History:
    """Runs the job's training steps in `session`.

    With `checkpoint`, the loop writes checkpoints of all state: variables, random numbers, the
    position in the batches, and the state of callbacks. A later call with the same checkpoint
    continues with the same results, bit by bit, as if it had never stopped. A checkpoint is also
    written at the end, and after Ctrl-C or SIGTERM, which take effect between two steps: the first
    then raises KeyboardInterrupt, the second SystemExit. A second signal is not delayed.

    Args:
        session: the session.
        job: the training step, its batches and its metrics.
        steps: the number of steps at which the loop ends, including those before the checkpoint.
        epochs: how many times to go through the batches. If both are given, the loop ends at the
            limit that is reached first. If one is given, `job.steps` and `job.epochs` are ignored.
        validation: a validation that replaces the job's.
        callbacks: callbacks in addition to the job's.
        checkpoint: a folder or a Checkpointer.
        checkpoint_steps: write a checkpoint each time after this number of steps.
        checkpoint_seconds: write one each time after this number of seconds; 600 if neither is
            given.
        resume: whether to continue from the latest checkpoint, if there is one.
        steps_per_call: how many steps to execute in one call, by `session.run_steps`. The results
            are the same. "auto" tries it for short steps, and uses it if it is faster.
        progress: show a progress bar on standard error, if it is a terminal.
        prefetch: how many batches to prepare ahead on the device, in a separate thread; see
            `gc.data.prefetch`. With None, each batch is prepared when its step begins. No more
            batches are read than there are steps.

    Raises:
        AttributeValueError: an argument has an invalid value.
        FeedError: there are fewer batches than steps, or an epoch or the validation has no batches.
        CheckpointError: a checkpoint cannot be written or restored.
        StateError: the position of the checkpoint does not fit the batches.
        Others: an error of a callback or of the source of the batches. For every callback that has
            started, `on_exception` and then `on_end` are called.

    Examples:
        >>> w = gc.variable(8.0, name="w")
        >>> train = gc.minimize(w**2, optax.sgd(0.25))
        >>> job = gc.train.Job(graph, train, [{}] * 10, steps=10, metrics={"w": w})
        >>> gc.train.fit(gc.Session(graph), job, steps=3, progress=False).metrics
        {'w': array([4., 2., 1.])}
    """
    if not isinstance(job, Job):
        raise AttributeValueError.here(
            f"fit: takes a job, got {type(job).__name__}",
            hint='gc.train.Job(graph, train, batches, steps=1000, metrics={"loss": loss})',
        )
    limits = _limits(job, steps, epochs)
    checked_setting(steps_per_call)
    if prefetch is not None:
        checked_count(prefetch, "prefetch: size")
    called = [*signs(), *_checked_callbacks(job.callbacks), *_checked_callbacks(callbacks)]
    if progress and sys.stderr.isatty() and not any(isinstance(c, Progress) for c in called):
        called.append(Progress())
    for callback in called:
        callback.prepare(session.graph)
    if not session.is_chief:
        called = [Quiet(each) if each.for_chief else each for each in called]
    if session.spans_processes:
        _refuse_clocks(called)
    loop = Loop(
        session,
        job,
        limits,
        validation=_checked_validation(job.validation if validation is None else validation),
        callbacks=called,
        saves=_saves(checkpoint, checkpoint_steps, checkpoint_seconds),
        per_call=steps_per_call,
        prefetch=prefetch,
    )
    history: History = loop.carry_out(resume)
    return history


def _refuse_clocks(callbacks: Sequence[Callback]) -> None:
    """Raises `AttributeValueError` for a callback that would end processes at different steps."""
    if any(isinstance(each, TimeLimit) for each in callbacks):
        raise AttributeValueError.here(
            "fit: with TimeLimit, the processes of a cluster would end after different steps",
            hint="give a number of steps",
        )


def _limits(job: Job, steps: Any, epochs: Any) -> tuple[int | None, int | None]:
    if steps is None and epochs is None:
        steps, epochs = job.steps, job.epochs
    if steps is None and epochs is None:
        raise AttributeValueError.here(
            "fit: neither steps nor epochs are given", hint="gc.train.Job(..., steps=1000)"
        )
    for name, value in (("steps", steps), ("epochs", epochs)):
        if value is not None and (type(value) is not int or value < 1):
            raise AttributeValueError.here(
                f"fit: {name} must be an int of at least 1, got {value!r}",
                hint=f"gc.train.Job(..., {name}=1000)",
            )
    if steps is None and isinstance(job.batches, Batches):
        raise AttributeValueError.here(
            "fit: gc.data.Batches has no end, so its epochs cannot be counted",
            hint="give steps; or gc.data.from_arrays(...).shuffle(seed=0).batch(n), with epochs",
        )
    return steps, epochs


def _checked_callbacks(callbacks: Any) -> list[Callback]:
    if not isinstance(callbacks, Iterable):
        raise AttributeValueError.here(
            f"fit: callbacks must be a list, got {callbacks!r:.80}",
            hint="callbacks=[gc.train.StopOnNaN()]",
        )
    found: list[Any] = list(callbacks)
    for each in found:
        if not isinstance(each, Callback):
            raise AttributeValueError.here(
                f"fit: a callback must be a gc.train.Callback, got {each!r:.80}",
                hint="derive your class from gc.train.Callback, and pass an object of it",
            )
        for name in ("session_every", "fetch_every"):
            value = getattr(each, name)
            if name == "fetch_every" or value is not None:
                check_count(f"fit: {name} of {type(each).__name__}", value, 1)
    return found


def _checked_validation(validation: Any) -> Validation | None:
    if validation is not None and not isinstance(validation, Validation):
        raise AttributeValueError.here(
            f"fit: validation must be a gc.train.Validation, got {type(validation).__name__}",
            hint='gc.train.Validation(batches, {"loss": loss}, every_steps=100)',
        )
    return validation


def _saves(checkpoint: Any, steps: Any, seconds: Any) -> Saves:
    """Checkpoints, with checked arguments."""
    if steps is not None:
        check_count("fit: checkpoint_steps", steps, 1)
    if seconds is not None and not (isinstance(seconds, (int, float)) and seconds > 0):
        raise AttributeValueError.here(
            f"fit: checkpoint_seconds must be a number above 0, got {seconds!r}"
        )
    if checkpoint is None and not (steps is None and seconds is None):
        raise AttributeValueError.here(
            "fit: checkpoint_steps and checkpoint_seconds need a checkpoint",
            hint='fit(..., checkpoint="folder", checkpoint_steps=1000)',
        )
    named = isinstance(checkpoint, (str, os.PathLike))
    if checkpoint is not None and not named and not hasattr(checkpoint, "save"):
        raise AttributeValueError.here(
            f"fit: checkpoint must be a folder or a gc.train.Checkpointer, got {checkpoint!r:.80}"
        )
    return Saves(checkpoint, steps, seconds)
