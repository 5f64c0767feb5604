"""The model server runs for many minutes, with requests over REST and gRPC, new versions, and
versions that cannot be loaded.

    python -m tests.reliability.server_soak MINUTES FOLDER

Prints a tally as JSON. Each answer must equal the model's result bit by bit; none may fail.
"""

from __future__ import annotations

import json
import shutil
import socket
import statistics
import sys
import threading
import time
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from tests.reliability import model_server
from tests.reliability.model_server import Child

WIDTH = 1024  # 4 MB of weights; versions share all but 16 KB
HEADS = (1.0, 2.0, 3.0, 4.0)
KEPT = 3  # versions in the folder


class Load:
    """A client with one connection that sends valid requests until it is stopped."""

    def __init__(self, child: Child, expected: list[np.ndarray], pause: float) -> None:
        self.sent = 0
        self.wrong: list[str] = []
        self.seconds: list[float] = []
        self._child, self._expected, self._pause = child, expected, pause
        self._open: list[Any] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(each,)) for each in
                         (self._rest, self._grpc)]  # fmt: skip
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        for connection in self._open:
            connection.close()

    def _run(self, client: Any) -> None:
        send = client()
        while not self._stop.wait(self._pause):
            begin = time.perf_counter()
            try:
                version, scores = send()
            except Exception as error:
                self.wrong.append(f"{type(error).__name__}: {error}"[:300])
                send = client()
                continue
            self.seconds.append(time.perf_counter() - begin)
            self.sent += 1
            allowed = self._expected if version is None else [self._expected[version % len(HEADS)]]
            if not any(np.array_equal(scores, one) for one in allowed):
                self.wrong.append(f"version {version}: {scores.ravel()[:4]}")

    def _rest(self) -> Any:
        connection = self._child.connect(self._child.rest_port)
        self._open.append(connection)
        request = model_server.rest_request(WIDTH)

        def send() -> tuple[None, np.ndarray]:
            connection.sendall(request)
            return None, model_server.scores_of_json(_body(connection))

        return send

    def _grpc(self) -> Any:
        import grpc

        channel = grpc.insecure_channel(f"127.0.0.1:{self._child.grpc_port}")
        self._open.append(channel)
        call = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
        request = model_server.grpc_request(WIDTH)
        return lambda: model_server.scores_of_message(call(request, timeout=60))


def _body(connection: socket.socket) -> bytes:
    """The body of a response with status 200."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += _some(connection)
    head, _, body = data.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        raise ValueError(data[:200])
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while len(body) < length:
        body += _some(connection)
    return body


def _some(connection: socket.socket) -> bytes:
    found = connection.recv(1 << 16)
    if not found:
        raise ConnectionError("closed")
    return found


class Versions:
    """Puts new versions into the folder of the model; every third one is damaged."""

    def __init__(self, folder: Path, files: list[Path]) -> None:
        self._folder, self._files = folder, files
        self._number = 1
        self._made = [1]
        self.damaged = 0

    def put(self, damaged: bool) -> int:
        """Adds a version and returns its number."""
        self._number += 1
        number = self._number
        folder = self._folder / str(number)
        folder.mkdir()
        data = self._files[number % len(HEADS)].read_bytes()
        if damaged:
            self.damaged += 1
            data = data[: len(data) // 2] if number % 2 else data[:-5000] + bytes(5000)
        (folder / "writing").write_bytes(data)
        (folder / "writing").rename(folder / "model.gcx")
        if damaged:
            return number
        self._made.append(number)
        for old in self._made[:-KEPT]:
            shutil.rmtree(self._folder / str(old))
        del self._made[:-KEPT]
        return number

    def remove(self, number: int) -> None:
        shutil.rmtree(self._folder / str(number))


def state(child: Child, number: int) -> str:
    """The state of a version; "" if it has none yet."""
    connection = child.connect(child.rest_port)
    with connection:
        connection.sendall(model_server.http("/v1/models/m", method="GET"))
        rows = json.loads(_body(connection))["model_version_status"]
    return next((row["state"] for row in rows if row["version"] == str(number)), "")


def wait_for(child: Child, number: int, wanted: str) -> None:
    """Waits until a version has the state."""
    end = time.monotonic() + 120
    while state(child, number) != wanted:
        if time.monotonic() > end:
            raise TimeoutError(f"version {number} is {state(child, number)!r}, not {wanted}")
        time.sleep(0.1)


def attack(minutes: float, folder: Path, pause: float = 0.01, rest: float = 5.0) -> dict[str, Any]:
    """Runs the soak test and returns the tally.

    Args:
        pause: seconds between two requests of a client.
        rest: seconds between two versions.
    """
    files = [folder / f"{head}.gcx" for head in HEADS]
    expected = [model_server.save(path, head, WIDTH) for path, head in zip(files, HEADS,
                                                                         strict=True)]  # fmt: skip
    base = folder / "m"
    (base / "1").mkdir(parents=True)
    shutil.copy(files[1], base / "1" / "model.gcx")
    with Child(base, "--file_system_poll_wait_seconds", "0.2") as child:
        load = Load(child, expected, pause)
        versions = Versions(base, files)
        rows: list[tuple[float, ...]] = []
        begin = time.monotonic()
        for number in count(1):
            age = time.monotonic() - begin
            rows.append((round(age, 1), *child.uses()))
            if age > 60 * minutes and number > 3:
                break
            bad = number % 3 == 0
            new = versions.put(bad)
            wait_for(child, new, "END" if bad else "AVAILABLE")
            if bad:
                versions.remove(new)
            time.sleep(rest)
        load.stop()
        status = child.stop()
    return _tally(load, versions, rows, status)


def _tally(load: Load, versions: Versions, rows: list[Any], status: int) -> dict[str, Any]:
    warm = rows[len(rows) // 4 :] or rows
    half = len(warm) // 2
    first, second = (statistics.median(row[1] for row in part) for part in
                     (warm[: half or 1], warm[half:]))  # fmt: skip
    p50, p99 = np.percentile(load.seconds, [50, 99]) * 1e3
    return {
        "seconds": rows[-1][0], "requests": load.sent, "wrong": load.wrong[:5],
        "versions": len(rows) - 1, "damaged": versions.damaged, "exit": status,
        "p50 ms": round(float(p50), 2), "p99 ms": round(float(p99), 2),
        "MB": [row[1] for row in rows[:: max(1, len(rows) // 12)]],
        "growth MB": round(second - first, 1),
        "files": [min(r[2] for r in warm), max(r[2] for r in warm)],
        "threads": [min(r[3] for r in warm), max(r[3] for r in warm)],
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(attack(float(sys.argv[1]), Path(sys.argv[2]))), flush=True)
