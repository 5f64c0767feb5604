"""Cross-origin requests: which pages in a browser may call the REST endpoint."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any, Final

from graphc.web.http import Receive, Scope, Send, error_body, header, local_path, respond

_PATHS: Final = "/v1/"  # never the status page
_METHODS: Final = b"GET, HEAD, POST, DELETE, OPTIONS"
_HEADERS: Final = b"authorization, content-encoding, content-type"
_SECONDS: Final = b"600"  # that browsers keep the answer to a preflight request
Fields = list[tuple[bytes, bytes]]


class Cors:
    """An ASGI application that adds CORS headers to the responses of another one.

    Only the paths of models have them. Preflight requests are answered here: they have no token.

    Args:
        application: the other one.
        origins: the allowed origins; "*" allows all.

    Examples:
        >>> from graphc.serving.endpoints.cors import Cors
        >>> manager = gc.serving.Manager([])
        >>> application = Cors(gc.serving.asgi(manager), ["https://example.com"])
    """

    def __init__(self, application: Any, origins: Sequence[str]) -> None:
        self._application = application
        self._all = "*" in origins
        self._origins = {origin.encode() for origin in origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request, as ASGI 3 defines it."""
        if scope["type"] != "http" or not local_path(scope).startswith(_PATHS):
            await self._application(scope, receive, send)
            return
        origin = header(scope, b"origin")
        asked = header(scope, b"access-control-request-method")
        if scope["method"] == "OPTIONS" and origin and asked:
            await self._preflight(scope, origin, send)
            return
        fields = self._fields(origin)

        async def with_fields(event: MutableMapping[str, Any]) -> None:
            if event["type"] == "http.response.start":
                event = {**event, "headers": [*event["headers"], *fields]}
            await send(event)

        await self._application(scope, receive, with_fields)

    def _is_allowed(self, origin: bytes) -> bool:
        return bool(origin) and (self._all or origin in self._origins)

    def _fields(self, origin: bytes) -> Fields:
        """The headers of a response. `vary` tells caches that it depends on the origin."""
        if self._all:
            return [(b"access-control-allow-origin", b"*")]
        allowed = [(b"access-control-allow-origin", origin)] if self._is_allowed(origin) else []
        return [*allowed, (b"vary", b"origin")]

    async def _preflight(self, scope: Scope, origin: bytes, send: Send) -> None:
        fields = self._fields(origin)
        if not self._is_allowed(origin):
            shown = origin.decode("latin-1")[:200]
            body = error_body(f"pages of the origin {shown} may not call this server")
            await respond(scope, send, 403, body, headers=fields)
            return
        fields += [
            (b"access-control-allow-methods", _METHODS),
            (b"access-control-allow-headers", _HEADERS),
            (b"access-control-max-age", _SECONDS),
        ]
        await send({"type": "http.response.start", "status": 204, "headers": fields})
        await send({"type": "http.response.body", "body": b""})
