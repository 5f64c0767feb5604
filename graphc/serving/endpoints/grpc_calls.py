"""Methods of gRPC services: access, deadlines, errors and the log of each call."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

from graphc.serving.endpoints.service import Call, Service, Target
from graphc.web.access import Access
from graphc.web.failures import Failure

Method = Callable[[Call, bytes, "float | None"], Awaitable[bytes]]
OwnedMethod = Callable[[Call, bytes, "float | None", "int | None"], Awaitable[bytes]]
"""Takes the number of the client's token too."""
StreamMethod = Callable[[Call, bytes, "float | None", "int | None"], AsyncIterator[bytes]]


class GrpcCalls:
    """Makes handlers of methods.

    They take and return bytes: grpc itself would answer UNKNOWN for bytes that do not parse.

    For grpc, the requests are streams, of which one message is read. So it arrives when a handler
    asks for it: after the token is checked, and when there is room for it in memory.

    Args:
        service: counts and limits the calls.
        access: who may send them.
    """

    def __init__(self, service: Service, access: Access) -> None:
        self._service = service
        self._access = access

    def unary(self, name: str, method: Method) -> Any:
        """The handler of a method with one answer."""
        return self.owned(name, lambda call, data, deadline, _: method(call, data, deadline))

    def owned(self, name: str, method: OwnedMethod) -> Any:
        """The handler of a method with one answer, which depends on who calls it."""
        import grpc

        async def behave(requests: Any, context: Any) -> bytes:
            try:
                with self._service.call("GRPC", name, self._client(context)) as call:
                    owner = self._owner(context)
                    data = await self._message(call, context)
                    found = await method(call, data, _deadline(context), owner)
                    call.bytes_out = len(found)
                    return found
            except Failure as failure:
                await context.abort(getattr(grpc.StatusCode, failure.code), failure.message)
                raise  # `abort` has raised

        return grpc.stream_unary_rpc_method_handler(behave)

    def stream(self, name: str, method: StreamMethod) -> Any:
        """The handler of a method with a stream of answers."""
        import grpc

        async def behave(requests: Any, context: Any) -> AsyncIterator[bytes]:
            try:
                with self._service.call("GRPC", name, self._client(context)) as call:
                    owner = self._owner(context)
                    data = await self._message(call, context)
                    answers: Any = method(call, data, _deadline(context), owner)
                    async with aclosing(answers):
                        async for found in answers:
                            call.bytes_out += len(found)
                            yield found
            except Failure as failure:
                await context.abort(getattr(grpc.StatusCode, failure.code), failure.message)

        return grpc.stream_stream_rpc_method_handler(behave)

    async def _message(self, call: Call, context: Any) -> bytes:
        """The message of a request."""
        import grpc

        async def read() -> bytes:
            data = await context.read()
            if data is grpc.aio.EOF:
                raise Failure("INVALID_ARGUMENT", "the request has no message")
            found: bytes = data
            return found

        return await self._service.message(call, read)

    def _client(self, context: Any) -> str | None:
        return context.peer() if self._service.is_logged else None

    def _owner(self, context: Any) -> int | None:
        return self._access.check(_authorization(context)) if self._access.is_limited else None


def target_of(spec: Any) -> Target:
    """What a ModelSpec names.

    Raises:
        Failure: INVALID_ARGUMENT: it names no model, or a negative version.
    """
    if not spec.name:
        raise Failure("INVALID_ARGUMENT", "model_spec must name a model")
    choice = spec.WhichOneof("version_choice")
    version = spec.version.value if choice == "version" else None
    if version is not None and version < 0:
        raise Failure("INVALID_ARGUMENT", f"version {version} is negative")
    label = spec.version_label if choice == "version_label" else None
    return Target(spec.name, version, label, spec.signature_name)


def _authorization(context: Any) -> str | bytes:
    for key, value in context.invocation_metadata() or ():
        if key == "authorization":
            found: str | bytes = value
            return found
    return ""


def _deadline(context: Any) -> float | None:
    left = context.time_remaining()
    return None if left is None else time.monotonic() + left
