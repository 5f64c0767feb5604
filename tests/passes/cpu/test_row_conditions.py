"""Which programs keep LLVM's level 3, because level 2 is slow for conditions of whole rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from jax import lax
from jax import numpy as jnp

import graphc as gc
from graphc.passes.cpu.row_conditions import has_slow_rows
from graphc.passes.cpu.xla_options import quicker_options
from tests.compiling import optimised

X = np.ones((64, 32, 16), np.float32)


def rows_before(x: Any) -> Any:
    return jnp.pad(jnp.tanh(x), ((1, 0), (0, 0), (0, 0)))


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (rows_before, True),
        (lambda x: rows_before(x[:2]), False),  # few elements
        (lambda x: jnp.pad(jnp.tanh(x), ((0, 0), (0, 0), (1, 1))), False),  # no whole rows
        (lambda x: jnp.pad(x * 2 + 1, ((1, 0), (0, 0), (0, 0))), False),  # quick at any level
        (lambda x: jnp.pad(jnp.sort(jnp.exp(x)), ((1, 0), (0, 0), (0, 0))), False),  # two kernels
        (lambda x: jnp.pad((jnp.exp(x) + 1).reshape(64, 512), ((0, 1), (0, 0))), True),
        (jax.grad(lambda x: jnp.sum(jnp.exp(x[3:40]))), True),
        (lambda x: jnp.concatenate([x, jnp.log(x)]), True),
        (lambda x: jnp.concatenate([x, jnp.log(x)], 2), False),
        (lambda x: lax.dynamic_update_slice(x * 2, jnp.exp(x[:8]), (x.argmax(), 0, 0)), True),
        (lambda x: lax.dynamic_update_slice(x, x[:8], (x.argmax(), 0, 0)), False),
        (lambda x: x + jax.random.normal(jax.random.key(0), x.shape), False),  # one part
    ],
)
def test_slow_functions_in_whole_rows(function: Callable[[Any], Any], wanted: bool) -> None:
    made = gc.jit(function, options=gc.CompileOptions(cache=None)).compile(X)
    assert has_slow_rows(made.program) is wanted


def test_such_programs_keep_the_default_of_xla(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    options = gc.CompileOptions(cache=None)
    made = [gc.jit(f, options=options).compile(X).program for f in (jnp.tanh, rows_before)]
    with optimised():
        assert [bool(quicker_options(program, "cpu")) for program in made] == [True, False]
