"""The parts at the top of a pytree, and the leaves that each of them holds."""

from __future__ import annotations

import inspect
import operator
from collections import namedtuple
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final, NamedTuple

from jax.tree_util import tree_flatten


class Part(NamedTuple):
    """A field or an item of a pytree.

    Attributes:
        sample: the part in the tree of places.
        numbers: its leaves among those of the pytree.
        structure: its own; None for what a class keeps besides its leaves, which is the sample.
    """

    sample: Any
    numbers: list[int]
    structure: Any


class Parts:
    """The parts at the top of a pytree with some structure: fields of a dataclass or a named tuple,
    items of a dict, a list or a tuple.

    A part can be read without the other leaves. All else needs the whole tree, such as a property,
    or what a class computes when it is made.
    """

    def __init__(self, tree: Any) -> None:
        self._tree = tree
        self._sample = _tree_of_places(tree)
        self._children, _ = tree_flatten(self._sample, is_leaf=lambda n: n is not self._sample)
        held = tree.node_data()[1]  # what a class keeps besides its leaves
        self._metadata = held if isinstance(held, tuple) else ()
        self._known: dict[Any, Part | None] = {}

    def field(self, name: str) -> Part | None:
        """The part that is an attribute; None if it must be read from the whole tree."""
        if name not in self._known:
            self._known[name] = self._part_of(_field(self._sample, name))
        return self._known[name]

    def item(self, key: Any) -> Part | None:
        """The part under a key or a number; None if it must be read from the whole tree."""
        try:
            place = type(key), key
            if place not in self._known:
                self._known[place] = self._part_of(_item(self._sample, key))
        except TypeError:  # a key that is not hashable: the tree raises the error
            return None
        return self._known[place]

    def whole(self, read: Callable[[list[int]], list[Any]], made: Mapping[int, Any]) -> Any:
        """The pytree itself.

        Args:
            read: (numbers of leaves) -> their values.
            made: the parts that exist already, by the identities of their samples.
        """
        if not made:
            return self._tree.unflatten(read(list(range(self._tree.num_leaves))))
        structure: Any
        rows, structure = tree_flatten(self._sample, is_leaf=lambda node: id(node) in made)
        values = iter(read([row.number for row in rows if id(row) not in made]))
        return structure.unflatten(
            [made[id(row)] if id(row) in made else next(values) for row in rows]
        )

    def _part_of(self, found: Any) -> Part | None:
        if any(held is found for held in self._metadata):
            return Part(found, [], None)
        if found is _NOTHING or not any(child is found for child in self._children):
            return None
        places, structure = tree_flatten(found)
        return Part(found, [place.number for place in places], structure)


class _Place:
    """What stands for a leaf in a tree of places."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


def _tree_of_places(tree: Any) -> Any:
    """The pytree with a place for each leaf; None if a class of the user's looks at its leaves, or
    changes them."""
    places = [_Place(number) for number in range(tree.num_leaves)]
    try:
        sample = tree.unflatten(places)
        leaves, structure = tree_flatten(sample)
        is_faithful = structure == tree and all(map(operator.is_, leaves, places))
    except Exception:
        return None
    return sample if is_faithful else None


_NOTHING: Final = object()
_FIELD_OF_TUPLE: Final = type(namedtuple("_", "a").a)  # type: ignore[attr-defined]


def _field(tree: Any, name: str) -> Any:
    """A field of the tree that no property hides."""
    way: Any = type(tree).__getattribute__
    if way not in (object.__getattribute__, tuple.__getattribute__):
        return _NOTHING
    of_class = inspect.getattr_static(type(tree), name, None)
    if isinstance(of_class, _FIELD_OF_TUPLE):
        return getattr(tree, name)
    is_field = is_dataclass(tree) and any(field.name == name for field in fields(tree))
    own = getattr(tree, "__dict__", {})
    return own[name] if is_field and name in own and not hasattr(of_class, "__get__") else _NOTHING


def _item(tree: Any, key: Any) -> Any:
    if type(tree) is dict:
        return tree.get(key, _NOTHING)
    is_sequence = getattr(type(tree), "__getitem__", None) in (list.__getitem__, tuple.__getitem__)
    if is_sequence and type(key) is int and -len(tree) <= key < len(tree):
        return tree[key]
    return _NOTHING
