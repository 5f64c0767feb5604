"""`LastCall`: the last program of a jitted function, called again without a search for it."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import jax
from jax.tree_util import tree_flatten, tree_structure

from graphc.devices.discovery import default_device
from graphc.jitted.arguments import Form, array_type, flatten, kind_of_leaf
from graphc.jitted.direct import OTHER
from graphc.jitted.packed import packing_of
from graphc.jitted.program import Given, JitProgram
from graphc.jitted.surroundings import committed_to, device_for, is_spread

_AVAL, _SHARDING = attrgetter("aval"), attrgetter("sharding")


class LastCall:
    """The last program, and how to call it again with arguments of the same forms.

    Args:
        key: the other conditions for reuse: the labels, the static arguments, JAX's settings.
        forms: the forms of the arguments, with the types of the leaves of this call.
        device: the device on which the program runs; None under a strategy.
    """

    def __init__(
        self,
        key: Any,
        program: JitProgram,
        forms: Sequence[Form],
        values: Sequence[Any],
        device: jax.Device | None,
    ) -> None:
        self.key, self.program, self.forms, self._device = key, program, forms, device
        self._direct = program.direct(forms)
        self._tree: Any = tree_structure(tuple(values)) if self._direct is not None else None
        self._types = [kind for form in forms for kind in form.types]
        self._kinds = [kind_of_leaf(aval) for form in forms for aval in form.avals]
        self._avals: list[Any] | None = None  # those of leaves that were checked completely
        array = array_type()
        self._are_arrays = [kind is array for kind in self._types]
        self._only_arrays = all(self._are_arrays)
        self._shardings: list[Any] | None = None
        # XLA's executable moves arrays that are not committed, but the default device must run
        # them.
        self._is_elsewhere = device is not None and device != default_device()

    def call(self, values: Sequence[Any]) -> Any:
        """The result; `OTHER` if the arguments have other forms, are on other devices, or are not
        valid."""
        if self._direct is None:
            given = self._matching(values)
            return OTHER if given is None else self.program(given)
        leaves, tree = tree_flatten(tuple(values))
        if tree != self._tree:
            return OTHER
        if self._only_arrays:
            try:
                avals = list(map(_AVAL, leaves))
            except AttributeError:  # NumPy's arrays and numbers have no `aval`
                return OTHER
        elif list(map(type, leaves)) == self._types:
            avals = self._avals_of(leaves)
        else:
            return OTHER
        if avals != self._avals or self._is_elsewhere:
            if not self._has_form(leaves, avals):
                return OTHER
            self._avals = avals
        return self._direct(leaves)

    def _has_form(self, leaves: Sequence[Any], avals: Sequence[Any]) -> bool:
        """Whether leaves have the form of the program and are on its device.

        If it has them, later leaves with equal avals have them too, or XLA's executable refuses
        them. An aval states the mesh on which an array is. The executable refuses tracers, and
        arrays that are committed to another device.
        """
        return (
            list(map(type, leaves)) == self._types
            and list(map(kind_of_leaf, avals)) == self._kinds
            and self._are_here(leaves)
        )

    def _avals_of(self, leaves: Sequence[Any]) -> list[Any]:
        """The avals of the leaves. `jax.typeof` is slow: only leaves that are not JAX arrays need
        it."""
        pairs = zip(leaves, self._are_arrays, strict=True)
        return [leaf.aval if is_array else jax.typeof(leaf) for leaf, is_array in pairs]

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
                continue
            leaves, found = flatten(value, form)
            if found is None:
                return None
            given.append(leaves)
            everything += leaves
        if self._device is None:
            return given
        return given if self._are_here(everything) else None

    def _are_here(self, leaves: Sequence[Any]) -> bool:
        """Whether all leaves that are on devices are on the device of the program."""
        arrays = [leaf for leaf in leaves if isinstance(leaf, jax.Array)]  # keys too
        shardings = list(map(_SHARDING, arrays))
        if shardings == self._shardings:
            return True
        if any(map(is_spread, arrays)) or len(committed_to(arrays)) > 1:
            return False
        if self._device is not None and device_for(arrays) != self._device:
            return False
        self._shardings = shardings
        return True
