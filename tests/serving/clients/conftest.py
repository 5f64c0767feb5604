"""Servers for the clients in other languages. The clients run in processes of their own."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from graphc.serving import Server, ServerConfig
from tests.serving.fakes import Entry, FakeManager, FakeServable, manager


@pytest.fixture(scope="session")
def addresses() -> Iterator[dict[str, str]]:
    """The addresses of servers by REST.

    `open` has the models of `fakes.manager` and `slow`, which never answers; `guarded` wants the
    token "secret"; `impatient` gives each request 0.3 seconds; no server listens at `closed`.
    """
    pending: list[Future[Any]] = []
    models = _with_slow(manager(), pending)
    options: dict[str, dict[str, Any]] = {
        "open": {},
        "guarded": {"tokens": ("secret",)},
        "impatient": {"request_seconds": 0.3},
    }
    with ExitStack() as stack:
        found = {}
        for name, more in options.items():
            config = ServerConfig((), port=None, rest_port=0, **more)
            server = stack.enter_context(Server(config, manager=models))
            found[name] = f"http://127.0.0.1:{server.rest_port}"
        closed = stack.enter_context(socket.socket())
        closed.bind(("127.0.0.1", 0))  # and does not listen
        found["closed"] = f"http://127.0.0.1:{closed.getsockname()[1]}"
        yield found
        for future in pending:
            future.cancel()


def _with_slow(models: FakeManager, pending: list[Future[Any]]) -> FakeManager:
    def never(inputs: dict[str, np.ndarray]) -> Future[Any]:
        pending.append(Future())
        return pending[-1]

    entry = Entry({"x": "f32[n]"}, {"y": "f32[n]"})
    models.models["slow"] = FakeServable(1, {"predict": (entry, never)})
    return models
