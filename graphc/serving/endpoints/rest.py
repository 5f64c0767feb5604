"""The REST endpoint: a raw ASGI application with the paths of TensorFlow Serving."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any, Final

from graphc.serving.config_checks import MAX_BODY_BYTES
from graphc.serving.endpoints.rest_calls import RestCalls
from graphc.serving.endpoints.rest_sessions import RestSessions
from graphc.serving.endpoints.service import Answer, Call, Service, Target
from graphc.serving.endpoints.threads import LARGE, in_thread_if, is_large
from graphc.serving.protocol import rows
from graphc.serving.protocol.checks import Types
from graphc.serving.protocol.messages import parse
from graphc.serving.protocol.metadata import signature_json, status_json
from graphc.serving.protocol.responses import packed_response
from graphc.serving.protocol.results import classes_of, values_of
from graphc.serving.protocol.tensors import decode_all
from graphc.web.access import Access
from graphc.web.failures import Failure
from graphc.web.http import (
    PROTOBUF,
    HttpError,
    Receive,
    Reply,
    Scope,
    Send,
    check_method,
    error_body,
    header,
    is_protobuf,
    local_path,
    respond,
    write_json,
)

_PROMETHEUS: Final = b"text/plain; version=0.0.4; charset=utf-8"
_MODEL: Final = re.compile(
    r"/v1/models/(?P<name>[^/:]+)"
    r"(?:/versions/(?P<version>[0-9]{1,19})|/labels/(?P<label>[^/:]+))?"
    r"(?::(?P<verb>predict|classify|regress)|(?P<metadata>/metadata))?"
)
Handler = Callable[[Scope, Receive, Target, Call], Awaitable[Reply]]


class RestApplication:
    """The ASGI application.

    Args:
        service: answers the requests.
        access: who may send them.
        ready: whether the server takes requests, for `/health/ready`.
        max_body_bytes: the largest body.
        metrics_path: of the Prometheus metrics, or None.
    """

    def __init__(
        self,
        service: Service,
        *,
        access: Access | None = None,
        ready: Callable[[], bool] = lambda: True,
        max_body_bytes: int = MAX_BODY_BYTES,
        metrics_path: str | None = "/monitoring/prometheus/metrics",
    ) -> None:
        self._service = service
        self._access = access or Access()
        self._ready = ready
        self._metrics_path = metrics_path
        self._calls = RestCalls(service, self._access, max_body_bytes)
        self._sessions = RestSessions(service, self._calls)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request, as ASGI 3 defines it."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1003})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        status, headers = 200, None
        try:
            reply = await self._dispatch(scope, receive, send)
            if reply is None:
                return
            body, kind = reply
        except Failure as failure:
            if failure.code == "CANCELLED":
                return  # nobody reads the response
            status, kind = failure.http_status, b"application/json"
            body = error_body(failure.message)
            headers = getattr(failure, "headers", None)
            if status in (408, 413):  # the rest of the body is not read
                headers = [*(headers or ()), (b"connection", b"close")]
        await respond(scope, send, status, body, kind, headers)

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> Reply | None:
        """The response; None if it was sent as a stream."""
        path = local_path(scope)
        if path == "/health/live":
            return b'{"status": "live"}', b"application/json"
        if path == "/health/ready":
            if not self._ready():
                raise HttpError(503, "not ready")
            return b'{"status": "ready"}', b"application/json"
        match = _matched(path)
        if match is not None:
            return await self._model(scope, receive, match)
        if (match := self._sessions.match(path)) is not None:
            return await self._sessions.answer(scope, receive, send, match)
        self._access.check(header(scope, b"authorization"))
        if path == self._metrics_path:
            check_method(scope, "GET")
            return self._service.metrics.text(), _PROMETHEUS
        raise HttpError(404, f"Malformed request: {scope['method']} {path[:200]}")

    async def _model(self, scope: Scope, receive: Receive, match: re.Match[str]) -> Reply:
        version = match["version"]
        target = Target(match["name"], int(version) if version else None, match["label"])
        verb = match["verb"]
        check_method(scope, "POST" if verb else "GET")
        handler: Handler
        if verb:
            method = verb.title()
            handler = self._predict if verb == "predict" else self._result
        elif match["metadata"]:
            method, handler = "GetModelMetadata", self._metadata
        else:
            method, handler = "GetModelStatus", self._status
        with self._calls.call(scope, method) as call:
            self._calls.admit(scope, call, target.name)
            body, kind = await handler(scope, receive, target, call)
            call.bytes_out = len(body)
        return body, kind

    async def _status(self, scope: Scope, receive: Receive, target: Target, call: Call) -> Reply:
        version = target.version
        if target.label is not None:
            with self._service.manager.use(target.name, label=target.label) as servable:
                version = servable.version
        found = status_json(self._service.manager.status(target.name, version))
        return write_json(found), b"application/json"

    async def _metadata(self, scope: Scope, receive: Receive, target: Target, call: Call) -> Reply:
        with self._service.manager.use(target.name, target.version, target.label) as servable:
            call.version = servable.version
            signatures = {"signature_def": signature_json(servable.signatures)}
        spec = {"name": target.name, "signature_name": "", "version": str(call.version)}
        found = {"model_spec": spec, "metadata": {"signature_def": signatures}}
        return write_json(found), b"application/json"

    async def _predict(self, scope: Scope, receive: Receive, target: Target, call: Call) -> Reply:
        data = await self._calls.body(scope, receive, call)
        if is_protobuf(scope):
            return await self._predict_message(data, receive, target, call)
        body = await in_thread_if(len(data) > LARGE, rows.read_body, data)
        count: int | None = None

        def read(types: Types) -> Any:
            nonlocal count
            arrays, count = rows.read_inputs(body, types)
            return arrays

        answer = await self._infer(call, target, body.text("signature_name"), read, receive)
        large = is_large(answer.outputs)
        written = await in_thread_if(large, rows.write_outputs, answer.outputs, count)
        return written, b"application/json"

    async def _predict_message(
        self, data: bytes, receive: Receive, target: Target, call: Call
    ) -> Reply:
        """A PredictRequest as the body, a PredictResponse as the answer."""
        request = parse("PredictRequest", data)

        def read(types: Types) -> Any:
            return decode_all(request.inputs)

        signature = request.model_spec.signature_name
        answer = await self._infer(call, target, signature, read, receive)
        large = is_large(answer.outputs)
        filter = list(request.output_filter)
        return await in_thread_if(large, packed_response, target.name, answer, filter), PROTOBUF

    async def _result(self, scope: Scope, receive: Receive, target: Target, call: Call) -> Reply:
        """classify and regress."""
        data = await self._calls.body(scope, receive, call)
        body = await in_thread_if(len(data) > LARGE, rows.read_body, data)

        def read(types: Types) -> Any:
            return rows.read_examples(body, types)

        answer = await self._infer(call, target, body.text("signature_name"), read, receive)
        count = len(body.value["examples"])
        found: Any = (classes_of if call.method == "Classify" else values_of)(answer.outputs, count)
        return write_json({"result": found}), b"application/json"

    async def _infer(
        self, call: Call, target: Target, signature: str, read: Any, receive: Receive
    ) -> Answer:
        async def gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        named = target._replace(signature=signature)
        return await self._service.infer(call, named, read, gone=gone)


@lru_cache(maxsize=256)
def _matched(path: str) -> re.Match[str] | None:
    return _MODEL.fullmatch(path)


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
