"""What both endpoints share: limits, deadlines, metrics, the log, and the call of a model."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from graphc.serving.config import SessionConfig
from graphc.serving.config_checks import MAX_BODY_BYTES, most_request_bytes
from graphc.serving.endpoints.access_log import AccessLog
from graphc.serving.endpoints.arrivals import Arrivals
from graphc.serving.endpoints.direct import Direct
from graphc.serving.endpoints.last_errors import LastErrors
from graphc.serving.endpoints.metrics import Metrics
from graphc.serving.endpoints.request_bytes import RequestBytes
from graphc.serving.endpoints.session_metrics import observe_sessions
from graphc.serving.endpoints.threads import LARGE
from graphc.serving.failures import no_such_signature
from graphc.serving.models.sessions import Sessions
from graphc.serving.protocol.checks import Types, check_inputs
from graphc.web.failures import Failure

Arrays = dict[str, np.ndarray[Any, Any]]
_LOG = logging.getLogger("graphc.serving")
_STOPS = "the server is shutting down"
_PATIENCE = 0.05  # seconds after which a request looks whether its client is still there


class Manager(Protocol):
    """What the endpoints need of `graphc.serving.models.manager.Manager`."""

    def use(
        self, name: str, version: int | None = None, label: str | None = None
    ) -> AbstractContextManager[Any]: ...

    def status(self, name: str, version: int | None = None) -> list[Any]: ...

    def names(self) -> list[str]: ...

    def reload(self, configs: Any, wait: bool = True) -> None: ...

    def overview(self, name: str) -> Any: ...

    def retry(self, name: str) -> None: ...


class Target(NamedTuple):
    """What a request names: a model, a version or a label or neither, and a signature or ""."""

    name: str
    version: int | None = None
    label: str | None = None
    signature: str = ""


class Answer(NamedTuple):
    """The result of a call: the version and signature that ran, and the outputs."""

    version: int
    signature: str
    outputs: Mapping[str, np.ndarray[Any, Any]]


@dataclass(slots=True)
class Call:
    """A request in progress, for the metrics and the log."""

    protocol: str
    method: str
    model: str = ""
    version: int | None = None
    signature: str | None = None
    status: str = "OK"
    bytes_in: int = 0
    bytes_out: int = 0
    client: str | None = None
    error: str | None = None
    held: int = 0  # bytes of its body


class Service:
    """Answers the requests of both endpoints.

    Args:
        manager: the models.
        metrics: counts each request.
        max_concurrent: how many requests may be in progress; further ones fail at once.
        max_body_bytes: the largest body or message.
        max_request_bytes: the bytes of all bodies and messages together, see `ServerConfig`.
        request_seconds: the time limit of a request without a deadline of its own.
        log: the access log, if there is one.
        roots: folders that contain every base path that a client may configure.
        direct: run short calls in the event loop; only for a manager that does not batch.

    Attributes:
        sessions: those of the manager; a manager without any refuses to open one.
        draining: set to refuse new requests.
        in_progress: how many requests are in progress.
        request_bytes: the bytes of requests.
        errors: why requests failed last.
        is_logged: whether there is an access log.
    """

    def __init__(
        self,
        manager: Manager,
        metrics: Metrics,
        *,
        max_concurrent: int = 256,
        max_body_bytes: int = MAX_BODY_BYTES,
        max_request_bytes: int | None = None,
        request_seconds: float = 30.0,
        log: AccessLog | None = None,
        roots: tuple[str, ...] = (),
        direct: bool = False,
    ) -> None:
        self.manager = manager
        self.metrics = metrics
        none = Sessions(SessionConfig(max_sessions=0))
        self.sessions: Sessions = getattr(manager, "sessions", none)
        self.session_steps = observe_sessions(self.sessions, metrics)
        self.max_concurrent = max_concurrent
        self.request_seconds = request_seconds
        self.roots = roots
        self.draining = False
        self.in_progress = 0
        self.errors = LastErrors()
        most = most_request_bytes(max_request_bytes, max_body_bytes)
        self.request_bytes = RequestBytes(most, max_body_bytes)
        self._log = log
        self.is_logged = log is not None
        self._direct = Direct() if direct else None
        self._arrivals = Arrivals()
        metrics.gauge(
            "graphc_serving_in_progress", "Requests in progress.", lambda: self.in_progress
        )
        metrics.gauge(
            "graphc_serving_request_bytes",
            "Bytes of the requests in progress.",
            lambda: self.request_bytes.held,
        )

    @contextmanager
    def call(self, protocol: str, method: str, client: str | None = None) -> Iterator[Call]:
        """A request: counted, limited and logged. Each error in it becomes a Failure.

        Raises:
            Failure: UNAVAILABLE while the server drains, also if a request by REST takes longer
                than that; RESOURCE_EXHAUSTED beyond the limit, or that of the block; INTERNAL for
                an unexpected error.
        """
        call = Call(protocol, method, client=client)
        started = time.perf_counter()
        self.in_progress += 1
        try:
            self._admit()
            yield call
        except Failure as failure:
            self._failed(call, failure.code, failure.message)
            raise
        except (asyncio.CancelledError, GeneratorExit) as error:
            if self._is_cut(call, error):
                self._failed(call, "UNAVAILABLE", _STOPS)
                raise Failure("UNAVAILABLE", _STOPS) from None
            call.status = "CANCELLED"
            raise
        except Exception as error:
            _LOG.exception("%s failed", method)
            self._failed(call, "INTERNAL", f"{type(error).__name__}: {error}")
            raise Failure("INTERNAL", "internal error; see the server's log") from error
        finally:
            self.in_progress -= 1
            self.request_bytes.release(call.held)
            self._finished(call, time.perf_counter() - started)

    @contextmanager
    def receiving(self) -> Iterator[None]:
        """While a body or a message arrives, its request is not in progress: slow clients keep no
        others out.

        Raises:
            Failure: RESOURCE_EXHAUSTED: too many requests are in progress afterwards.
        """
        self.in_progress -= 1
        try:
            yield
        finally:
            self.in_progress += 1
        self._check_room()

    def hold(self, call: Call, size: int) -> None:
        """Counts bytes of the body of a request, which it holds until its end.

        Raises:
            Failure: RESOURCE_EXHAUSTED: all requests hold too many.
        """
        call.held += size
        self.request_bytes.hold(size)

    async def message(self, call: Call, read: Callable[[], Awaitable[bytes]]) -> bytes:
        """The message of a request by gRPC, which it holds until its end.

        Args:
            read: waits for it.

        Raises:
            Failure: RESOURCE_EXHAUSTED: there is no room for it, or too many requests are in
                progress afterwards; DEADLINE_EXCEEDED: it did not arrive in time.
        """
        with self.receiving():
            data = await self.request_bytes.message(read, self.request_seconds)
            call.held = call.bytes_in = len(data)
        return data

    def _admit(self) -> None:
        if self.draining:
            raise Failure("UNAVAILABLE", _STOPS)
        self._check_room()

    def _check_room(self) -> None:
        if self.in_progress > self.max_concurrent:
            raise Failure(
                "RESOURCE_EXHAUSTED", f"{self.max_concurrent} requests are in progress; try later"
            )

    def _is_cut(self, call: Call, error: BaseException) -> bool:
        """Whether the HTTP server cancels a request because the time to drain is over."""
        cancelled = isinstance(error, asyncio.CancelledError)
        return cancelled and self.draining and call.protocol == "REST"

    def _failed(self, call: Call, code: str, text: str) -> None:
        call.status, call.error = code, text
        self.errors.add(call.model, call.version, call.protocol, call.method, code, text)

    def _finished(self, call: Call, seconds: float) -> None:
        # A name that is not served is no label: clients could make up any number of them.
        model = call.model if call.status == "OK" or call.model in self.manager.names() else ""
        self.metrics.request(model, call.version, call.method, call.status, seconds, call.protocol)
        if self._log is not None:
            self._log.write(
                protocol=call.protocol, method=call.method, model=call.model[:200] or None,
                version=call.version, signature=call.signature, status=call.status,
                seconds=round(seconds, 6), bytes_in=call.bytes_in, bytes_out=call.bytes_out,
                client=call.client, error=call.error,
            )  # fmt: skip

    async def infer(
        self,
        call: Call,
        target: Target,
        read: Callable[[Types], Arrays],
        *,
        deadline: float | None = None,
        gone: Callable[[], Any] | None = None,
    ) -> Answer:
        """Runs a signature.

        Args:
            read: decodes the inputs; runs in a thread if the body is large.
            deadline: of the client, in seconds of `time.monotonic()`.
            gone: a coroutine function that returns when the client has gone: the call is then
                cancelled.

        Raises:
            Failure: of the model, the inputs or the run; DEADLINE_EXCEEDED.
        """
        call.model = target.name
        latest = time.monotonic() + self.request_seconds
        deadline = latest if deadline is None else min(deadline, latest)
        with self.manager.use(target.name, target.version, target.label) as servable:
            call.version = servable.version
            name = target.signature or servable.default
            entry = servable.signatures.get(name)
            if entry is None:
                raise no_such_signature(name, servable.signatures)
            call.signature = name
            if call.bytes_in > LARGE:
                arrays = await asyncio.to_thread(read, entry.inputs)
            else:
                arrays = read(entry.inputs)
            check_inputs(arrays, entry.inputs)
            if call.bytes_in > LARGE and getattr(entry, "strings", None):
                arrays = await asyncio.to_thread(servable.numbers, name, arrays)
            outputs = await self._run(servable, name, arrays, deadline, gone)
            return Answer(servable.version, name, outputs)

    async def _run(
        self, servable: Any, signature: str, arrays: Arrays, deadline: float, gone: Any
    ) -> Mapping[str, np.ndarray[Any, Any]]:
        """The outputs. Short calls run here, others in a thread or a batch."""
        if self._direct is None:
            future = self._arrivals.wrap(servable.predict(signature, arrays, deadline))
            return await within(future, deadline, gone)  # type: ignore[no-any-return]
        shapes = tuple([array.shape for array in arrays.values()])
        key = (servable.name, servable.version, signature, shapes)
        start = time.perf_counter()
        if self._direct.is_short(key):
            outputs = servable.run(signature, arrays)
            self._direct.ran_here(key, time.perf_counter() - start)
        else:
            future = self._arrivals.wrap(servable.predict(signature, arrays, deadline))
            outputs = await within(future, deadline, gone)
            self._direct.handed_over(key, time.perf_counter() - start)
        return outputs  # type: ignore[no-any-return]


async def within(future: asyncio.Future[Any], deadline: float, gone: Any) -> Any:
    """The result of the future, unless its deadline passes or its client goes."""
    loop = asyncio.get_running_loop()
    watch = _Watch(future, gone)
    late = loop.call_later(max(0.0, deadline - time.monotonic()), watch.expire)
    look = loop.call_later(_PATIENCE, watch.start) if gone is not None else None
    try:
        return await future
    except asyncio.CancelledError:
        if watch.expired:
            raise Failure("DEADLINE_EXCEEDED", "the deadline of the request has passed") from None
        if watch.gone:
            raise Failure("CANCELLED", "the client closed the connection") from None
        future.cancel()
        raise
    finally:
        late.cancel()
        if look is not None:
            look.cancel()
        watch.close()


class _Watch:
    """Cancels a future when time is up, or when the client has gone."""

    def __init__(self, future: asyncio.Future[Any], gone: Any) -> None:
        self._future, self._gone = future, gone
        self._task: asyncio.Task[None] | None = None
        self.expired = self.gone = False

    def expire(self) -> None:
        self.expired = self._future.cancel()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._wait())

    async def _wait(self) -> None:
        await self._gone()
        self.gone = self._future.cancel()

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
