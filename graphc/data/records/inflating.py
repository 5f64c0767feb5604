"""What decompresses gzip and zlib data: ISA-L where it is installed, otherwise zlib."""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import Any, NamedTuple


class Library(NamedTuple):
    """A library that decompresses.

    Attributes:
        stream: a new stream for some `WINDOW_BITS`: what `zlib.decompressobj` returns, or an object
            with the same methods.
        error: what it raises for damaged data.
    """

    stream: Any
    error: type[Exception]


@lru_cache(maxsize=1)
def inflating() -> Library:
    """The faster library of those that are installed."""
    try:
        from isal import isal_zlib
    except ImportError:
        return Library(zlib.decompressobj, zlib.error)
    error: Any = isal_zlib.error  # declared as an exception, not as a type
    return Library(isal_zlib.decompressobj, error)
