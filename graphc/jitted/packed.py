"""`PackedTree`: a pytree whose leaves are stored in the buffers of a compiled step."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import jax

from graphc.errors import StateError
from graphc.jitted.failures import DeletedArgumentError
from graphc.runtime.state.state import State
from graphc.typing import ArrayTree

if TYPE_CHECKING:
    from graphc.jitted.arguments import Form

LeafReader: TypeAlias = Callable[[State, list[str]], list[Any]]
"""A function that reads the variables of these names as leaves."""


class Packing:
    """The content of a packed tree: the state that holds its leaves, and their names there.

    Attributes:
        state: holds the leaves, and perhaps those of other packed trees.
        names: the variables of the state that are the leaves, in order.
        form: the structure of the tree.
    """

    __slots__ = ("_is_gone", "_leaves", "_tree", "form", "names", "state")

    def __init__(self, state: State, names: list[str], form: Form, read: LeafReader) -> None:
        self.state, self.names, self.form = state, names, form
        self._leaves = read
        self._tree: Any = None
        self._is_gone = False

    def tree(self) -> ArrayTree:
        """The tree itself, with ordinary arrays.

        Raises:
            StateError: it was passed to the jitted function.
        """
        self.buffers()  # raises if it was consumed
        if self._tree is None:
            leaves = self._leaves(self.state, self.names)
            self._tree = jax.tree.unflatten(self.form.tree, leaves)
        return self._tree

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
        self._tree = None

    def consume(self) -> None:
        """Marks the tree as consumed, while other trees of its state are not."""
        self.forget()
        self._is_gone = True


class _Explained(type):
    """The metaclass of `PackedTree`, whose representation names `graphc.unpack`.

    JAX's errors about trees of different structures show only the classes of the nodes.
    """

    def __repr__(cls) -> str:
        return f"<class 'graphc.{cls.__name__}' (graphc.unpack(tree) returns an ordinary tree)>"


class PackedTree(metaclass=_Explained):
    """A pytree that `gc.jit` returned for a donated argument. Its leaves are stored stacked.

    It behaves like the tree: indexing, attributes, iteration and `len` are those of the tree, and
    JAX functions accept it as an argument. The leaves are copied out of the stacked arrays when
    they are first needed. The jitted function takes it back without a copy.

    `jax.tree.map` of a packed tree returns an ordinary tree, and so do `pickle`, `copy` and `|`.
    Functions of two trees compare their structures, and some libraries want a `dict`, so unpack the
    tree for them: `gc.unpack(tree)`.

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

    # It has only one attribute of its own, which is private. All others are those of the tree.
    __slots__ = ("_packing",)

    def __init__(self, packing: Packing) -> None:
        self._packing = packing

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._packing.tree(), name)

    def __getitem__(self, key: Any) -> Any:
        return self._packing.tree()[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._packing.tree())

    def __len__(self) -> int:
        return len(self._packing.tree())

    def __contains__(self, key: Any) -> bool:
        return key in self._packing.tree()

    def __or__(self, other: Any) -> Any:
        return self._packing.tree() | _plain(other)

    def __ror__(self, other: Any) -> Any:
        return other | self._packing.tree()

    def __reduce__(self) -> Any:
        # The tree itself: whoever opens the pickle needs no graphc.
        return operator.getitem, ((self._packing.tree(),), 0)

    def __copy__(self) -> Any:
        return copy.copy(self._packing.tree())

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy.deepcopy(self._packing.tree(), memo)

    def __repr__(self) -> str:
        return f"<PackedTree of {len(self._packing.names)} arrays>"


def packing_of(value: Any) -> Packing | None:
    """The content of a packed tree; None for any other value."""
    return value._packing if type(value) is PackedTree else None


def unpack(tree: ArrayTree) -> ArrayTree:
    """Replaces the packed trees in a tree by trees of ordinary arrays.

    Args:
        tree: a result of a function of `gc.jit`, or any other pytree.

    Examples:
        >>> gc.unpack({"a": 1})
        {'a': 1}
    """

    return jax.tree.map(_plain, tree, is_leaf=lambda node: type(node) is PackedTree)


def _plain(value: Any) -> Any:
    """The tree of a packed tree; any other value itself."""
    packing = packing_of(value)
    return value if packing is None else packing.tree()


jax.tree_util.register_pytree_node(
    PackedTree, lambda node: ((node._packing.tree(),), None), lambda _, children: children[0]
)
