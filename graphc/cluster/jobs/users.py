"""`Users`: who may use a service, with which token, and how much of it."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from graphc.cluster.jobs.quantities import bytes_of
from graphc.cluster.jobs.reading import read_keys
from graphc.cluster.jobs.scheduling import Quota
from graphc.errors import AttributeValueError, GraphcError, nearest
from graphc.web.access import Access

_LEAST: Final = 16  # characters of a token
_EXAMPLE: Final = """a file of users has
    [ann]
    token = "a text of at least 16 characters"
    admin = true
    [bob]
    token = "..."
    quota = {devices = 4, waiting = 100}"""


@dataclass(frozen=True)
class User:
    """A user.

    Attributes:
        admin: whether they see and stop the jobs of all users.
    """

    name: str
    admin: bool = False
    quota: Quota = field(default_factory=Quota)


class Users:
    """The users of a service, by their tokens.

    Args:
        tokens: user -> token.

    Examples:
        >>> from graphc.cluster.jobs.users import User, Users
        >>> users = Users({User("ann"): "a-token-of-ann-123"})
        >>> users.of("Bearer a-token-of-ann-123").name
        'ann'
    """

    def __init__(self, tokens: Mapping[User, str]) -> None:
        self._users = list(tokens)
        self._access = Access(list(tokens.values()))

    @property
    def quotas(self) -> dict[str, Quota]:
        """The quota of each user."""
        return {user.name: user.quota for user in self._users}

    def of(self, authorization: str | bytes) -> User:
        """The user of an `authorization` header. All tokens are compared, in constant time.

        Raises:
            Failure: UNAUTHENTICATED: it has none of the tokens.
        """
        number = self._access.check(authorization)
        return self._users[number or 0]

    @staticmethod
    def read(path: Path) -> Users:
        """The users of a TOML file.

        Raises:
            GraphcError: it cannot be read.
            AttributeValueError: it is not valid. The error lists all mistakes.
        """
        try:
            value = tomllib.loads(path.read_text("utf-8"))
        except OSError as error:
            raise GraphcError(
                f"cannot read {str(path)!r}: {error.strerror}", hint="check the path"
            ) from None
        except ValueError as error:
            raise AttributeValueError(
                f"{str(path)!r} is not TOML: {error}", hint=_EXAMPLE
            ) from None
        mistakes: list[str] = []
        tokens = {_user(name, each, mistakes): _token(name, each, mistakes)
                  for name, each in value.items()}  # fmt: skip
        if len(set(tokens.values())) < len(tokens) and not mistakes:
            mistakes.append("two users have the same token")
        if not tokens:
            mistakes.append("it has no user")
        if mistakes:
            raise AttributeValueError(
                f"{str(path)!r} is not a file of users", details=mistakes, hint=_EXAMPLE
            )
        return Users(tokens)


def _token(name: str, value: Any, mistakes: list[str]) -> str:
    token = value.get("token") if isinstance(value, dict) else None
    if not isinstance(token, str) or len(token) < _LEAST or not token.isascii() or " " in token:
        mistakes.append(f"{name}.token: must be a text of at least {_LEAST} characters of ASCII "
                        "without spaces")  # fmt: skip
        return ""
    return token


def _user(name: str, value: Any, mistakes: list[str]) -> User:
    if not isinstance(value, dict):
        mistakes.append(f"{name}: must be a table with a token")
        return User(name)
    for key in value.keys() - {"token", "admin", "quota"}:
        mistakes.append(f"{name}.{key}: {nearest(key, ['token', 'admin', 'quota'])}")
    admin = value.get("admin", False)
    if not isinstance(admin, bool):
        mistakes.append(f"{name}.admin: must be true or false")
    return User(name, bool(admin), _quota(f"{name}.quota", value.get("quota", {}), mistakes))


def _quota(where: str, value: Any, mistakes: list[str]) -> Quota:
    if not isinstance(value, dict):
        mistakes.append(f"{where}: must be a table such as {{devices = 4}}")
        return Quota()
    found, wrong = read_keys(
        value,
        _LIMITS,
        lambda key: f"{where}.{key}: {nearest(key, _LIMITS)}",
        lambda key, _, why: f"{where}.{key}: must be {why}",
    )
    mistakes += wrong
    return Quota(**found)


def _count(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("a number of at least 0")
    return value


_LIMITS: Final[dict[str, Callable[[object], int]]] = {
    each.name: bytes_of if each.name == "memory" else _count for each in fields(Quota)
}
