"""Tables that people write: each key has a reader, which raises a ValueError that says what is
allowed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def read_keys(
    given: Mapping[Any, Any],
    readers: Mapping[str, Callable[[Any], Any]],
    unknown: Callable[[Any], str],
    wrong: Callable[[Any, Any, ValueError], str],
) -> tuple[dict[str, Any], list[str]]:
    """What the readers of the keys make of the values, and the mistakes.

    Args:
        unknown: the mistake of a key that has no reader.
        wrong: the mistake of a key, from its value and the error of its reader.
    """
    found: dict[str, Any] = {}
    mistakes = []
    for key, value in given.items():
        reader = readers.get(key) if isinstance(key, str) else None
        if reader is None:
            mistakes.append(unknown(key))
            continue
        try:
            found[key] = reader(value)
        except ValueError as error:
            mistakes.append(wrong(key, value, error))
    return found, mistakes
