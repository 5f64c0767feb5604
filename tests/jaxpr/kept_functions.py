"""Rows for the primitives that `from_jax` does not translate: XLA and LAPACK routines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp
from jax.extend.random import threefry_2x32

from tests.jaxpr.any_functions import WORDS
from tests.jaxpr.functions import Row, of
from tests.jaxpr.more_functions import KEY

PIVOTS = np.array([2, 1, 2], np.int32)


def spd(x: Any) -> Any:
    """A Hermitian matrix that has every decomposition."""
    return x @ jnp.conj(x.mT) + 3 * jnp.eye(x.shape[-1], dtype=x.dtype)


def tridiagonal_solve(x: Any, b: Any) -> Any:
    ones = jnp.ones(x.shape[-1:], x.dtype)
    return lax.linalg.tridiagonal_solve(ones, x[0] + 4, ones, b)


# Functions of matrices, by the tested primitive; LAPACK has each for four dtypes.
_LAPACK: dict[str, tuple[Callable[..., Any], *tuple[tuple[int, ...], ...]]] = {
    "cholesky": (lambda x: lax.linalg.cholesky(spd(x)), (3, 3)),
    "eig": (lambda x: lax.linalg.eig(x, compute_left_eigenvectors=False)[0], (3, 3)),
    "eigh": (lambda x: lax.linalg.eigh(spd(x)), (3, 3)),
    "hessenberg": (lax.linalg.hessenberg, (3, 3)),
    "householder_product": (lambda x: lax.linalg.householder_product(x, x[0]), (4, 3)),
    "lu": (lambda x: lax.linalg.lu(spd(x)), (3, 3)),
    "ormqr": (lambda x, y: lax.linalg.ormqr(x, x[0], y), (4, 3), (4, 2)),
    "qr": (lambda x: lax.linalg.qr(x, full_matrices=False), (4, 3)),
    "schur": (lax.linalg.schur, (3, 3)),
    "svd": (lambda x: lax.linalg.svd(x, full_matrices=False), (4, 3)),
    "triangular_solve": (
        lambda x, y: lax.linalg.triangular_solve(spd(x), y, left_side=True, lower=True),
        (3, 3),
        (3, 2),
    ),
    "tridiagonal": (lambda x: lax.linalg.tridiagonal(spd(x)), (3, 3)),
    "tridiagonal_solve": (tridiagonal_solve, (3, 3), (3, 2)),
}
LAPACK: tuple[Row, ...] = tuple(
    replace(of(name, *given, gradient=False, dtype=dtype), label=f"{name} {dtype}")
    for name, given in _LAPACK.items()
    for dtype in ("float32", "float64", "complex64", "complex128")
)

_OTHERS = [
    of("bitcast_convert_type", lambda a: lax.bitcast_convert_type(a, jnp.uint8), WORDS),
    of("cholesky_update", lambda x, y: lax.linalg.cholesky_update(spd(x), y), (3, 3), (3,)),
    of("geqp3", lambda x, y: jax.scipy.linalg.qr_multiply(x, y, pivoting=True), (4, 3), (2, 4)),
    of("lu_pivots_to_permutation", lambda p: lax.linalg.lu_pivots_to_permutation(p, 4), PIVOTS),
    of("mulhi", lambda a: lax.mulhi(a, a), WORDS),
    of("reduce_and", lambda a: lax.reduce_and(a, (0,)), WORDS),
    of("reduce_or", lambda a: lax.reduce_or(a, (0,)), WORDS),
    of("reduce_xor", lambda a: lax.reduce_xor(a, (0,)), WORDS),
    of("rng_bit_generator",
       lambda k: lax.rng_bit_generator(jnp.concatenate([k, k]), (5,))[1], KEY),
    of("symmetric_product", lambda x, y: lax.linalg.symmetric_product(x, y), (3, 2), (3, 3)),
    of("threefry2x32", lambda k, a: threefry_2x32(k, a), KEY, WORDS),
]  # fmt: skip

KEPT: tuple[Row, ...] = (*LAPACK, *[replace(row, gradient=False) for row in _OTHERS])

# Primitives for which no imported function makes a node, and the reasons.
NOT_KEPT = {
    **dict.fromkeys(
        ["all_gather", "all_to_all", "axis_index", "pmax", "pmin", "ppermute", "psum",
         "ragged_all_to_all"], "of a named axis, which an imported function does not have",
    ),
    **dict.fromkeys(["after_all", "create_token", "empty2"], "makes tokens and empty memory"),
    **dict.fromkeys(["get", "swap"], "of mutable arrays, which are refused"),
    **dict.fromkeys(["reduce", "reduce_window", "select_and_scatter"], "holds a function: lowered"),
    **dict.fromkeys(["call", "custom_lin", "eval_jaxpr", "stage"], "JAX makes it while it traces"),
    "dce_sink": "has no result, so nothing needs it",
    "eq_to": "JAX makes it only in sorts, which are operators",
    "rng_uniform": "refused: its numbers depend on the device",
    "select_and_gather_add": "has no public name: lowered",
    "sharding_constraint": "of devices, which a graph chooses itself",
}  # fmt: skip
