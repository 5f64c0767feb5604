"""XLA with most of its optimisations off."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import jax

FUSIONS = "xla_cpu_use_fusion_emitters"


def fusions_as_users() -> dict[str, bool]:
    """XLA options for what does not go in the quick way that tests/conftest.py chose for fusions:
    that makes NaN of tiny negative numbers as 8-bit floats without a negative zero."""
    return {FUSIONS: True} if f"{FUSIONS}=false" in os.environ["XLA_FLAGS"] else {}


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
