"""The status page: models, versions, traffic, latency, batches and the last errors.

The page itself has no data, so that it needs no token. It asks for `status/data` every two seconds,
with a token that the user enters if the server has tokens.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any, Final

from graphc.serving.endpoints.rest_calls import RestCalls
from graphc.serving.endpoints.service import Service
from graphc.serving.endpoints.status_data import status_data
from graphc.web import http
from graphc.web.access import Access
from graphc.web.failures import Failure
from graphc.web.http import Receive, Scope, Send
from graphc.web.pages import check_same_site, page

_PAGE: Final = ("/", "/status")
_DATA: Final = "/status/data"
_RELOAD: Final = "/status/reload"
_PATHS: Final = frozenset({*_PAGE, _DATA, _RELOAD})
_MARK: Final = b"x-graphc-status"  # a header that other sites cannot send without our consent
_NOT_THE_PAGE: Final = f"send the header `{_MARK.decode()}: reload`, from the status page"
_MOST_BYTES: Final = 4096


class StatusPage:
    """An ASGI application that adds the status page to another one.

    Paths: `/` and `/status` (GET) are the page, `/status/data` (GET) what it shows as JSON.
    `/status/reload` (POST `{"model": "NAME"}`) searches at once for new versions, and tries again
    those that could not be loaded. It refuses what a browser sends for the page of another site.

    Args:
        application: the other one.
        service: what it answers with.
        access: who may see and reload.
        ready: whether the server takes requests.

    Examples:
        >>> from graphc.serving.endpoints.metrics import Metrics
        >>> from graphc.serving.endpoints.rest import RestApplication
        >>> from graphc.serving.endpoints.service import Service
        >>> from graphc.serving.endpoints.status_page import StatusPage
        >>> service = Service(gc.serving.Manager([]), Metrics())
        >>> application = StatusPage(RestApplication(service), service)
    """

    def __init__(
        self,
        application: Any,
        service: Service,
        access: Access | None = None,
        ready: Callable[[], bool] = lambda: True,
    ) -> None:
        self._application = application
        self._service = service
        self._access = access or Access()
        self._calls = RestCalls(service, self._access, _MOST_BYTES)
        self._ready = ready
        self._started = time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request, as ASGI 3 defines it."""
        path = http.local_path(scope) if scope["type"] == "http" else ""
        if path not in _PATHS:
            await self._application(scope, receive, send)
            return
        headers = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]
        status, kind = 200, http.JSON
        try:
            if path in _PAGE:
                http.check_method(scope, "GET")
                body, more = page("graphc.serving.endpoints", "status.html")
                headers, kind = headers + more, b"text/html; charset=utf-8"
            elif path == _DATA:
                body = await self._data(scope)
            else:
                status, body = 202, await self._reload(scope, receive)
        except Failure as failure:
            if failure.code == "CANCELLED":
                return  # nobody reads the response
            status, body = failure.http_status, http.error_body(failure.message)
            headers += getattr(failure, "headers", None) or []
            headers += [(b"connection", b"close")] if status in (408, 413) else []
        await http.respond(scope, send, status, body, kind, headers)

    async def _data(self, scope: Scope) -> bytes:
        http.check_method(scope, "GET")
        self._access.check(http.header(scope, b"authorization"))
        data = await asyncio.to_thread(status_data, self._service, self._started, self._ready())
        return http.write_json(data)

    async def _reload(self, scope: Scope, receive: Receive) -> bytes:
        http.check_method(scope, "POST")
        with self._calls.call(scope, "ReloadModel") as call:
            self._calls.admit(scope, call)
            check_same_site(scope, _MARK, _NOT_THE_PAGE)
            call.model = _model_of(await self._calls.body(scope, receive, call))
            self._service.manager.retry(call.model)
        return b"{}"


def _model_of(data: bytes) -> str:
    """The model that a request for reloading names."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or not isinstance(value.get("model"), str):
        raise Failure("INVALID_ARGUMENT", 'the body must be {"model": "NAME"}')
    name: str = value["model"]
    return name
