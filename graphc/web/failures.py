"""`Failure`: why a request failed, as the client sees it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

HTTP_STATUS: Mapping[str, int] = MappingProxyType(
    {
        "INVALID_ARGUMENT": 400,
        "FAILED_PRECONDITION": 400,
        "UNAUTHENTICATED": 401,
        "PERMISSION_DENIED": 403,
        "NOT_FOUND": 404,
        "ABORTED": 409,
        "RESOURCE_EXHAUSTED": 429,
        "CANCELLED": 499,
        "INTERNAL": 500,
        "UNIMPLEMENTED": 501,
        "UNAVAILABLE": 503,
        "DEADLINE_EXCEEDED": 504,
    }
)
"""gRPC's canonical code -> HTTP status."""

_LONGEST = 2000  # bytes in UTF-8


class Failure(Exception):
    """Why a request failed.

    Args:
        code: gRPC's canonical name of the error, one of `HTTP_STATUS`.
        message: the text for the client, without paths of the server. A longer one than 2000
            bytes is cut: gRPC refuses long ones, which may quote the request.
        http_status: by default that of the code.

    Examples:
        >>> from graphc.web.failures import Failure
        >>> Failure("NOT_FOUND", "no model 'digits'").http_status
        404
    """

    def __init__(self, code: str, message: str, http_status: int | None = None) -> None:
        if code not in HTTP_STATUS:
            raise ValueError(f"Failure: no code {code!r}")
        self.code = code
        self.message = _cut(message)
        self.http_status = http_status or HTTP_STATUS[code]
        super().__init__(code, self.message)

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


def _cut(text: str) -> str:
    data = text.encode("utf-8", "replace")
    return (
        text if len(data) <= _LONGEST else data[: _LONGEST - 4].decode("utf-8", "ignore") + " ..."
    )
