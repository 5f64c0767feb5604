"""Names of nodes that TensorBoard's graph view can read, unique in a graph."""

from __future__ import annotations

import re

_ODD = re.compile(r"[^A-Za-z0-9_.\-]")


def readable(name: str) -> str:
    """The name with `_` in place of characters that the view cannot read, and of empty scopes."""
    return "/".join(_ODD.sub("_", part) or "_" for part in name.split("/"))


class UniqueNames:
    """Gives each name once; a name that is taken gets a number."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}

    def new(self, name: str) -> str:
        """`name`, or `name_1`, `name_2`, ... if it is taken."""
        candidate, number = name, self._taken.get(name, 0)
        while candidate in self._taken:
            number += 1
            candidate = f"{name}_{number}"
        self._taken[name] = number
        self._taken.setdefault(candidate, 0)
        return candidate


def within(name: str, owner: str) -> str:
    """The name of a node in a body of the node `owner`, without the scopes that both are in."""
    parts, outer = name.split("/"), owner.split("/")
    shared = 0
    while shared < min(len(parts) - 1, len(outer)) and parts[shared] == outer[shared]:
        shared += 1
    return "/".join(parts[shared:])
