"""The server of HTTP: uvicorn, with a time limit for the head of a request."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_SLOW = (
    b"HTTP/1.1 408 Request Timeout\r\ncontent-type: application/json\r\ncontent-length: 61\r\n"
    b'connection: close\r\n\r\n{"error": "the head of the request did not arrive in time"}  '
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
    """The class of connections, with a time limit for the head of a request."""
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    class Protocol(HttpToolsProtocol):  # type: ignore[misc, unused-ignore]
        """Closes connections whose next request does not begin and arrive in time.

        There is one timer for many short requests: it looks when the head began.
        """

        _timer: asyncio.TimerHandle | None = None
        _began: float | None = None  # when the head began that has not arrived yet

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._start_timer()

        def on_message_begin(self) -> None:
            super().on_message_begin()
            if self._began is None:
                self._start_timer()

        def on_headers_complete(self) -> None:
            self._began = None
            super().on_headers_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            self._began = None
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            super().connection_lost(exc)

        def _start_timer(self) -> None:
            self._began = self.loop.time()
            if self._timer is None:
                self._timer = self.loop.call_later(head_seconds, self._look)

        def _look(self) -> None:
            self._timer = None
            if self._began is None:
                return
            left = self._began + head_seconds - self.loop.time()
            if left > 0:
                self._timer = self.loop.call_later(left, self._look)
            elif not self.transport.is_closing():
                self.transport.write(_SLOW)
                self.transport.close()

    return Protocol


def _server(config: Any) -> Any:
    """A server that leaves signals to us."""
    import uvicorn

    class Server(uvicorn.Server):  # type: ignore[misc, unused-ignore]
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    return Server(config)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on a port; 0 selects a free one.

    Raises:
        OSError: the port is in use, or the address is not one of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol named, asyncio sends small parts at once (TCP_NODELAY).
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(2048)
    except BaseException:
        found.close()
        raise
    found.setblocking(False)
    return found
