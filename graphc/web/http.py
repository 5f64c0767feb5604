"""HTTP over ASGI: bodies with limits, gzip, and responses."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from graphc.web.failures import Failure

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

Reply = tuple[bytes, bytes]  # the body and its content type

JSON = b"application/json"
PROTOBUF = b"application/x-protobuf"
_ENCODER = json.JSONEncoder(ensure_ascii=False)
_WORTH_GZIP = 1024  # bytes
_IN_THREAD = 1 << 16


_CODES = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    408: "DEADLINE_EXCEEDED",
}


class HttpError(Failure):
    """An error of HTTP itself.

    Args:
        status: such as 413.
        headers: further headers of the response.
    """

    def __init__(
        self, status: int, message: str, headers: list[tuple[bytes, bytes]] | None = None
    ) -> None:
        super().__init__(_CODES.get(status, "INVALID_ARGUMENT"), message, status)
        self.headers = headers


def check_method(scope: Scope, *methods: str) -> None:
    """Checks the method of a request. HEAD is accepted where GET is.

    Raises:
        HttpError: 405: it is none of these.
    """
    given = "GET" if scope["method"] == "HEAD" else scope["method"]
    if given not in methods:
        raise HttpError(
            405, f"{scope['method'][:20]} is not allowed here, use {' or '.join(methods)}",
            [(b"allow", ", ".join(methods).encode())],
        )  # fmt: skip


def header(scope: Scope, name: bytes) -> bytes:
    """The last header of a name (in lower case), or b""."""
    found = b""
    for key, value in scope["headers"]:
        if key == name:
            found = value
    return found


def is_protobuf(scope: Scope) -> bool:
    """Whether the body of a request is a message in binary form."""
    return header(scope, b"content-type").split(b";")[0].strip() == PROTOBUF


def local_path(scope: Scope) -> str:
    """The path of a request, inside the application into which this one is mounted."""
    path: str = scope["path"]
    root = scope.get("root_path", "")
    return path[len(root) :] if root and path.startswith(f"{root}/") else path


async def read_body(
    scope: Scope,
    receive: Receive,
    limit: int,
    seconds: float,
    hold: Callable[[int], None] = lambda size: None,
) -> bytes:
    """The body, decompressed.

    Args:
        hold: called with the number of bytes of each part; it may raise a Failure.

    Raises:
        HttpError: 413 beyond the limit (also after decompression), 408 if it does not arrive in
            time, 415 for another compression than gzip.
        Failure: INVALID_ARGUMENT: the body is not gzip; CANCELLED: the client has gone.
    """
    length = header(scope, b"content-length")
    if length.isdigit() and int(length[:20]) > limit:
        raise HttpError(413, f"the body has {length.decode()[:20]} bytes, at most {limit} may be")
    try:
        async with asyncio.timeout(seconds):
            body = await _receive_all(receive, limit, hold)
    except TimeoutError:
        raise HttpError(408, f"the body did not arrive within {seconds:g} s") from None
    encoding = header(scope, b"content-encoding").strip().lower()
    if encoding in (b"", b"identity"):
        return body
    if encoding != b"gzip":
        raise HttpError(415, f"content-encoding {encoding.decode('latin-1')[:40]!r}: use gzip")
    if len(body) > _IN_THREAD:
        found = await asyncio.to_thread(_decompressed, body, limit)
    else:
        found = _decompressed(body, limit)
    hold(len(found))
    return found


async def _receive_all(receive: Receive, limit: int, hold: Callable[[int], None]) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Failure("CANCELLED", "the client closed the connection")
        chunk = message.get("body", b"")
        size += len(chunk)
        hold(len(chunk))
        if size > limit:
            raise HttpError(413, f"the body has more than {limit} bytes")
        if not message.get("more_body", False):
            return b"".join([*chunks, chunk]) if chunks else chunk
        chunks.append(chunk)


def _decompressed(body: bytes, limit: int) -> bytes:
    reader = zlib.decompressobj(wbits=31)
    try:
        found = reader.decompress(body, limit + 1)
    except zlib.error as error:
        raise Failure("INVALID_ARGUMENT", f"the body is not gzip: {error}") from None
    if len(found) > limit:
        raise HttpError(413, f"the decompressed body has more than {limit} bytes")
    if not reader.eof:
        raise Failure("INVALID_ARGUMENT", "the body is not gzip: it ends early")
    return found


async def respond(
    scope: Scope,
    send: Send,
    status: int,
    body: bytes,
    kind: bytes = JSON,
    headers: list[tuple[bytes, bytes]] | None = None,
) -> None:
    """Sends a response; compressed, if the client takes gzip and it is worth it."""
    fields = [(b"content-type", kind), *(headers or ())]
    if len(body) >= _WORTH_GZIP and b"gzip" in header(scope, b"accept-encoding"):
        if len(body) > _IN_THREAD:
            body = await asyncio.to_thread(gzip.compress, body, 1)
        else:
            body = gzip.compress(body, 1)
        fields.append((b"content-encoding", b"gzip"))
        fields.append((b"vary", b"accept-encoding"))
    fields.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": fields})
    if scope["method"] == "HEAD":
        body = b""
    await send({"type": "http.response.body", "body": body})


def write_json(value: Any) -> bytes:
    """A JSON body. Floats that are not finite are NaN, Infinity and -Infinity, as TensorFlow
    Serving writes them."""
    return _ENCODER.encode(value).encode("utf-8", "replace")


def error_body(message: str) -> bytes:
    """The body of an error, as TensorFlow Serving writes it."""
    return write_json({"error": message})
