"""Cases of graphc/ops/matrices/matrix_functions.py."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from graphc.errors import AttributeValueError, ShapeError
from graphc.ops.matrices import matrix_functions as ops
from tests.laws.case import Bad, Case, In
from tests.laws.cases_factorization import FLOATS, FULL, SQUARES, through

TRIANGLE = In((2, 2), values=[[2, 1], [0, 1]])
SINGULAR = In((2, 2), values=[[1, 2], [2, 4]])


def of_det(a):
    return ops.det(a)[..., None, None] * a


def slogdet_product(a):
    sign, logabs = ops.slogdet(a)
    return sign[..., None, None] * a * logabs[..., None, None]


def slogdet_oracle(a):
    sign, logabs = np.linalg.slogdet(a)
    return sign[..., None, None] * a * logabs[..., None, None]


CASES = (
    Case("Determinant", ops.det, [TRIANGLE], np.linalg.det, FULL, gradient=False, bad=[
        Bad(ops.det, [In((2, 3))], ShapeError, "must be square differ, 2 and 3"),
        Bad(ops.det, [In((3,))], ShapeError, "a must be a matrix"),
    ]),
    Case("Determinant", ops.det, [SQUARES], np.linalg.det, FLOATS, rtol=1e-4, label="stack"),
    Case("Determinant", ops.det, [SINGULAR], np.linalg.det, ("float64",), label="singular"),
    Case("Determinant", *through(of_det, lambda z: np.linalg.det(z)[..., None, None] * z),
         ("float64",), label="complex"),
    Case("LogDeterminant", ops.slogdet, [TRIANGLE], lambda a: tuple(np.linalg.slogdet(a)), FULL,
         gradient=False, bad=[Bad(ops.slogdet, [In((2, 3))], ShapeError, "must be square")]),
    Case("LogDeterminant", ops.slogdet, [SQUARES], lambda a: tuple(np.linalg.slogdet(a)), FLOATS,
         rtol=1e-4, label="stack"),
    Case("LogDeterminant", *through(slogdet_product, slogdet_oracle), ("float64",),
         label="complex"),
    Case("MatrixExponential", ops.expm, [TRIANGLE], scipy.linalg.expm, FULL, gradient=False,
         bad=[Bad(ops.expm, [In((2, 3))], ShapeError, "must be square")]),
    Case("MatrixExponential", ops.expm, [SQUARES], scipy.linalg.expm, FLOATS, rtol=1e-4,
         label="stack"),
    Case("MatrixExponential", *through(ops.expm, scipy.linalg.expm), ("float64",),
         label="complex", gradient=False, layout=False),
    *[
        Case("MatMul", lambda a, n=n: ops.matrix_power(a, n), [SQUARES],
             lambda a, n=n: np.linalg.matrix_power(a, n), ("int32", "float64"), label=f"power {n}")
        for n in (2, 5)
    ],
    Case("Inverse", lambda a: ops.matrix_power(a, -3), [TRIANGLE],
         lambda a: np.linalg.matrix_power(a, -3), ("float64",), label="negative power"),
    Case("Where", lambda a: ops.matrix_power(a, 0), [In((4, 3, 3))],
         lambda a: np.broadcast_to(np.eye(3), (4, 3, 3)), gradient=False, layout=False,
         label="power 0", bad=[
            Bad(lambda a: ops.matrix_power(a, 0.5), [In((2, 2))], AttributeValueError, "an int"),
            Bad(lambda a: ops.matrix_power(a, 2), [In((2, 3))], ShapeError, "square matrices"),
         ]),
    Case("ReduceSum", ops.trace, [SQUARES], lambda a: np.trace(a, axis1=-2, axis2=-1),
         ("bool", "int8", "int32", "float32", "float64"), label="trace", bad=[
            Bad(ops.trace, [In((3,))], ShapeError, "a must be a matrix"),
         ]),
    *[
        Case("ReduceSum", lambda a, k=k: ops.trace(a, k), [In((2, 4))],
             lambda a, k=k: np.trace(a, k), ("float64",), label=f"trace {k}")
        for k in (-1, 2)
    ],
)  # fmt: skip
