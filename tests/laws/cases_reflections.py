"""Cases of graphc/ops/matrices/reflections.py.

The signs of the reflections depend on the routine: compared functions are independent of them.
"""

from __future__ import annotations

import numpy as np

from graphc.errors import DTypeError, ShapeError
from graphc.ops.arrays.diagonals import tril
from graphc.ops.elementwise.complex_parts import make_complex, real
from graphc.ops.matrices import reflections as ops
from graphc.ops.matrices.matrix_checks import adjoint
from graphc.ops.matrices.matrix_product import matmul
from tests.laws.case import Bad, Case, In

FULL = ("float32", "float64", "complex64", "complex128")
SQUARES = In((4, 3, 3), batch_axis=0)
TALL = In((4, 4, 3), batch_axis=0)
TAUS = In((4, 2), batch_axis=0)


def hessenberg_back(a):
    """The matrix again, the identity, and the elements below the first subdiagonal."""
    h, q = ops.hessenberg(a)
    return matmul(matmul(q, h), adjoint(q)), matmul(adjoint(q), q), tril(h, -2)


def product_of(a, taus):
    m, n = a.shape[-2:]
    result = np.broadcast_to(np.eye(m, dtype=a.dtype), (*a.shape[:-2], m, m))
    for i in range(taus.shape[-1]):
        v = np.where(np.arange(m) > i, a[..., :, i], np.arange(m) == i)
        outer = v[..., :, None] * v[..., None, :].conj()
        result = result @ (np.eye(m) - taus[..., i, None, None] * outer)
    return result[..., :n]


CASES = (
    Case("Hessenberg", hessenberg_back, [SQUARES],
         lambda a: (a, np.eye(3) + 0 * a, 0 * a), FULL, rtol=1e-4, atol=1e-4, gradient=False, bad=[
            Bad(ops.hessenberg, [In((2, 3))], ShapeError, "must be square differ, 2 and 3"),
         ]),
    Case("HouseholderProduct", ops.householder_product, [TALL, TAUS], product_of, FULL,
         rtol=1e-4, atol=1e-4, bad=[
            Bad(ops.householder_product, [In((2, 3)), In((2,))], ShapeError,
                "there are more columns than rows"),
            Bad(ops.householder_product, [In((3, 2)), In((3,))], ShapeError,
                "there are more taus than columns"),
            Bad(ops.householder_product, [In((4, 3, 2)), In((2,))], ShapeError, "as many axes"),
            Bad(ops.householder_product, [In((3, 2), "int8"), In((2,), "float16")], DTypeError,
                "a must be float32"),
         ]),
    Case("HouseholderProduct",
         lambda a, t: real(ops.householder_product(make_complex(a, a), make_complex(t, -t))),
         [In((4, 3, 3), batch_axis=0), In((4, 3), batch_axis=0)],
         lambda a, taus: np.real(product_of(a + 1j * a, taus - 1j * taus)), ("float64",),
         label="complex"),
)  # fmt: skip
