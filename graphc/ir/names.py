"""Names of nodes, variables and sizes: unique in a graph, and of limited length."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, TypeVar

from graphc.errors import AttributeValueError, UnknownNameError, nearest
from graphc.ir.source import Source, current_source

ILLEGAL: Final = " :,()=%"  # the text form and fetches use these characters
LONGEST_NAME: Final = 4000  # characters; files, archives and compilers allow far more
T = TypeVar("T")


def legal_name(name: str) -> str:
    """`name` with "_" in place of characters that a name cannot have; it may be empty.

    Examples:
        >>> legal_name("layer1.0.conv1.weight"), legal_name("dense/kernel:0")
        ('layer1.0.conv1.weight', 'dense/kernel_0')
    """
    legal = "".join(character if is_legal(character) else " " for character in name)
    return "/".join(part for part in re.sub(" +", "_", legal).split("/") if part)


def is_legal(character: str) -> bool:
    """Whether a name can have a character. Archives and terminals cannot show all characters, such
    as NUL and half of a pair of surrogates."""
    return character not in ILLEGAL and character.isprintable()


class Names:
    """The names that a graph and its bodies use."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}  # name -> the number of its next suffix

    def reserve(self, name: str) -> None:
        """Marks a name as used. The name may already be in use."""
        self._counts.setdefault(name, 1)

    def unique(self, name: str) -> str:
        """A new name: `name` itself, or with a suffix `_1`, `_2`, ... if it is already used."""
        count = self._counts.get(name)
        if count is None:
            check_length(name)
            self._counts[name] = 1
            return name
        while True:
            candidate = f"{name}_{count}"
            count += 1
            if candidate not in self._counts:
                self._counts[name] = count
                self._counts[candidate] = 1
                return candidate


def look_up(table: Mapping[str, T], name: str, missing: str, listing: str) -> T:
    """The entry of this name.

    Raises:
        UnknownNameError: there is no such entry. `missing` is the message. The hint is the nearest
            name, or the expression `listing`, which gives all names.
    """
    found = table.get(name)
    if found is None:
        raise UnknownNameError.here(missing, hint=nearest(name, table, listing))
    return found


def check_length(name: str, what: str = "name", source: Source | None = None) -> None:
    """Rejects a name that is too long.

    Args:
        name: the name with its name scopes.
        what: the kind of the named object, for the error.
        source: the user's line; by default the current one.

    Raises:
        AttributeValueError: the name has more than `LONGEST_NAME` characters.
    """
    if len(name) > LONGEST_NAME:
        raise AttributeValueError(
            f"the {what} {name[:20]!r}... has {len(name):,} characters; at most "
            f"{LONGEST_NAME:,} are allowed",
            source=source or current_source(),
            hint="give a shorter name, or use fewer name scopes",
        )
