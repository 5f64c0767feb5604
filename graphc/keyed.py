"""`Keyed`: the base of mappings whose values are made when they are asked for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

V = TypeVar("V")


class Keyed(Mapping[str, V]):
    """A mapping with the keys of another one. A subclass says by `__getitem__` what they give."""

    @abstractmethod
    def _keys(self) -> Mapping[str, Any]:
        """The other mapping. Looking for a key in it makes no value."""

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys())

    def __len__(self) -> int:
        return len(self._keys())

    def __contains__(self, key: object) -> bool:
        return key in self._keys()
