"""Cases of graphc/ops/matrices/general_matrices.py.

The order of eigenvalues and the phases of eigenvectors depend on the routine: functions that do not
depend on them are compared.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

from graphc.errors import DTypeError, ShapeError
from graphc.ops.elementwise.arithmetic import absolute
from graphc.ops.elementwise.complex_parts import make_complex, real
from graphc.ops.matrices import general_matrices as ops
from graphc.ops.matrices.matrix_checks import adjoint
from graphc.ops.matrices.matrix_product import matmul
from graphc.ops.matrices.solving import inv
from graphc.ops.reductions.reduction import reduce_sum
from graphc.ops.reductions.sorting import sort
from tests.laws.case import Bad, Case, In
from tests.laws.cases_factorization import DIAGONAL, FLOATS, FULL, SQUARES, TALL, WIDE

BANDS = In((4, 3), low=0.1, high=0.5, batch_axis=0)
MAIN = In((4, 3), low=2.0, high=3.0, batch_axis=0)

# These also work for bools, and the routine exchanges no rows.
FEW = [In(np.shape(v), values=np.array(v)) for v in ([0, 0], [4, 2], [1, 0], [[1], [2]])]


def of_each(function):
    """Applies a function of one matrix to each matrix of a stack."""

    def stacked(a):
        found = [function(m) for m in a.reshape((-1, *a.shape[-2:]))]
        results = zip(*found, strict=True)
        return tuple(
            np.reshape(r, (*a.shape[:-2], *np.shape(r[0]))) for r in map(np.array, results)
        )

    return stacked


def apart(a):
    """Matrices whose eigenvalues are far from each other."""
    return a * 0.25 + np.diag([1.0, 3.0, 6.0]).astype(np.float32)


def eig_of(a):
    """Functions of the eigenvalues, and the matrix computed from another function of them."""
    w, v = ops.eig(apart(a))
    back = matmul(v * (w * w)[..., None, :], inv(v))
    return reduce_sum(real(w * w * w), -1), real(back)


def eig_oracle(a):
    m = apart(a.astype(np.result_type(a, np.float64)))
    w = np.linalg.eigvals(m)
    return np.real((w**3).sum(-1)), np.real(m @ m)


def length(a):
    _, v = ops.eig(apart(a))
    return reduce_sum(absolute(v) ** 2, -2)


def schur_back(a):
    upper, z = ops.schur(a)
    return matmul(matmul(z, upper), adjoint(z)), absolute(matmul(z, adjoint(z)))


def banded(lower, main, upper):
    m = np.zeros((*main.shape, main.shape[-1]), np.result_type(main, lower))
    for i in range(main.shape[-1]):
        m[..., i, i] = main[..., i]
        if i:
            m[..., i, i - 1], m[..., i - 1, i] = lower[..., i], upper[..., i - 1]
    return m


CASES = (
    Case("LU", lambda a: ops.lu_factor(a)[0], [DIAGONAL], lambda a: scipy.linalg.lu_factor(a)[0],
         FULL, gradient=False, bad=[
            Bad(ops.lu, [In((3, 3), "bfloat16")], DTypeError, "must be float32, float64 or"),
            Bad(ops.lu, [In((3,), "float32")], ShapeError, "a must be a matrix"),
         ]),
    Case("LU", ops.lu, [SQUARES], of_each(scipy.linalg.lu), FLOATS, rtol=1e-4, atol=1e-5,
         label="stack"),
    Case("LU", ops.lu, [TALL], of_each(scipy.linalg.lu), ("float64",), label="tall"),
    Case("LU", ops.lu, [WIDE], of_each(scipy.linalg.lu), ("float64",), label="wide"),
    Case("LU", lambda a: ops.lu_factor(a)[1], [SQUARES],
         lambda a: of_each(scipy.linalg.lu_factor)(a)[1], FLOATS, gradient=False, label="pivots"),
    Case("LU", lambda a, b: ops.lu_solve(ops.lu_factor(a), b), [In((3, 3)), In((3, 2))],
         np.linalg.solve, ("float64",), label="solve"),
    Case("Eig", lambda a: sort(real(ops.eigvals(a))), [DIAGONAL],
         lambda a: np.sort(np.real(np.linalg.eigvals(a))), FULL, gradient=False, bad=[
            Bad(ops.eig, [In((2, 3), "float32")], ShapeError, "must be square differ, 2 and 3"),
         ]),
    Case("Eig", eig_of, [SQUARES], eig_oracle, FLOATS, rtol=1e-3, atol=1e-4, label="stack"),
    Case("Eig", length, [SQUARES], lambda a: np.ones(a.shape[:-1]), FLOATS, gradient=False,
         label="vectors"),
    Case("Eig", lambda a, b: real(sum_of_squares(make_complex(a, b))), [SQUARES, SQUARES],
         lambda a, b: np.real((np.linalg.eigvals(apart(a + 1j * b)) ** 2).sum(-1)), ("float64",),
         label="complex"),
    Case("Schur", lambda a: absolute(ops.schur(a)[0]), [DIAGONAL], np.abs, FULL, gradient=False,
         bad=[
            Bad(ops.schur, [In((2, 3), "float32")], ShapeError, "must be square differ, 2 and 3"),
         ]),
    Case("Schur", schur_back, [SQUARES],
         lambda a: (a, np.broadcast_to(np.eye(3), a.shape)), FLOATS, rtol=1e-4, atol=1e-4,
         gradient=False, label="stack"),
    Case("TridiagonalSolve", ops.tridiagonal_solve, FEW,
         lambda low, main, up, b: np.linalg.solve(banded(low, main, up), b), FULL, gradient=False,
         label="two"),
    Case("TridiagonalSolve", ops.tridiagonal_solve,
         [BANDS, MAIN, BANDS, In((4, 3, 2), batch_axis=0)],
         lambda low, main, up, b: np.linalg.solve(banded(low, main, up), b),
         (*FLOATS, "complex128"), rtol=1e-4, atol=1e-5, bad=[
            Bad(ops.tridiagonal_solve, [In((3,)), In((3,)), In((2,)), In((3, 1))], ShapeError,
                "sizes of a diagonal and of b"),
            Bad(ops.tridiagonal_solve, [In((3,)), In((3,)), In((3,)), In((3,))], ShapeError,
                "must be a matrix"),
         ]),
)  # fmt: skip


def sum_of_squares(z):
    w = ops.eigvals(apart(z))
    return reduce_sum(w * w, -1)
