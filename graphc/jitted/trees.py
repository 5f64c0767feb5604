"""Pytree structures as plain values, because JAX cannot serialise those with user classes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import Any

from graphc.errors import SerialError
from graphc.jitted.values import stated

_LEAF = "*"
_DEEPEST = 400  # levels of a description: each level of a pytree takes two or three


def described(tree: Any, strictly: bool = False) -> Any:
    """A description of a structure. Equal structures have equal descriptions.

    Classes are described by their names, so no instance can be created from them: see `encoded`.

    Args:
        strictly: whether different structures must have different descriptions.

    Raises:
        SerialError: with `strictly`, the metadata of a node cannot be described.
    """
    data = tree.node_data()
    if data is None:
        return _LEAF
    kind, own = data
    children = [described(child, strictly) for child in tree.children()]
    return [f"{kind.__module__}.{kind.__qualname__}", _plain(kind, own, strictly), children]


def _plain(kind: type, own: Any, strictly: bool) -> Any:
    """The data of a node in addition to its children: the keys of a dict; metadata."""
    if kind is dict:
        own = list(own)
    elif own is kind:  # a named tuple
        return None
    try:
        return None if own is None else stated(own)
    except SerialError:
        if strictly:
            raise
        return repr(own)


def encoded(tree: Any, arguments: Sequence[Any]) -> Any:
    """The structure of a result, in a form from which `decoded` restores it.

    A subtree with a node of another class than tuple, list, dict and None is written as the
    position of an equal subtree in the arguments. Such a subtree is, for example, the state that a
    training step takes and returns.

    Raises:
        SerialError: no argument has this subtree.
    """
    data = tree.node_data()
    if data is None:
        return _LEAF
    kind, own = data
    children = tree.children()
    if kind in (tuple, list):
        return {kind.__name__: [encoded(child, arguments) for child in children]}
    if kind is dict and all(type(key) in (str, int) for key in own):
        rows = zip(own, children, strict=True)
        return {"dict": [[key, encoded(child, arguments)] for key, child in rows]}
    if kind is type(None):
        return {"none": []}
    place = _place(tree, arguments)
    if place is None:
        raise SerialError(
            f"the result holds a {kind.__qualname__}, which no file can hold",
            hint="return tuples, lists and dicts; or take an argument of the same structure, as a "
            "training step does",
        )
    return {"like": place}


def _place(tree: Any, arguments: Sequence[Any]) -> list[int] | None:
    """The path to an equal subtree: the number of an argument, then the numbers of children."""

    def search(node: Any, path: list[int]) -> list[int] | None:
        if node == tree:
            return path
        for number, child in enumerate(node.children()):
            found = search(child, [*path, number])
            if found is not None:
                return found
        return None

    for number, argument in enumerate(arguments):
        found = search(argument, [number])
        if found is not None:
            return found
    return None


def decoded(data: Any, arguments: Sequence[Any], leaves: Sequence[Any]) -> Any:
    """A nest of these leaves in the structure that `encoded` wrote, for arguments of these
    structures.

    Raises:
        SerialError: `encoded` did not write this data, or not for this number of leaves.
    """
    rest = iter(leaves)
    try:
        nest = _filled(data, arguments, rest)
    except Exception as error:  # also those of classes of the user's that refuse the leaves
        raise SerialError("this is not the structure of a result") from error
    if next(rest, rest) is not rest:
        raise SerialError("this is not the structure of a result: it has fewer leaves")
    return nest


def _filled(data: Any, arguments: Sequence[Any], leaves: Iterator[Any]) -> Any:
    if data == _LEAF:
        return next(leaves)
    ((kind, content),) = data.items()
    if kind == "like":
        number, *path = content
        tree = arguments[number]
        for child in path:
            tree = tree.children()[child]
        return tree.unflatten(list(islice(leaves, tree.num_leaves)))
    if kind == "none":
        return None
    if kind == "dict":
        return {key: _filled(child, arguments, leaves) for key, child in content}
    children = [_filled(child, arguments, leaves) for child in content]
    return {"tuple": tuple, "list": list}[kind](children)


def leaves_of(descriptions: Sequence[Any]) -> int:
    """The number of leaves in descriptions that `described` returned.

    Raises:
        TypeError, IndexError: the data are not such descriptions.
    """
    found, level = 0, list(descriptions)
    while level:
        found += level.count(_LEAF)
        level = [child for node in level if node != _LEAF for child in _children(node)]
    return found


def _children(node: Any) -> list[Any]:
    if not isinstance(node, list) or not isinstance(node[2], list):
        raise TypeError("not a description")
    return node[2]


def is_shallow(data: Any) -> bool:
    """Whether the nesting of plain data is shallow enough for Python to compare and read it."""
    level = [data]
    for _ in range(_DEEPEST):
        inner = [node.values() if isinstance(node, dict) else node for node in level]
        level = [item for node in inner if isinstance(node, Collection) for item in node]
        level = [item for item in level if isinstance(item, list | dict)]
        if not level:
            return True
    return False
