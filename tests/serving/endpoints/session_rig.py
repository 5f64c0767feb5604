"""Requests of sessions over REST, with a model without an artifact."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from tests.serving.fakes import ask
from tests.serving.stateful import CountingManager

BASE = "/v1/models/counter/sessions"
PROTOBUF = {"content-type": "application/x-protobuf"}


def opened(application: Any, **body: Any) -> str:
    reply = ask(application, "POST", BASE, {"signature_name": "add", **body})
    assert reply.status == 200
    return f"{BASE}/{reply.json['session_id']}"


class Connection:
    """A request in an event loop, whose client reads, leaves, or does neither."""

    def __init__(self, application: Any, path: str, body: Any) -> None:
        self.sent: list[Any] = []
        self.left = asyncio.Event()
        self.fails_after = 10_000  # events
        self._body = [{"type": "http.request", "body": json.dumps(body).encode()}]
        scope = {"type": "http", "method": "POST", "path": path, "headers": []}
        self.task = asyncio.create_task(application(scope, self._receive, self._send))

    async def _receive(self) -> Any:
        if self._body:
            return self._body.pop()
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, event: Any) -> None:
        self.sent.append(event)
        if len(self.sent) > self.fails_after:
            raise ConnectionError


def held(models: CountingManager) -> list[Any]:
    """Makes the runs of the first session wait."""
    models.servable.states[0].held = found = []
    return found


async def until(condition: Callable[[], Any]) -> None:
    while not condition():
        await asyncio.sleep(0)
