"""Bearer tokens."""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from graphc.web.failures import Failure


class Access:
    """Decides which requests are accepted.

    Args:
        tokens: the accepted bearer tokens; without any, each request is accepted.

    Attributes:
        is_limited: whether there are tokens.
    """

    def __init__(self, tokens: Sequence[str] = ()) -> None:
        self._tokens = [token.encode() for token in tokens]
        self.is_limited = bool(tokens)

    def check(self, authorization: str | bytes) -> int | None:
        """Checks the value of an `authorization` header.

        Returns:
            the number of the token; None if there are no tokens.

        Raises:
            Failure: UNAUTHENTICATED: it has none of the tokens.
        """
        if not self._tokens:
            return None
        if isinstance(authorization, str):
            authorization = authorization.encode("utf-8", "replace")
        scheme, _, given = authorization.partition(b" ")
        # Every token is compared, so that the time says nothing about them.
        accepted = [hmac.compare_digest(given.strip(), token) for token in self._tokens]
        if scheme.lower() != b"bearer" or not any(accepted):
            raise Failure("UNAUTHENTICATED", "send the header `authorization: Bearer TOKEN`")
        return accepted.index(True)
