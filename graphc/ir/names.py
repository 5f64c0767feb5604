"""The maximum length of a name. The limits of files, archives and compilers are far above it."""

from __future__ import annotations

from typing import Final

from graphc.errors import AttributeValueError
from graphc.ir.source import Source, current_source

LONGEST_NAME: Final = 4000  # characters, including the name scopes


def check_length(name: str, what: str = "name", source: Source | None = None) -> None:
    """Rejects a name that is too long.

    Args:
        name: including the name scopes around it.
        what: what is named, for the error.
        source: the user's line; by default the current one.

    Raises:
        AttributeValueError: it has more than `LONGEST_NAME` characters.
    """
    if len(name) > LONGEST_NAME:
        raise AttributeValueError(
            f"the {what} {name[:20]!r}... has {len(name):,} characters; at most "
            f"{LONGEST_NAME:,} are allowed",
            source=source or current_source(),
            hint="give a shorter name, or use fewer name scopes",
        )
