"""The whole server with a saved model: both endpoints, both clients, TLS, tokens, draining."""

import asyncio
import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import graphc as gc
from graphc.errors import AttributeValueError, DeviceError
from graphc.serving import (
    AsyncClient,
    BatchingConfig,
    Client,
    Failure,
    ModelConfig,
    Server,
    ServerConfig,
)
from tests.serving.certificates import Authority
from tests.serving.fakes import Entry, FakeManager, FakeServable, manager


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """double/1/model.gcx: y = 2 x."""
    folder = tmp_path_factory.mktemp("saved") / "double"
    (folder / "1").mkdir(parents=True)
    with gc.Graph() as graph:
        x = gc.placeholder(("batch",), name="x")
        signature = gc.Signature({"x": x}, {"y": 2.0 * x})
    session = gc.Session(graph)
    path = folder / "1" / "model.gcx"
    gc.save(session, path, signatures={"predict": signature}, platforms=["cpu"])
    return folder


@pytest.fixture(scope="module")
def server(model: Path, tmp_path_factory) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("log") / "access.log"
    config = ServerConfig(
        (ModelConfig("double", str(model)),), port=0, rest_port=0, access_log=str(log)
    )
    with Server(config) as found:
        yield found


def rest(server: Server) -> str:
    return f"http://127.0.0.1:{server.rest_port}"


def status(server: Server) -> dict[int, str]:
    with Client(rest(server)) as client:
        return client.status("double")


def addresses(server: Server) -> tuple[str, str]:
    return rest(server), f"grpc://127.0.0.1:{server.port}"


@pytest.mark.parametrize("number", [0, 1])
def test_a_client(server: Server, number: int) -> None:
    with Client(addresses(server)[number]) as client:
        for _ in range(3):  # on one connection
            found = client.predict("double", x=np.float32([1, 2]))
            assert found["y"].dtype == np.float32 and found["y"].tolist() == [2.0, 4.0]
        assert client.predict("double", {"x": np.float32([3])}, version=1)["y"].tolist() == [6.0]
        assert client.status("double") == {1: "AVAILABLE"}
        with pytest.raises(Failure, match="expected f32") as caught:
            client.predict("double", x=np.int32([1]))
        assert caught.value.code == "INVALID_ARGUMENT"
        with pytest.raises(Failure, match="Servable not found") as caught:
            client.predict("other", x=np.float32([1]))
        assert caught.value.code == "NOT_FOUND"


@pytest.mark.parametrize("number", [0, 1])
def test_an_asynchronous_client(server: Server, number: int) -> None:
    async def several() -> list[float]:
        async with AsyncClient(addresses(server)[number]) as client:
            calls = [client.predict("double", x=np.float32([n])) for n in range(8)]
            found = [float(result["y"][0]) for result in await asyncio.gather(*calls)]
            assert await client.status("double") == {1: "AVAILABLE"}
            return found

    assert asyncio.run(several()) == [2.0 * n for n in range(8)]


def test_a_client_without_a_server() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        for scheme in ("http", "grpc"):
            with Client(f"{scheme}://127.0.0.1:{port}") as client:
                with pytest.raises(Failure) as caught:
                    client.status("double")
                assert caught.value.code == "UNAVAILABLE"
    with pytest.raises(gc.errors.AttributeValueError, match="must begin with http"):
        Client("localhost:80")


def test_the_access_log(server: Server) -> None:
    with Client(rest(server)) as client:
        client.predict("double", x=np.float32([1]))
    rows = [json.loads(line) for line in Path(server.config.access_log).read_text().splitlines()]
    row = rows[-1]
    assert row["method"] == "Predict" and row["status"] == "OK" and row["protocol"] == "REST"
    assert (row["model"], row["version"], row["signature"]) == ("double", 1, "predict")
    assert row["client"] == "127.0.0.1" and row["bytes_in"] > 0 and row["bytes_out"] > 0


def test_bytes_that_are_not_http(server: Server) -> None:
    for data in (b"\x00\x01\x02\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET /\xff HTTP/1.1\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", server.rest_port)) as connection:
            connection.sendall(data)
            assert connection.recv(100).startswith(b"HTTP/1.1 400")
    assert status(server) == {1: "AVAILABLE"}


def test_half_closed_connections_are_answered(server: Server) -> None:
    body = b'{"instances": [1, 2]}'
    head = b"POST /v1/models/double:predict HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
    with socket.create_connection(("127.0.0.1", server.rest_port)) as connection:
        connection.sendall(head + b"content-length: %d\r\n\r\n" % len(body) + body)
        parts = iter(lambda: connection.recv(1000), b"")
        assert b"".join(parts).endswith(b'{"predictions": [2.0, 4.0]}')
    with socket.create_connection(("127.0.0.1", server.rest_port)) as connection:
        connection.sendall(head + b"content-length: 100\r\n\r\n{")
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(100) == b""  # the rest of the body cannot arrive
    assert status(server) == {1: "AVAILABLE"}


def test_a_head_that_does_not_arrive() -> None:
    config = ServerConfig((), port=None, rest_port=0, request_seconds=0.05)
    with Server(config, manager=manager()) as server:
        for sent in (b"", b"GET /v1/models/double HTTP/1.1\r\nx-slow: "):
            with socket.create_connection(("127.0.0.1", server.rest_port)) as connection:
                connection.sendall(sent)
                parts = iter(lambda: connection.recv(1000), b"")
                assert b"".join(parts).startswith(b"HTTP/1.1 408")


def test_a_second_head_that_does_not_arrive() -> None:
    config = ServerConfig((), port=None, rest_port=0, request_seconds=0.5)
    with Server(config, manager=manager()) as server:
        whole = b"GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n"
        with socket.create_connection(("127.0.0.1", server.rest_port)) as connection:
            connection.sendall(whole)
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")
            connection.sendall(whole[:20])
            parts = iter(lambda: connection.recv(1000), b"")
            assert b"HTTP/1.1 408" in b"".join(parts)


def test_tokens() -> None:
    config = ServerConfig((), port=0, rest_port=0, tokens=("secret",))
    with Server(config, manager=manager()) as server:
        for address in addresses(server):
            with Client(address, token="secret") as client:
                assert client.status("double") == {3: "AVAILABLE"}
            with Client(address, token="other") as client, pytest.raises(Failure) as caught:
                client.status("double")
            assert caught.value.code == "UNAUTHENTICATED"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> tuple[str, str]:
    """A self-signed certificate for 127.0.0.1, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    path = Authority(folder, "localhost").path
    return str(path), str(folder / "localhost.key")


def test_tls(certificate) -> None:
    path, key = certificate
    config = ServerConfig((), port=0, rest_port=0, tls_certificate=path, tls_key=key)
    with Server(config, manager=manager()) as server:
        context = ssl.create_default_context(cafile=path)
        with Client(f"https://127.0.0.1:{server.rest_port}", tls=context) as client:
            assert client.status("double") == {3: "AVAILABLE"}
        with Client(f"grpcs://127.0.0.1:{server.port}", authority=path) as client:
            assert client.status("double") == {3: "AVAILABLE"}
        with Client(f"https://127.0.0.1:{server.rest_port}") as client, pytest.raises(Failure):
            client.status("double")


def test_clients_need_a_certificate(certificate) -> None:
    path, key = certificate
    config = ServerConfig(
        (), port=None, rest_port=0, tls_certificate=path, tls_key=key, tls_client_ca=path
    )
    with Server(config, manager=manager()) as server:
        context = ssl.create_default_context(cafile=path)
        address = f"https://127.0.0.1:{server.rest_port}"
        with Client(address, tls=context) as client, pytest.raises(Failure):
            client.status("double")
        context.load_cert_chain(path, key)
        with Client(address, tls=context) as client:
            assert client.status("double") == {3: "AVAILABLE"}


def test_requests_in_progress_are_finished() -> None:
    future: Future = Future()
    entry = Entry({"x": "f32[n]"}, {"y": "f32[n]"})
    models = FakeManager(slow=FakeServable(1, {"f": (entry, lambda inputs: future)}))
    config = ServerConfig((), port=0, rest_port=0)
    results: list[float] = []

    def ask(address: str) -> None:
        with Client(address) as client:
            results.append(float(client.predict("slow", x=np.float32([1]))["y"][0]))

    with Server(config, manager=models) as server:
        threads = [threading.Thread(target=ask, args=(each,)) for each in addresses(server)]
        for thread in threads:
            thread.start()
        while models.models["slow"].in_use < 2:
            pass
        server.stop()
        while server.is_ready:
            pass
        future.set_result({"y": np.float32([7])})
    for thread in threads:
        thread.join()
    assert results == [7.0, 7.0]


def test_concurrent_requests_join_a_batch(model: Path) -> None:
    batching = BatchingConfig(max_batch_size=4, batch_timeout_micros=1000)
    models = (ModelConfig("double", str(model)),)
    config = ServerConfig(models, batching=batching, port=0, rest_port=0)

    async def several(server: Server) -> list[list[float]]:
        address = f"grpc://127.0.0.1:{server.port}"
        async with AsyncClient(address) as client:
            calls = [
                client.predict("double", x=np.arange(n, dtype=np.float32)) for n in range(1, 9)
            ]
            return [result["y"].tolist() for result in await asyncio.gather(*calls)]

    with Server(config) as server:
        assert asyncio.run(several(server)) == [[2.0 * k for k in range(n)] for n in range(1, 9)]
        text = server.metrics.text().decode()
    rows = re.search(r'batch_rows_sum\{model="double",signature="predict"\} (\d+)', text)
    assert rows is not None and int(rows[1]) >= sum(range(9))  # warm-up requests may count too


def test_replicas_on_devices(model: Path) -> None:
    config = ServerConfig((ModelConfig("double", str(model)),), port=None, rest_port=0, devices=2)
    with Server(config) as server, Client(f"http://127.0.0.1:{server.rest_port}") as client:
        for i in range(4):
            assert list(client.predict("double", x=np.float32([i]))["y"]) == [2 * i]
        with server._manager.use("double") as servable:
            assert len({replica.model.device for replica in servable._replicas}) == 2
    with pytest.raises(AttributeValueError, match="must be a number of devices or a tuple"):
        ServerConfig(config.models, devices=0)
    with pytest.raises(DeviceError, match="/gpu:99"):
        Server(ServerConfig(config.models, port=None, devices=("/gpu:99",)))


def test_a_port_in_use() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for ports in ({"port": None, "rest_port": port}, {"port": port, "rest_port": None}):
            with pytest.raises(OSError), Server(ServerConfig((), **ports), manager=manager()):
                pass


def test_a_new_configuration_is_read() -> None:
    models = manager()
    seen = threading.Event()
    errors = [gc.errors.AttributeValueError("a mistake"), Failure("INVALID_ARGUMENT", "another")]
    found = [(), *errors, OSError("no file"), ValueError("a bug"), None]

    def watch():
        if not found:
            seen.set()
            return None
        each = found.pop()
        if isinstance(each, Exception):
            raise each
        return each

    config = ServerConfig((), port=None, rest_port=0)
    with Server(config, manager=models, watch=watch, watch_seconds=0.01):
        assert seen.wait(60)
    assert models.configs == ()


@pytest.mark.slow
def test_the_command_serves_until_sigterm(model: Path) -> None:
    command = [sys.executable, "-m", "graphc", "serve", str(model)]
    command += ["--port", "0", "--rest_api_port", "0"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        lines = [process.stdout.readline() for _ in range(3)]
        assert lines[0] == "model 'double': version 1\n"
        port = int(lines[1].rpartition(":")[2].partition("/")[0])
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
            connection.request("POST", "/v1/models/double:predict", b'{"instances": [4]}')
            assert connection.getresponse().read() == b'{"predictions": [8.0]}'
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
