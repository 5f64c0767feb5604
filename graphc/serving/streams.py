"""Streams of answers as a client receives them, and the failures in answers."""

from __future__ import annotations

import base64
import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Protocol

from graphc.serving.time_limits import End, send
from graphc.web.failures import HTTP_STATUS, Failure

_CODES = {status: code for code, status in reversed(list(HTTP_STATUS.items()))} | {
    405: "UNIMPLEMENTED",
    408: "DEADLINE_EXCEEDED",
    410: "NOT_FOUND",
}


class Stream(Protocol):
    """The bytes of answers, as they arrive."""

    def __iter__(self) -> Iterator[bytes]: ...

    def __next__(self) -> bytes: ...

    def close(self) -> None:
        """Ends it from any thread. The server completes the present step."""


class Answers:
    """The answers of a stream of gRPC."""

    def __init__(self, call: Any) -> None:
        self._call = call

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        import grpc

        try:
            found: bytes = next(self._call)
        except grpc.RpcError as error:
            raise failure_of_call(error) from None
        return found

    def close(self) -> None:
        self._call.cancel()


class Events:
    """The answers of a stream of server-sent events, on a connection of its own."""

    def __init__(
        self,
        connection: http.client.HTTPConnection,
        path: str,
        data: bytes,
        headers: dict[str, str],
        timeout: float | None,
    ) -> None:
        self._connection = connection
        self._timeout = timeout
        self._end = End(timeout)
        self._socket: socket.socket | None = None
        self._response: Any = None
        self._request = (path, data, headers)
        self._closed = False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        """The bytes of the next PredictResponse."""
        if self._closed:
            raise StopIteration
        try:
            if self._response is None:
                self._begin()
            kind, data = self._event()
        except TimeoutError:
            self.close()
            what = f"the stream did not end within {self._timeout:g} s"
            raise Failure("DEADLINE_EXCEEDED", what) from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            self.close()
            raise Failure("UNAVAILABLE", f"the stream ended early: {error!r}") from error
        except BaseException:  # Ctrl-C: the rest of an event would be taken for the next one
            self.close()
            raise
        if kind == "":
            return base64.b64decode(data)
        self.close()
        if kind == "error":
            found = json.loads(data)
            raise Failure(found["code"], found["error"])
        raise StopIteration

    def _begin(self) -> None:
        path, data, headers = self._request
        send(self._connection, self._end, "POST", path, data, headers)
        self._socket = self._connection.sock
        self._response = self._connection.getresponse()
        if self._response.status != 200:
            body = self._response.read()
            self.close()
            raise failure_of_response(self._response.status, body)

    def _event(self) -> tuple[str, bytes]:
        """The kind and the data of the next event."""
        kind, data = "", b""
        while True:
            line = self._response.readline()
            if not line:
                raise OSError("the connection was closed")
            name, _, value = line.rstrip(b"\n").partition(b": ")
            if name == b"event":
                kind = value.decode()
            elif name == b"data":
                data = value
            elif not line.strip():
                return kind, data

    def close(self) -> None:
        self._closed = True
        found = self._socket
        if found is not None:
            with suppress(OSError):
                found.shutdown(socket.SHUT_RDWR)
        self._connection.close()


def failure_of_response(status: int, body: bytes) -> Failure:
    """The failure in a response of HTTP."""
    return Failure(_CODES.get(status, "INTERNAL"), _message(body))


def failure_of_call(error: Any) -> Failure:
    """The failure in an error of gRPC."""
    code = error.code().name
    return Failure(code if code in HTTP_STATUS else "INTERNAL", error.details() or code)


def _message(body: bytes) -> str:
    """The text of an error."""
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode("utf-8", "replace")
