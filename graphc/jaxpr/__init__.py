"""JAX functions as graph nodes."""

from graphc.jaxpr.function import from_jax as from_jax

__all__ = ["from_jax"]
