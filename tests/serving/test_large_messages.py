"""Many large messages over gRPC that stop before their end: the server's memory stays bounded."""

import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
import numpy as np
import pytest

from graphc.serving import Client
from tests.serving.small_memory_server import MESSAGE

ROOT = Path(__file__).parents[2]
SENT = MESSAGE * 3 // 4
CLIENTS = 64
MOST = CLIENTS * SENT // 2  # the budget, and what freed memory keeps: far from all messages
PAGE = resource.getpagesize()


@contextmanager
def serving() -> Iterator[tuple[int, int]]:
    """The port and the process of a server."""
    command = [sys.executable, "-m", "tests.serving.small_memory_server"]
    with subprocess.Popen(command, cwd=ROOT, stdin=-1, stdout=-1) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            yield int(process.stdout.readline()), process.pid
        finally:
            process.stdin.close()


def resident(process: int) -> int:
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * PAGE


class Cut:
    """Forwards connections to a port, but only so many bytes to it."""

    def __init__(self, port: int, most: int) -> None:
        self._port, self._most = port, most
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open = [self._listening]
        self.port = self._listening.getsockname()[1]
        self.forwarded: list[int] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        try:
            while True:
                client = self._listening.accept()[0]
                server = socket.create_connection(("127.0.0.1", self._port))
                self._open += [client, server]
                number = len(self.forwarded)
                self.forwarded.append(0)
                for ends in ((client, server, number), (server, client, None)):
                    threading.Thread(target=self._forward, args=ends, daemon=True).start()
        except OSError:
            pass  # closed

    def _forward(self, source: socket.socket, to: socket.socket, number: int | None) -> None:
        try:
            while number is None or self.forwarded[number] < self._most:
                if not (data := source.recv(1 << 16)):
                    break
                to.sendall(data)
                if number is not None:
                    self.forwarded[number] += len(data)
        except OSError:
            pass

    def close(self) -> None:
        for each in self._open:
            each.close()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="Linux only")
def test_messages_that_stop_before_their_end() -> None:
    data = bytes(MESSAGE - 1024)
    with (
        serving() as (port, process),
        ExitStack() as stack,
        Client(f"grpc://127.0.0.1:{port}") as client,
    ):
        client.predict("double", x=np.float32([[1, 2]]))
        before = resident(process)
        cut = Cut(port, SENT)
        stack.callback(cut.close)
        calls = []
        for _ in range(CLIENTS):
            # A connection for each, as different clients would have.
            options = [("grpc.use_local_subchannel_pool", 1)]
            channel = stack.enter_context(grpc.insecure_channel(f"127.0.0.1:{cut.port}", options))
            call = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
            calls.append(call.future(data, timeout=120))
        end = time.monotonic() + 60
        while sum(call.done() for call in calls) < CLIENTS - 2:
            assert time.monotonic() < end
            assert resident(process) - before < MOST
            time.sleep(0.01)
        refused = [call.exception() for call in calls if call.done()]
        assert {error.code() for error in refused} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        assert sum(sent > MESSAGE // 2 for sent in cut.forwarded) >= 2  # messages were large
        y = client.predict("double", x=np.float32([[1, 2]]))["y"]
        assert y.tolist() == [[2.0, 4.0]]
        assert resident(process) - before < MOST
