"""The variables of a loaded model: in the file, on devices, and in the callers' states."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp
from jax.sharding import Sharding

from graphc.artifacts.sharing import SharedArrays
from graphc.artifacts.weights import Weights
from graphc.copying import Uncopied
from graphc.errors import DTypeError, ShapeError, StateError, UnknownNameError, nearest
from graphc.ir.types import TensorType
from graphc.passes.simplify.functionalize import RNG_COUNTER, RNG_KEY
from graphc.runtime.buffers.layout import public_names
from graphc.runtime.core.forking import FORKING
from graphc.runtime.feeds.feeds import variable_value
from graphc.runtime.state.initial import key_of


class Saved:
    """The saved values of a model. They are transferred to devices when they are first needed.

    Args:
        types: every variable, hidden ones included, in the order of the graph.
        home: the device for a value that is read without an entry point.
        arrays: the arrays of other artifacts, with which `shared` values of equal content are
            shared too.
    """

    def __init__(
        self,
        types: Mapping[str, TensorType],
        weights: Weights,
        home: Sharding,
        arrays: SharedArrays | None = None,
    ) -> None:
        self.types = dict(types)
        self.home = home
        self._weights = weights
        self._arrays = arrays
        self._placed: dict[tuple[str, Sharding], jax.Array] = {}
        self._lock = threading.Lock()

    def shared(self, name: str, where: Sharding) -> jax.Array:
        """The value on the requested devices. All entry points and states share one copy.

        Raises:
            ArtifactCorruptError: it was altered in the file.
        """
        with self._lock:
            found = self._placed.get((name, where))
            if found is None:
                found = self._placed[name, where] = self._found(name, where)
        return found

    def _found(self, name: str, where: Sharding) -> jax.Array:
        content = self._weights.content(name)
        if self._arrays is None or content is None:
            return self.own(name, where)
        return self._arrays.get(
            content, where, lambda: self._weights.check(name), lambda: self.own(name, where)
        )

    def release(self) -> None:
        """Forgets the values on devices. They are read again when they are needed."""
        with self._lock:
            self._placed.clear()

    def own(self, name: str, where: Sharding) -> jax.Array:
        """The value in its own buffer, which may be donated.

        Raises:
            ArtifactCorruptError: it was altered in the file.
        """
        return moved(self._weights[name], where)


class ModelState(Mapping[str, jax.Array], Uncopied):
    """The values of a model's variables at one moment; reads like a mapping from name to array.

    An entry point that assigns variables consumes the given state and returns a new one. A value
    that no entry point has assigned is the saved value, and is shared with other states.
    """

    instead = "copy its values: {name: np.asarray(value) for name, value in state.items()}"

    def __init__(self, saved: Saved, values: Mapping[str, jax.Array]) -> None:
        self._saved = saved
        self._values = values
        self._consumed_by: str | None = None

    @property
    def types(self) -> Mapping[str, TensorType]:
        """The type of each variable, hidden ones included."""
        return self._saved.types

    def take(self, name: str, where: Sharding) -> jax.Array:
        """The value of a variable, to be donated. The state must then be consumed."""
        found = self._value(name)
        if found is None:
            return self._saved.own(name, where)
        return found if found.sharding == where else moved(found, where)

    def look(self, name: str, where: Sharding) -> jax.Array:
        """The value of a variable, for reading."""
        found = self._value(name)
        if found is None:
            return self._saved.shared(name, where)
        if found.sharding == where:
            return found
        with jax.enable_x64(True):
            placed: jax.Array = jax.device_put(found, where)
            return placed

    def _value(self, name: str) -> jax.Array | None:
        self.check_alive()
        found = self._values.get(name)
        if found is not None and found.is_deleted():
            raise StateError(
                "this state shares variables with a consumed state",
                hint="continue with the state that the entry point returned",
            )
        return found

    def check_alive(self) -> None:
        """Raises StateError if the state was consumed, or if this process cannot use it."""
        FORKING.check()
        if self._consumed_by is not None:
            raise StateError(
                f"this state was consumed by {self._consumed_by}",
                hint="continue with the state that call returned",
            )

    @property
    def is_consumed(self) -> bool:
        """Whether an entry point has consumed the state."""
        return self._consumed_by is not None

    def consume(self, by: str) -> None:
        """Marks the state as consumed."""
        self._consumed_by = by

    def revive(self, values: Mapping[str, jax.Array]) -> None:
        """Gives the state these new values; it is no longer consumed."""
        self._values = {**self._values, **values}
        self._consumed_by = None

    def followed_by(self, values: Mapping[str, jax.Array]) -> ModelState:
        """A state with these new values and the other values of this state."""
        return ModelState(self._saved, {**self._values, **values})

    def with_value(self, name: str, value: Any) -> ModelState:
        """A state that differs in one variable. Both states are valid until one is consumed.

        Raises:
            UnknownNameError: there is no such variable.
            ShapeError, DTypeError: the value is not of its type.
        """
        self.check_alive()
        type = self._type(name)
        shape, dtype = np.shape(value), getattr(value, "dtype", None)
        if shape != type.shape or dtype != type.dtype:
            error = ShapeError if shape != type.shape else DTypeError
            raise error(f"variable {name!r} is {type}, but the value is {dtype} of shape {shape}")
        value = variable_value(name, type, value)
        private = value if isinstance(value, jax.Array) else np.array(value)
        return self.followed_by({name: moved(private, self._saved.home)})

    def seeded(self, seed: int) -> ModelState:
        """A state that draws the random numbers of a graph with this seed, from the first on. Both
        states are valid until one is consumed."""
        self.check_alive()
        values = {RNG_KEY: key_of(seed), RNG_COUNTER: np.zeros((), np.int32)}
        known = {name: value for name, value in values.items() if name in self.types}
        return self.followed_by({name: moved(v, self._saved.home) for name, v in known.items()})

    def _type(self, name: str) -> TensorType:
        found = self._saved.types.get(name)
        if found is None:
            raise UnknownNameError(
                f"no variable {name!r} in the state", hint=nearest(name, list(self))
            )
        return found

    def __getitem__(self, name: str) -> jax.Array:
        self._type(name)
        found = self._value(name)
        return self._saved.shared(name, self._saved.home) if found is None else found

    def __iter__(self) -> Iterator[str]:
        return iter(public_names(self._saved.types))

    def __len__(self) -> int:
        return len(public_names(self._saved.types))

    def __repr__(self) -> str:
        return f"<ModelState of {len(self)} variables" + (
            ", consumed>" if self._consumed_by else ">"
        )


def moved(value: Any, where: Sharding) -> jax.Array:
    """`value` committed to devices, in unshared buffers, with 64-bit dtypes preserved.

    Args:
        value: a JAX array; or a NumPy array that only the caller uses, which may be aliased.
    """
    with jax.enable_x64(True):
        if isinstance(value, jax.Array):  # copied first, because JAX aliases it on several devices
            value = jnp.array(value, copy=True)
        placed: jax.Array = jax.device_put(value, where)
        return placed
