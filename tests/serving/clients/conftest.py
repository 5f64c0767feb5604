"""Servers for the clients in other languages. The clients run in separate processes."""

from __future__ import annotations

import json
import socket
import threading
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any, ClassVar

import numpy as np
import pytest

from graphc.serving import Server, ServerConfig
from graphc.serving.protocol.messages import messages
from tests.serving.fakes import Entry, FakeManager, FakeServable, manager
from tests.serving.stateful import CountingManager


@pytest.fixture(scope="session")
def addresses() -> Iterator[dict[str, str]]:
    """The addresses of REST servers, which answer pages of every origin.

    `open` has the models of `fakes.manager` and `slow`, which never answers; `guarded` requires the
    token "secret"; `impatient` gives each request 0.3 seconds; `counter` has sessions of
    `stateful.CountingManager`, 8 at most; no server listens at `closed`;
    `foreign` encodes tensors as other servers may, and sends wrong answers; `closing` closes each
    connection at its second request; `lossy` passes requests to `counter`, and closes each
    connection instead of sending the answer to its second request.
    """
    pending: list[Future[Any]] = []
    models = _with_slow(manager(), pending)
    options: dict[str, dict[str, Any]] = {
        "open": {},
        "guarded": {"tokens": ("secret",)},
        "impatient": {"request_seconds": 0.3},
    }
    with ExitStack() as stack:
        found = {}
        for name, more in options.items():
            config = ServerConfig((), port=None, rest_port=0, cors_origins=("*",), **more)
            server = stack.enter_context(Server(config, manager=models))
            found[name] = f"http://127.0.0.1:{server.rest_port}"
        config = ServerConfig((), port=None, rest_port=0, cors_origins=("*",))
        counting = CountingManager(max_sessions=8)
        server = stack.enter_context(Server(config, manager=counting))
        found["counter"] = f"http://127.0.0.1:{server.rest_port}"
        closed = stack.enter_context(socket.socket())
        closed.bind(("127.0.0.1", 0))  # and does not listen
        found["closed"] = f"http://127.0.0.1:{closed.getsockname()[1]}"
        found["foreign"] = stack.enter_context(_serving(_Foreign))
        found["closing"] = stack.enter_context(_serving(_Closing))
        target = {"target": f"127.0.0.1:{server.rest_port}"}
        found["lossy"] = stack.enter_context(_serving(type("_LossyCounter", (_Lossy,), target)))
        yield found
        for future in pending:
            future.cancel()


def _with_slow(models: FakeManager, pending: list[Future[Any]]) -> FakeManager:
    def never(inputs: dict[str, np.ndarray]) -> Future[Any]:
        pending.append(Future())
        return pending[-1]

    entry = Entry({"x": "f32[n]"}, {"y": "f32[n]"})
    models.models["slow"] = FakeServable(1, {"predict": (entry, never)})
    return models


@contextmanager
def _serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a server that is not graphc's."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    """Keeps its connection open, and answers pages of every origin."""

    protocol_version = "HTTP/1.1"

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.send_header("access-control-allow-origin", "*")
        self.end_headers()
        self.wfile.write(body)

    def do_OPTIONS(self) -> None:
        self.send_response(204)  # which has no body
        self.send_header("access-control-allow-origin", "*")
        self.send_header("access-control-allow-headers", "content-type")
        self.send_header("access-control-allow-methods", "*")
        self.end_headers()

    def log_message(self, *given: Any) -> None:
        pass


class _Foreign(_Handler):
    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        name = self.path.split("/")[3].partition(":")[0]
        if self.path.endswith("/sessions"):
            name = "session"
        bodies = {
            "session": b'{"session_id": "s", "version": "1"}',
            "cut": b'event: error\ndata: {"error": "g\\u00fc", "code": "INTERNAL"}\n\n',
            "early": b"data: \n\ndata: ",
            "empty": b"{}",
            "forms": _forms(),
            "short": _forms()[:-1],
            "int4": _output("t", messages().TensorProto(dtype=29)),
        }
        errors = {"escapes": (400, rb'{"error" : "\u00fc\ud83c\udf37\n\t\/\"\\"}')}
        bad_gateway = (502, b"<html>Bad gateway</html>")
        status, body = (200, bodies[name]) if name in bodies else errors.get(name, bad_gateway)
        self.answer(status, body)

    do_POST = do_GET


class _Closing(_Handler):
    """Answers one request on each connection. It closes the connection without a byte when the
    second one arrives, as a server may whose time limit for idle connections ends at that moment.

    The status of a model with the name of a session has the number of the session's steps as its
    version. A step counts when its request arrives; one that is repeated has the same number.
    """

    steps: ClassVar[defaultdict[str, set[int]]] = defaultdict(set)
    _numbers = count()
    _has_answered = False

    def do_GET(self) -> None:
        data = self.rfile.read(int(self.headers.get("content-length", 0)))
        *_, name = self.path.split("/")
        if self.command == "POST" and "/sessions/" in self.path:
            number = messages().SessionRequest.FromString(data).number
            self.steps[name.partition(":")[0]].add(number)
        if self._has_answered:
            self.close_connection = True
            return
        self._has_answered = True
        body = b""  # of a predict: no outputs
        if name == "sessions":
            body = b'{"session_id": "s%d", "version": "1"}' % next(self._numbers)
        elif self.command == "GET":
            state = {"version": str(len(self.steps[name])), "state": "AVAILABLE"}
            body = json.dumps({"model_version_status": [state]}).encode()
        self.answer(200, body)

    do_DELETE = do_POST = do_GET


class _Lossy(_Handler):
    """Passes requests to another server. The second answer on each connection is lost."""

    target: str
    _has_answered = False

    def do_GET(self) -> None:
        data = self.rfile.read(int(self.headers.get("content-length", 0)))
        kind = {"content-type": self.headers["content-type"]} if data else {}
        with closing(HTTPConnection(self.target, timeout=60)) as connection:
            connection.request(self.command, self.path, data, kind)
            response = connection.getresponse()
            body = response.read()
        if self._has_answered:
            self.close_connection = True
            return
        self._has_answered = True
        self.answer(response.status, body)

    do_DELETE = do_POST = do_GET


def _forms() -> bytes:
    """A PredictResponse with TensorProto encodings that graphc's server does not write."""

    def tensor(dtype: int, *shape: int, **values: Any) -> Any:
        found = messages().TensorProto(dtype=dtype, **values)
        for size in shape:
            found.tensor_shape.dim.add(size=size)
        return found

    content = np.array([-1, 2], "<i4").tobytes()
    outputs = {
        "content": tensor(3, 2, tensor_content=content),
        "filled": tensor(1, 3, float_val=[1.5, 2.5]),
        "pairs": tensor(8, 2, scomplex_val=[1, 2]),
        "unpacked": tensor(3, 2),
        "words": tensor(7, 2, string_val=[b"a"]),
        "zeros": tensor(9, 1, 2),
    }
    minus_six = b"\xfa" + b"\xff" * 8 + b"\x01"
    more = {"unpacked": b"\x38\x05\x38" + minus_six}  # int_val, each value with its own tag
    return b"".join(_output(name, each, more.get(name, b"")) for name, each in outputs.items())


def _output(name: str, tensor: Any, more: bytes = b"") -> bytes:
    """An entry of `outputs`; `more` contains further bytes of the TensorProto."""

    def field(number: int, data: bytes) -> bytes:
        assert len(data) < 128
        return bytes([number << 3 | 2, len(data)]) + data

    return field(1, field(1, name.encode()) + field(2, tensor.SerializeToString() + more))
