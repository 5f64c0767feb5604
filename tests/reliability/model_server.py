"""`graphc serve` in a separate process, for attacks on it: its model, valid requests whose answers
are compared bit by bit, and the resources that the process uses."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np

import graphc as gc
from graphc.serving.protocol.messages import messages
from graphc.serving.protocol.tensors import decode, encode

REPOSITORY = Path(__file__).parents[2]
PAGE = os.sysconf("SC_PAGE_SIZE")
WIDTH = 8
X = (np.arange(3 * WIDTH, dtype=np.float32).reshape(3, WIDTH) - 7) / 3


def save(path: Path, head: float = 1.0, width: int = WIDTH) -> np.ndarray:
    """Saves a model and returns its result for `X`. Models of one width differ only in the head.

    Its signatures: `serving_default` (x -> scores), `add` (a, b -> sum, diff), `value` (age ->
    outputs).
    """
    with gc.Graph(seed=0) as graph:
        x = gc.placeholder(("batch", width), name="x")
        rows = np.random.default_rng(0).standard_normal((width, width), np.float32)
        body = gc.variable(rows / np.float32(width**0.5), name="body")
        last = gc.variable(np.full((width, 4), head, np.float32), name="head")
        scores = gc.matmul(gc.tanh(gc.matmul(x, body)), last)
        a, b = (gc.placeholder(("n",), "int32", name=name) for name in "ab")
        age = gc.placeholder(("batch",), name="age")
        signatures = {
            "serving_default": gc.Signature({"x": x}, {"scores": scores}),
            "add": gc.Signature({"a": a, "b": b}, {"sum": a + b, "diff": a - b}),
            "value": gc.Signature({"age": age}, {"outputs": age * 2.0}),
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        gc.save(gc.Session(graph), path, signatures=signatures, platforms=["cpu"])
    found = gc.load(path).signatures["serving_default"](x=inputs(width))
    return np.asarray(found["scores"])


def inputs(width: int = WIDTH) -> np.ndarray:
    """The x of valid requests."""
    return np.resize(X, (3, width))


def rest_request(width: int = WIDTH) -> bytes:
    """A valid HTTP request."""
    return http("/v1/models/m:predict", {"instances": inputs(width).tolist()})


def grpc_request(width: int = WIDTH) -> bytes:
    """A valid PredictRequest."""
    request = messages().PackedRequest()
    request.model_spec.name = "m"
    encode(inputs(width), request.inputs["x"])
    data: bytes = request.SerializeToString()
    return data


def http(path: str, body: Any = b"", head: str = "", method: str = "POST") -> bytes:
    """The bytes of a request; a body that is not bytes is encoded as JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    start = f"{method} {path} HTTP/1.1\r\nhost: x\r\n{head}content-length: {len(data)}\r\n\r\n"
    return start.encode() + data


def scores_of_json(body: bytes) -> np.ndarray:
    """The scores in the body of a response."""
    return np.array(json.loads(body)["predictions"], np.float32)


def scores_of_message(data: bytes) -> tuple[int, np.ndarray]:
    """The version and the scores of a PredictResponse."""
    found = messages().PredictResponse.FromString(data)
    return found.model_spec.version.value, decode(found.outputs["scores"], "scores")


class Uses(NamedTuple):
    """The resources of a process: MB of memory, open files, threads."""

    mb: float
    files: int
    threads: int


class Child:
    """`graphc serve` of the model `m`, in a separate process.

    Args:
        base: the folder of the model.
        flags: further flags.

    Attributes:
        rest_port, grpc_port: the ports of the server.
        process: the process.
    """

    def __init__(self, base: Path, *flags: str) -> None:
        command = [sys.executable, "-m", "graphc", "serve", "--model_base_path", str(base)]
        command += ["--model_name", "m", "--port", "0", "--rest_api_port", "0", *flags]
        environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "JAX_PLATFORMS": "cpu"}
        environment["GRPC_VERBOSITY"] = "NONE"  # it logs each connection without HTTP/2
        self.errors = base / "stderr"
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
            )
        assert self.process.stdout is not None
        lines = [self.process.stdout.readline() for _ in range(3)]
        if not lines[2]:
            raise RuntimeError(self.errors.read_text()[-2000:])
        self.rest_port = int(lines[1].rpartition(":")[2].partition("/")[0])
        self.grpc_port = int(lines[2].rpartition(":")[2])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def connect(self, port: int) -> socket.socket:
        """A connection whose reads time out after a minute."""
        return socket.create_connection(("127.0.0.1", port), timeout=60)

    def uses(self) -> Uses:
        """The resources that it uses now."""
        folder = Path(f"/proc/{self.process.pid}")
        resident = int((folder / "statm").read_text().split()[1]) * PAGE
        files, threads = (len(os.listdir(folder / name)) for name in ("fd", "task"))
        return Uses(round(resident / 1e6, 1), files, threads)

    def stop(self) -> int:
        """Ends it with SIGTERM; returns its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)
