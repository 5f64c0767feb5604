"""Requests a second of the model server, beside handlers of the same framework without work.

The model is 784 -> 10. Three processes: the server, the same HTTP or gRPC server with a handler
that reads the body and answers with as many bytes, and the load, in turn on each. All share the
cores of this machine, so the ratios say more than the numbers.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import graphc as gc
from graphc.serving import ModelConfig, Server, ServerConfig
from graphc.serving.endpoints.connections import http_server, listen
from graphc.serving.protocol.messages import messages
from graphc.serving.protocol.tensors import encode

Row = tuple[str, str, str]
Send = Callable[[], Awaitable[None]]
CLIENTS = (1, 8)
SECONDS, ROUNDS = 1.0, 5
SIZE = 784
ANSWER = 250  # bytes: ten probabilities in JSON


def rows() -> Iterator[Row]:
    """REST and gRPC, with one and with eight clients."""
    with _child("model") as (rest, grpc), _child("echo") as (rest_echo, grpc_echo):
        for name, ports, load in (
            ("REST", (rest, rest_echo), _rest),
            ("gRPC", (grpc, grpc_echo), _grpc),
        ):
            for clients in CLIENTS:
                pairs = asyncio.run(_compared(ports, load, clients))
                ours, theirs = (statistics.median(rate for rate, _ in side) for side in pairs)
                p50, p99 = (statistics.median(p[i] for _, p in pairs[0]) * 1e3 for i in (0, 1))
                shown = f"{ours:.0f} /s, echo {theirs:.0f} /s: {ours / theirs:.2f}"
                yield (
                    f"{name} predict, 784 -> 10, {clients} client{'s' * (clients > 1)}",
                    f"{shown}; p50 {p50:.2f} ms, p99 {p99:.2f} ms",
                    "at least 0.80 of echo",
                )


Side = list[tuple[float, tuple[float, float]]]


async def _compared(ports: tuple[int, int], load: Any, clients: int) -> tuple[Side, Side]:
    """For each port the rates, and the median and 99th percentile of the latencies."""
    found: tuple[Side, Side] = ([], [])
    senders = [[await load(port) for _ in range(clients)] for port in ports]
    for number in range(ROUNDS + 1):
        for side in (0, 1) if number % 2 else (1, 0):
            latencies: list[float] = []
            start = time.perf_counter()
            await asyncio.gather(*(_repeat(send, latencies, start) for send in senders[side]))
            rate = len(latencies) / (time.perf_counter() - start)
            p50, p99 = np.percentile(latencies, [50, 99])
            if number:  # the first round is a warm-up
                found[side].append((rate, (float(p50), float(p99))))
    return found


async def _repeat(send: Send, latencies: list[float], start: float) -> None:
    while (begin := time.perf_counter()) - start < SECONDS:
        await send()
        latencies.append(time.perf_counter() - begin)


async def _rest(port: int) -> Send:
    """A client with one connection. It reads as little of the answers as it can."""
    values = np.random.default_rng(0).random((1, SIZE)).round(3).tolist()
    body = json.dumps({"instances": values}).encode()
    head = f"POST /v1/models/m:predict HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = head.encode() + body

    async def send() -> None:
        writer.write(data)
        answer = await reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200"), answer
        length = answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        await reader.readexactly(int(length))

    return send


async def _grpc(port: int) -> Send:
    import grpc

    channel = grpc.aio.insecure_channel(
        f"127.0.0.1:{port}", [("grpc.use_local_subchannel_pool", 1)]
    )
    request = messages().PackedRequest()
    request.model_spec.name = "m"
    encode(np.random.default_rng(0).random((1, SIZE), np.float32), request.inputs["x"])
    data = request.SerializeToString()
    call = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")

    async def send() -> None:
        await call(data)

    return send


@contextmanager
def _child(kind: str) -> Iterator[tuple[int, int]]:
    """A server in its own process: the ports of REST and gRPC."""
    command = [sys.executable, "-m", "benchmarks.serving", kind]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        rest, grpc = process.stdout.readline().split()
        try:
            yield int(rest), int(grpc)
        finally:
            process.communicate("")


def _serve_model() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/m.gcx"
        with gc.Graph() as graph:
            x = gc.placeholder(("batch", SIZE), name="x")
            y = gc.softmax(gc.nn.Dense(10)(x))
            session = gc.Session(graph)
            signatures = {"predict": gc.Signature({"x": x}, {"y": y})}
            gc.save(session, path, signatures=signatures, platforms=["cpu"])
        config = ServerConfig((ModelConfig("m", path),), port=0, rest_port=0)
        with Server(config) as server:
            print(server.rest_port, server.port, flush=True)
            sys.stdin.read()


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
        return data[:100]

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
    await asyncio.to_thread(sys.stdin.read)
    server.should_exit = True
    await task
    await channel.stop(0)


if __name__ == "__main__":
    if sys.argv[1:] == ["model"]:
        _serve_model()
    elif sys.argv[1:] == ["echo"]:
        asyncio.run(_serve_echo())
    else:
        for row in rows():
            print(*row, sep=" | ", flush=True)
