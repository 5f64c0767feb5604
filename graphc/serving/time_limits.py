"""Requests of HTTP with one time limit for everything: connecting, sending and each read."""

from __future__ import annotations

import http.client
import io
import socket
import time
from functools import partial
from typing import Any


class End:
    """When a call must have ended.

    Args:
        seconds: from now on; None sets no limit.
    """

    def __init__(self, seconds: float | None) -> None:
        self._time = None if seconds is None else time.monotonic() + seconds

    def left(self) -> float | None:
        """The seconds that are left.

        Raises:
            TimeoutError: there are none.
        """
        if self._time is None:
            return None
        left = self._time - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


def send(
    connection: http.client.HTTPConnection,
    end: End,
    method: str,
    path: str,
    data: bytes | None,
    headers: dict[str, str],
) -> None:
    """Sends a request, and limits the reads of its response.

    Raises:
        TimeoutError: the time has passed. The reads of the response raise it too.
    """
    connection.timeout = end.left()
    if connection.sock is not None:
        connection.sock.settimeout(connection.timeout)
    response: Any = partial(_response, end)
    connection.response_class = response
    connection.request(method, path, data, headers)


def _response(end: End, sock: socket.socket, *args: Any, **named: Any) -> http.client.HTTPResponse:
    limited: Any = _Limited(sock, end)
    return http.client.HTTPResponse(limited, *args, **named)


class _Limited:
    """A socket as HTTPResponse needs it."""

    def __init__(self, sock: socket.socket, end: End) -> None:
        self._socket, self._end = sock, end

    def makefile(self, mode: str) -> io.BufferedReader:
        raw = self._socket.makefile("rb", buffering=0)
        return io.BufferedReader(_Reads(raw, self._socket, self._end))


class _Reads(io.RawIOBase):
    """The reads of a socket. Each has the time that is left. The time limit of the socket alone
    would start again with every byte that arrives."""

    def __init__(self, raw: Any, sock: socket.socket, end: End) -> None:
        super().__init__()
        self._raw, self._socket, self._end = raw, sock, end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if (left := self._end.left()) is not None:
            self._socket.settimeout(left)
        size: int | None = self._raw.readinto(buffer)
        return size

    def close(self) -> None:
        self._raw.close()
        super().close()
