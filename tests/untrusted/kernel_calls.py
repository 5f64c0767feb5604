"""Programs in which JAX calls each kernel of `kernel_contracts`, for the tests of artifacts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax
from jax import numpy as jnp
from jax.scipy.linalg import solve_triangular

from graphc.untrusted.kernel_contracts import CHANGING
from graphc.untrusted.reader import _read

Array = jax.Array


def _thin(a: Array) -> Array:
    return a[..., :3]


def _svd(shape: tuple[int, ...], **options: Any) -> Callable[[Array], Any]:
    return lambda a: jnp.linalg.svd(jnp.zeros(shape, a.dtype) + a[0, 0, 0], **options)


ANYWHERE: dict[str, Callable[[Array], Any]] = {
    "cholesky": jnp.linalg.cholesky,
    "inverse": jnp.linalg.inv,
    "left": lambda a: solve_triangular(a, _thin(a), lower=True),
    "right": lambda a: lax.linalg.triangular_solve(
        a, jnp.swapaxes(_thin(a), -1, -2), lower=True, transpose_a=True, unit_diagonal=True
    ),
    "lu of tall": lambda a: lax.linalg.lu(_thin(a)),
    "qr": lambda a: jnp.linalg.qr(_thin(a)),
    "complete qr": lambda a: jnp.linalg.qr(_thin(a), mode="complete"),
    "product with a factor": lambda a: lax.linalg.ormqr(_thin(a), _thin(a)[..., 0, :], a),
    "factor on the right": lambda a: lax.linalg.ormqr(
        _thin(a), _thin(a)[..., 0, :], a, left=False, transpose=True
    ),
    "svd": _svd((2, 4, 3), full_matrices=False),
    "full svd": _svd((3, 4), full_matrices=True),
    "singular values": _svd((2, 4, 3), compute_uv=False),
    "large svd": _svd((40, 50), full_matrices=False),
    "eigh": jnp.linalg.eigh,
    "eigvalsh": jnp.linalg.eigvalsh,
}
BUT_TPU: dict[str, Callable[[Array], Any]] = {
    "tridiagonal": lax.linalg.tridiagonal,
    "svd of very tall": _svd((2, 1100, 3), full_matrices=False),
    "full svd of very tall": _svd((1100, 3), full_matrices=True),
    "svd of very wide": _svd((2, 3, 1100), full_matrices=False),
    "full svd of very wide": _svd((3, 1100), full_matrices=True),
    "many singular values": _svd((3, 1100), compute_uv=False),
}
BUT_TPU_AND_ROCM: dict[str, Callable[[Array], Any]] = {
    "tridiagonal solve": lambda a: lax.linalg.tridiagonal_solve(
        a[..., 0], a[..., 1], a[..., 2], _thin(a)
    ),
}
ON_CPU: dict[str, Callable[[Array], Any]] = {
    "eig": jnp.linalg.eig,
    "schur": lax.linalg.schur,
    "hessenberg": lax.linalg.hessenberg,
    "qr with pivots": lambda a: jax.scipy.linalg.qr(_thin(a), pivoting=True),
}
PROGRAMS: dict[str, dict[str, Callable[[Array], Any]]] = {
    "cpu": {**ANYWHERE, **BUT_TPU, **BUT_TPU_AND_ROCM, **ON_CPU},
    "cuda": {**ANYWHERE, **BUT_TPU, **BUT_TPU_AND_ROCM},
    "rocm": {**ANYWHERE, **BUT_TPU},
    "tpu": ANYWHERE,
}


_ALLOWED = [jax.export.DisabledSafetyCheck.custom_call(target) for target in CHANGING]


def calls(platform: str, dtypes: Sequence[str]) -> list[dict[str, Any]]:
    """The calls in all programs for a platform, as `findings` returns them, each once."""
    found: dict[str, dict[str, Any]] = {}
    for dtype in dtypes:
        functions = tuple(PROGRAMS[platform].values())

        def all_of(a: Array, functions: Any = functions) -> list[Any]:
            return jax.tree.leaves([function(a) for function in functions])

        with jax.enable_x64(True):
            argument = jax.ShapeDtypeStruct((2, 4, 4), dtype)
            exported = jax.export.export(
                jax.jit(all_of), platforms=[platform], disabled_checks=_ALLOWED
            )(argument)
        for call in _read(bytes(exported.serialize()))["calls"]:
            found[str(call)] = call
    return list(found.values())
