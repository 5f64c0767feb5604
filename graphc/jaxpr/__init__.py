"""JAX functions as graph nodes."""

from graphc.jaxpr.function import from_jax as from_jax
from graphc.jaxpr.registered import register_op as register_op
