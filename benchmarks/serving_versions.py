"""New versions of a served model under load, and a server that is killed and restarted.

The model has two tables, and a request reads single rows of both: 95 MB, which all versions share,
and 5 MB, which differ. A client of each protocol sends requests without a pause from this process,
on the same cores as the server.
"""

from __future__ import annotations

import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import graphc as gc
from graphc.serving.protocol.messages import messages
from graphc.serving.protocol.tensors import decode, encode

Row = tuple[str, str, str]
Send = Callable[[], np.ndarray]
ROWS, WIDTH, HEAD = 93_000, 256, 4_900  # 95 MB and 5 MB
RELOADS, EVERY = 20, 1.0  # seconds between reloads
REPOSITORY = Path(__file__).parent.parent
ID = 77


def rows() -> Iterator[Row]:
    """Reload under load, then kill -9 and restart."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        files = [_saved(folder / f"{head}.gcx", head) for head in (1.0, 2.0)]
        base = folder / "m"
        _put(files[0][0], base, 1)
        yield from _reloads(base, files)
        yield from _restarts(base)


def _saved(path: Path, head: float) -> tuple[Path, np.ndarray]:
    """Saves a version; returns the file, and the answer for ID."""
    body = np.random.default_rng(0).standard_normal((ROWS, WIDTH), np.float32)
    last = np.full((HEAD, WIDTH), head, np.float32)
    with gc.Graph(seed=0):
        x = gc.placeholder(("batch",), "int32", name="x")
        table, second = gc.variable(body, name="body"), gc.variable(last, name="head")
        y = (gc.take(table, x, 0) * gc.take(second, x, 0))[:, :8]
        signatures = {"predict": gc.Signature({"x": x}, {"y": y})}
        gc.save(gc.Session(y.graph), path, signatures=signatures, platforms=["cpu"])
    return path, body[ID, None, :8] * np.float32(head)


def _put(file: Path, base: Path, version: int) -> None:
    (base / str(version)).mkdir(parents=True)
    os.link(file, base / str(version) / "model.gcx")


class _Server:
    """`graphc serve` in a separate process, with a client of each protocol."""

    def __init__(self, base: Path) -> None:
        command = [sys.executable, "-m", "graphc", "serve", "--model_base_path", str(base)]
        command += ["--model_name", "m", "--port", "0", "--rest_api_port", "0"]
        command += ["--file_system_poll_wait_seconds", "0.1"]
        self.begin = time.perf_counter()
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY,
            env=os.environ | {"JAX_PLATFORMS": "cpu"},
        )  # fmt: skip
        assert self.process.stdout is not None
        _, rest, grpc = (self.process.stdout.readline() for _ in range(3))
        self.rest_port = int(rest.rpartition(":")[2].partition("/")[0])
        self.grpc_port = int(grpc.rpartition(":")[2])

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def rest(self) -> Send:
        connection = http.client.HTTPConnection("127.0.0.1", self.rest_port, timeout=60)
        body = json.dumps({"instances": [ID]})

        def send() -> np.ndarray:
            connection.request("POST", "/v1/models/m:predict", body)
            return np.array(json.loads(connection.getresponse().read())["predictions"], np.float32)

        return send

    def grpc(self) -> Send:
        import grpc

        channel = grpc.insecure_channel(f"127.0.0.1:{self.grpc_port}")
        request = messages().PackedRequest()
        request.model_spec.name = "m"
        encode(np.int32([ID]), request.inputs["x"])
        data = request.SerializeToString()
        call = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")

        def send() -> np.ndarray:
            found = messages().PredictResponse.FromString(call(data, timeout=60))
            return decode(found.outputs["y"], "y")

        return send

    def available(self) -> set[str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.rest_port, timeout=60)
        connection.request("GET", "/v1/models/m")
        found = json.loads(connection.getresponse().read())["model_version_status"]
        connection.close()
        return {row["version"] for row in found if row["state"] == "AVAILABLE"}

    def memory(self, field: str) -> float:
        """MB: "VmRSS" is the current value, "VmHWM" the maximum since `reset_peak`."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(field):
                return int(line.split()[1]) / 1e3
        raise KeyError(field)

    def reset_peak(self) -> None:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")


class _Load:
    """Sends requests until it is stopped, and records the start and the duration of each."""

    def __init__(self, send: Send, right: list[np.ndarray]) -> None:
        self.times: list[tuple[float, float]] = []
        self.failed = 0
        self._send, self._right = send, right
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def between(self, begin: float, end: float) -> list[float]:
        return [seconds for at, seconds in self.times if begin <= at < end]

    def _run(self) -> None:
        while not self._stop.is_set():
            begin = time.perf_counter()
            try:
                y = self._send()
                self.failed += not any(np.array_equal(y, one) for one in self._right)
            except Exception:
                self.failed += 1
            self.times.append((begin, time.perf_counter() - begin))


def _reloads(base: Path, files: list[tuple[Path, np.ndarray]]) -> Iterator[Row]:
    server = _Server(base)
    try:
        loads = {
            name: _Load(send, [answer for _, answer in files])
            for name, send in (("REST", server.rest()), ("gRPC", server.grpc()))
        }
        time.sleep(3)
        used = server.memory("VmRSS")
        server.reset_peak()
        spans = [_reload(server, base, files, number) for number in range(2, RELOADS + 2)]
        peak = server.memory("VmHWM")
        for load in loads.values():
            load.stop()
        yield _memory_row(spans, used, peak)
        for name, load in loads.items():
            yield _latency_row(name, load, spans)
    finally:
        server.kill()


def _reload(
    server: _Server, base: Path, files: list[tuple[Path, np.ndarray]], number: int
) -> tuple[float, float]:
    """The time from a new version's file until only this version is available."""
    quiet = time.perf_counter() + EVERY
    while time.perf_counter() < quiet:  # asked here too: the question itself delays requests
        server.available()
        time.sleep(0.05)
    begin = time.perf_counter()
    _put(files[number % 2][0], base, number)
    while server.available() != {str(number)}:
        time.sleep(0.05)
    return begin, time.perf_counter()


def _memory_row(spans: list[tuple[float, float]], used: float, peak: float) -> Row:
    took = statistics.median(end - begin for begin, end in spans)
    shown = f"{took:.2f} s each; {used:.0f} MB before, peak {peak:.0f}: {peak / used:.3f}"
    return f"{RELOADS} reloads under load, 95 of 100 MB shared", shown, "peak at most 1.1 of before"


def _latency_row(name: str, load: _Load, spans: list[tuple[float, float]]) -> Row:
    quiet = [(begin - EVERY, begin) for begin, _ in spans]
    before, during = (
        np.percentile([s for span in each for s in load.between(*span)], 99) * 1e3
        for each in (quiet, spans)
    )
    shown = f"{load.failed} of {len(load.times)} failed; p99 before {before:.2f} ms, during "
    return (
        f"{name} during reloads",
        f"{shown}{during:.2f} ms: {during / before:.2f}",
        "0 failed, at most 2.00 of before",
    )


def _restarts(base: Path) -> Iterator[Row]:
    """The time from the start of the process to the first answer, with a warm executable cache."""
    imports, firsts = [], []
    for _ in range(5):
        imports.append(_imported())
        server = _Server(base)
        try:
            server.rest()()
            firsts.append(time.perf_counter() - server.begin)
        finally:
            server.kill()
    least, first = min(imports), min(firsts)
    yield (
        "kill -9 and restart, 100 MB: first answer",
        f"{first:.2f} s; import {least:.2f} s: {first - least:+.2f} s",
        "at most +1.00 s",
    )


def _imported() -> float:
    """Seconds to start Python and to import the modules of the server."""
    code = "import graphc.cli.serve, jax, grpc, uvicorn, httptools; jax.devices()"
    begin = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, check=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )  # fmt: skip
    return time.perf_counter() - begin


if __name__ == "__main__":
    for row in rows():
        print(*row, sep=" | ", flush=True)
