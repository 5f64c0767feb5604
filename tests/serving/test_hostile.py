"""Slow, greedy or broken clients, and a full disk: other clients still get their answers."""

import asyncio
import json
import os
import re
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from types import SimpleNamespace
from typing import Any

import grpc
import numpy as np
import pytest

from graphc.cli.serve import _lines
from graphc.serving import Client, Failure, Server, ServerConfig
from graphc.serving.batching.batcher import Batcher
from graphc.serving.endpoints.grpc_services import GrpcServices
from graphc.serving.endpoints.metrics import Metrics
from graphc.serving.endpoints.service import Service
from graphc.serving.protocol.messages import messages
from graphc.web.access import Access
from graphc.web.failures import HTTP_STATUS
from tests.serving.batching.rig import AXES, rows
from tests.serving.fakes import FakeManager, manager

BODY = b'{"instances": [[1, 2]]}'
ANSWER = b'{"predictions": [[2.0, 4.0]]}'
START = b"POST /v1/models/double:predict HTTP/1.1\r\nhost: x\r\n"
VALID = START + b"content-length: %d\r\n\r\n" % len(BODY) + BODY
STATUS = b"GET /v1/models/double HTTP/1.1\r\nhost: x\r\n"
CHUNKED = START + b"transfer-encoding: chunked\r\n\r\n"


@contextmanager
def serving(**options: Any) -> Iterator[Server]:
    config = ServerConfig((), **{"port": None, "rest_port": 0, **options})
    with Server(config, manager=manager()) as server:
        yield server


def connect(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.rest_port), timeout=60)


def until_closed(connection: socket.socket) -> bytes:
    """The bytes that the server sends before it closes the connection."""
    parts = []
    try:
        while part := connection.recv(1 << 16):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def until_answered(connection: socket.socket) -> bytes:
    """The bytes that the server sends up to the end of its answer to VALID."""
    data = b""
    while not data.endswith(ANSWER):
        found = connection.recv(1 << 16)
        assert found, data
        data += found
    return data


@pytest.mark.parametrize(
    "parts",
    [
        [STATUS, b"a: b\r\n" * 20_000],
        [STATUS, b"a: " + b"v" * 100_000],
        [b"GET /", b"a" * 100_000],
        [CHUNKED + b"1\r\n{\r\n0\r\n", b"a: " + b"v" * 1_000_000],
        [CHUNKED + b"1;", b"e" * 1_000_000],
        [b"\r\n" * 50_000],
    ],
    ids=["headers", "header", "path", "trailer", "chunk", "lines"],
)
def test_heads_without_an_end(parts: list[bytes]) -> None:
    with serving() as server:
        with connect(server) as connection:
            try:
                for part in parts:
                    connection.sendall(part)
            except ConnectionError:
                pass  # refused before everything was sent
            assert until_closed(connection)[:13] in (b"HTTP/1.1 431 ", b"")  # lost by a reset
        with Client(f"http://127.0.0.1:{server.rest_port}") as client:
            assert client.status("double") == {3: "AVAILABLE"}


def test_junk_after_a_request() -> None:
    with serving() as server, connect(server) as connection:
        connection.sendall(VALID + b"\x00junk\r\n\r\n")
        found = until_closed(connection)
        assert found.startswith(b"HTTP/1.1 200 ") and found.endswith(ANSWER)


@pytest.mark.parametrize("protocol", [b"h2c", b"websocket"])
def test_upgrades(protocol: bytes) -> None:
    """The parser reads nothing more after an upgrade: the body would be lost, and the next request
    would never be answered."""
    upgrade = b"connection: upgrade\r\nupgrade: " + protocol + b"\r\n"
    with serving() as server:
        with connect(server) as connection:
            connection.sendall(STATUS + upgrade + b"\r\n")
            assert until_closed(connection).startswith(b"HTTP/1.1 200 ")
        with connect(server) as connection:
            connection.sendall(VALID.replace(START, START + upgrade))
            found = until_closed(connection)
            assert found.startswith(b"HTTP/1.1 400 ") and b"with a body and an upgrade" in found


@pytest.mark.parametrize("sent", [b"\r\n", b"P"], ids=["empty line", "next request"])
def test_idle_connections_that_sent_something(sent: bytes) -> None:
    """After an answer, a line or a byte does not keep the connection open forever."""
    with serving(request_seconds=0.2) as server, connect(server) as connection:
        connection.sendall(VALID)
        assert until_answered(connection).startswith(b"HTTP/1.1 200 ")
        connection.sendall(sent)
        assert b"HTTP/1.1 408 " in until_closed(connection)


def test_the_rest_of_a_body_that_nobody_reads() -> None:
    with serving(request_seconds=0.2) as server, connect(server) as connection:
        connection.sendall(b"POST /v1/nothing HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 404 ")
        connection.sendall(b"{")
        assert b"HTTP/1.1 408 " in until_closed(connection)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="Linux only")
def test_clients_that_do_not_read() -> None:
    with serving(request_seconds=0.2) as server, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", server.rest_port))
        connection.sendall(VALID)
        assert until_answered(connection)
        before = len(os.listdir("/proc/self/fd"))
        connection.sendall((STATUS + b"\r\n") * 200)  # the answers exceed the client's buffer
        end = time.monotonic() + 60
        while len(os.listdir("/proc/self/fd")) >= before and time.monotonic() < end:
            time.sleep(0.01)
        assert len(os.listdir("/proc/self/fd")) < before  # the server's end is closed


def test_slow_bodies_keep_no_others_out() -> None:
    with serving(max_concurrent=1) as server, ExitStack() as stack:
        slow = [stack.enter_context(connect(server)) for _ in range(3)]
        for connection in slow:
            connection.sendall(START + b"expect: 100-continue\r\ncontent-length: 23\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 100 ")  # the server waits for it
        with connect(server) as connection:
            connection.sendall(VALID)
            assert until_answered(connection).startswith(b"HTTP/1.1 200 ")
        for connection in slow:
            connection.sendall(BODY)
            assert until_answered(connection).startswith(b"HTTP/1.1 200 ")


def test_bodies_together() -> None:
    size = len(BODY)
    with serving(max_body_bytes=size, max_request_bytes=2 * size) as server, ExitStack() as stack:
        with connect(server) as connection:
            for _ in range(3):  # each is released
                connection.sendall(VALID)
                assert until_answered(connection).startswith(b"HTTP/1.1 200 ")
        slow = [stack.enter_context(connect(server)) for _ in range(2)]
        for connection in slow:
            connection.sendall(VALID[:-5])
        until(lambda: request_bytes(server) == 2 * (size - 5))
        with connect(server) as connection:
            connection.sendall(VALID.replace(b"host: x", b"host: x\r\nconnection: close"))
            assert until_closed(connection).startswith(b"HTTP/1.1 429 ")
        slow[0].close()
        until(lambda: request_bytes(server) == size - 5)
        slow[1].sendall(VALID[-5:])
        assert until_answered(slow[1]).startswith(b"HTTP/1.1 200 ")


def request_bytes(server: Server) -> float:
    found = re.search(rb"\ngraphc_serving_request_bytes (\S+)", server.metrics.text())
    assert found is not None
    return float(found[1])


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_too_many_connections(monkeypatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (8, 8))
    with serving() as server, ExitStack() as stack:
        kept = [stack.enter_context(connect(server)) for _ in range(4)]
        for connection in kept:
            connection.sendall(VALID)
            assert until_answered(connection)
        with connect(server) as connection:
            assert until_closed(connection) == b""
        kept[0].sendall(VALID)
        assert until_answered(kept[0])


def test_a_full_disk() -> None:
    """Requests do not fail if their log lines cannot be written."""
    with serving(access_log="/dev/full", port=0) as server:
        for address in (f"http://127.0.0.1:{server.rest_port}", f"grpc://127.0.0.1:{server.port}"):
            with Client(address) as client:
                y = client.predict("double", x=np.float32([[1, 2]]))["y"]
                assert y.tolist() == [[2.0, 4.0]]


@pytest.mark.parametrize("options", [{}, {"tokens": ("secret",)}], ids=["", "token"])
def test_messages_that_do_not_come(options: dict[str, Any]) -> None:
    """Without a token, a client cannot send a message: the answer does not wait for it."""
    with (
        serving(rest_port=None, port=0, request_seconds=0.2, **options) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        call = channel.stream_unary("/tensorflow.serving.PredictionService/Predict")
        given_up = threading.Event()
        for messages, code in (
            (never(given_up), "DEADLINE_EXCEEDED"),
            (iter(()), "INVALID_ARGUMENT"),
        ):
            with pytest.raises(grpc.RpcError) as caught:
                call(messages, timeout=30)
            given_up.set()
            expected = "UNAUTHENTICATED" if options else code
            assert caught.value.code().name == expected


def test_health_reads_no_message() -> None:
    """It needs no token: anybody could fill the memory."""
    with (
        serving(rest_port=None, port=0, tokens=("secret",)) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        call = channel.stream_unary("/grpc.health.v1.Health/Check")
        answered = threading.Event()
        try:
            assert call(never(answered), timeout=30) == b"\x08\x01"
            assert call(iter([bytes(1 << 20)]), timeout=30) == b"\x08\x01"
        finally:
            answered.set()


def never(given_up: threading.Event) -> Iterator[bytes]:
    """No message while a call waits."""
    given_up.wait(60)
    yield b""


@pytest.mark.parametrize("length", [10, 20_000])
def test_long_names_over_grpc(length: int) -> None:
    """An error message that quotes the name would exceed the limit of gRPC clients."""
    request = messages().PredictRequest()
    request.model_spec.name = "é" * length
    with (
        serving(rest_port=None, port=0) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
        pytest.raises(grpc.RpcError) as caught,
    ):
        call = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
        call(request.SerializeToString(), timeout=60)
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
    assert caught.value.details().startswith("Servable not found for request: Latest(éé")


@pytest.mark.parametrize("code", HTTP_STATUS)
def test_messages_are_cut(code: str) -> None:
    assert Failure(code, "é" * 1000).message == "é" * 1000
    cut = Failure(code, "é" * 1001).message
    assert cut.endswith("é ...") and len(cut.encode()) <= 2000


def test_reloads_take_one_thread() -> None:
    """The other threads are for large requests."""
    most = running = 0

    class Slow(FakeManager):
        def reload(self, configs: Any, wait: bool = True) -> None:
            nonlocal most, running
            running += 1
            most = max(most, running)
            threading.Event().wait(0.01)
            running -= 1

    request = messages().ReloadConfigRequest()
    request.config.model_config_list.SetInParent()
    shared = Service(Slow(), Metrics())

    async def several() -> None:
        services = GrpcServices(shared, Access())
        with shared.call("GRPC", "HandleReloadConfigRequest") as call:
            data = request.SerializeToString()
            await asyncio.gather(*(services.reload(call, data, None) for _ in range(4)))

    asyncio.run(several())
    assert most == 1


def test_large_buffers_are_not_kept() -> None:
    """Clients choose the sizes of requests."""
    with closing(Batcher(lambda inputs: {"y": inputs["x"], "one": np.float32(1)}, AXES)) as batcher:
        for values, kept in ((range(3), 1), (range(5), 2)):
            batcher.submit(rows(*values)).result(60)
            assert len(batcher._buffers._free) == kept
        wide = np.zeros((3, 2), np.float32)
        key = next(iter(batcher._buffers._free))
        piece = SimpleNamespace(request=SimpleNamespace(sizes=SimpleNamespace(shapes=key[0])))
        batcher._buffers.give_back([piece], 999, {"x": np.broadcast_to(wide[:1], (1 << 18, 2))})
        assert len(batcher._buffers._free) == 2


def test_addresses_of_ipv6() -> None:
    config = ServerConfig((), host="::1")
    server = SimpleNamespace(config=config, rest_port=1, port=2, available=dict)
    assert _lines(server) == ["REST: http://[::1]:1/v1/models/", "gRPC: [::1]:2"]


def test_answers_have_the_form_of_the_protocol() -> None:
    with serving() as server, connect(server) as connection:
        connection.sendall(b"\x16\x03\x01\x02\x00\r\n\r\n")  # TLS
        head, _, body = until_closed(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ") and set(json.loads(body)) == {"error"}


def test_metrics_of_many_versions() -> None:
    metrics = Metrics()
    for version in range(5000):
        metrics.request("m", version, "Predict", "OK", 0.001)
    assert len(list(metrics.requests.samples())) == 4096
    assert metrics.requests.value("m", "4999", "Predict", "GRPC", "OK") == 1
    assert metrics.request_count.value("m", "OK") == 5000
