"""Requests by REST: who may send them, their bodies, and the log of each."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial

from graphc.serving.endpoints.service import Call, Service
from graphc.web.access import Access
from graphc.web.http import Receive, Scope, header, read_body


class RestCalls:
    """What all paths share that count as requests.

    Args:
        service: counts and limits the requests.
        access: who may send them.
        max_body_bytes: the largest body.
    """

    def __init__(self, service: Service, access: Access, max_body_bytes: int) -> None:
        self._service = service
        self._access = access
        self._limit = max_body_bytes

    def call(self, scope: Scope, method: str) -> AbstractContextManager[Call]:
        """A request, see `Service.call`. The block begins with `admit`."""
        client = scope.get("client")
        return self._service.call("REST", method, client[0] if client else None)

    def admit(self, scope: Scope, call: Call, model: str = "") -> int | None:
        """Checks the token of a request, and notes the model that it names.

        Returns:
            the number of the token; None without tokens.

        Raises:
            Failure: UNAUTHENTICATED.
        """
        owner = self._access.check(header(scope, b"authorization"))
        call.model = model
        return owner

    async def body(self, scope: Scope, receive: Receive, call: Call) -> bytes:
        """The body; while it arrives, the request is not in progress.

        Raises:
            Failure: as of `read_body`; RESOURCE_EXHAUSTED: too many requests are in progress
                afterwards.
        """
        service = self._service
        with service.receiving():
            data = await read_body(
                scope, receive, self._limit, service.request_seconds, partial(service.hold, call)
            )
        call.bytes_in = len(data)
        return data
