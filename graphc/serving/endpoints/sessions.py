"""Requests of sessions, for both endpoints."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from graphc.artifacts.entry_point import EntryPoint
from graphc.serving.config import SessionConfig
from graphc.serving.endpoints.service import (
    LARGE,
    Answer,
    Arrays,
    Call,
    Service,
    Target,
    in_thread_if,
    within,
)
from graphc.serving.failures import no_such_signature
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

    async def predict(
        self,
        call: Call,
        key: Key,
        request: SessionRequest,
        deadline: float | None = None,
        gone: Gone = None,
    ) -> Answer:
        """One run of a signature.

        Args:
            deadline, gone: as for `Service.infer`.

        Raises:
            Failure: of the session, the inputs or the run; DEADLINE_EXCEEDED.
        """
        used = self._used(call, key, request, deadline, gone)
        async with used as (session, point):
            request.sent(point.outputs)
            arrays = await in_thread_if(call.bytes_in > LARGE, request.read, point.inputs)
            answer = await self._step(session, point, arrays, deadline, gone)
            return answer._replace(outputs=request.sent(answer.outputs))

    async def generate(
        self,
        call: Call,
        key: Key,
        request: SessionRequest,
        deadline: float | None = None,
        gone: Gone = None,
    ) -> AsyncGenerator[tuple[Answer, str], None]:
        """The outputs of several steps. With the last ones comes "stop" or "steps", the reason,
        with others "". If the caller closes the iterator earlier, no further step begins.

        Raises:
            Failure: as for `predict`.
        """
        used = self._used(call, key, request, deadline, gone)
        async with used as (session, point):
            plan = request.plan(point.outputs)
            plan.check(point.inputs, point.outputs)
            request.sent(point.outputs)
            arrays = await in_thread_if(call.bytes_in > LARGE, request.read, point.inputs)
            for number in range(1, plan.steps + 1):
                answer = await self._step(session, point, arrays, deadline, gone)
                outputs = answer.outputs
                end = "stop" if plan.is_last(outputs) else "steps" if number == plan.steps else ""
                yield answer._replace(outputs=request.sent(outputs)), end
                if end:
                    return
                arrays = arrays | {into: outputs[of] for into, of in plan.feedback.items()}

    @asynccontextmanager
    async def _used(
        self, call: Call, key: Key, request: SessionRequest, deadline: float | None, gone: Gone
    ) -> AsyncIterator[tuple[Session, EntryPoint]]:
        """The session when no other request uses it, and the signature."""
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

    async def _step(
        self,
        session: Session,
        point: EntryPoint,
        arrays: Arrays,
        deadline: float | None,
        gone: Gone,
    ) -> Answer:
        deadline = self._by(deadline)
        check_inputs(arrays, point.inputs)
        future = self._sessions.run(session, point.name, arrays, deadline)
        outputs = await within(asyncio.wrap_future(future), deadline, gone)
        self._service.session_steps.add(session.servable.name)
        return Answer(session.servable.version, point.name, outputs)


def _signature(session: Session, name: str) -> EntryPoint:
    """The signature of a request.

    Raises:
        Failure: FAILED_PRECONDITION: there is no such one; or the request names none, and several
            assign variables.
    """
    points = session.servable.signatures
    name = name or session.signature
    if name in points:
        return points[name]
    if not name:
        known = ", ".join(points)
        raise Failure("FAILED_PRECONDITION", f"name a signature; there are: {known}")
    raise no_such_signature(name, points)
