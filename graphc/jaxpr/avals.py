"""Which types of JAX are those of arrays."""

from __future__ import annotations

from typing import Any

from jax.ref import AbstractRef


def is_array(aval: Any) -> bool:
    """Whether a type of JAX is that of an array: not of a token, a reference, or a value of a
    class that a library added to JAX."""
    return hasattr(aval, "shape") and hasattr(aval, "dtype") and not isinstance(aval, AbstractRef)
