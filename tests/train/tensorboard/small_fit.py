"""A loop that calls a callback as `fit` does, with one step per call."""

from collections.abc import Callable, Mapping
from typing import Any

import graphc as gc
from graphc.train.callbacks.base import Callback
from graphc.train.run import Run


def run_job(
    job: gc.train.Job,
    callback: Callback,
    *,
    first: int = 0,
    steps: int,
    restored: Mapping[str, Any] | None = None,
    validate: int | None = None,
    at_step: Callable[[Run], None] = lambda run: None,
) -> Mapping[str, Any]:
    """Runs the steps after `first` and returns the callback's state after them."""
    session = gc.Session(job.graph)
    run = Run(
        session,
        job,
        steps=steps,
        epochs=None,
        figures=list(job.metrics),
        history=nothing,
        on_record=nothing,
        on_save=nothing,
        metrics_of=lambda values, _: values[0],
    )
    run.step = first
    if restored is not None:
        callback.restore(restored)
    callback.prepare(job.graph)
    callback.on_start(run)
    try:
        while run.step < steps:
            due = (run.step + 1) % callback.fetch_every == 0
            fetched = dict(callback.fetches) if due else {}
            values = session.run([job.train, dict(job.metrics), fetched])
            run.step += 1
            run._values = [values[1]], None
            run.fetched.update(values[2])
            at_step(run)
            callback.on_step(run)
            if validate is not None and run.step % validate == 0:
                run.validation = {"validation/w": 100.0 + run.step}
                callback.on_validation(run)
        return callback.state()
    except BaseException as error:
        callback.on_exception(run, error)
        raise
    finally:
        callback.on_end(run)


def nothing(*_: object) -> Any:
    """A function for parts of a run that the callback does not use."""
