"""Malformed requests to `graphc serve`, over HTTP and gRPC.

    python -m tests.reliability.server_attack REQUESTS SEED FOLDER

Prints a tally as JSON: each kind with its outcomes, the wrong outcomes, and the resources of the
server. Every twentieth request is valid, and its answer is compared bit by bit.
"""

from __future__ import annotations

import json
import random
import socket
import statistics
import struct
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.reliability import bad_requests, model_server
from tests.reliability.bad_calls import Caller, scores_are
from tests.reliability.bad_requests import LIMIT, Case
from tests.reliability.model_server import Child

CLIENTS = 3
GRPC = 0.3  # the share of gRPC requests
VALID = 0.05
LEFT = 30  # open connections of a client that the server must close
SECONDS = 2  # until it does


class Response(NamedTuple):
    """An HTTP response."""

    status: int
    body: bytes


class Connection:
    """A connection that reads responses.

    Raises:
        ConnectionError: it is closed.
    """

    def __init__(self, child: Child) -> None:
        self.socket = child.connect(child.rest_port)
        self._data = b""
        self._made = time.monotonic()

    @property
    def is_old(self) -> bool:
        """Whether the server may soon close it because no request has arrived."""
        return time.monotonic() - self._made > SECONDS / 2

    def response(self) -> Response:
        """The next response."""
        while b"\r\n\r\n" not in self._data:
            self._more()
        head, _, rest = self._data.partition(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        fields = head.lower()
        length = 0
        if b"content-length: " in fields:
            length = int(fields.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        self._data = rest
        while len(self._data) < length:
            self._more()
        body, self._data = self._data[:length], self._data[length:]
        return Response(status, body)

    def _more(self) -> None:
        found = self.socket.recv(1 << 16)
        if not found:
            raise ConnectionError("closed")
        self._data += found

    def reset(self) -> None:
        """Closes it with RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


class Client:
    """Sends random cases. It reuses its connection as long as the server keeps it open."""

    def __init__(self, child: Child, expected: np.ndarray, seed: int) -> None:
        self.seen: Counter[tuple[str, str]] = Counter()
        self.wrong: list[str] = []
        self._child, self._expected = child, expected
        self._random = random.Random(seed)
        self._connection = Connection(child)
        self._caller = Caller(child, self._random)
        self._valid = model_server.rest_request()
        self._message = model_server.grpc_request()
        self._left: list[tuple[Case, Connection]] = []

    def run(self, rounds: int) -> None:
        """Sends this number of requests."""
        for _ in range(rounds):
            try:
                if self._connection.is_old:
                    self._connect()
                self._round()
            except Exception as error:
                self.wrong.append(f"{type(error).__name__}: {error}"[:300])
                self._connect()

    def close(self) -> None:
        """Waits for the connections that the server must close, and closes the others."""
        while self._left:
            self._check_left()
        self._connection.socket.close()
        self._caller.close()

    def _round(self) -> None:
        if self._random.random() < VALID:
            self._valid_requests()
        elif self._random.random() < GRPC:
            kind, code, right = self._caller.attack()
            self._note(kind, code, right, b"")
        elif self._random.random() < 0.05:
            case = bad_requests.flipped_message(self._random, self._message)
            self._send("flipped_message", case)
        else:
            weights = [weight for weight, _ in bad_requests.KINDS]
            ((_, make),) = self._random.choices(bad_requests.KINDS, weights)
            self._send(make.__name__, make(self._random))

    def _valid_requests(self) -> None:
        self._connection.socket.sendall(self._valid)
        status, body = self._connection.response()
        right = status == 200 and np.array_equal(model_server.scores_of_json(body), self._expected)
        self._note("valid", str(status), right, body)
        right = scores_are(self._caller.valid(), self._expected)
        self._note("gRPC valid", "OK", right, b"")

    def _send(self, kind: str, case: Case) -> None:
        connection = self._connection
        try:
            for number, part in enumerate(case.parts):
                if number:
                    time.sleep(0.0005)  # so that the server reads the parts separately
                connection.socket.sendall(part)
            if case.end == "half":
                connection.socket.shutdown(socket.SHUT_WR)
        except OSError:  # the server may refuse early
            if case.end == "keep":
                raise
        if case.end == "leave":
            self._left.append((case, connection))
            self._connection = Connection(self._child)
            if len(self._left) > LEFT:
                self._check_left()
        elif case.end == "reset":
            self._note(kind, "reset", True, b"")
            connection.reset()
            self._connection = Connection(self._child)
        else:
            self._read(kind, case, connection)
            if case.end != "keep":
                self._connect()

    def _read(self, kind: str, case: Case, connection: Connection) -> None:
        """Reads the answers, and the end of the stream if the server must close it."""
        seen = []
        body = b""
        try:
            for _ in case.allowed:
                status, body = connection.response()
                seen.append(status)
            if case.end != "keep":
                with suppress(ConnectionResetError):
                    while connection.socket.recv(1 << 16):
                        pass
        except TimeoutError:
            self._note(kind, "HANG", False, body)
            return
        except (ConnectionError, OSError):
            seen.append(0)
        closed = case.end == "half" and 0 in seen  # the client did not wait for an answer
        right = all(s in allowed for s, allowed in zip(seen, case.allowed, strict=False))
        right = closed or (right and len(seen) == len(case.allowed))
        shown = " ".join("closed" if status == 0 else str(status) for status in sorted(set(seen)))
        self._note(kind, shown, right, body, case)

    def _check_left(self) -> None:
        """Checks the oldest slow connection: the server has answered it, or will do so soon."""
        case, connection = self._left.pop(0)
        self._read("slow", case, connection)
        connection.socket.close()

    def _connect(self) -> None:
        self._connection.socket.close()
        self._connection = Connection(self._child)

    def _note(
        self, kind: str, outcome: str, right: bool, body: bytes, case: Case | None = None
    ) -> None:
        self.seen[kind, outcome] += 1
        if not right and len(self.wrong) < 100:
            sent = b"" if case is None else b"|".join(case.parts)[:600]
            self.wrong.append(f"{kind}: {outcome}, {body[:200]!r} to {sent!r}")


def series(child: Child) -> int:
    """The number of lines of the server's metrics."""
    connection = Connection(child)
    connection.socket.sendall(model_server.http("/monitoring/prometheus/metrics", method="GET"))
    lines = connection.response().body.decode().splitlines()
    connection.socket.close()
    idle = [line for line in lines if line.startswith("graphc_serving_in_progress ")]
    assert idle == ["graphc_serving_in_progress 0"], idle
    return len(lines)


def attack(number: int, seed: int, folder: Path, parts: int = 10) -> dict[str, Any]:
    """Runs the attack and returns the tally. Resources are measured after each of the parts."""
    expected = model_server.save(folder / "m" / "1" / "model.gcx")
    flags = ["--max_body_bytes", str(LIMIT), "--rest_api_timeout_in_ms", str(1000 * SECONDS)]
    begin = time.monotonic()
    with Child(folder / "m", *flags) as child:
        seen: Counter[tuple[str, str]] = Counter()
        wrong: list[str] = []
        rows = []
        for part in range(parts):
            clients = [Client(child, expected, seed * 1000 + part * 10 + i) for i in range(CLIENTS)]
            each = -(-number // (parts * CLIENTS))
            threads = [threading.Thread(target=client.run, args=(each,)) for client in clients]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for client in clients:
                client.close()
                seen += client.seen
                wrong += client.wrong
            rows.append((*_settled(child), series(child)))
        alive = child.process.poll() is None
        status = child.stop()
        errors = child.errors.read_text()
    return _tally(seen, wrong, rows, alive, status, errors) | {
        "seconds": round(time.monotonic() - begin)
    }


def _settled(child: Child) -> model_server.Uses:
    """The resources of the server after it has noticed the closed connections."""
    before = child.uses()
    for _ in range(50):
        time.sleep(0.1)
        now = child.uses()
        if now.files <= before.files and now.files < 40:
            return now
        before = now
    return before


def _tally(
    seen: Counter[tuple[str, str]],
    wrong: list[str],
    rows: list[tuple[float, int, int, int]],
    alive: bool,
    status: int,
    errors: str,
) -> dict[str, Any]:
    kinds: dict[str, dict[str, int]] = {}
    for (kind, outcome), count in sorted(seen.items()):
        kinds.setdefault(kind, {})[outcome] = count
    third = max(1, len(rows) // 3)
    early = statistics.median(row[0] for row in rows[third : 2 * third] or rows)
    late = statistics.median(row[0] for row in rows[-third:])
    return {
        "requests": sum(seen.values()),
        "wrong": wrong[:20],
        "crashes": int(not alive or status != 0),
        "tracebacks": errors.count("Traceback"),
        "bytes of stderr": len(errors),
        "stderr": errors[-1500:],
        "MB": [row[0] for row in rows],
        "growth MB": round(late - early, 1),
        "files": [row[1] for row in rows],
        "threads": [row[2] for row in rows],
        "lines of metrics": [row[3] for row in rows],
        "kinds": kinds,
    }


if __name__ == "__main__":
    print(json.dumps(attack(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])), indent=1))
