"""Objects that cannot be pickled or copied, and the error that says what to do instead."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn, SupportsIndex

from graphc.errors import CopyError


class Uncopied:
    """Base class of objects that refer to an external resource: a position in a graph, buffers on
    devices, an open file. A copy could not refer to the same resource.

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
            hint=self.instead,
        )

    def __reduce__(self) -> Any:
        return self.__reduce_ex__(2)
