"""Optional packages, which extras of graphc install."""

from __future__ import annotations

from graphc.errors import MissingExtraError
from graphc.ir.source import current_source


class Extra:
    """A context in which an optional package is imported.

    Args:
        message: what needs which package.
        name: the extra that installs it.

    Raises:
        MissingExtraError: at the end of the context: the package cannot be imported.
    """

    # Not a generator with `contextmanager`: the error names the user's line, and finds it by
    # leaving the functions of graphc.

    __slots__ = ("_message", "_name")

    def __init__(self, message: str, name: str) -> None:
        self._message, self._name = message, name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ImportError):
            raise MissingExtraError(
                self._message,
                source=current_source(),
                hint=f"pip install 'graphc[{self._name}]'",
            ) from error
