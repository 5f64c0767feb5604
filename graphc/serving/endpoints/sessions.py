"""Requests of sessions, for both endpoints."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple

from graphc.artifacts.entry_point import EntryPoint
from graphc.serving.config import SessionConfig
from graphc.serving.endpoints.service import Answer, Arrays, Call, Service, Target, within
from graphc.serving.endpoints.threads import LARGE, in_thread_if
from graphc.serving.failures import no_such_signature
from graphc.serving.models.last_request import Run
from graphc.serving.models.sessions import Owner, Session
from graphc.serving.protocol.checks import check_inputs
from graphc.serving.protocol.session_requests import SessionRequest
from graphc.web.failures import Failure

Gone = Callable[[], Any] | None


class Key(NamedTuple):
    """The session that a request names, and who sends it."""

    model: str
    id: str
    owner: Owner


class Asked(NamedTuple):
    """A request to run a session.

    Attributes:
        key: the session.
        deadline, gone: as for `Service.infer`.
    """

    call: Call
    key: Key
    request: SessionRequest
    deadline: float | None = None
    gone: Gone = None


class SessionCalls:
    """Answers the requests of sessions.

    Args:
        service: the limits, the metrics, the models and the sessions.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._sessions = service.sessions

    @property
    def config(self) -> SessionConfig:
        """The limits of sessions."""
        return self._sessions.config

    def create(self, call: Call, target: Target, owner: Owner, seed: int | None) -> Session:
        """A new session.

        Raises:
            Failure: as of `Sessions.open`; NOT_FOUND: there is no such model.
        """
        call.model = target.name
        with self._service.manager.use(target.name, target.version, target.label) as servable:
            call.version = servable.version
            return self._sessions.open(servable, target.signature, owner, seed)

    def find(self, call: Call, key: Key) -> Session:
        """A session, without using it.

        Raises:
            Failure: NOT_FOUND: there is none.
        """
        call.model = key.model
        session = self._sessions.find(*key)
        call.version = session.servable.version
        return session

    def close(self, call: Call, key: Key) -> None:
        """Ends a session.

        Raises:
            Failure: NOT_FOUND: there is none.
        """
        self.find(call, key)
        self._sessions.end(*key)

    async def predict(self, asked: Asked) -> Answer:
        """One run of a signature. A request with the number of the last one has its outputs.

        Raises:
            Failure: of the session, the inputs or the run; DEADLINE_EXCEEDED. ABORTED: of the
                number, see `LastRequest.run_of`.
        """
        call, _, request, deadline, gone = asked
        async with self._used(asked) as (session, point):
            request.sent(point.outputs)
            arrays = await in_thread_if(call.bytes_in > LARGE, request.read, point.inputs)
            name, by = ("predict", request.content), self._by(deadline)
            run = session.last.run_of(request.number, name)
            if run is None:
                run = self._run(session, point, arrays, by)
                session.last.begin(request.number, name, run)
            outputs = request.sent(await within(asyncio.wrap_future(run), by, gone))
            session.last.keep(request.number, outputs)
            return Answer(session.servable.version, point.name, outputs)

    async def generate(self, asked: Asked) -> AsyncGenerator[tuple[Answer, str], None]:
        """The outputs of several steps. With the last ones comes "stop" or "steps", the reason,
        with others "". If the caller closes the iterator earlier, no further step begins.

        Raises:
            Failure: as for `predict`. ABORTED: a request with this number has begun before.
        """
        call, _, request, deadline, gone = asked
        async with self._used(asked) as (session, point):
            name = "generate", request.content
            if session.last.run_of(request.number, name) is not None:
                raise _begun(session, request.number)
            plan = request.plan(point.outputs)
            plan.check(point.inputs, point.outputs)
            request.sent(point.outputs)
            arrays = await in_thread_if(call.bytes_in > LARGE, request.read, point.inputs)
            for step in range(1, plan.steps + 1):
                by = self._by(deadline)
                run = self._run(session, point, arrays, by)
                if step == 1:
                    session.last.begin(request.number, name, run)
                outputs = await within(asyncio.wrap_future(run), by, gone)
                if step == 1:
                    session.last.keep(request.number, {})
                end = "stop" if plan.is_last(outputs) else "steps" if step == plan.steps else ""
                yield Answer(session.servable.version, point.name, request.sent(outputs)), end
                if end:
                    return
                arrays = arrays | {into: outputs[of] for into, of in plan.feedback.items()}

    @asynccontextmanager
    async def _used(self, asked: Asked) -> AsyncIterator[tuple[Session, EntryPoint]]:
        """The session when no other request uses it, and the signature."""
        call, key, request, deadline, gone = asked
        call.model = key.model
        turn = self._sessions.enter(*key)
        try:
            session: Session = await within(asyncio.wrap_future(turn), self._by(deadline), gone)
        except BaseException:
            if not turn.cancel() and turn.exception() is None:  # it came at the last moment
                self._sessions.leave(turn.result())
            raise
        try:
            call.version = session.servable.version
            point = _signature(session, request.signature)
            call.signature = point.name
            yield session, point
        finally:
            self._sessions.leave(session)

    def _by(self, deadline: float | None) -> float:
        """The time by which one step must be done."""
        latest = time.monotonic() + self._service.request_seconds
        return latest if deadline is None else min(deadline, latest)

    def _run(self, session: Session, point: EntryPoint, arrays: Arrays, by: float) -> Run:
        """Begins a run."""
        check_inputs(arrays, point.inputs)
        run = self._sessions.run(session, point.name, arrays, by)
        run.add_done_callback(partial(self._count, session.servable.name))
        return run

    def _count(self, model: str, run: Run) -> None:
        if not run.cancelled() and run.exception() is None:
            self._service.session_steps.add(model)


def _begun(session: Session, number: int) -> Failure:
    """The failure of a repeated stream."""
    return Failure(
        "ABORTED",
        f"the stream with number {number} has begun before and is not run again; its outputs are "
        f"not kept. The session has completed {session.steps} runs. A new stream continues after "
        f"them with number {number + 1} or higher",
    )


def _signature(session: Session, name: str) -> EntryPoint:
    """The signature of a request."""
    points = session.servable.signatures
    name = name or session.signature
    if name in points:
        return points[name]
    if not name:
        known = ", ".join(points)
        raise Failure("FAILED_PRECONDITION", f"name a signature; there are: {known}")
    raise no_such_signature(name, points)
