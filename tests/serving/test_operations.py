"""What operators of the server rely on: readiness, draining, cancellation, logs and limits."""

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from graphc.cli.arguments import parse
from graphc.cli.serve import config_of
from graphc.serving import All, Client, Failure, ModelConfig, Server, ServerConfig
from graphc.serving.models.loader import Loader
from graphc.serving.models.manager import Manager
from graphc.serving.protocol.messages import messages
from graphc.serving.protocol.tensors import encode
from graphc.serving.server import _roots
from tests.serving.fakes import Entry, FakeManager, FakeServable, manager

BODY = b'{"instances": [1]}'
HEAD = b"POST /v1/models/slow:predict HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"
PREDICT = "/tensorflow.serving.PredictionService/Predict"


def until(condition: Callable[[], bool]) -> None:
    """Waits for a condition; the test's time limit ends a hanging test."""
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.01)
    raise TimeoutError


class Slow:
    """A server whose model `slow` answers when `future` is set."""

    def __init__(self) -> None:
        self.future: Future = Future()
        entry = Entry({"x": "f32[n]"}, {"y": "f32[n]"})
        self.model = FakeServable(1, {"f": (entry, lambda inputs: self.future)})
        self.server = Server(
            ServerConfig((), port=0, rest_port=0),
            manager=FakeManager(slow=self.model, **manager().models),
        )

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.server.rest_port), timeout=60)

    def count(self, method: str, protocol: str, status: str) -> float:
        return self.server.metrics.requests.value("slow", "1", method, protocol, status)


@pytest.fixture
def slow() -> Iterator[Slow]:
    found = Slow()
    with found.server:
        yield found


@contextmanager
def asked_by_grpc(slow: Slow, timeout: float) -> Iterator[Any]:
    """A gRPC call of the slow model that is in progress."""
    request = messages().PackedRequest()
    request.model_spec.name = "slow"
    encode(np.float32([1]), request.inputs["x"])
    with grpc.insecure_channel(f"127.0.0.1:{slow.server.port}") as channel:
        call = channel.unary_unary(PREDICT).future(request.SerializeToString(), timeout=timeout)
        until(lambda: slow.model.in_use == 1 or call.done())
        yield call


# -- deadlines and clients that disconnect --------------------------------------------------------


def test_a_client_of_grpc_cancels(slow: Slow) -> None:
    with asked_by_grpc(slow, timeout=60) as call:
        call.cancel()
        until(slow.future.cancelled)
    until(lambda: slow.count("Predict", "GRPC", "CANCELLED") == 1)
    assert slow.model.in_use == 0


def test_the_deadline_of_grpc(slow: Slow) -> None:
    with asked_by_grpc(slow, timeout=0.3) as call:
        assert call.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    until(slow.future.cancelled)  # the server stops the computation
    until(lambda: slow.model.in_use == 0)


def test_a_client_of_rest_closes_its_connection(slow: Slow) -> None:
    with slow.connect() as connection:
        connection.sendall(HEAD % len(BODY) + BODY)
        until(lambda: slow.model.in_use == 1)
    until(slow.future.cancelled)
    until(lambda: slow.count("Predict", "REST", "CANCELLED") == 1)


def test_a_full_queue(slow: Slow) -> None:
    """Back-pressure: the client may try another server, or try later."""
    slow.future.set_exception(Failure("UNAVAILABLE", "the queue is full"))
    with slow.connect() as connection:
        connection.sendall(HEAD % len(BODY) + BODY)
        assert connection.recv(1000).startswith(b"HTTP/1.1 503")
    with asked_by_grpc(slow, timeout=60) as call:
        assert call.code() == grpc.StatusCode.UNAVAILABLE
    for protocol in ("REST", "GRPC"):
        assert slow.count("Predict", protocol, "UNAVAILABLE") == 1


# -- draining -------------------------------------------------------------------------------------


def test_draining_with_open_connections(slow: Slow) -> None:
    """Idle connections are closed, running requests finish, and new requests are not accepted."""
    idle, kept, running = slow.connect(), slow.connect(), slow.connect()
    with idle, kept, running, asked_by_grpc(slow, timeout=60) as call:
        kept.sendall(b"GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n")
        reader = kept.makefile("rb")
        assert reader.readline().startswith(b"HTTP/1.1 200")
        running.sendall(HEAD % len(BODY) + BODY)
        until(lambda: slow.model.in_use == 2)
        slow.server.stop()
        assert idle.recv(1000) == b"" and reader.read().endswith(b'{"status": "live"}')
        with pytest.raises(OSError):
            slow.connect()
        slow.future.set_result({"y": np.float32([7])})
        answer = b"".join(iter(lambda: running.recv(1000), b""))
        assert answer.startswith(b"HTTP/1.1 200") and answer.endswith(b'{"predictions": [7.0]}')
        assert call.code() == grpc.StatusCode.OK


def test_draining_takes_one_limit_in_all(monkeypatch) -> None:
    given: list[float] = []
    close = Manager.close

    def noting(manager: Manager, timeout: float) -> bool:
        given.append(timeout)
        return close(manager, timeout)

    monkeypatch.setattr(Manager, "close", noting)
    with Server(ServerConfig((), port=None, rest_port=0, drain_seconds=20.0)):
        pass
    assert given and given[0] < 20.0  # the endpoints used a part of it


def test_a_server_that_is_stopped_while_it_loads(tmp_path: Path, monkeypatch) -> None:
    for version in (1, 2):
        (tmp_path / f"{version}.gcx").write_bytes(b"")
    begun, closed, loaded, started = threading.Event(), threading.Event(), [], []
    close = Manager.close

    def load(loader: Loader, name: str, file: Any) -> None:
        begun.set()
        assert closed.wait(60)
        loaded.append(file.version)
        raise Failure("INTERNAL", "an empty file")

    def closing(manager: Manager, timeout: float) -> bool:
        pool = manager._updater._pool
        shutdown = pool.shutdown

        def ended(**options: Any) -> None:
            shutdown(**options)
            closed.set()

        pool.shutdown = ended  # type: ignore[method-assign]
        return close(manager, timeout)

    monkeypatch.setattr(Loader, "load", load)
    monkeypatch.setattr(Manager, "close", closing)
    models = (ModelConfig("m", str(tmp_path), All()), ModelConfig("n", str(tmp_path)))
    server = Server(ServerConfig(models, port=None, rest_port=0, load_threads=1))
    run = server.serve(started=lambda: started.append(True))
    thread = threading.Thread(target=asyncio.run, args=(run,))
    thread.start()
    assert begun.wait(60)
    server.stop()
    thread.join(60)
    assert not thread.is_alive() and loaded == [2] and not started


# -- readiness ------------------------------------------------------------------------------------


def test_a_later_model_that_fails_does_not_end_readiness() -> None:
    models, states = manager(), [True, False]
    models.is_ready = lambda: states[0]
    with Server(ServerConfig((), port=None, rest_port=0), manager=models) as server:
        assert get(server, "/health/ready")[0] == 200
        states.pop(0)
        assert get(server, "/health/ready")[0] == 200
    with Server(ServerConfig((), port=None, rest_port=0), manager=models) as server:
        assert get(server, "/health/ready")[0] == 503  # it never became ready
        states[0] = True
        assert get(server, "/health/ready")[0] == 200


# -- the log and the metrics ----------------------------------------------------------------------


def get(server: Server, path: str) -> tuple[int, bytes]:
    with closing(http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=60)) as rest:
        rest.request("GET", path)
        reply = rest.getresponse()
        return reply.status, reply.read()


def test_refused_tokens_are_logged_and_counted(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    config = ServerConfig((), port=0, rest_port=0, tokens=("secret",), access_log=str(log))
    with Server(config, manager=manager()) as server:
        for address in (f"http://127.0.0.1:{server.rest_port}", f"grpc://127.0.0.1:{server.port}"):
            with Client(address, token="no-such-token") as client, pytest.raises(Failure):
                client.status("double")
        for protocol in ("REST", "GRPC"):
            value = server.metrics.requests.value
            assert value("", "", "GetModelStatus", protocol, "UNAUTHENTICATED") == 1
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(row["protocol"], row["status"]) for row in rows] == [
        ("REST", "UNAUTHENTICATED"), ("GRPC", "UNAUTHENTICATED"),
    ]  # fmt: skip
    assert "no-such-token" not in log.read_text()  # the token is not logged


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (None, "/monitoring/prometheus/metrics"),
        ('prometheus_config { enable: true path: "/m" }', "/m"),
        ("prometheus_config { enable: true }", "/monitoring/prometheus/metrics"),
        ('prometheus_config { enable: false path: "/m" }', None),
    ],
    ids=["default", "path", "enabled", "disabled"],
)
def test_the_path_of_the_metrics(tmp_path: Path, text: str | None, path: str | None) -> None:
    flags = [f"--model_base_path={tmp_path}", "--port=-1", "--rest_api_port=0"]
    if text is not None:
        (tmp_path / "monitoring.config").write_text(text)
        flags.append(f"--monitoring_config_file={tmp_path}/monitoring.config")
    with Server(config_of(parse(["serve", *flags])), manager=manager()) as server:
        get(server, "/v1/models/double")
        for each in ("/monitoring/prometheus/metrics", "/m"):
            status, body = get(server, each)
            assert status == (200 if each == path else 404)
            count = b':tensorflow:serving:request_count{model_name="double",status="OK"} 1\n'
            assert (count in body) == (each == path)


# -- folders --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/v1/models/../../../../etc/passwd", "/v1/models/..", "/v1/models/%2e%2e%2f%2e%2e%2fetc",
        "/v1/models/..%2f..%2fetc%2fpasswd:predict", "/v1/models/double/versions/../../etc",
        "/v1/models/..%5c..%5cetc", "/v1/models/%252e%252e%252fetc", "//etc/passwd",
        "/status/../etc", "/v1/models/double%00.gcx", "/v1/models/double/labels/..%2f..",
    ],
)  # fmt: skip
def test_no_path_leads_out(slow: Slow, path: str) -> None:
    """The bytes are sent as they are: a client library would normalize the path."""
    with slow.connect() as connection:
        head = f"GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
        connection.sendall(head.encode())
        reply = b"".join(iter(lambda: connection.recv(1000), b""))
    assert reply.startswith((b"HTTP/1.1 404", b"HTTP/1.1 405", b"HTTP/1.1 400"))
    assert b"root:" not in reply and b"Traceback" not in reply


def test_folders_that_clients_may_configure(tmp_path: Path) -> None:
    def roots(path: str) -> tuple[str, ...]:
        return _roots(ServerConfig((ModelConfig("m", path),)))

    assert roots("/models/flowers") == ("/models",)
    assert roots("/models") == ("/models",)  # not all files
    (tmp_path / "link").symlink_to("/")
    assert roots(str(tmp_path / "link")) == ("/",)  # if the link leads to /, all files are served
