"""One request: its sizes, its pieces, and its result."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from graphc.errors import FeedError
from graphc.ir.dims import substitute
from graphc.ir.dtypes import Array
from graphc.ir.node import Tensor
from graphc.ir.program import Port, Program
from graphc.ir.types import shown_size
from graphc.runtime.feeds.feeds import bind_feeds
from graphc.serving.batching.paddable import Paddable
from graphc.serving.batching.sizes import next_power_of_two, padded_size
from graphc.web.failures import Failure

Arrays = Mapping[str, Array]
_NONE: Mapping[str, Sequence[int]] = MappingProxyType({})
_MOST_KNOWN = 1024  # the number of different shapes that are remembered


class Sizes(NamedTuple):
    """The sizes of a request.

    Attributes:
        rows: the number of rows along the batch size; 1 if requests are not joined.
        real: name of an open size -> its value.
        run: the same, as the program runs: proved sizes are padded. The batch size is the real one.
        shapes: the shape of each input in the run, without the batch axis. Requests with equal
            shapes can be joined.
    """

    rows: int
    real: Mapping[str, int]
    run: Mapping[str, int]
    shapes: tuple[tuple[int, ...], ...]


class Form:
    """The form that requests of an entry point have.

    Args:
        axes: what is proved about the entry point.
        pad_lengths: whether proved sizes other than the batch are padded to powers of two, if they
            have no buckets.
        buckets: open size -> the values that it is padded to.

    Raises:
        Failure: FAILED_PRECONDITION: a size with buckets cannot be padded.
    """

    def __init__(
        self, axes: Paddable, pad_lengths: bool, buckets: Mapping[str, Sequence[int]] = _NONE
    ) -> None:
        self.axes = axes
        self.batch = axes.batch
        self.buckets = {name: row for name, row in buckets.items() if name in axes.sizes}
        for name in self.buckets:
            if not axes.sizes[name].padded:
                raise Failure("FAILED_PRECONDITION", f"it has buckets, but {axes.sizes[name]}")
        self.padded = [
            size
            for name, size in axes.sizes.items()
            if (pad_lengths or name in self.buckets) and size.padded and size is not axes.batch
        ]
        self._ports = Program(
            "request",
            tuple(Port(n, "feed", Tensor(t, n)) for n, t in axes.inputs.items()),
            (),
            (),
        )
        self._known: dict[tuple[tuple[int, ...], ...], Sizes] = {}

    def batch_axis(self, name: str) -> int | None:
        """The axis of an input along which requests are joined."""
        return None if self.batch is None else self.batch.inputs.get(name)

    def check(self, inputs: Arrays) -> Sizes:
        """The sizes of a request.

        Raises:
            Failure: INVALID_ARGUMENT: an input is missing or unknown, or has another dtype or
                shape than the signature.
        """
        types = self.axes.inputs
        if inputs.keys() != types.keys():
            wrong = sorted(inputs.keys() ^ types.keys())[0]
            what = "is missing" if wrong in types else "is not an input"
            raise _invalid(f"{wrong!r} {what}; the inputs are {', '.join(types) or 'none'}")
        for name, type in types.items():
            if inputs[name].dtype != type.dtype:
                raise _invalid(
                    f"input {name!r} must be {type.dtype.name}, got {inputs[name].dtype.name}"
                )
        shapes = tuple([inputs[name].shape for name in types])
        found = self._known.get(shapes)
        if found is None:
            found = self._sizes(shapes)
            if len(self._known) < _MOST_KNOWN:
                self._known[shapes] = found
        return found

    def _sizes(self, shapes: Sequence[tuple[int, ...]]) -> Sizes:
        try:
            real = bind_feeds(self._ports, shapes, {})
        except FeedError as error:
            raise _invalid(error.what) from error
        empty = [name for name, size in real.items() if size == 0]
        if empty:
            raise _invalid(f"{self._shown(empty[0])} is 0; a request has at least one row")
        run = {**real, **{s.name: self._padded(s.name, real[s.name]) for s in self.padded}}
        rows = 1 if self.batch is None else real[self.batch.name]
        types = zip(self.axes.inputs.items(), shapes, strict=True)
        padded = tuple(
            tuple(
                substitute(dim, run)
                for i, dim in enumerate(type.shape)
                if i != self.batch_axis(name)
            )
            for (name, type), _ in types
        )
        return Sizes(rows, real, run, padded)

    def _padded(self, name: str, size: int) -> int:
        row = self.buckets.get(name)
        if row is None:
            return next_power_of_two(size)
        if size > row[-1]:
            raise _invalid(f"{self._shown(name)} is {size}, but its largest bucket is {row[-1]}")
        return padded_size(size, row)

    def _shown(self, name: str) -> str:
        return shown_size(name, self.axes.inputs)

    def key(self, inputs: Arrays, sizes: Sizes) -> tuple[Any, ...]:
        """Requests with equal keys can be joined: they have the same shapes, and the same values
        for inputs without rows."""
        same = [
            (value.shape, value.tobytes())
            for name, value in ((name, inputs[name]) for name in self.axes.inputs)
            if self.batch_axis(name) is None
        ]
        return (sizes.shapes, *same)


class Reply(Future[dict[str, Array]]):
    """The future of a request. Cancelling it removes the request from the queue.

    It has no strong reference to the request, so that reference counts free the arrays.
    """

    def __init__(self, request: Request, drop: Callable[[Request], None]) -> None:
        super().__init__()
        self._request = weakref.ref(request)
        self._drop = drop

    def cancel(self) -> bool:
        """Cancels the request, unless it runs. Returns whether it did."""
        cancelled = super().cancel()
        request = self._request()
        if cancelled and request is not None:
            self._drop(request)
        return cancelled


class Request:
    """A request that is waiting or runs.

    Args:
        drop: removes the request from the queue, when it is cancelled or fails.
        finish: makes the result from the outputs. It may raise a Failure.

    Attributes:
        inputs: name -> array.
        sizes: its sizes.
        key: requests with equal keys can be joined.
        future: receives the result. Cancelling it drops the request.
        deadline: the time by which it must run, or None.
        arrived: when it was submitted.
        bounds: the first and last-plus-one row of each piece.
    """

    def __init__(
        self,
        inputs: Arrays,
        sizes: Sizes,
        key: Hashable,
        deadline: float | None,
        arrived: float,
        bounds: Sequence[tuple[int, int]],
        drop: Callable[[Request], None],
        finish: Callable[[dict[str, Array]], dict[str, Array]] = lambda outputs: outputs,
    ) -> None:
        self.inputs = inputs
        self.sizes = sizes
        self.key = key
        self.future = Reply(self, drop)
        self.deadline = deadline
        self.arrived = arrived
        self.bounds = bounds
        self._drop = drop
        self._finish = finish
        self._results: dict[int, dict[str, Array]] = {}
        self._lock = threading.Lock()
        self._started = False
        self._settled = False

    def pieces(self) -> list[Piece]:
        """Its parts of at most as many rows as a batch."""
        return [Piece(self, start, stop) for start, stop in self.bounds]

    def claim(self, now: float) -> bool:
        """Whether a piece of it is to run now. Afterwards it cannot be cancelled.

        A request whose deadline has passed fails here.
        """
        with self._lock:
            if not self._started:
                self._started = True
                self._settled = not self.future.set_running_or_notify_cancel()
            if self._settled:  # cancelled, or another piece failed
                return False
        if self.deadline is not None and self.deadline <= now:
            self.fail(Failure("DEADLINE_EXCEEDED", "the deadline passed before the request ran"))
            return False
        return True

    def fail(self, error: BaseException) -> None:
        """Fails the request, unless it is complete, cancelled or has failed already."""
        with self._lock:
            if self._settled:
                return
            self._settled = True
            self._results = {}
            if not self._started:
                self._started = True
                if not self.future.set_running_or_notify_cancel():
                    return
        self._drop(self)
        self.future.set_exception(error)

    def finish(self, piece: Piece, results: dict[str, Array], form: Form) -> None:
        """Records the result of a piece. The last one completes the request."""
        with self._lock:
            self._results[piece.start] = results
            if self._settled or len(self._results) < len(self.bounds):
                return
            self._settled = True
            parts = [self._results[start] for start in sorted(self._results)]
        try:
            result = self._finish(parts[0] if len(parts) == 1 else _joined(parts, form))
        except Failure as failure:
            self.future.set_exception(failure)
        else:
            self.future.set_result(result)


class Piece:
    """The rows from `start` to before `stop` of a request.

    Attributes:
        rows: the number of rows.
    """

    __slots__ = ("request", "rows", "start", "stop")

    def __init__(self, request: Request, start: int, stop: int) -> None:
        self.request = request
        self.start = start
        self.stop = stop
        self.rows = stop - start


def _joined(parts: Sequence[dict[str, Array]], form: Form) -> dict[str, Array]:
    assert form.batch is not None
    places = form.batch.outputs
    return {
        name: np.concatenate([part[name] for part in parts], places[name].axis)
        if name in places
        else value
        for name, value in parts[0].items()
    }


def _invalid(message: str) -> Failure:
    return Failure("INVALID_ARGUMENT", message)
