"""Requests per second of the model server, compared with handlers that do no work.

The model is 784 -> 10, served by `graphc serve`. The echo handlers run in the same HTTP server
(uvicorn) and the same gRPC server (grpc.aio): they receive the same requests, compute nothing, and
answer with equally many bytes. The HTTP handler does not read the JSON; the gRPC handler takes
bytes and does not parse the message. The clients are plain sockets with prepared requests, in this
process. All share the cores of this machine, and the servers run in turn. The CPU time of a request
(user and system time of the server's process) depends least on other programs.

`batching` compares 784 -> 500 -> 10 with and without --enable_batching.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import graphc as gc
from benchmarks.serving_load import SIZE, Grpc, Load, Rest, closed, steady
from graphc.web.connections import http_server, listen

Row = tuple[str, str, str]
CLIENTS = (1, 8)
MANY = 32
SECONDS, ROUNDS = 1.0, 5
ANSWER = 230  # bytes: ten probabilities in JSON
ANSWER_GRPC = 90  # bytes of a PredictResponse with them
_PROTOCOLS: tuple[tuple[str, type[Any]], ...] = (("REST", Rest), ("gRPC", Grpc))


class Child(NamedTuple):
    """A server in a separate process."""

    process: int
    rest: int
    grpc: int

    def port(self, protocol: str) -> int:
        """The port of "REST" or "gRPC"."""
        return self.rest if protocol == "REST" else self.grpc

    def cpu(self) -> float:
        """User and system time so far, in seconds."""
        with open(f"/proc/{self.process}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Found(NamedTuple):
    """The measurements of one server: the rounds, and the CPU time of a request in seconds."""

    rounds: list[Load]
    cpu: float

    @property
    def rate(self) -> float:
        return statistics.median(load.rate for load in self.rounds)

    def percentile(self, percent: float) -> float:
        """A percentile of the latency in milliseconds."""
        return statistics.median(load.percentile(percent) for load in self.rounds)


def rows() -> Iterator[Row]:
    """Rows: compared with echo, at 70 % load, and with batches."""
    with tempfile.TemporaryDirectory() as folder:
        yield from _beside_echo(_saved(f"{folder}/small.gcx"))
        yield from _batching(_saved(f"{folder}/large.gcx", 500))


def _beside_echo(path: str) -> Iterator[Row]:
    with _model(path) as model, _echo() as echo:
        for protocol, kind in _PROTOCOLS:
            for count in CLIENTS:
                ours, theirs = _compared((model, echo), protocol, kind, count)
                yield (
                    f"{protocol} predict, 784 -> 10, {_clients(count)}",
                    f"{ours.rate:.0f} /s, echo {theirs.rate:.0f} /s: "
                    f"{ours.rate / theirs.rate:.2f}; {_cpu(ours)}, echo {_cpu(theirs)}: "
                    f"{theirs.cpu / ours.cpu:.2f}; {_latency(ours)}",
                    "at least 0.80 of echo",
                )
            load = 0.7 * ours.rate  # of the last round, with most clients
            (found,) = _compared(
                (model,), protocol, kind, count, functools.partial(steady, rate=load)
            )
            ratio = found.percentile(99) / found.percentile(50)
            yield (
                f"{protocol} predict, 784 -> 10, {load:.0f} /s (70 % load)",
                f"{_latency(found)}: {ratio:.1f}",
                "p99 at most 3 times p50",
            )


def _batching(path: str) -> Iterator[Row]:
    with _model(path) as alone, _model(path, "--enable_batching") as batched:
        for protocol, kind in _PROTOCOLS:
            ours, theirs = _compared((batched, alone), protocol, kind, MANY)
            yield (
                f"{protocol} predict, 784 -> 500 -> 10, {MANY} clients, with batches",
                f"{ours.rate:.0f} /s, without {theirs.rate:.0f} /s: {ours.rate / theirs.rate:.2f}; "
                f"{_cpu(ours)}, without {_cpu(theirs)}; {_latency(ours)}",
                "at least 3 times without",
            )


def _compared(
    children: Sequence[Child],
    protocol: str,
    kind: type[Any],
    count: int,
    load: Callable[[list[Any], float], Load] = closed,
) -> list[Found]:
    """Runs the servers in turn, after a round to warm up."""
    clients = [[kind(child.port(protocol)) for _ in range(count)] for child in children]
    rounds: list[list[Load]] = [[] for _ in children]
    used = [0.0] * len(children)
    for number in range(ROUNDS + 1):
        for side, child in enumerate(children):
            before = child.cpu()
            found = load(clients[side], SECONDS)
            if number:
                rounds[side].append(found)
                used[side] += child.cpu() - before
    for client in itertools.chain(*clients):
        client.socket.close()
    counts = [sum(len(found.latencies) for found in side) for side in rounds]
    return [Found(side, cpu / n) for side, cpu, n in zip(rounds, used, counts, strict=True)]


def _clients(count: int) -> str:
    return f"{count} client{'s' * (count > 1)}"


def _cpu(found: Found) -> str:
    return f"CPU {found.cpu * 1e6:.0f} us"


def _latency(found: Found) -> str:
    return f"p50 {found.percentile(50):.2f} ms, p99 {found.percentile(99):.2f} ms"


def _saved(path: str, hidden: int = 0) -> str:
    with gc.Graph() as graph:
        x = gc.placeholder(("batch", SIZE), name="x")
        h = gc.nn.relu(gc.nn.Dense(hidden)(x)) if hidden else x
        y = gc.softmax(gc.nn.Dense(10)(h))
        signatures = {"predict": gc.Signature({"x": x}, {"y": y})}
        gc.save(gc.Session(graph), path, signatures=signatures, platforms=["cpu"])
    return path


@contextmanager
def _process(arguments: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


@contextmanager
def _model(path: str, *flags: str) -> Iterator[Child]:
    flags = ("--model_name=m", "--port=0", "--rest_api_port=0", *flags)
    with _process(["graphc", "serve", path, *flags]) as process:
        assert process.stdout is not None
        ports: dict[str, int] = {}
        while len(ports) < 2:
            line = process.stdout.readline()
            assert line, "the server did not start"
            for name in ("REST", "gRPC"):
                if line.startswith(f"{name}: "):
                    ports[name] = int(line.partition("127.0.0.1:")[2].partition("/")[0])
        yield Child(process.pid, ports["REST"], ports["gRPC"])


@contextmanager
def _echo() -> Iterator[Child]:
    with _process(["benchmarks.serving", "echo"]) as process:
        assert process.stdout is not None
        rest, grpc = process.stdout.readline().split()
        yield Child(process.pid, int(rest), int(grpc))


async def _serve_echo() -> None:
    """The same servers with handlers that compute nothing."""
    import grpc

    async def application(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % ANSWER)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b" " * ANSWER})

    async def behave(data: bytes, context: Any) -> bytes:
        return data[:ANSWER_GRPC]

    server = http_server(application, head_seconds=30, drain_seconds=1)
    found = listen("127.0.0.1", 0)
    task = asyncio.create_task(server.serve(sockets=[found]))
    channel = grpc.aio.server()
    handlers = {"Predict": grpc.unary_unary_rpc_method_handler(behave)}
    name = "tensorflow.serving.PredictionService"
    channel.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
    port = channel.add_insecure_port("127.0.0.1:0")
    await channel.start()
    print(found.getsockname()[1], port, flush=True)
    await task  # until SIGTERM ends the process


if __name__ == "__main__":
    if sys.argv[1:] == ["echo"]:
        asyncio.run(_serve_echo())
    else:
        for row in rows():
            print(*row, sep=" | ", flush=True)
