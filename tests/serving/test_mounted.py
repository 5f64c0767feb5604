"""The REST application inside a user's own service, with other routes and a lifespan."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphc.serving.config import ModelConfig
from graphc.serving.models.manager import Manager
from graphc.serving.server import asgi
from tests.serving.fakes import ask
from tests.serving.models.saved import X, expected, put

BODY = json.dumps({"instances": X[:2].tolist()}).encode()


class Router:
    """A router like Starlette: its own paths, a mounted application and its own lifespan.

    Args:
        strips: whether the mounted application gets only the rest of the path, as in Starlette
            before 0.33.
    """

    def __init__(self, manager: Manager, strips: bool) -> None:
        self.manager = manager
        self.mounted = asgi(manager)
        self.strips = strips

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for act in (self.manager.start, self.manager.close):
                kind = (await receive())["type"]
                await asyncio.to_thread(act)
                await send({"type": f"{kind}.complete"})
        elif scope["path"].startswith("/ml/"):
            path = scope["path"].removeprefix("/ml") if self.strips else scope["path"]
            root = scope.get("root_path", "") + "/ml"
            await self.mounted(scope | {"root_path": root, "path": path}, receive, send)
        else:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b'"own"'})


async def with_lifespan(application: Any, inside: Callable[[], Any]) -> list[str]:
    """Runs a function between startup and shutdown, as an ASGI server does."""
    events: asyncio.Queue[Any] = asyncio.Queue()
    done: asyncio.Queue[str] = asyncio.Queue()

    async def send(event: Any) -> None:
        await done.put(event["type"])

    task = asyncio.create_task(application({"type": "lifespan"}, events.get, send))
    said = []
    for kind in ("startup", "shutdown"):
        await events.put({"type": f"lifespan.{kind}"})
        said.append(await done.get())
        if kind == "startup":
            await asyncio.to_thread(inside)
    await task
    return said


@pytest.mark.parametrize("strips", [True, False])
def test_a_service_with_models(tmp_path: Path, strips: bool) -> None:
    put(tmp_path, 1, 1)
    service = Router(Manager([ModelConfig("m", tmp_path)], poll_seconds=0, cache=None), strips)
    assert ask(service, "GET", "/ml/health/ready").status == 503
    assert ask(service, "GET", "/about").json == "own"

    def inside() -> None:
        assert ask(service, "GET", "/ml/health/ready").status == 200
        reply = ask(service, "POST", "/ml/v1/models/m:predict", BODY)
        assert reply.json == {"predictions": expected(1)[:2].tolist()}
        assert ask(service, "GET", "/ml/v1/models/m").status == 200
        assert ask(service, "GET", "/about").json == "own"
        assert ask(service, "GET", "/ml/nothing").status == 404

    said = asyncio.run(with_lifespan(service, inside))
    assert said == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert ask(service, "POST", "/ml/v1/models/m:predict", BODY).status == 404
