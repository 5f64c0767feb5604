"""`Loop`: the steps of `fit`, and the work between them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from graphc.errors import FeedError, GraphcError
from graphc.runtime.session import Session
from graphc.runtime.state.initial import hidden_types
from graphc.train.appointments import Appointments
from graphc.train.call_size import CallSize
from graphc.train.callbacks.base import Callback
from graphc.train.evaluation import Validation, evaluate
from graphc.train.feeding import Feeder
from graphc.train.job import Job
from graphc.train.joint import agree_on_run
from graphc.train.recorder import Recorder
from graphc.train.run import Run, timed
from graphc.train.saving import Saves, checked_extra, give_states
from graphc.train.signals import Signals, noting
from graphc.train.stepping import Stepper, largest_call, next_boundary
from graphc.train.writing import Writer

_FAR = 1 << 62


class Loop:
    """A training loop, from the first step or a checkpoint to the end.

    Each step is followed by `on_step`, then, if they are due, by the validation, the end of the
    epoch and the checkpoint. Signals are handled between these parts, never within one of them. A
    checkpoint stores which parts are done, so that a resumed loop continues with the next part.

    Args:
        limits: the numbers of steps and of epochs.
        prefetch: see `Feeder`.
        per_call: see `CallSize`.
    """

    def __init__(
        self,
        session: Session,
        job: Job,
        limits: tuple[int | None, int | None],
        *,
        validation: Validation | None,
        callbacks: Sequence[Callback],
        saves: Saves,
        per_call: str | int,
        prefetch: int | None,
    ) -> None:
        steps, epochs = limits
        self._session, self._validation, self._callbacks = session, validation, callbacks
        self._saves = saves
        self._joint = Appointments(saves, session.is_chief) if session.spans_processes else None
        self._signals = self._joint or Signals()
        self._stepper = Stepper(session, job.train, job.metrics, callbacks)
        self._recorder = Recorder(list(job.metrics), self._stepper.of_metrics)
        self._on_steps = [c for c in callbacks if type(c).on_step is not Callback.on_step]
        # The loop knows that an epoch has ended only after it tries to read one more batch.
        most = steps if steps is None or epochs is None else steps + 1
        self._feeder = Feeder(session, job.batches, prefetch, most)
        every = None if validation is None else validation.every_steps
        self._calls = CallSize(
            per_call, session, self._stepper, largest_call(callbacks, every), steps
        )
        self._writer = Writer(session, saves, self._feeder, callbacks)
        self.run = Run(
            session,
            job,
            steps=steps,
            epochs=epochs,
            history=self.history,
            on_record=self._recorder.point,
            figures=[*job.metrics, *([] if validation is None else validation.figures)],
            on_save=self._writer.wanted.append,
            metrics_of=self._stepper.named_metrics,
        )
        self._start_step = 0
        self._ended = False  # whether the batches of the epoch have ended after the current step
        self._is_restored = False  # whether the state is that of `run.step`
        self._started: list[Callback] = []  # the callbacks whose `on_start` was called

    def history(self) -> Any:
        """The measurements so far."""
        return self._recorder.history(self._start_step, self.run.epoch, self.run.stopped)

    # -- from beginning to end --------------------------------------------------------------

    def carry_out(self, resume: bool) -> Any:
        """Runs the loop and returns the history."""
        with self._signals:
            try:
                self._begin(resume)
                self._steps()
                self._feeder.mark(self.run.step)
                self._writer.last(self.run)
            except BaseException as error:
                self._failed(error)
                raise
            self._end(None)
        return self.history()

    def _begin(self, resume: bool) -> None:
        restored = self._saves.restore(self._session) if resume else None
        run = self.run
        if restored is not None:
            found = checked_extra(restored.extra)
            run.step = self._start_step = int(found["step"])
            run.epoch = int(found["epoch"])
            run.validation = dict(found["validation"])
            self._writer.validated_at = int(found["validated_at"])
            give_states(self._callbacks, found["callbacks"])
            self._feeder.begin(run.epoch, run.step, found["position"])
        else:
            self._feeder.begin(0, 0)
        self._is_restored = True
        agree_on_run(run, self._validation)
        for callback in self._callbacks:
            self._started.append(callback)
            callback.on_start(run)
        self._recorder.begin()
        if run.step:
            self._settle()  # an interrupt may have come between a step and the work after it

    def _failed(self, error: BaseException) -> None:
        """Saves a checkpoint after an interrupt, and notifies the callbacks."""
        self._signals.busy = False
        interrupted = isinstance(error, (KeyboardInterrupt, SystemExit))
        if interrupted and not self._signals.torn and self._is_restored:
            try:
                self._writer.last(self.run)
            except GraphcError as failure:
                error.add_note(f"The last checkpoint was not written: {failure}")
        for callback in self._started:
            noting(error, callback.on_exception, self.run, error)
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        first = error
        for work in [*(c.on_end for c in self._started), self._finish]:
            try:
                work(self.run)
            except BaseException as other:
                if first is None:
                    first = other
                else:
                    first.add_note(f"Then {work.__qualname__} failed: {other!r}")
        if first is not None and error is None:
            raise first

    def _finish(self, run: Run) -> None:
        try:
            self._feeder.close()
        finally:
            self._saves.finish()

    # -- steps ------------------------------------------------------------------------------

    @property
    def _is_done(self) -> bool:
        run = self.run
        return (
            run.stopped is not None
            or (run.steps is not None and run.step >= run.steps)
            or (run.epochs is not None and run.epoch >= run.epochs)
        )

    def _steps(self) -> None:
        run, calls = self.run, self._calls
        while not self._is_done:
            if self._stepper.resets and not self._feeder.used(run.step):  # an epoch begins
                self._session.run(self._stepper.resets)
            self._feeder.open(run.step)
            until = self._next_event()
            if self._recorder.steps == 0:
                self._singles(run.step + 1)
                if self._recorder.steps:
                    self._recorder.first_done()
            elif run.step + 1 == self._stepper.next_fetch(run.step):
                self._fetching()
            elif calls.measuring:
                self._measured(min(until, calls.until(run.step)))
            elif 0 < calls.to_try <= self._room(until):
                self._try()
            elif (n := calls.size(self._room(until))) > 1:
                self._several(n)
            else:
                self._singles(until)
            self._feeder.mark_often(run.step)
            self._settle()
        self._settle_end()

    def _next_event(self) -> int:
        """The step up to which only steps and `on_step` have to run."""
        step, validation = self.run.step, self._validation
        found = [self.run.steps, self._saves.next_step(step), step + 1000]
        if validation is not None and validation.every_steps is not None:
            found.append((step // validation.every_steps + 1) * validation.every_steps)
        if (fetch := self._stepper.next_fetch(step)) is not None:
            found.append(fetch - 1)
        if self._calls.size(_FAR) > 1:  # after single steps up to the boundary, a call has room
            boundary = next_boundary(step, self._callbacks)
            found.append(None if boundary == step + 1 else boundary)
        return min(each for each in found if each is not None and each > step)

    def _room(self, until: int) -> int:
        """How many steps the next call may have."""
        step = self.run.step
        boundary = next_boundary(step, self._callbacks)
        return min(until, until if boundary is None else boundary) - step

    def _singles(self, until: int) -> None:
        """Runs single steps. This code is the overhead of every step: keep it short."""
        run, signals, feeder, saves = self.run, self._signals, self._feeder, self._saves
        fetches, add = self._stepper.fetches, self._recorder.add
        on_steps, wanted, clock = self._on_steps, self._writer.wanted, time.perf_counter
        has_fetches, has_saver = self._stepper.has_fetches, saves.saver is not None
        joint = self._joint
        session_run = self._session.run if joint is None else timed(run)
        for step in range(run.step + 1, until + 1):
            if joint is not None and joint.before(step):
                return
            if has_saver:
                saves.check()
            if (feeds := feeder.next()) is None:
                self._ended = True
                return
            signals.busy = True
            values: Any = session_run(fetches, feeds)
            run.step = step
            run._values = values, None
            add(values, 1)
            if on_steps:
                if has_fetches:
                    run.fetched.update(self._stepper.fetched(values, None))
                for callback in on_steps:
                    callback.on_step(run)
            signals.busy = False
            if signals.pending:
                signals.deliver()
            if run.stopped is not None or wanted or (has_saver and clock() >= saves.due_at):
                return

    def _measured(self, until: int) -> None:
        """Runs single steps and measures their time."""
        begin, first = time.perf_counter(), self.run.step
        self._singles(until)
        jax.block_until_ready(self.run._values)
        seconds = time.perf_counter() - begin
        self._calls.ran(self.run.step - first, seconds, self._recorder.first_seconds)

    def _fetching(self) -> None:
        """Runs one step with fetches that other steps do not have."""
        if self._joint is not None and self._joint.before(self.run.step + 1):
            return
        self._saves.check()
        if (feeds := self._feeder.next()) is None:
            self._ended = True
            return
        with self._signals.delaying():
            values, found = self._stepper.single_fetching(self.run.step + 1, feeds)
            self.run.fetched.update(found)
            self._count([(values, None)], values, 1)

    def _try(self) -> None:
        """Runs the trial of several steps in a call."""
        feeds = self._feeder.take(self._calls.to_try)
        self._saves.check()
        with self._signals.delaying():
            rows = self._calls.trial(feeds)
            if rows is None:
                self._one_by_one(feeds)
            else:
                for values in rows:
                    self._count([(values, None)], values, 1)

    def _several(self, n: int) -> None:
        """Runs `n` steps in one call."""
        if self._joint is not None and self._joint.before(self.run.step + n):
            return
        feeds = self._feeder.take(n)
        self._saves.check()
        with self._signals.delaying():
            if len(feeds) < n:
                self._one_by_one(feeds)
                self._ended = True
                return
            try:
                values = self._stepper.several(feeds)
            except FeedError:  # their shapes differ, or one is wrong: `run` then names it
                self._one_by_one(feeds)
            else:
                self._count([(values, i) for i in range(n)], values, n)

    def _one_by_one(self, feeds: list[Mapping[Any, Any]]) -> None:
        for each in feeds:
            values = self._stepper.single(each)
            self._count([(values, None)], values, 1)

    def _count(self, rows: list[tuple[list[Any], int | None]], values: list[Any], n: int) -> None:
        """Does the bookkeeping for the steps of a call."""
        run = self.run
        self._recorder.add(values, n)
        for row in rows:
            run.step += 1
            run._values = row
            if self._stepper.has_fetches:
                run.fetched.update(self._stepper.fetched(*row))
            for callback in self._on_steps:
                callback.on_step(run)

    # -- between steps ----------------------------------------------------------------------

    def _settle(self) -> None:
        """Does the work that is due after a step: validation, end of the epoch, checkpoint."""
        run, validation = self.run, self._validation
        self._writer.for_callbacks(self.run)
        if self._ended and run.epochs is None:
            raise FeedError.here(
                f"fit: the batches ended after {run.step} of {run.steps} steps",
                hint="fit(epochs=n) goes through them n times; so does pipeline.repeat(n)",
            )
        by_steps = validation is not None and validation.is_due_at(run.step)
        saves = self._saves.is_due(run.step)
        wanted = by_steps or saves or run.step == run.steps
        if wanted and not self._ended and run.epochs is not None and run.epoch < run.epochs:
            self._feeder.open(run.step)
            self._ended = self._feeder.is_at_end(run.step)
        if self._ended and not self._feeder.used(run.step):
            raise FeedError.here(
                f"fit: epoch {run.epoch} has no batches",
                hint="an iterator can be read once; pass a list or a pipeline",
            )
        ends = self._ended and validation is not None and validation.is_due_in(run.epoch + 1)
        if by_steps or ends:
            self._validate()
        if self._ended:
            self._end_epoch()
        if saves and run.stopped is None:
            self._writer.regular(run)

    def _settle_end(self) -> None:
        """Runs the validation at the end, if it has no other schedule."""
        validation = self._validation
        whole = self._recorder.steps > 0 and self.run.stopped is None
        if validation is not None and validation.is_at_end and whole:
            self._validate()

    def _validate(self) -> None:
        run, validation = self.run, self._validation
        if validation is None or self._writer.validated_at == run.step:
            return
        own = [v for m in validation.metrics.values() for v in getattr(m, "variables", ())]
        shared = [v for v in self._stepper.kept if any(v is each for each in own)]
        # A validation must not change shared metrics or the random stream, because an interrupted
        # validation is repeated from its start.
        kept = self._session.values([*shared, *hidden_types()])
        try:
            figures = evaluate(
                self._session, validation.batches, validation.metrics, steps=validation.steps
            )
        finally:
            self._session.set_all(kept)
        with self._signals.delaying():
            run.validation = figures
            self._recorder.validated(run.step, figures)
            self._writer.validated_at = run.step
            for callback in self._callbacks:
                callback.on_validation(run)
            self._writer.for_callbacks(run)

    def _end_epoch(self) -> None:
        run = self.run
        with self._signals.delaying():
            self._ended = False
            run.epoch += 1
            self._feeder.begin(run.epoch, run.step)
            for callback in self._callbacks:
                callback.on_epoch(run)
            self._writer.for_callbacks(run)
