"""Objects that cannot be pickled or copied: they say so, and what to do instead."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn, SupportsIndex

from graphc.errors import CopyError


class Uncopied:
    """Base of the objects that stand for something outside of them: a place in a graph, buffers
    on devices, an open file. A copy would not stand for the same thing.

    `pickle`, `copy.copy` and `copy.deepcopy` raise `CopyError`.

    Attributes:
        instead: what to do instead, for the error.
    """

    __slots__ = ()

    instead: ClassVar[str]

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise CopyError(
            f"{type(self).__name__} {getattr(self, 'name', '')!s:.60} cannot be pickled or "
            "copied".replace("  ", " "),
            mend=self.instead,
        )

    def __reduce__(self) -> Any:
        return self.__reduce_ex__(2)
