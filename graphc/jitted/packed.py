"""`PackedTree`: a pytree whose leaves are stored in the buffers of a compiled step."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import jax

from graphc.errors import StateError
from graphc.jitted.failures import DeletedArgumentError
from graphc.jitted.parts import Part
from graphc.runtime.state.state import State
from graphc.typing import ArrayTree

if TYPE_CHECKING:
    from graphc.jitted.arguments import Form

LeafReader: TypeAlias = Callable[[State, list[str]], list[Any]]
"""A function that reads the variables of these names as leaves."""


class Packing:
    """The content of a packed tree: the state that holds its leaves, and their names there.

    Leaves are copied out of the state when they are first needed, those of a field or an item
    without the others.

    Attributes:
        state: holds the leaves, and perhaps those of other packed trees.
        names: the variables of the state that are the leaves, in order.
        form: the structure of the tree.
    """

    __slots__ = (
        *("_is_gone", "_originals", "_parts", "_read", "_tree"),
        *("form", "names", "state"),
    )

    def __init__(self, state: State, names: list[str], form: Form, read: LeafReader) -> None:
        self.state, self.names, self.form = state, names, form
        self._read = read
        self._is_gone = False
        self._tree: Any = None
        self._parts: dict[int, tuple[Part, Any]] = {}  # by the identities of their samples
        self._originals: dict[int, Any] = {}  # the leaves that were read, by their numbers

    def tree(self) -> ArrayTree:
        """The tree itself, with ordinary arrays.

        Raises:
            StateError: it was passed to the jitted function.
        """
        self.buffers()  # raises if it was consumed
        with self.state.lock:
            if self._tree is None:
                made = {place: value for place, (_, value) in self._parts.items()}
                self._tree = self.form.parts.whole(self._leaves, made)
            return self._tree

    def field(self, name: str) -> Any:
        """An attribute of the tree."""
        with self.state.lock:  # each part is made once
            part = self.form.parts.field(name) if self._tree is None else None
            return getattr(self.tree(), name) if part is None else self._made(part)

    def item(self, key: Any) -> Any:
        """What the tree has under a key."""
        with self.state.lock:
            part = self.form.parts.item(key) if self._tree is None else None
            return self.tree()[key] if part is None else self._made(part)

    def changes(self) -> dict[int, Any] | None:
        """The leaves that the user has replaced in place, by their numbers; None if the tree has
        another structure now."""
        with self.state.lock:
            given = list(self._parts.values())
            if self._tree is not None:  # it holds the parts, unless they were replaced in it
                given = [(Part(None, list(range(len(self.names))), self.form.tree), self._tree)]
        found: dict[int, Any] = {}
        for part, value in given:
            leaves, structure = jax.tree.flatten(value)
            if structure != part.structure:
                return None
            pairs = zip(part.numbers, leaves, strict=True)
            found |= {n: leaf for n, leaf in pairs if leaf is not self._originals[n]}
        return found

    def put_back(self, changes: Mapping[int, Any]) -> None:
        """Writes leaves that were replaced into the state."""
        with self.state.lock:
            self.state.put({self.names[number]: leaf for number, leaf in changes.items()})
            self._originals |= changes

    def buffers(self) -> list[jax.Array]:
        """The buffers that hold the leaves, and perhaps those of other trees.

        Raises:
            StateError: the tree was passed to the jitted function.
        """
        if self._is_gone:
            raise StateError(
                "this packed tree was consumed by a call that took it together with other trees",
                hint="go on with the tree that the call returned",
            )
        if self.state.was_donated:
            raise DeletedArgumentError.here(
                "this packed tree was donated to a later call of the jitted function",
                hint="go on with the tree that the call returned; to keep the old one, copy it "
                "before the call: gc.unpack(tree)",
            )
        return self.state.buffers

    def forget(self) -> None:
        """Frees the leaves that were copied out. After a step, even an interrupted one, the state
        holds other values."""
        self._tree, self._parts, self._originals = None, {}, {}

    def consume(self) -> None:
        """Marks the tree as consumed, while other trees of its state are not."""
        self.forget()
        self._is_gone = True

    def _made(self, part: Part) -> Any:
        if part.structure is None:
            return part.sample
        self.buffers()  # raises if it was consumed
        place = id(part.sample)
        if place not in self._parts:
            made = part.structure.unflatten(self._leaves(part.numbers))
            self._parts[place] = part, made
        return self._parts[place][1]

    def _leaves(self, numbers: list[int]) -> list[Any]:
        leaves = self._read(self.state, [self.names[number] for number in numbers])
        self._originals |= zip(numbers, leaves, strict=True)
        return leaves


class _Explained(type):
    """The metaclass of `PackedTree`, whose representation names `graphc.unpack`.

    JAX's errors about trees of different structures show only the classes of the nodes.
    """

    def __repr__(cls) -> str:
        return f"<class 'graphc.{cls.__name__}' (graphc.unpack(tree) returns an ordinary tree)>"


class PackedTree(metaclass=_Explained):
    """A pytree that `gc.jit` returned for a donated argument. Its leaves are stored stacked.

    It behaves like the tree: indexing, attributes, iteration, `len` and `isinstance` are those of
    the tree, and JAX functions accept it as an argument. The leaves are copied out of the stacked
    arrays when they are first needed: those of a field or an item (`state.step`, `params["scale"]`)
    alone, and all of them for anything else, such as methods and iteration. The jitted function
    takes the tree back without a copy, except for leaves that were replaced in place.

    `jax.tree.map` of a packed tree returns an ordinary tree, and so do `pickle`, `copy` and `|`.
    Functions of two trees compare their structures, and some libraries look at `type(tree)`, so
    unpack the tree for them: `gc.unpack(tree)`.

    The next call of the jitted function consumes it, as it consumes any donated argument.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> def loss(layers, x):
        ...     for w in layers:
        ...         x = jnp.tanh(x @ w)
        ...     return x.sum()
        >>> def step(layers, x):
        ...     return jax.tree.map(jnp.subtract, layers, jax.grad(loss)(layers, x))
        >>> layers = [jnp.eye(16) for _ in range(12)]
        >>> layers = gc.jit(step, donate_argnums=0)(layers, jnp.ones((1, 16)))
        >>> layers, len(layers), layers[7].shape
        (<PackedTree of 12 arrays>, 12, (16, 16))
    """

    # Its only attribute is private. All others are those of the tree.
    __slots__ = ("__weakref__", "_packing")

    _packing: Packing

    def __init__(self, packing: Packing) -> None:
        object.__setattr__(self, "_packing", packing)

    @property  # type: ignore[misc]  # the one of `object` can be assigned
    def __class__(self) -> Any:
        """The class of the tree, so that `isinstance(state, TrainState)` is true."""
        return self._packing.form.tree.node_data()[0]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__dict__":
            raise AttributeError(name)
        return self._packing.field(name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._packing.tree(), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._packing.tree(), name)

    def __dir__(self) -> Iterable[str]:
        return dir(self._packing.tree())

    def __reduce__(self) -> Any:
        # The tree itself: whoever opens the pickle needs no graphc.
        return operator.getitem, ((self._packing.tree(),), 0)

    def __copy__(self) -> Any:
        return copy.copy(self._packing.tree())

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy.deepcopy(self._packing.tree(), memo)

    def __repr__(self) -> str:
        return f"<PackedTree of {len(self._packing.names)} arrays>"


def packed_tree(packing: Packing) -> PackedTree:
    """A packed tree of the class that its content needs."""
    tree: PackedTree = _class_for(packing.form.tree.node_data()[0])(packing)
    return tree


# Special methods that a packed tree does not take from the class of the tree: its own, and those of
# the life of objects.
_OWN: Final = {*vars(object), *vars(PackedTree), "__class_getitem__", "__del__", "__getnewargs__"}
_ALSO: Final = {"__eq__", "__ge__", "__gt__", "__hash__", "__le__", "__lt__", "__ne__", "__str__"}


@cache
def _class_for(kind: type) -> Any:
    """The class for packed trees of a class, because Python looks for special methods at the class
    alone, and for the fields of dataclasses."""
    more: dict[str, Any] = {"__slots__": ()}
    for name in dir(kind):
        method = getattr(kind, name)
        is_special = name.startswith("__") and name.endswith("__") and name not in _OWN - _ALSO
        if is_special and method is not getattr(object, name, None):
            if method is None:  # a class without hashes
                more[name] = None
            elif callable(method):
                more[name] = _forwarded(name)
    if "__getitem__" in more:
        more["__getitem__"] = lambda self, key: self._packing.item(key)
    if is_dataclass(kind):
        more["__dataclass_fields__"] = kind.__dataclass_fields__
    made: Any = _Explained(PackedTree.__name__, (PackedTree,), more)
    for base in (Mapping, Sequence):  # for patterns of `match`
        if issubclass(kind, base):
            base.register(made)
    return _registered(made)


def _forwarded(name: str) -> Callable[..., Any]:
    def method(self: PackedTree, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._packing.tree(), name)(*map(_plain, args), **kwargs)

    return method


def _flattened(node: PackedTree) -> tuple[list[Any], Any]:
    """What is one level below the top of the tree, and the class of the top."""
    tree = node._packing.tree()
    return jax.tree.flatten(tree, is_leaf=lambda part: part is not tree)


def _flattened_with_keys(node: PackedTree) -> tuple[list[tuple[Any, Any]], Any]:
    tree = node._packing.tree()
    rows, top = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda part: part is not tree)
    return [(path[0], part) for path, part in rows], top


def _registered(kind: type[PackedTree]) -> type[PackedTree]:
    """The class, as a pytree whose leaves have the paths that they have in the tree."""
    jax.tree_util.register_pytree_with_keys(
        kind, _flattened_with_keys, lambda top, parts: top.unflatten(parts), _flattened
    )
    _CLASSES.add(kind)
    return kind


_CLASSES: Final[set[type]] = set()


def is_packed(value: Any) -> bool:
    """Whether a value is a packed tree."""
    return type(value) in _CLASSES


def packing_of(value: Any) -> Packing | None:
    """The content of a packed tree; None for any other value."""
    return value._packing if type(value) in _CLASSES else None


def unpack(tree: ArrayTree) -> ArrayTree:
    """Replaces the packed trees in a tree by trees of ordinary arrays.

    Args:
        tree: a result of a function of `gc.jit`, or any other pytree.

    Examples:
        >>> gc.unpack({"a": 1})
        {'a': 1}
    """

    return jax.tree.map(_plain, tree, is_leaf=is_packed)


def _plain(value: Any) -> Any:
    """The tree of a packed tree; any other value itself."""
    if not is_packed(value):
        return value
    tree = value._packing.tree()
    is_nested = any(map(is_packed, jax.tree.leaves(tree, is_leaf=is_packed)))
    return unpack(tree) if is_nested else tree
