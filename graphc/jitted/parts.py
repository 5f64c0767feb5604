"""The parts at the top of a pytree, and the leaves that each of them holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from typing import Any, Final, NamedTuple

from jax.tree_util import tree_flatten


class Part(NamedTuple):
    """A field or an item of a pytree.

    Attributes:
        sample: the part in the tree of places.
        numbers: its leaves among those of the pytree.
        filled: (values of these leaves) -> the part.
    """

    sample: Any
    numbers: list[int]
    filled: Callable[[list[Any]], Any]


class Parts:
    """The parts at the top of a pytree with some structure: fields of a dataclass or a named tuple,
    items of a dict, a list or a tuple.

    A part can be read without the other leaves. What a class computes, such as a property, needs
    the whole tree.
    """

    def __init__(self, tree: Any) -> None:
        self._tree = tree
        try:
            self._sample = tree.unflatten([_Place(number) for number in range(tree.num_leaves)])
        except Exception:  # a class of the user's that wants arrays
            self._sample = None
        self._known: dict[tuple[str, Any], Part | None] = {}

    def field(self, name: str) -> Part | None:
        """The part that is an attribute; None if it must be read from the whole tree."""
        return self._part(("field", name), _field)

    def item(self, key: Any) -> Part | None:
        """The part under a key or a number; None if it must be read from the whole tree."""
        try:
            return self._part(("item", key), _item)
        except TypeError:  # a key that is not hashable: the tree raises the error
            return None

    def whole(self, read: Callable[[list[int]], list[Any]], made: Mapping[Any, Any]) -> Any:
        """The pytree itself.

        Args:
            read: (numbers of leaves) -> their values.
            made: the parts that exist already, by their samples' identities.
        """
        if not made:
            return self._tree.unflatten(read(list(range(self._tree.num_leaves))))
        structure: Any
        rows, structure = tree_flatten(self._sample, is_leaf=lambda node: id(node) in made)
        values = iter(read([row.number for row in rows if id(row) not in made]))
        return structure.unflatten(
            [made[id(row)] if id(row) in made else next(values) for row in rows]
        )

    def _part(self, key: tuple[str, Any], look: Callable[[Any, Any], Any]) -> Part | None:
        if key not in self._known:
            found = look(self._sample, key[1])
            self._known[key] = None if found is _NOTHING else self._part_of(found)
        return self._known[key]

    def _part_of(self, found: Any) -> Part | None:
        structure: Any
        leaves, structure = tree_flatten(found)
        rows, _ = tree_flatten(self._sample, is_leaf=lambda node: node is found)
        if any(row is found for row in rows):
            return Part(found, [leaf.number for leaf in leaves], structure.unflatten)
        if any(isinstance(leaf, _Place) for leaf in leaves):
            return None  # a copy, or more than one part
        return Part(found, [], lambda _: found)  # metadata of the class


class _Place:
    """What stands for a leaf in a tree of places."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


_NOTHING: Final = object()


def _field(tree: Any, name: str) -> Any:
    is_field = name in getattr(type(tree), "_fields", ()) or (
        is_dataclass(tree) and name in getattr(tree, "__dict__", ())
    )
    return getattr(tree, name) if is_field else _NOTHING


def _item(tree: Any, key: Any) -> Any:
    if type(tree) is dict:
        return tree.get(key, _NOTHING)
    if isinstance(tree, list | tuple) and isinstance(key, int) and -len(tree) <= key < len(tree):
        return tree[key]
    return _NOTHING
