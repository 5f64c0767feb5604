"""`HasVariables`: the methods that read and set the variables of a session."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np
from numpy.typing import ArrayLike

from graphc.build.trees import values_in_nest
from graphc.errors import AttributeValueError
from graphc.ir.variable import Variable
from graphc.runtime.state.live_state import LiveState
from graphc.runtime.state.state import State
from graphc.typing import ArrayTree, VariableTree


class HasVariables:
    """The methods of a session that read and set its variables."""

    def _live(self) -> LiveState:
        """The state, with every variable that the graph has by now."""
        raise NotImplementedError

    def get(self, name: str | Variable | VariableTree) -> ArrayTree:
        """The current value of a variable: a copy, which later runs do not change.

        Args:
            name: the variable, or its name; or a nest of them, such as `gc.variables` gives.

        Returns:
            A `jax.Array`; for a nest the same nest of arrays, all taken between the same two steps.

        Raises:
            UnknownNameError: there is no such variable.

        Examples:
            >>> w = gc.variable([1.0, 2.0], name="w")
            >>> gc.Session(graph).get("w")
            Array([1., 2.], dtype=float32)
        """
        live = self._live()
        if isinstance(name, (str, Variable)):
            return live.get(name)
        with live.lock:
            return jax.tree.map(live.get, name)

    def set(self, name: str | Variable | VariableTree, value: ArrayTree) -> None:
        """Gives a variable a new value.

        Args:
            name: the variable, or its name; or a nest of them, such as `gc.variables` gives.
            value: of the variable's shape. It is cast to its dtype within a kind (floats to
                floats). For a nest, the same nest of values: all of them are set or, if one does
                not fit, none.

        Raises:
            UnknownNameError, ShapeError, DTypeError: it does not fit; the variable keeps its value.
            AttributeValueError: the nests differ.

        Examples:
            >>> w = gc.variable([1.0, 2.0], name="w")
            >>> session = gc.Session(graph)
            >>> session.set(w, [5.0, 6.0])
            >>> session.run(w * 2)
            Array([10., 12.], dtype=float32)
        """
        if isinstance(name, (str, Variable)):
            self._live().set({name: value})
            return
        structure: Any
        names, structure = jax.tree.flatten(name)
        values = values_in_nest(structure, value, "set: the values")
        self._live().set(dict(zip(names, values, strict=True)))

    def set_all(
        self,
        values: Mapping[str, ArrayLike]
        | Mapping[Variable, ArrayLike]
        | Mapping[str | Variable, ArrayLike],
        *,
        copy: bool = True,
    ) -> None:
        """Gives several variables new values at once: all of them or, if one does not fit, none.

        Faster than several calls of `set`; use it to restore a checkpoint.

        Args:
            values: variable or name -> value.
            copy: with False the session may keep the arrays themselves, so that they must not be
                changed afterwards. Saves memory and time for large values.

        Raises:
            AttributeValueError: `values` is not a dict.
            UnknownNameError, ShapeError, DTypeError: see `set`.

        Examples:
            >>> v, w = gc.variable(1.0, name="v"), gc.variable(2.0, name="w")
            >>> session = gc.Session(graph)
            >>> session.set_all({"v": 3.0, "w": 4.0})
            >>> session.run(v + w)
            Array(7., dtype=float32)
        """
        if not isinstance(values, Mapping):
            raise AttributeValueError.here(
                f"set_all: takes a dict of values, got {type(values).__name__}",
                hint="session.set_all(dict(zip(names, values))); session.values() is such a dict",
            )
        self._live().set(values, copy=copy)

    def values(
        self, names: Iterable[str | Variable] | None = None
    ) -> dict[str, np.ndarray[Any, Any]]:
        """Copies of variables on the host, by name, all taken between the same two steps.

        Args:
            names: the variables; by default all.

        Raises:
            UnknownNameError: there is no such variable.

        Examples:
            >>> v, w = gc.variable(1.0, name="v"), gc.variable([2, 3], name="w")
            >>> gc.Session(graph).values()
            {'v': array(1., dtype=float32), 'w': array([2, 3], dtype=int32)}
        """
        return self._live().values(names)

    def state(self) -> State:
        """All state, as an executable of `gc.compile` takes it: a copy.

        Examples:
            >>> w = gc.variable(2.0, name="w")
            >>> step, session = gc.compile(graph, w * 10), gc.Session(graph)
            >>> session.set(w, 3.0)
            >>> step(session.state())[0]
            Array(30., dtype=float32)
        """
        return self._live().copy()
