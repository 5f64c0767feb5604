"""`PackedTree`: a pytree whose leaves are in buffers that a compiled step works on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import jax

from graphc.copying import Uncopied
from graphc.errors import StateError
from graphc.runtime.state.state import State
from graphc.typing import ArrayTree

if TYPE_CHECKING:
    from graphc.jitted.arguments import Form

LeafReader: TypeAlias = Callable[[State, list[str]], list[Any]]
"""What reads the variables of these names as leaves."""


class PackedTree(Uncopied):
    """A pytree that `gc.jit` returned for a donated argument. Its leaves are stored stacked.

    It behaves like the tree: indexing, attributes, iteration and `len` are those of the tree, and
    functions of JAX take it as an argument. The leaves are copied out of the stacked arrays when
    they are first needed. The jitted function takes it back without a copy.

    `jax.tree.map` of a packed tree gives an ordinary tree. Functions that take two trees compare
    their structures, so unpack it for them: `gc.unpack(tree)`.

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

    __slots__ = ("_is_gone", "_leaves", "_made_of", "_tree", "form", "names", "state")

    instead = "copy its leaves: jax.tree.map(np.asarray, tree)"

    def __init__(self, state: State, names: list[str], form: Form, read: LeafReader) -> None:
        self.state, self.names, self.form = state, names, form
        self._leaves = read
        self._tree: Any = None
        self._made_of: Any = None  # the buffers: others after a step that was interrupted
        self._is_gone = False

    def unpacked(self) -> ArrayTree:
        """The tree itself, with ordinary arrays.

        Raises:
            StateError: it was given back to the jitted function.
        """
        buffers = self.buffers()
        if self._tree is None or self._made_of is not buffers:
            leaves = self._leaves(self.state, self.names)
            self._tree = jax.tree.unflatten(self.form.tree, leaves)
            self._made_of = buffers
        return self._tree

    def buffers(self) -> list[jax.Array]:
        """The buffers that hold its leaves, and perhaps those of other trees.

        Raises:
            StateError: it was given back to the jitted function.
        """
        if self._is_gone:
            raise StateError(
                "this packed tree was consumed by a call that took it together with other trees",
                hint="go on with the tree that the call returned",
            )
        return self.state.buffers

    def forget(self) -> None:
        """Frees the leaves that were copied out."""
        self._tree = self._made_of = None

    def consume(self) -> None:
        """Marks it as given away, while other trees of its state are not."""
        self.forget()
        self._is_gone = True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.unpacked(), name)

    def __getitem__(self, key: Any) -> Any:
        return self.unpacked()[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.unpacked())

    def __len__(self) -> int:
        return len(self.unpacked())

    def __contains__(self, key: Any) -> bool:
        return key in self.unpacked()

    def __repr__(self) -> str:
        return f"<PackedTree of {len(self.names)} arrays>"


def unpack(tree: ArrayTree) -> ArrayTree:
    """A tree with ordinary arrays, in place of the packed trees in it.

    Args:
        tree: a result of a function of `gc.jit`, or any other pytree.

    Examples:
        >>> gc.unpack({"a": 1})
        {'a': 1}
    """

    def is_packed(node: Any) -> bool:
        return type(node) is PackedTree

    return jax.tree.map(
        lambda node: node.unpacked() if is_packed(node) else node, tree, is_leaf=is_packed
    )


jax.tree_util.register_pytree_node(
    PackedTree, lambda packed: ((packed.unpacked(),), None), lambda _, children: children[0]
)
