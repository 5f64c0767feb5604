"""The server of HTTP: uvicorn, with a time limit for the head of a request."""

from __future__ import annotations

import asyncio
import json
import logging
import resource
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_MOST_UNREAD = 1 << 16  # bytes of a head, of the sizes of chunks, or of trailers
_MOST_UNSENT = 1 << 14  # bytes that wait to be sent together


def _refusal(status: str, message: str) -> bytes:
    body = json.dumps({"error": message}).encode()
    head = (
        f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body


_SLOW = _refusal("408 Request Timeout", "the head of the request did not arrive in time")
_LARGE = _refusal(
    "431 Request Header Fields Too Large", f"the head has more than {_MOST_UNREAD} bytes"
)
_INVALID = _refusal(
    "400 Bad Request", "this is not a request of HTTP/1.1, or one with a body and an upgrade"
)


def http_server(
    application: Any,
    *,
    head_seconds: float,
    drain_seconds: float,
    tls: tuple[str, str, str | None] | None = None,
) -> Any:
    """A uvicorn server for an ASGI application, to be started with `serve(sockets=[...])`.

    Args:
        head_seconds: how long a client may take for the first line and the headers of a request.
        drain_seconds: how long requests in progress may take after `should_exit` is set.
        tls: the files of certificate, key and the authority of clients.
    """
    import uvicorn

    certificate, key, authority = tls or (None, None, None)
    config = uvicorn.Config(
        application,
        http=_protocol(head_seconds),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=max(1, round(drain_seconds)),
        ssl_certfile=certificate,
        ssl_keyfile=key,
        ssl_ca_certs=authority,
        ssl_cert_reqs=ssl.CERT_REQUIRED if authority else ssl.CERT_NONE,
    )
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # not a line for each bad request
    return _server(config)


def _protocol(head_seconds: float) -> Any:
    """The class of connections."""
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    # The other half is for gRPC, for files, and for connections that are being closed.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
    limits = {"head_seconds": head_seconds, "most": most}
    return type("Protocol", (_Limited, HttpToolsProtocol), limits)


class JoiningTransport:
    """A transport that sends what is written in one iteration of the event loop together, such as
    the head and the body of a response. Each call of the system costs more than a short answer.

    All other attributes are those of the transport.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []
        self._size = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Sends `data` at the end of this iteration; at once if much is waiting."""
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)
        self._size += len(data)
        if self._size > _MOST_UNSENT:
            self._flush()

    def close(self) -> None:
        """Closes the transport after everything is sent."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._parts:
            data = b"".join(self._parts)
            self._parts, self._size = [], 0
            self._transport.write(data)


_Mixed: Any = object


class _Limited(_Mixed):  # type: ignore[misc]
    """Closes connections whose next request does not begin and arrive in time, those whose
    heads are too large, and those beyond the largest number.

    There is one timer for many short requests: it looks when the head began.

    This is mixed into uvicorn's class of connections, which is imported when a server starts.

    Attributes:
        head_seconds: the longest time until the head of a request has arrived.
        most: the largest number of connections.
    """

    cycle: Any  # None before the first request
    head_seconds: float
    most: int
    _timer: asyncio.TimerHandle | None = None
    _began: float | None = None  # when the head began that has not arrived yet
    _unread = 0  # bytes that have not completed a head or a part of a body

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.transport = JoiningTransport(transport, self.loop)
        if len(self.connections) > self.most:
            transport.abort()
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        self._unread += len(data)
        super().data_received(data)
        if self._unread > _MOST_UNREAD:
            self._refuse(_LARGE)
        elif self._began is None and (self.cycle is None or self.cycle.response_complete):
            self._start_timer()  # empty lines, or the rest of a body that nobody reads

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._began is None:
            self._start_timer()

    def on_headers_complete(self) -> None:
        self._began = None
        self._unread = 0
        super().on_headers_complete()
        if self.parser.should_upgrade():
            # The parser reads neither a body nor further requests.
            self.cycle.keep_alive = False
            bodies = {b"content-length", b"transfer-encoding"}
            if bodies.intersection(name for name, _ in self.headers):
                self.cycle.more_body = True
                raise ValueError("a body and an upgrade")

    def on_body(self, body: bytes) -> None:
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unread = 0
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._began = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Called for what is not HTTP. A complete request before it gets its answer."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete or cycle.more_body:
            self._refuse(_INVALID)
        else:
            cycle.keep_alive = False
            self.flow.pause_reading()

    def _refuse(self, response: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(response)
            self.transport.close()

    def _start_timer(self) -> None:
        self._began = self.loop.time()
        if self._timer is None:
            self._timer = self.loop.call_later(self.head_seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._began is None:
            return
        left = self._began + self.head_seconds - self.loop.time()
        if left > 0:
            self._timer = self.loop.call_later(left, self._look)
        else:
            self._refuse(_SLOW)


def _server(config: Any) -> Any:
    """A server that leaves signals to us."""
    import uvicorn

    class Server(uvicorn.Server):  # type: ignore[misc, unused-ignore]
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    return Server(config)


def listen(host: str, port: int, unread_seconds: float = 30.0) -> socket.socket:
    """A socket that listens on a port; 0 selects a free one.

    Args:
        unread_seconds: how long a client may not read, until its connection is closed.

    Raises:
        OSError: the port is in use, or the address is not one of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol named, asyncio sends small parts at once (TCP_NODELAY).
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux; connections inherit it
            milliseconds = round(unread_seconds * 1000)
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
        found.bind((host, port))
        found.listen(2048)
    except BaseException:
        found.close()
        raise
    found.setblocking(False)
    return found
