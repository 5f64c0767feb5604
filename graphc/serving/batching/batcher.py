"""`Batcher`: joins concurrent requests of one entry point to batches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from graphc.ir.dtypes import Array
from graphc.serving.batching.buffers import Buffers, results_of
from graphc.serving.batching.filled import inputs_of_all_sizes
from graphc.serving.batching.paddable import Paddable
from graphc.serving.batching.requests import Arrays, Form, Piece, Request
from graphc.serving.batching.sizes import allowed_sizes, padded_size, pieces_of
from graphc.serving.batching.waiting import Ready, Waiting
from graphc.serving.config import BatchingConfig
from graphc.web.failures import Failure

Run = Callable[[Arrays], dict[str, Array]]


@dataclass(frozen=True)
class BatchReport:
    """One batch that ran.

    Attributes:
        rows: the number of rows, without padding.
        padded_to: the number of rows with padding.
        requests: the number of requests with rows in it.
        waited: how many seconds its first request waited.
        reason: why it was released. "full": no more rows fit, or the next request did not fit.
            "timeout": its first request waited as long as configured, or half the time until its
            deadline. "idle": no other batch ran. "closing": the server stops. "alone": requests
            of this entry point cannot be joined.
        failed: whether the run failed.
    """

    rows: int
    padded_to: int
    requests: int
    waited: float
    reason: str
    failed: bool


class Batcher:
    """Joins concurrent requests of one entry point to batches.

    Only requests with the same sizes, apart from the batch size, and the same values of inputs
    without rows are joined. If the proof refuses the batch size, each request runs alone, at its
    true size. A request with more rows than a batch is cut, and its results are joined.

    A batch is released when it is full, when no other batch runs, or when its first request has
    waited for `batch_timeout_micros`. So a request on an idle server does not wait. Queues of
    different sizes take turns.

    Args:
        run: computes the outputs of inputs at exactly these sizes. It may run in several threads.
        axes: what is proved about the entry point.
        config: the limits.
        buckets: open size -> the values that it is padded to.
        observe: called after each batch, in the thread that ran it. It must not raise.
        clock: the time in seconds, as `time.monotonic`.
        threads: the number of threads that run batches, by default as configured. With 0 nothing
            runs until `run_ready` is called.
        finish: makes the result of a request from its outputs. It may raise a Failure.

    Raises:
        Failure: FAILED_PRECONDITION: a size with buckets cannot be padded.

    Examples:
        >>> import numpy as np
        >>> from graphc.ir.types import parse_type
        >>> from graphc.devices.row_proof import Rows
        >>> from graphc.serving.batching.paddable import OpenSize
        >>> size = OpenSize("n", {"x": 0}, {"y": Rows(0)})
        >>> vector = parse_type("f32[n]")
        >>> axes = Paddable({"x": vector}, {"y": vector}, {"n": size}, batch=size)
        >>> batcher = Batcher(lambda feeds: {"y": feeds["x"] * 2}, axes)
        >>> batcher.submit({"x": np.ones(3, np.float32)}).result()["y"].tolist()
        [2.0, 2.0, 2.0]
        >>> batcher.close()
    """

    def __init__(
        self,
        run: Run,
        axes: Paddable,
        config: BatchingConfig | None = None,
        observe: Callable[[BatchReport], None] = lambda report: None,
        *,
        buckets: Mapping[str, Sequence[int]] | None = None,
        clock: Callable[[], float] = time.monotonic,
        threads: int | None = None,
        finish: Callable[[dict[str, Array]], dict[str, Array]] = lambda outputs: outputs,
    ) -> None:
        config = config or BatchingConfig()
        self._run = run
        self._observe = observe
        self._finish = finish
        self._clock = clock
        self._form = form = Form(axes, config.pad_variable_length_inputs, buckets or {})
        self._buffers = Buffers(form)
        rows = () if form.batch is None else form.buckets.get(form.batch.name, ())
        self._allowed = allowed_sizes(config, rows)
        self._most_rows = self._allowed[-1]
        self._waiting = Waiting(
            self._most_rows, config.max_enqueued_batches, config.batch_timeout_micros / 1e6
        )
        self._changed = threading.Condition()
        self._running = 0
        self._closing = False
        count = config.num_batch_threads if threads is None else threads
        self._threads = [
            threading.Thread(target=self._work, name=f"graphc-batch-{i}", daemon=True)
            for i in range(count)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers of rows of batches. Empty if requests are not joined."""
        return self._allowed if self._form.batch is not None else ()

    @property
    def waiting(self) -> int:
        """How many batches wait."""
        return len(self._waiting)

    def inputs_of_all_sizes(self, examples: Sequence[Arrays]) -> Iterator[dict[str, Array]]:
        """Inputs for `run` of each size in which batches run, for warm-up.

        Args:
            examples: requests, whose values are taken. Without them, the values are zero.

        Raises:
            Failure: INVALID_ARGUMENT: an example exceeds the largest bucket.
        """
        return inputs_of_all_sizes(self._form, self.sizes, examples)

    def submit(self, inputs: Arrays, deadline: float | None = None) -> Future[dict[str, Array]]:
        """Adds a request. The future's result maps outputs to arrays.

        Args:
            inputs: name -> array, of exactly the dtypes of the entry point. The arrays must not
                change until the future is done.
            deadline: the time, on `clock`, after which the request is not run.

        Raises:
            Failure: INVALID_ARGUMENT: an input does not fit. UNAVAILABLE: too many batches wait,
                or the batcher is closed. DEADLINE_EXCEEDED: the deadline has passed.
        """
        sizes = self._form.check(inputs)
        now = self._clock()
        if deadline is not None and deadline <= now:
            raise Failure("DEADLINE_EXCEEDED", "the deadline passed before the request was queued")
        alone = self._form.batch is None
        bounds = [(0, 1)] if alone else list(pieces_of(sizes.rows, self._most_rows))
        key = self._form.key(inputs, sizes)
        request = Request(inputs, sizes, key, deadline, now, bounds, self._drop, self._finish)
        with self._changed:
            if self._closing:
                raise Failure("UNAVAILABLE", "the model is being unloaded")
            if self._waiting.add(request.pieces(), alone):
                self._changed.notify(len(bounds))
        return request.future

    def _drop(self, request: Request) -> None:
        with self._changed:
            self._waiting.drop(request)

    def close(self) -> None:
        """Runs what waits, then stops the threads. Later requests fail with UNAVAILABLE."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        while self.run_ready():
            pass

    def run_ready(self) -> bool:
        """Runs one batch in this thread, if one is to be released now. Returns whether it did."""
        with self._changed:
            ready = self._take()
        if ready is None:
            return False
        self._run_taken(ready)
        return True

    def _take(self) -> Ready | None:
        """The next batch, counted as running. The lock is held."""
        ready = self._waiting.take(self._clock(), self._running == 0, self._closing)
        if ready is not None:
            self._running += 1
        return ready

    def _work(self) -> None:
        """The loop of a thread."""
        while True:
            with self._changed:
                while (ready := self._take()) is None:
                    if self._closing:
                        return
                    due = self._waiting.next_due()
                    self._changed.wait(None if due is None else max(due - self._clock(), 0.0))
            self._run_taken(ready)

    def _run_taken(self, ready: Ready) -> None:
        try:
            now = self._clock()
            pieces = [piece for piece in ready.pieces if piece.request.claim(now)]
            if pieces:
                self._run_batch(pieces, ready.reason, now)
        finally:
            with self._changed:
                self._running -= 1
                if len(self._waiting):
                    self._changed.notify()

    def _run_batch(self, pieces: Sequence[Piece], reason: str, now: float) -> None:
        rows = sum(piece.rows for piece in pieces)
        padded = rows if reason == "alone" else padded_size(rows, self._allowed)
        error: Failure | None = None
        results: list[dict[str, Array]] = []
        try:
            inputs, buffers = self._buffers.take(pieces, padded)
            outputs = self._run(inputs)
            results = results_of(outputs, pieces, padded, buffers, self._form)
            if buffers is not None:
                self._buffers.give_back(pieces, padded, buffers)
        except Failure as failure:
            error = failure
        except Exception as exception:
            error = Failure("INTERNAL", f"the batch failed: {type(exception).__name__}")
            error.__cause__ = exception
        try:
            self._report(pieces, rows, padded, reason, now, error is not None)
        finally:
            for i, piece in enumerate(pieces):
                if error is not None:
                    piece.request.fail(error)
                else:
                    piece.request.finish(piece, results[i], self._form)

    def _report(
        self, pieces: Sequence[Piece], rows: int, padded: int, reason: str, now: float, failed: bool
    ) -> None:
        requests = {id(piece.request): piece.request for piece in pieces}
        waited = now - min(request.arrived for request in requests.values())
        self._observe(BatchReport(rows, padded, len(requests), waited, reason, failed))
