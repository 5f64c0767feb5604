"""Cheap clients of the model server: plain sockets and prepared requests.

Each client has one connection, and at most one request in progress.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import time
from collections import deque
from typing import Any, NamedTuple

import numpy as np

from graphc.serving.protocol.messages import messages
from graphc.serving.protocol.tensors import encode

SIZE = 784
_VALUES = np.random.default_rng(0).random((1, SIZE)).round(3)


class Load(NamedTuple):
    """The measurements of the clients: requests per second, and the latency of each in seconds."""

    rate: float
    latencies: list[float]

    def percentile(self, percent: float) -> float:
        """A percentile of the latency in milliseconds."""
        return float(np.percentile(self.latencies, percent)) * 1e3


class Rest:
    """A client of `:predict` with rows in JSON."""

    def __init__(self, port: int) -> None:
        body = json.dumps({"instances": _VALUES.tolist()}).encode()
        line = b"POST /v1/models/m:predict HTTP/1.1\r\nhost: x\r\n"
        kind = b"content-type: application/json\r\n"
        self._request = line + kind + b"content-length: %d\r\n\r\n" % len(body) + body
        self.socket = _connected(port)
        self._answer = b""
        self.begin = 0.0

    def send(self) -> None:
        self._answer = b""
        self.socket.sendall(self._request)

    def is_done(self) -> bool:
        """Reads the received bytes, and returns whether the answer is complete."""
        self._answer += self.socket.recv(65536)
        head, end, body = self._answer.partition(b"\r\n\r\n")
        if not end:
            return False
        assert head.startswith(b"HTTP/1.1 200"), self._answer
        length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
        return len(body) == int(length)


class Grpc:
    """A client of Predict: HTTP/2 frames with a PredictRequest."""

    def __init__(self, port: int) -> None:
        request = messages().PackedRequest()
        request.model_spec.name = "m"
        encode(_VALUES.astype(np.float32), request.inputs["x"])
        message = request.SerializeToString()
        self._data = b"\0" + struct.pack(">I", len(message)) + message
        self._head = b"".join(
            b"\0" + bytes([len(key)]) + key + bytes([len(value)]) + value
            for key, value in (
                (b":method", b"POST"),
                (b":scheme", b"http"),
                (b":path", b"/tensorflow.serving.PredictionService/Predict"),
                (b":authority", b"x"),
                (b"te", b"trailers"),
                (b"content-type", b"application/grpc"),
            )
        )
        self.socket = _connected(port)
        self._stream = -1
        self._rest = b""
        self.begin = 0.0
        window = struct.pack(">I", (1 << 31) - 1 - 65535)
        start = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, 0, 0, b"") + _frame(8, 0, 0, window)
        self.socket.sendall(start)

    def send(self) -> None:
        self._stream += 2
        head = _frame(1, 4, self._stream, self._head)
        self.socket.sendall(head + _frame(0, 1, self._stream, self._data))

    def is_done(self) -> bool:
        """Reads the received bytes: the answer ends with a HEADERS frame that ends the stream."""
        data = self._rest + self.socket.recv(65536)
        at, done = 0, False
        while len(data) - at >= 9:
            size, kind, flags = int.from_bytes(data[at : at + 3]), data[at + 3], data[at + 4]
            if len(data) - at < 9 + size:
                break
            if kind == 0:
                assert size > 5, "an empty answer"
                self._answered = self._stream
            if kind in (4, 6) and not flags & 1:  # SETTINGS and PING need an acknowledgement
                answer = b"" if kind == 4 else data[at + 9 : at + 9 + size]
                self.socket.sendall(_frame(kind, 1, 0, answer))
            if kind == 1 and flags & 1:
                assert self._answered == self._stream, "a failed request"
                done = True
            at += 9 + size
        self._rest = data[at:]
        return done


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _connected(port: int) -> socket.socket:
    found = socket.create_connection(("127.0.0.1", port))
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return found


def closed(clients: list[Any], seconds: float) -> Load:
    """Each client sends its next request when it has received its answer."""
    with select.epoll() as poll:
        by_number = {client.socket.fileno(): client for client in clients}
        latencies: list[float] = []
        start = now = time.perf_counter()
        for number, client in by_number.items():
            poll.register(number, select.EPOLLIN)
            client.begin = now
            client.send()
        waiting = len(clients)
        while waiting:
            for number, _ in poll.poll():
                client = by_number[number]
                if not client.is_done():
                    continue
                now = time.perf_counter()
                latencies.append(now - client.begin)
                if now - start < seconds:
                    client.begin = now
                    client.send()
                else:
                    waiting -= 1
        return Load(len(latencies) / (time.perf_counter() - start), latencies)


def steady(clients: list[Any], seconds: float, rate: float) -> Load:
    """Requests at equal intervals. Each latency counts from the time when the request was due, so
    it includes the wait for a free client."""
    with select.epoll() as poll:
        by_number = {client.socket.fileno(): client for client in clients}
        for number in by_number:
            poll.register(number, select.EPOLLIN)
        free = deque(clients)
        latencies: list[float] = []
        start = time.perf_counter()
        due, sent, total = start, 0, int(seconds * rate)
        while len(latencies) < total:
            now = time.perf_counter()
            while sent < total and free and due <= now:
                client = free.popleft()
                client.begin = due
                client.send()
                sent += 1
                due = start + sent / rate
            pause = max(0.0, due - now) if sent < total and free else -1
            for number, _ in poll.poll(pause):
                client = by_number[number]
                if client.is_done():
                    latencies.append(time.perf_counter() - client.begin)
                    free.append(client)
        return Load(len(latencies) / (time.perf_counter() - start), latencies)
