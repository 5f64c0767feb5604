"""How XLA compiles for a test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import jax

FUSIONS = "xla_cpu_use_fusion_emitters"
OPTION = "jax_disable_most_optimizations"


def fusions_as_users() -> dict[str, bool]:
    """XLA options for what does not go in the quick way that conftest.py chose for fusions:
    that makes NaN of tiny negative numbers as 8-bit floats without a negative zero."""
    return {FUSIONS: True} if f"{FUSIONS}=false" in os.environ["XLA_FLAGS"] else {}


@contextmanager
def optimised() -> Iterator[None]:
    """What is compiled inside is compiled as for users, with all optimisations; elsewhere in the
    tests LLVM makes few (conftest.py). As context or decorator."""
    jax.config.update(OPTION, False)
    try:
        yield
    finally:
        jax.config.update(OPTION, os.environ.get(OPTION.upper()) != "0")
