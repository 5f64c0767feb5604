"""`Closing`: the base of what a `with` statement closes."""

from __future__ import annotations

from typing import Self


class Closing:
    """An object that is closed at the end of the `with` statement that has it."""

    __slots__ = ()

    def close(self) -> None:
        """Gives up what the object holds. A subclass defines it."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
