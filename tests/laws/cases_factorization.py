"""Cases of graphc/ops/matrices/factorization.py.

Signs and phases of vectors depend on the routine: the compared functions are independent of them.
"""

from __future__ import annotations

import numpy as np

from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.ops.elementwise.arithmetic import absolute
from graphc.ops.elementwise.complex_parts import imag, make_complex, real
from graphc.ops.matrices import factorization as ops
from graphc.ops.matrices.matrix_checks import adjoint
from graphc.ops.matrices.matrix_product import matmul
from tests.laws.case import Bad, Case, In

FULL = ("float32", "complex128")  # test_dtypes.py tests all of them
FLOATS = ("float32", "float64")
DIAGONAL = In((2, 2), values=np.diag([4, 1]))
SQUARES = In((4, 3, 3), batch_axis=0)
TALL, WIDE = In((4, 3, 2), batch_axis=0), In((2, 4, 2, 3), batch_axis=1)
NARROW = Bad(ops.cholesky, [In((3, 3), "bfloat16")], DTypeError, "must be float32, float64 or")


def t(a):
    return np.conj(np.swapaxes(a, -1, -2))


def positive(a):
    """Makes positive definite matrices from any matrices, both in graphs and in NumPy."""
    return matmul(a, adjoint(a)) + np.eye(3, dtype=np.int8)


def positive_array(a):
    return a @ t(a) + np.eye(3)


def through(function, oracle):
    """Complex matrices with real inputs and outputs, so that the gradient law applies."""

    def build(a, b):
        z = function(make_complex(a, b))
        return real(z) + 2.0 * imag(z * z)

    def expected(a, b):
        z = oracle(a + 1j * b)
        return np.real(z) + 2.0 * np.imag(z * z)

    return build, [SQUARES, SQUARES], expected


def product_of_qr(a, upper):
    """The matrix a, computed from q and r alone. Signs cancel in q r."""
    q, r = ops.qr(a)
    return matmul(q * q, absolute(r) if upper else r * r)


def qr_oracle(a, upper):
    q, r = np.linalg.qr(a)
    return (q * q) @ (np.abs(r) if upper else r * r)


def eigh_product(a):
    """A function of the eigenvalues, and one of the eigenvectors that is not simply `a` again."""
    w, v = ops.eigh(a)
    return w, matmul(v * (w**3)[..., None, :], adjoint(v)), matmul(v * w[..., :1, None], adjoint(v))


def eigh_oracle(a):
    a = (a + t(a)) / 2
    w, v = np.linalg.eigh(a)
    return w, (v * (w**3)[..., None, :]) @ t(v), (v * w[..., :1, None]) @ t(v)


def svd_product(a):
    u, s, vh = ops.svd(a, full_matrices=False)
    return s, matmul(u * (s**3)[..., None, :], vh)


def svd_oracle(a):
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    return s, (u * (s**3)[..., None, :]) @ vh


def full_svd(a):
    u, s, vh = ops.svd(a)
    return absolute(matmul(u, adjoint(u))), s, matmul(vh, adjoint(vh))


CASES = (
    Case("Cholesky", ops.cholesky, [DIAGONAL], np.linalg.cholesky, FULL, gradient=False, bad=[
        NARROW,
        Bad(ops.cholesky, [In((2, 3), "float32")], ShapeError, "must be square differ, 2 and 3"),
        Bad(ops.cholesky, [In((3,), "float32")], ShapeError, "a must be a matrix"),
    ]),
    Case("Cholesky", lambda a: ops.cholesky(positive(a)), [SQUARES],
         lambda a: np.linalg.cholesky(positive_array(a)), FLOATS, rtol=1e-4, label="stack"),
    Case("Cholesky", lambda a: ops.cholesky(positive(a), upper=True), [In((3, 3))],
         lambda a: t(np.linalg.cholesky(positive_array(a))), ("float64",), label="upper"),
    Case("Cholesky", *through(lambda z: ops.cholesky(positive(z)),
                              lambda z: np.linalg.cholesky(positive_array(z))),
         ("float64",), label="complex"),
    Case("QR", lambda a: absolute(ops.qr(a, "r")), [DIAGONAL],
         lambda a: np.abs(np.linalg.qr(a, "r")), FULL, gradient=False, bad=[
            Bad(lambda a: ops.qr(a, "raw"), [In((2, 3), "float32")], AttributeValueError, "mode"),
         ]),
    Case("QR", lambda a: product_of_qr(a, False), [TALL], lambda a: qr_oracle(a, False), FLOATS,
         rtol=1e-4, label="tall"),
    Case("QR", lambda a: product_of_qr(a, True), [SQUARES], lambda a: qr_oracle(a, True),
         ("float64",), label="square"),
    Case("QR", lambda a: product_of_qr(a, True), [WIDE], lambda a: qr_oracle(a, True),
         ("float64",), label="wide", gradient=False),
    Case("QR", lambda a: matmul(*ops.qr(a, "complete")), [TALL], lambda a: a, FLOATS,
         label="complete", gradient=False),
    Case("QR", *through(lambda z: matmul(*(x * x for x in map(absolute, ops.qr(z)))),
                        lambda z: np.matmul(*(np.abs(x) ** 2 for x in np.linalg.qr(z)))),
         ("float64",), label="complex"),
    Case("SVD", lambda a: ops.svd(a)[1], [DIAGONAL], lambda a: np.linalg.svd(a)[1], FULL,
         gradient=False),
    Case("SVD", svd_product, [TALL], svd_oracle, FLOATS, rtol=1e-4, atol=1e-5, label="tall"),
    Case("SVD", svd_product, [WIDE], svd_oracle, ("float64",), label="wide"),
    Case("SVD", *through(lambda z: svd_product(z)[1], lambda z: svd_oracle(z)[1]), ("float64",),
         label="complex", rtol=1e-4),
    Case("SVD", full_svd, [WIDE],
         lambda a: (np.broadcast_to(np.eye(2), (2, 4, 2, 2)), np.linalg.svd(a)[1],
                    np.broadcast_to(np.eye(3), (2, 4, 3, 3))),
         ("float64",), gradient=False, label="full"),
    Case("SingularValues", ops.svdvals, [DIAGONAL], np.linalg.svdvals, FULL, gradient=False),
    Case("SingularValues", ops.svdvals, [TALL], np.linalg.svdvals, FLOATS, label="tall"),
    Case("SingularValues", lambda a, b: ops.svdvals(make_complex(a, b)), [SQUARES, SQUARES],
         lambda a, b: np.linalg.svdvals(a + 1j * b), ("float64",), label="complex"),
    Case("Eigh", ops.eigvalsh, [DIAGONAL], np.linalg.eigvalsh, FULL),
    Case("Eigh", eigh_product, [SQUARES], eigh_oracle, FLOATS, rtol=1e-4, atol=1e-5,
         label="stack"),
    Case("Eigh", lambda a: ops.eigvalsh(a + np.eye(3, dtype=np.int8)),
         [In((3, 3), values=np.eye(3))],
         lambda a: np.linalg.eigvalsh((a + t(a)) / 2 + np.eye(3)), ("float64",), gradient=False,
         label="equal values"),
    Case("Eigh", *through(lambda z: eigh_product(z)[1] + eigh_product(z)[2],
                          lambda z: eigh_oracle(z)[1] + eigh_oracle(z)[2]),
         ("float64",), label="complex"),
)  # fmt: skip
