"""Options for XLA's compilation in tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import jax

FUSIONS = "xla_cpu_use_fusion_emitters"
OPTION = "jax_disable_most_optimizations"


def fusions_as_users() -> dict[str, bool]:
    """XLA options against the fusions that conftest.py chose for speed: those turn tiny negative
    numbers into NaN in 8-bit floats without a negative zero."""
    return {FUSIONS: True} if f"{FUSIONS}=false" in os.environ["XLA_FLAGS"] else {}


@contextmanager
def optimised() -> Iterator[None]:
    """Compiles as for users, with all optimizations; elsewhere in the tests LLVM makes few
    (conftest.py). It is a context manager and a decorator."""
    jax.config.update(OPTION, False)
    try:
        yield
    finally:
        jax.config.update(OPTION, os.environ.get(OPTION.upper()) != "0")
