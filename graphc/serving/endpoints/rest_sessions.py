"""Sessions by REST: their paths, and streams of server-sent events."""

from __future__ import annotations

import asyncio
import base64
import re
from contextlib import AbstractContextManager, aclosing
from functools import partial
from typing import Final, Self

from graphc.serving.endpoints.http import (
    JSON,
    PROTOBUF,
    Receive,
    Reply,
    Scope,
    Send,
    check_method,
    header,
    read_body,
)
from graphc.serving.endpoints.service import Answer, Call, Service, Target, in_thread_if, is_large
from graphc.serving.endpoints.sessions import Key, SessionCalls
from graphc.serving.failures import Failure
from graphc.serving.models.sessions import Owner, Session
from graphc.serving.protocol import rows
from graphc.serving.protocol.session_requests import (
    SessionRequest,
    from_json,
    from_message,
    seed_of,
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
        max_body_bytes: the largest body.
    """

    def __init__(self, service: Service, max_body_bytes: int) -> None:
        self._service = service
        self._calls = SessionCalls(service)
        self._limit = max_body_bytes

    def match(self, path: str) -> re.Match[str] | None:
        """What a path names, if it is one of sessions."""
        return _PATH.fullmatch(path)

    async def answer(
        self, scope: Scope, receive: Receive, send: Send, match: re.Match[str], owner: Owner
    ) -> Reply | None:
        """The response to one request; None if it was sent as a stream.

        Raises:
            Failure: of the request, before anything was sent.
        """
        if match["id"] is None:
            return await self._create(scope, receive, match, owner)
        key = Key(match["name"], match["id"], owner)
        if match["verb"]:
            check_method(scope, "POST")
            if match["verb"] == "predict":
                return await self._predict(scope, receive, key)
            await self._generate(scope, receive, send, key)
            return None
        check_method(scope, "GET", "DELETE")
        if scope["method"] == "DELETE":
            with self._call(scope, "CloseSession") as call:
                self._calls.close(call, key)
            return b"{}", JSON
        with self._call(scope, "GetSession") as call:
            return self._shown(self._calls.find(call, key)), JSON

    def _call(self, scope: Scope, method: str) -> AbstractContextManager[Call]:
        client = scope.get("client")
        return self._service.call("REST", method, client[0] if client else None)

    async def _create(
        self, scope: Scope, receive: Receive, match: re.Match[str], owner: Owner
    ) -> Reply:
        check_method(scope, "POST")
        version = int(match["version"]) if match["version"] else None
        with self._call(scope, "CreateSession") as call:
            body = rows.read_body(await self._body(scope, receive, call) or b"{}")
            seed = seed_of(body.value.get("seed"))
            signature = body.text("signature_name")
            target = Target(match["name"], version, match["label"], signature)
            return self._shown(self._calls.create(call, target, owner, seed)), JSON

    def _shown(self, session: Session) -> bytes:
        return rows.write_json(
            {
                "session_id": session.id,
                "model": session.servable.name,
                "version": str(session.servable.version),
                "signature_name": session.signature,
                "steps": session.steps,
                "bytes": session.nbytes,
                "idle_seconds": self._calls.config.idle_seconds,
                "max_seconds": self._calls.config.max_seconds,
            }
        )

    async def _body(self, scope: Scope, receive: Receive, call: Call) -> bytes:
        service = self._service
        with service.receiving():
            data = await read_body(
                scope, receive, self._limit, service.request_seconds, partial(service.hold, call)
            )
        call.bytes_in = len(data)
        return data

    async def _request(
        self, scope: Scope, receive: Receive, call: Call, key: Key
    ) -> SessionRequest:
        data = await self._body(scope, receive, call)
        if _is_protobuf(scope):
            return from_message(data, key.model)
        return from_json(data)

    async def _predict(self, scope: Scope, receive: Receive, key: Key) -> Reply:
        with self._call(scope, "SessionPredict") as call:
            request = await self._request(scope, receive, call, key)
            async with _Client(receive) as client:
                answer = await self._calls.predict(call, key, request, gone=client.gone)
            found: bytes = await in_thread_if(is_large(answer.outputs), request.write, answer)
            call.bytes_out = len(found)
        return found, PROTOBUF if _is_protobuf(scope) else JSON

    async def _generate(self, scope: Scope, receive: Receive, send: Send, key: Key) -> None:
        """Sends an event for each step, and a last one, "end" or "error"."""
        stream = _Stream(send, self._service.request_seconds)
        try:
            with self._call(scope, "SessionGenerate") as call:
                request = await self._request(scope, receive, call, key)
                async with _Client(receive) as client:
                    answers = self._calls.generate(call, key, request, gone=client.gone)
                    async with aclosing(answers):
                        async for answer, end in answers:
                            client.check()
                            await stream.event(await self._data(scope, request, answer))
                            call.bytes_out = stream.nbytes
                            if end:
                                last = {"steps": stream.steps, "reason": end}
                                await stream.event(rows.write_json(last), b"end")
        except Failure as failure:
            if not stream.steps or failure.code == "CANCELLED":
                raise
            found = {"error": failure.message, "code": failure.code}
            await stream.event(rows.write_json(found), b"error")
        await stream.close()

    async def _data(self, scope: Scope, request: SessionRequest, answer: Answer) -> bytes:
        found: bytes = await in_thread_if(is_large(answer.outputs), request.write, answer)
        return base64.b64encode(found) if _is_protobuf(scope) else found


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


def _is_protobuf(scope: Scope) -> bool:
    return header(scope, b"content-type").split(b";")[0].strip() == PROTOBUF
