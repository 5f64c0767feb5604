"""Factorizations, and what is computed by them."""

from __future__ import annotations

from typing import Any, Final

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc import ops
from graphc.importers.torch.call import Call, Refused, Rule, axis_of
from graphc.ir.dims import Dim
from graphc.jaxpr.function import from_jax
from graphc.ops import linalg


def _adjoint(a: Any) -> Any:
    return linalg.matrix_transpose(ops.conj(a) if a.dtype.kind == "c" else a)


def _no_failures(a: Any) -> Any:
    """The error codes of a factorization. Where it fails, the results are NaN."""
    return ops.zeros(a.shape[:-2], "int32")


def _eye_of(a: Any) -> Any:
    return ops.broadcast_to(ops.eye(a.shape[-1], dtype=a.dtype), a.shape)


def _svd(
    call: Call, a: Any, full_matrices: bool = False, compute_uv: bool = True, driver: Any = None
) -> Any:
    if compute_uv:
        return linalg.svd(a, full_matrices)
    return None, linalg.svdvals(a), None


def _pinv(
    call: Call, a: Any, *, atol: Any = None, rtol: Any = None, hermitian: bool = False
) -> Any:
    """Singular values up to the larger of both tolerances count as zero."""
    size = max(_known(dim) for dim in a.shape[-2:])
    if hermitian:
        a = _hermitian(a)
    if 0 in a.shape[-2:]:
        return _adjoint(a)
    u, s, vh = linalg.svd(a, False)
    if rtol is None:
        rtol = call.tensor(size * np.finfo(s.dtype).eps, s.dtype)
        if atol is not None:  # an absolute tolerance above 0 is the only one
            rtol = ops.where(call.tensor(atol, s.dtype) > 0, 0, rtol)
    least = ops.reduce_max(s, axis=-1, keepdims=True) * _column(call, rtol, s)
    if atol is not None:
        least = ops.maximum(least, _column(call, atol, s))
    kept = s > least
    inverse = ops.where(kept, 1 / ops.where(kept, s, 1.0), 0.0)
    return ops.matmul(_adjoint(vh) * ops.expand_dims(inverse, -2), _adjoint(u))


def _known(size: Dim) -> int:
    if not isinstance(size, int):
        raise Refused("of a matrix with a named size is not supported")
    return size


def _column(call: Call, value: Any, s: Any) -> Any:
    """A tolerance for each matrix, or for all of them, to broadcast with singular values."""
    tensor = call.tensor(value, s.dtype)
    return ops.expand_dims(tensor, -1) if tensor.ndim else tensor


def _qr(call: Call, a: Any, mode: str = "reduced") -> Any:
    if mode == "r":
        return ops.zeros((0,), a.dtype), linalg.qr(a, "r")
    return linalg.qr(a, mode)


def _hermitian(a: Any) -> Any:
    """The matrix whose lower triangle is that of `a`. As in PyTorch, its gradient belongs to both
    triangles."""
    both = (a + _adjoint(a)) / 2
    lower = ops.tril(a) + _adjoint(ops.tril(a, -1))
    return both + ops.stop_gradient(lower - both)


def _eigh(call: Call, a: Any, uplo: str = "L", compute_v: bool = True) -> Any:
    return linalg.eigh(_hermitian(a if uplo.upper() == "L" else _adjoint(a)))


def _slogdet(call: Call, a: Any) -> Any:
    sign, log = linalg.slogdet(a)
    return sign, log, None, None


def _log_determinant(call: Call, a: Any) -> Any:
    """NaN if a real determinant is negative."""
    sign, log = linalg.slogdet(a)
    return log + ops.log(sign)


def _lu(call: Call, a: Any, *, pivot: bool = True) -> Any:
    if not pivot:
        raise Refused("without pivots is not supported")
    return linalg.lu(a)


def _lu_factor(call: Call, a: Any, *, pivot: bool = True, check_errors: bool = False) -> Any:
    if not pivot:
        raise Refused("without pivots is not supported")
    factors, pivots = linalg.lu_factor(a)
    return factors, pivots + 1, _no_failures(a)


def _lu_solve(
    call: Call, factors: Any, pivots: Any, b: Any, *, left: bool = True, adjoint: bool = False
) -> Any:
    rows = factors.shape[-1]
    if not isinstance(rows, int):
        raise Refused("of named sizes is not supported")
    if not left:  # x a = b is a^H x^H = b^H
        return _adjoint(_lu_solve(call, factors, pivots, _adjoint(b), adjoint=not adjoint))
    exchanged = _exchanged_rows(rows, factors.dtype)(pivots)
    if adjoint:
        upper = linalg.triangular_solve(_adjoint(factors), b)
        half = linalg.triangular_solve(_adjoint(factors), upper, lower=False, unit_diagonal=True)
        return ops.matmul(exchanged, half)
    half = linalg.triangular_solve(
        factors, ops.matmul(linalg.matrix_transpose(exchanged), b), unit_diagonal=True
    )
    return linalg.triangular_solve(factors, half, lower=False)


def _lu_unpack(
    call: Call, factors: Any, pivots: Any, unpack_data: bool = True, unpack_pivots: bool = True
) -> Any:
    rows, columns = factors.shape[-2:]
    if not isinstance(rows, int) or not isinstance(columns, int):
        raise Refused("of named sizes is not supported")
    least, none = min(rows, columns), ops.zeros((0,), factors.dtype)
    lower, upper, exchanged = none, none, none
    if unpack_data:
        lower = ops.tril(factors[..., :least], -1) + ops.eye(rows, least, dtype=factors.dtype)
        upper = ops.triu(factors[..., :least, :])
    if unpack_pivots:
        exchanged = _exchanged_rows(rows, factors.dtype)(pivots)
    return exchanged, lower, upper


def _exchanged_rows(rows: int, dtype: Any) -> Any:
    """The matrix P of `A = P L U` for pivots that count from 1."""

    def matrices(pivots: Any) -> Any:
        order = lax.linalg.lu_pivots_to_permutation(pivots - 1, rows)
        return jnp.swapaxes(jax.nn.one_hot(order, rows, dtype=dtype), -1, -2)

    return from_jax(matrices, name="lu_unpack")


def _solve_with_factors(call: Call, a: Any, b: Any, **options: Any) -> Any:
    """No program uses the factors, which are for backward passes."""
    x, info = _solve(call, a, b, **options)
    return x, None, None, info


def _solve(call: Call, a: Any, b: Any, *, left: bool = True, check_errors: bool = False) -> Any:
    """The solution, and the error codes."""
    is_vector = b.ndim == 1 or (b.ndim == a.ndim - 1 and b.shape == a.shape[:-1])
    if is_vector:
        x = ops.squeeze(linalg.solve(a, ops.expand_dims(b, -1)), -1)
    elif left:
        x = linalg.solve(a, b)
    else:
        x = linalg.matrix_transpose(
            linalg.solve(linalg.matrix_transpose(a), linalg.matrix_transpose(b))
        )
    return x, _no_failures(a)


def _solve_triangular(
    call: Call, a: Any, b: Any, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Any:
    if left:
        return linalg.triangular_solve(a, b, lower=not upper, unit_diagonal=unitriangular)
    x = linalg.triangular_solve(
        linalg.matrix_transpose(a),
        linalg.matrix_transpose(b),
        lower=upper,
        unit_diagonal=unitriangular,
    )
    return linalg.matrix_transpose(x)


def _triangular_solve(
    call: Call,
    b: Any,
    a: Any,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> Any:
    x = linalg.triangular_solve(
        a, b, lower=not upper, transpose=transpose, unit_diagonal=unitriangular
    )
    return x, a


def _cholesky(call: Call, a: Any, *, upper: bool = False, check_errors: bool = False) -> Any:
    factor = linalg.cholesky(_hermitian(_adjoint(a) if upper else a))
    return _adjoint(factor) if upper else factor, _no_failures(a)


def _cholesky_solve(call: Call, b: Any, factor: Any, upper: bool = False) -> Any:
    return linalg.cholesky_solve(_adjoint(factor) if upper else factor, b)


def _matrix_norm(
    call: Call, a: Any, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, **options: Any
) -> Any:
    axes = [axis_of(axis, a.ndim) for axis in dim]
    wide = a if a.dtype.kind == "c" else call.own(a)
    found = linalg.matrix_norm(ops.moveaxis(wide, axes, (-2, -1)), ord)
    return ops.expand_dims(found, tuple(sorted(axes))) if keepdim else found


def _old_svd(call: Call, a: Any, some: bool = True, compute_uv: bool = True) -> Any:
    if not compute_uv:
        squares = [ops.zeros((*a.shape[:-2], size, size), a.dtype) for size in a.shape[-2:]]
        return squares[0], linalg.svdvals(a), squares[1]
    u, s, vh = linalg.svd(a, not some)
    return u, s, _adjoint(vh)


# Some are defined by others in PyTorch: only programs in files need rules for them.
RULES: Final[dict[str, Rule]] = {
    "aten._linalg_det.default": lambda call, a: (linalg.det(a), None, None),
    "aten._linalg_eigh.default": _eigh,
    "aten._linalg_slogdet.default": _slogdet,
    "aten._linalg_solve_ex.default": _solve_with_factors,
    "aten._linalg_svd.default": _svd,
    "aten.cholesky.default": lambda call, a, upper=False: _cholesky(call, a, upper=upper)[0],
    "aten.cholesky_inverse.default": lambda call, a, upper=False: _cholesky_solve(
        call, _eye_of(a), a, upper
    ),
    "aten.cholesky_solve.default": _cholesky_solve,
    "aten.linalg_cholesky.default": lambda call, a, *, upper=False: _cholesky(
        call, a, upper=upper
    )[0],
    "aten.linalg_cholesky_ex.default": _cholesky,
    "aten.linalg_eig.default": lambda call, a: linalg.eig(a),
    "aten.linalg_eigh.default": lambda call, a, uplo="L": _eigh(call, a, uplo),
    "aten.linalg_eigvals.default": lambda call, a: linalg.eigvals(a),
    "aten.linalg_eigvalsh.default": lambda call, a, uplo="L": _eigh(call, a, uplo)[0],
    "aten.linalg_householder_product.default": lambda call, a, taus: linalg.householder_product(
        a, taus
    ),
    "aten.linalg_inv_ex.default": lambda call, a, *, check_errors=False: (
        linalg.inv(a), _no_failures(a),
    ),
    "aten.linalg_lu.default": _lu,
    "aten.linalg_lu_factor.default": lambda call, a, *, pivot=True: (
        _lu_factor(call, a, pivot=pivot)[:2]
    ),
    "aten.linalg_lu_factor_ex.default": _lu_factor,
    "aten.linalg_lu_solve.default": _lu_solve,
    "aten.linalg_matrix_exp.default": lambda call, a: linalg.expm(a),
    "aten.linalg_matrix_norm.default": _matrix_norm,
    "aten.linalg_matrix_norm.str_ord": _matrix_norm,
    "aten.linalg_matrix_power.default": lambda call, a, n: linalg.matrix_power(a, n),
    "aten.linalg_multi_dot.default": lambda call, matrices: linalg.multi_dot(list(matrices)),
    "aten.linalg_pinv.atol_rtol_float": _pinv,
    "aten.linalg_pinv.atol_rtol_tensor": _pinv,
    "aten.linalg_qr.default": _qr,
    "aten.linalg_slogdet.default": lambda call, a: linalg.slogdet(a),
    "aten.linalg_solve.default": lambda call, a, b, *, left=True: _solve(call, a, b, left=left)[0],
    "aten.linalg_solve_ex.default": _solve,
    "aten.linalg_solve_triangular.default": _solve_triangular,
    "aten.linalg_svd.default": lambda call, a, full_matrices=True, *, driver=None: linalg.svd(
        a, full_matrices
    ),
    "aten.linalg_svdvals.default": lambda call, a, *, driver=None: linalg.svdvals(a),
    "aten.lu_unpack.default": _lu_unpack,
    "aten.logdet.default": _log_determinant,
    "aten.svd.default": _old_svd,
    "aten.triangular_solve.default": _triangular_solve,
}  # fmt: skip
