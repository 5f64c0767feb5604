"""Optional packages, which extras of graphc install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from graphc.errors import MissingExtraError


@contextmanager
def importing(message: str, extra: str) -> Iterator[None]:
    """A context in which an optional package is imported.

    Args:
        message: what needs which package.
        extra: what installs it: the name of an extra of graphc.

    Raises:
        MissingExtraError: the package cannot be imported.
    """
    try:
        yield
    except ImportError as error:
        raise MissingExtraError.here(message, hint=f"pip install 'graphc[{extra}]'") from error
