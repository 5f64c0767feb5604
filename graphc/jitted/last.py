"""How a jitted function recognises a call, and runs it again without a search for its program."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import jax
from jax.tree_util import tree_flatten, tree_structure

from graphc.devices.discovery import default_device
from graphc.jax_internals import is_tracing, words_of_key
from graphc.jaxpr.tracing import NO_VALUE
from graphc.jitted.arguments import Form, array_type, flatten, is_keys, kind_of_leaf
from graphc.jitted.direct import BY_JAX, OTHER
from graphc.jitted.packed import packing_of, unpack
from graphc.jitted.program import Given, JitProgram
from graphc.jitted.surroundings import Place, committed_to, is_spread, place_for

_AVAL, _WHERE = attrgetter("aval"), attrgetter("sharding", "committed")


def _committed(leaves: Sequence[Any]) -> list[Any]:
    """Which leaves are committed to their devices; None for those that are not on devices."""
    return [getattr(leaf, "committed", None) for leaf in leaves]


class Recognised:
    """Recognises calls by the structure of the arguments and the kinds of their leaves.

    Args:
        key: the other conditions: the labels, the static arguments, JAX's settings.
        tree: the structure of all arguments.
        leaves: their leaves.
    """

    def __init__(self, key: Any, tree: Any, leaves: Sequence[Any]) -> None:
        self.key, self._tree = key, tree
        self._keys = [
            (number, type(leaf), leaf.dtype) for number, leaf in enumerate(leaves) if is_keys(leaf)
        ]
        plain = list(leaves)
        self._put_words(plain)
        array = array_type()
        self._types = list(map(type, plain))
        self._kinds = [kind_of_leaf(jax.typeof(leaf)) for leaf in plain]
        self._avals: list[Any] | None = None  # those of leaves that were checked completely
        self._are_arrays = [kind is array for kind in self._types]
        self._only_arrays = all(self._are_arrays)

    def is_like(self, other: Recognised) -> bool:
        """Whether both recognise the same leaves."""
        mine = self._types, self._kinds, self._keys
        return mine == (other._types, other._kinds, other._keys)

    def _flat(self, values: Sequence[Any]) -> list[Any] | None:
        """The leaves of the arguments, with words for keys; None if the structure or the type of a
        key differs."""
        leaves, tree = tree_flatten(tuple(values))
        return leaves if tree == self._tree and self._put_words(leaves) else None

    def _put_words(self, leaves: list[Any]) -> bool:
        """Replaces the keys in `leaves` by their words, in place. If one of them is not a key of
        the expected type, the result is False, and keys before it are replaced already."""
        for number, kind, dtype in self._keys:
            leaf = leaves[number]
            if type(leaf) is not kind or leaf.dtype != dtype:
                return False
            leaves[number] = words_of_key(leaf)
        return True

    def _avals_of(self, leaves: Sequence[Any]) -> list[Any] | None:
        """The abstract values of the leaves; None if a type differs or JAX cannot take a leaf.

        `jax.typeof` is slow: only leaves that are not JAX arrays need it.
        """
        if self._only_arrays:
            try:
                return list(map(_AVAL, leaves))
            except AttributeError:  # NumPy's arrays and numbers have no `aval`
                return None
        if list(map(type, leaves)) != self._types:
            return None
        pairs = zip(leaves, self._are_arrays, strict=True)
        try:
            return [leaf.aval if is_array else jax.typeof(leaf) for leaf, is_array in pairs]
        except NO_VALUE:
            return None

    def _has_form(self, leaves: Sequence[Any], avals: Sequence[Any]) -> bool:
        """Whether leaves have these types and kinds. JAX shares abstract values between arrays, so
        most are those of the last check."""
        if list(map(type, leaves)) != self._types:
            return False
        rows = zip(avals, self._avals or self._kinds, self._kinds, strict=True)
        return all(aval is old or kind_of_leaf(aval) == kind for aval, old, kind in rows)


class LeftToJax(Recognised):
    """A call that JAX runs, for a reason that holds for all arguments of these forms."""

    @classmethod
    def of(cls, key: Any, values: Sequence[Any]) -> LeftToJax | None:
        """One for calls like this one; None if it cannot be recognised by its leaves alone."""
        leaves, tree = tree_flatten(tuple(values))
        plain: Any = tree_structure(unpack(tuple(values)))
        if plain != tree:
            return None  # packed trees are unpacked for JAX
        if is_tracing():
            return None
        try:
            return cls(key, tree, leaves)
        except (TypeError, AttributeError):  # JAX raises the error, or takes another value
            return None

    def call(self, values: Sequence[Any]) -> Any:
        """`BY_JAX`; `OTHER` if the arguments have other forms."""
        leaves = self._flat(values)
        avals = None if leaves is None else self._avals_of(leaves)
        if leaves is None or avals is None:
            return OTHER
        # Tracers have the abstract values of arrays, but other types.
        if list(map(type, leaves)) != self._types:
            return OTHER
        if avals != self._avals:
            if not self._has_form(leaves, avals):
                return OTHER
            self._avals = avals
        return BY_JAX


class LastCall(Recognised):
    """The last program, and how to call it again with arguments of the same forms.

    Args:
        key: the other conditions for reuse: the labels, the static arguments, JAX's settings.
        forms: the forms of the arguments, with the types of the leaves of this call.
        place: where the program runs; None under a strategy.
    """

    def __init__(
        self,
        key: Any,
        program: JitProgram,
        forms: Sequence[Form],
        values: Sequence[Any],
        place: Place | None,
    ) -> None:
        self._direct = program.direct(forms)
        # Without the direct path, packed trees stay packed, and the forms are compared.
        leaves, tree = ([], None) if self._direct is None else tree_flatten(tuple(values))
        super().__init__(key, tree, leaves)
        self.program, self.forms, self._place = program, forms, place
        self._shardings: list[Any] | None = None
        # With several devices, results are committed if arguments are.
        self._may_commit = place is not None and jax.local_device_count() > 1
        self._committed = _committed(leaves) if self._may_commit else []
        # XLA's executable moves arrays that are not committed, but the default device must run
        # them.
        self._is_elsewhere = place is not None and place.device != default_device()

    def is_like(self, other: Recognised) -> bool:
        """Whether both call the same program with the same leaves."""
        if type(other) is not LastCall or self.program is not other.program:
            return False
        types, others = ([form.types for form in each.forms] for each in (self, other))
        return types == others

    def call(self, values: Sequence[Any]) -> Any:
        """The result; `OTHER` if the arguments have other forms, are on other devices, or are not
        valid."""
        if self._direct is None:
            given = self._matching(values)
            return OTHER if given is None else self.program(given)
        leaves = self._flat(values)
        avals = None if leaves is None else self._avals_of(leaves)
        if leaves is None or avals is None:
            return OTHER
        committed = _committed(leaves) if self._may_commit else []
        if avals != self._avals or committed != self._committed or self._is_elsewhere:
            # Later leaves with equal avals have these forms too, or XLA's executable refuses them:
            # an aval states the mesh on which an array is, and the executable refuses tracers, and
            # arrays that are committed to another device.
            if not self._has_form(leaves, avals) or not self._are_here(leaves):
                return OTHER
            self._avals, self._committed = avals, committed
        return self._direct(leaves)

    def _matching(self, values: Sequence[Any]) -> list[Given] | None:
        """The leaves of the arguments; None if one has another form, or is on another device."""
        given: list[Given] = []
        everything: list[Any] = []
        for form, value in zip(self.forms, values, strict=True):
            packing = packing_of(value)
            if packing is not None:
                if packing.form is not form and packing.form.key != form.key:
                    return None
                given.append(value)
                everything += packing.buffers()
                continue
            leaves, found = flatten(value, form)
            if found is None:
                return None
            given.append(leaves)
            everything += leaves
        if self._place is None:
            return given
        return given if self._are_here(everything) else None

    def _are_here(self, leaves: Sequence[Any]) -> bool:
        """Whether all leaves that are on devices are where the program runs."""
        arrays = [leaf for leaf in leaves if isinstance(leaf, jax.Array)]
        shardings = list(map(_WHERE, arrays))
        if shardings == self._shardings:
            return True
        if any(map(is_spread, arrays)) or len(committed_to(arrays)) > 1:
            return False
        if self._place is not None and place_for(arrays) != self._place:
            return False
        self._shardings = shardings
        return True
