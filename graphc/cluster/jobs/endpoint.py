"""The REST interface of a service of jobs, and its page, as an ASGI application."""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl

from graphc.cluster.jobs.actions import ACTIONS, Actions, number_of
from graphc.cluster.jobs.logs import events, part_of
from graphc.cluster.jobs.metrics import curves_of
from graphc.cluster.jobs.records import ENDED
from graphc.cluster.jobs.service import JobService
from graphc.cluster.jobs.users import Users
from graphc.errors import ArgumentError, AttributeValueError, ClusterError, UnknownNameError
from graphc.web.failures import Failure
from graphc.web.http import (
    JSON,
    HttpError,
    Receive,
    Scope,
    Send,
    check_method,
    error_body,
    header,
    local_path,
    read_body,
    respond,
    write_json,
)
from graphc.web.pages import check_same_site, page

_MARK: Final = b"x-graphc-jobs"
_MOST_BODY: Final = 1 << 16  # bytes of a job
_MOST_STREAMS: Final = 200
_CURVES_SECONDS: Final = 1.0
_MOST_CURVES: Final = 100  # jobs
_BODY_SECONDS: Final = 10.0
_JOB: Final = re.compile(r"/v1/jobs/(\d{1,18})(?::([a-z]+)|/(log|log/events|metrics))?", re.ASCII)
_TEXT: Final = b"text/plain; charset=utf-8"
_PAGES: Final = frozenset({"/", "/jobs"})


class JobsApplication:
    """An ASGI application.

    Paths: `/` is the page, which needs no token as it has no data. All else needs one.
    `/v1/service` says what the service is. `/v1/jobs` lists jobs (GET) and takes one (POST).
    `/v1/jobs/N` is a job, `/v1/jobs/N/log`, `/log/events` and `/metrics` what it has written.
    POST `/v1/jobs/N:stop`, `:restart` and `:resume` act.

    Args:
        service: that runs the jobs.
        users: who may ask.
    """

    def __init__(self, service: JobService, users: Users) -> None:
        self._service, self._users = service, users
        self._streams = 0
        self._lists: dict[object, bytes] = {}  # of the present generation
        self._generation = -1
        self._read_curves: dict[Path, tuple[float, bytes]] = {}  # when they were read, and they
        self.stopping = False
        """Whether streams are to end."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request, as ASGI 3 defines it."""
        if scope["type"] != "http":
            raise ArgumentError(f"the service of jobs answers HTTP, not {scope['type']!r}")
        headers = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]
        path, status, kind = local_path(scope), 200, JSON
        try:
            if path in _PAGES:
                check_method(scope, "GET")
                body, more = page("graphc.cluster.jobs", "page.html")
                headers, kind = headers + more, b"text/html; charset=utf-8"
            elif path == "/health":
                status, body = (503, b"{}") if self._service.problem else (200, b"{}")
            elif path.endswith("/log/events"):
                await self._stream(scope, receive, send, path)
                return
            else:
                status, body, kind, more = await self._answer(scope, receive, path)
                headers += more
        except Failure as failure:
            if failure.code == "CANCELLED":
                return  # nobody reads the response
            status, body = failure.http_status, error_body(failure.message)
            headers += getattr(failure, "headers", None) or []
            headers += [(b"connection", b"close")] if status in (408, 413) else []
        await respond(scope, send, status, body, kind, headers)

    async def _answer(
        self, scope: Scope, receive: Receive, path: str
    ) -> tuple[int, bytes, bytes, list[tuple[bytes, bytes]]]:
        """The status, the body, its type, and further headers."""
        actions = self._actions(scope)
        if path == "/v1/service":
            check_method(scope, "GET")
            return 200, write_json(await _run(actions.about)), JSON, []
        if path == "/v1/jobs":
            check_method(scope, "GET", "POST")
            if scope["method"] == "POST":
                value = await self._body(scope, receive)
                record = await _run(actions.submit, value, time.time())
                return 201, write_json(record.as_dict()), JSON, []
            return await self._listed(scope, actions)
        number, action, part = _parsed(path)
        if action:
            check_method(scope, "POST")
            check_same_site(scope, _MARK, _NOT_OURS)
            record = await _run(actions.act, number, action, time.time())
            return 202, write_json(record.as_dict()), JSON, []
        check_method(scope, "GET")
        if part == "":
            return 200, write_json(await _run(actions.details, number)), JSON, []
        folder = actions.folder(await _run(actions.get, number))
        if part == "metrics":
            return 200, await self._curves(Path(folder.places.logs)), JSON, []
        query = _query(scope)
        offset = await _run(number_of, query, "offset", -1) or 0
        data, end = await _run(part_of, folder.log, offset)
        return 200, data, _TEXT, [(b"x-next-offset", str(end).encode())]

    async def _curves(self, logs: Path) -> bytes:
        """The curves of a job. Clients that ask at about the same time share them."""
        now = time.monotonic()
        at, body = self._read_curves.get(logs, (-math.inf, b""))
        if now - at >= _CURVES_SECONDS:
            body = write_json(await _run(curves_of, logs))
            if len(self._read_curves) >= _MOST_CURVES:
                self._read_curves.clear()
            self._read_curves[logs] = now, body
        return body

    def _actions(self, scope: Scope) -> Actions:
        return Actions(self._service, self._users.of(header(scope, b"authorization")))

    async def _listed(
        self, scope: Scope, actions: Actions
    ) -> tuple[int, bytes, bytes, list[tuple[bytes, bytes]]]:
        """The list of jobs. Clients that have it already get 304, and those that ask for the same
        share the bytes."""
        query = _query(scope)
        generation = self._service.generation
        tag = f'"{id(self._service):x}-{generation}"'.encode()
        headers = [(b"etag", tag)]
        if header(scope, b"if-none-match") == tag:
            return 304, b"", JSON, headers
        if generation != self._generation:
            self._generation = generation
            self._lists.clear()
        key = (actions.owner, *sorted(query.items()))
        if key not in self._lists:
            found = write_json(await _run(actions.listed, query))
            if self._generation == generation and len(self._lists) < _MOST_STREAMS:
                self._lists[key] = found
            return 200, found, JSON, headers
        return 200, self._lists[key], JSON, headers

    async def _body(self, scope: Scope, receive: Receive) -> Any:
        check_same_site(scope, _MARK, _NOT_OURS)
        data = await read_body(scope, receive, _MOST_BODY, _BODY_SECONDS)
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            raise Failure("INVALID_ARGUMENT", f"the body is not JSON: {error}") from None

    async def _stream(self, scope: Scope, receive: Receive, send: Send, path: str) -> None:
        """Sends a log as it grows."""
        check_method(scope, "GET")
        actions = self._actions(scope)
        number, _, _ = _parsed(path)
        record = await _run(actions.get, number)
        query = _query(scope)
        last = header(scope, b"last-event-id").decode("latin-1")
        if last:
            query["offset"] = last
        offset = await _run(number_of, query, "offset", -1) or 0
        if self._streams >= _MOST_STREAMS:
            raise HttpError(429, f"{_MOST_STREAMS} clients watch logs already; try again later")
        state = _State(lambda: actions.get(number), record)
        found = events(lambda: actions.folder(state.record).log, offset, state.has_ended)
        headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store"),
                   (b"x-content-type-options", b"nosniff")]  # fmt: skip
        self._streams += 1
        gone = asyncio.ensure_future(_until_gone(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            async for event in found:
                if gone.done() or self.stopping or scope["method"] == "HEAD":
                    break
                if event:
                    await send({"type": "http.response.body", "body": event, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._streams -= 1
            gone.cancel()


_NOT_OURS: Final = f"send the header `{_MARK.decode()}: 1`, from this site"


class _State:
    """The state of a job, which is read anew at most once for each look at its log."""

    def __init__(self, read: Callable[[], Any], record: Any) -> None:
        self._read, self.record = read, record

    def has_ended(self) -> bool:
        self.record = self._read()
        return self.record.state in ENDED


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _parsed(path: str) -> tuple[int, str, str]:
    """The job, the action and the part that a path names."""
    match = _JOB.fullmatch(path)
    if match is None or (match[2] and match[2] not in ACTIONS):
        raise HttpError(404, f"there is nothing at {path[:200]!r}")
    return int(match[1]), match[2] or "", match[3] or ""


def _query(scope: Scope) -> dict[str, str]:
    try:
        text = scope.get("query_string", b"").decode("ascii")
        return dict(parse_qsl(text, max_num_fields=10))
    except ValueError:
        raise Failure("INVALID_ARGUMENT", "the query is not valid") from None


async def _run(function: Callable[..., Any], *arguments: Any) -> Any:
    """Runs a function in a thread. Users' mistakes become failures."""
    try:
        return await asyncio.to_thread(function, *arguments)
    except UnknownNameError as error:
        raise Failure("NOT_FOUND", str(error.what)) from None
    except AttributeValueError as error:
        raise Failure("INVALID_ARGUMENT", str(error)) from None
    except ClusterError as error:
        raise HttpError(409, str(error)) from None
