"""XLA with most of its optimisations off."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import jax


@contextmanager
def unoptimised() -> Iterator[None]:
    """What is compiled inside compiles in two thirds of the time. For large programs that run once
    and ask what gradients, layouts and imported functions mean, not what XLA makes of them; as
    context or decorator."""
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", False)
