"""Cases of graphc/ops/matrices/symmetric_matrices.py."""

from __future__ import annotations

import numpy as np

from graphc.errors import DTypeError, ShapeError
from graphc.ops.matrices import symmetric_matrices as ops
from tests.laws.case import Bad, Case, In

FLOATS = ("float32", "float64")
FEW = [In((2, 2), values=np.diag([4, 1])), In((2,), values=[1, 0])]  # work for bools too
FACTOR = In((4, 3, 3), low=0.5, high=2.0, batch_axis=0)


def eigenvalues(d, e):
    n = d.shape[-1]
    dense = np.zeros((*d.shape, n))
    dense[..., range(n), range(n)] = d
    dense[..., range(1, n), range(n - 1)] = dense[..., range(n - 1), range(1, n)] = e
    return np.linalg.eigvalsh(dense)


def updated(factor, w):
    lower = np.tril(factor)
    return np.linalg.cholesky(lower @ np.swapaxes(lower, -1, -2) + w[..., None] * w[..., None, :])


CASES = (
    Case("EighTridiagonal", ops.eigh_tridiagonal,
         [In((4, 3), batch_axis=0), In((4, 2), low=0.5, batch_axis=0)], eigenvalues, FLOATS,
         rtol=1e-4, atol=1e-5, bad=[
            Bad(ops.eigh_tridiagonal, [In((3,)), In((3,))], ShapeError, "of the subdiagonal and"),
            Bad(ops.eigh_tridiagonal, [In((4, 3)), In((2,))], ShapeError, "not as many axes"),
            Bad(ops.eigh_tridiagonal, [In(()), In((2,))], ShapeError, "must be vectors"),
            Bad(ops.eigh_tridiagonal, [In((3,), "complex64"), In((2,))], DTypeError,
                "d must be float32 or float64, got complex64"),
         ]),
    Case("EighTridiagonal", ops.eigh_tridiagonal, [In((1,)), In((0,), grad=False)],
         lambda d, e: d, ("float64",), label="of one"),
    Case("CholeskyUpdate", ops.cholesky_update, FEW, updated, FLOATS, label="two"),
    Case("CholeskyUpdate", ops.cholesky_update, [FACTOR, In((4, 3), batch_axis=0)], updated,
         FLOATS, rtol=1e-4, atol=1e-5, bad=[
            Bad(ops.cholesky_update, [In((2, 3)), In((3,))], ShapeError, "must be square differ"),
            Bad(ops.cholesky_update, [In((3, 3)), In((2,))], ShapeError, "the size of w"),
            Bad(ops.cholesky_update, [In((3, 3)), In(())], ShapeError, "w must be a vector"),
         ]),
)  # fmt: skip
