"""Sessions by REST: their paths, and streams of server-sent events."""

from __future__ import annotations

import asyncio
import base64
import re
from contextlib import aclosing
from functools import partial
from typing import Final, Self

from graphc.serving.endpoints.rest_calls import RestCalls
from graphc.serving.endpoints.service import Answer, Call, Service, Target
from graphc.serving.endpoints.sessions import Asked, Key, SessionCalls
from graphc.serving.endpoints.threads import LARGE, in_thread_if, is_large
from graphc.serving.models.sessions import Session
from graphc.serving.protocol import rows
from graphc.serving.protocol.session_requests import (
    SessionRequest,
    from_json,
    from_message,
    seed_of,
)
from graphc.web.failures import Failure
from graphc.web.http import (
    JSON,
    PROTOBUF,
    Receive,
    Reply,
    Scope,
    Send,
    check_method,
    is_protobuf,
    write_json,
)

_PATH: Final = re.compile(
    r"/v1/models/(?P<name>[^/:]+)"
    r"(?:(?:/versions/(?P<version>[0-9]{1,19})|/labels/(?P<label>[^/:]+))?/sessions"
    r"|/sessions/(?P<id>[\w-]{1,100})(?::(?P<verb>predict|generate))?)"
)
_STREAM: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx would collect the events
]


class RestSessions:
    """The paths of sessions.

    Args:
        service: the limits, the metrics and the models.
        calls: checks and counts the requests.
    """

    def __init__(self, service: Service, calls: RestCalls) -> None:
        self._seconds = service.request_seconds
        self._calls = calls
        self._sessions = SessionCalls(service)

    def match(self, path: str) -> re.Match[str] | None:
        """What a path names, if it is one of sessions."""
        return _PATH.fullmatch(path)

    async def answer(
        self, scope: Scope, receive: Receive, send: Send, match: re.Match[str]
    ) -> Reply | None:
        """The response to one request; None if it was sent as a stream.

        Raises:
            Failure: of the request, before anything was sent.
        """
        if match["id"] is None:
            return await self._create(scope, receive, match)
        if match["verb"]:
            check_method(scope, "POST")
            if match["verb"] == "predict":
                return await self._predict(scope, receive, match)
            await self._generate(scope, receive, send, match)
            return None
        check_method(scope, "GET", "DELETE")
        if scope["method"] == "DELETE":
            with self._calls.call(scope, "CloseSession") as call:
                self._sessions.close(call, self._admit(scope, call, match))
            return b"{}", JSON
        with self._calls.call(scope, "GetSession") as call:
            return self._shown(self._sessions.find(call, self._admit(scope, call, match))), JSON

    def _admit(self, scope: Scope, call: Call, match: re.Match[str]) -> Key:
        """The session that a request names, if it has a token."""
        return Key(match["name"], match["id"], self._calls.admit(scope, call, match["name"]))

    async def _create(self, scope: Scope, receive: Receive, match: re.Match[str]) -> Reply:
        check_method(scope, "POST")
        version = int(match["version"]) if match["version"] else None
        with self._calls.call(scope, "CreateSession") as call:
            owner = self._calls.admit(scope, call, match["name"])
            data = await self._calls.body(scope, receive, call)
            body = await in_thread_if(len(data) > LARGE, rows.read_body, data or b"{}")
            seed = seed_of(body.value.get("seed"))
            signature = body.text("signature_name")
            target = Target(match["name"], version, match["label"], signature)
            found = self._shown(self._sessions.create(call, target, owner, seed))
            call.bytes_out = len(found)
        return found, JSON

    def _shown(self, session: Session) -> bytes:
        return write_json(
            {
                "session_id": session.id,
                "model": session.servable.name,
                "version": str(session.servable.version),
                "signature_name": session.signature,
                "steps": session.steps,
                "number": session.last.number,
                "bytes": session.nbytes,
                "idle_seconds": self._sessions.config.idle_seconds,
                "max_seconds": self._sessions.config.max_seconds,
            }
        )

    async def _request(
        self, scope: Scope, receive: Receive, call: Call, key: Key
    ) -> SessionRequest:
        data = await self._calls.body(scope, receive, call)
        read = partial(from_message, model=key.model) if is_protobuf(scope) else from_json
        request: SessionRequest = await in_thread_if(len(data) > LARGE, read, data)
        return request

    async def _predict(self, scope: Scope, receive: Receive, match: re.Match[str]) -> Reply:
        with self._calls.call(scope, "SessionPredict") as call:
            key = self._admit(scope, call, match)
            request = await self._request(scope, receive, call, key)
            async with _Client(receive) as client:
                asked = Asked(call, key, request, gone=client.gone)
                answer = await self._sessions.predict(asked)
            found: bytes = await in_thread_if(is_large(answer.outputs), request.write, answer)
            call.bytes_out = len(found)
        return found, PROTOBUF if is_protobuf(scope) else JSON

    async def _generate(
        self, scope: Scope, receive: Receive, send: Send, match: re.Match[str]
    ) -> None:
        """Sends an event for each step, and a last one, "end" or "error"."""
        stream = _Stream(send, self._seconds)
        try:
            with self._calls.call(scope, "SessionGenerate") as call:
                key = self._admit(scope, call, match)
                request = await self._request(scope, receive, call, key)
                async with _Client(receive) as client:
                    asked = Asked(call, key, request, gone=client.gone)
                    answers = self._sessions.generate(asked)
                    async with aclosing(answers):
                        async for answer, end in answers:
                            client.check()
                            await stream.event(await self._data(scope, request, answer))
                            call.bytes_out = stream.nbytes
                            if end:
                                last = {"steps": stream.steps, "reason": end}
                                await stream.event(write_json(last), b"end")
        except Failure as failure:
            if not stream.steps or failure.code == "CANCELLED":
                raise
            found = {"error": failure.message, "code": failure.code}
            await stream.event(write_json(found), b"error")
        await stream.close()

    async def _data(self, scope: Scope, request: SessionRequest, answer: Answer) -> bytes:
        found: bytes = await in_thread_if(is_large(answer.outputs), request.write, answer)
        return base64.b64encode(found) if is_protobuf(scope) else found


class _Stream:
    """A response of server-sent events, which begins with the first event.

    Attributes:
        steps: how many events of steps were sent.
        nbytes: the bytes of all events.
    """

    def __init__(self, send: Send, seconds: float) -> None:
        self._send, self._seconds = send, seconds
        self.steps = self.nbytes = 0

    async def event(self, data: bytes, kind: bytes = b"") -> None:
        """Sends one event; without a kind, that of a step.

        Raises:
            Failure: CANCELLED: the client does not take it in time, or has gone.
        """
        body = b"data: %b\n\n" % data
        if kind:
            body = b"event: %b\n%b" % (kind, body)
        try:
            async with asyncio.timeout(self._seconds):
                if not self.nbytes:
                    start = {"type": "http.response.start", "status": 200}
                    await self._send(start | {"headers": list(_STREAM)})
                self.nbytes += len(body)
                self.steps += not kind
                await self._send({"type": "http.response.body", "body": body, "more_body": True})
        except (OSError, TimeoutError):
            raise Failure("CANCELLED", "the client does not read the stream") from None

    async def close(self) -> None:
        """Ends the response."""
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})


class _Client:
    """Whether the client of a request, whose body was read, is still there."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._task = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def gone(self) -> None:
        """Returns when it has gone."""
        await asyncio.wait([self._task])

    def check(self) -> None:
        """Raises a Failure, CANCELLED, if it has gone."""
        if self._task.done():
            raise Failure("CANCELLED", "the client closed the connection")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
