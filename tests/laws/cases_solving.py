"""Cases of graphc/ops/matrices/solving.py."""

from __future__ import annotations

import numpy as np

from graphc.errors import DTypeError, ShapeError
from graphc.ops.elementwise.complex_parts import imag, make_complex, real
from graphc.ops.matrices import solving as ops
from graphc.ops.matrices.factorization import cholesky
from tests.laws.case import Bad, Case, In
from tests.laws.cases_factorization import FLOATS, FULL, SQUARES, positive, positive_array, through

TRIANGLE = In((2, 2), values=[[2, 1], [0, 1]])
A, B = SQUARES, In((4, 3, 2), batch_axis=0)
FAR = 4 * np.eye(3)  # when added, no pivot is near 0


def solved(a, b):
    return ops.solve(a + FAR.astype(np.int8), b)


def solution(a, b):
    return np.linalg.solve(a + FAR, b)


def triangle(a, lower, unit_diagonal):
    part = np.tril(a, -unit_diagonal) if lower else np.triu(a, unit_diagonal)
    return part + np.eye(a.shape[-1]) if unit_diagonal else part


def triangular(lower, transpose, unit_diagonal, inputs, dtypes=("float64",)):
    def oracle(a, b):
        part = triangle(a, lower, unit_diagonal)
        return np.linalg.solve(np.swapaxes(part, -1, -2) if transpose else part, b)

    return Case(
        "TriangularSolve",
        lambda a, b: ops.triangular_solve(
            a, b, lower=lower, transpose=transpose, unit_diagonal=unit_diagonal
        ),
        inputs,
        oracle,
        dtypes,
        rtol=1e-4,
        label=f"lower {lower}, transpose {transpose}, unit {unit_diagonal}",
    )


def complex_solve(function):
    def build(a, b):
        z = function(make_complex(a, b) + FAR.astype(np.int8), make_complex(b, a))
        return real(z) + 2.0 * imag(z)

    return build


def complex_solution(a, b, part=np.asarray):
    z = np.linalg.solve(part(a + 1j * b + FAR), b + 1j * a)
    return np.real(z) + 2.0 * np.imag(z)


LOWER = In((4, 3, 3), low=0.5, batch_axis=0)

CASES = (
    Case("Solve", ops.solve, [TRIANGLE, In((2, 3))], np.linalg.solve, FULL, gradient=False, bad=[
        Bad(ops.solve, [In((2, 3)), In((2,))], ShapeError, "must be square differ, 2 and 3"),
        Bad(ops.solve, [In((2, 2)), In((3, 1))], ShapeError, "the rows of a and b differ, 2 and 3"),
        Bad(ops.solve, [In((2, 2), "float16")] * 2, DTypeError, "must be float32, float64 or"),
        Bad(ops.solve, [In((2, 2)), In(())], ShapeError, "b must be a matrix"),
    ]),
    Case("Solve", solved, [A, B], solution, FLOATS, rtol=1e-4, label="stacks"),
    Case("Solve", solved, [A, In((3,))], lambda a, b: solution(a, b[:, None])[..., 0],
         label="a vector"),
    Case("Solve", solved, [In((3, 3)), In((2, 3, 4), batch_axis=2)], solution, ("float64",),
         label="columns"),
    Case("Solve", solved, [In((2, 1, 3, 3)), In((4, 3, 2), batch_axis=0)], solution,
         ("float64",), label="broadcast"),
    Case("Solve", complex_solve(ops.solve), [A, A], complex_solution, ("float64",),
         label="complex"),
    Case("TriangularSolve", ops.triangular_solve, [TRIANGLE, In((2, 3))],
         lambda a, b: np.linalg.solve(np.tril(a), b), FULL, gradient=False, bad=[
            Bad(ops.triangular_solve, [In((2, 3)), In((2,))], ShapeError, "must be square"),
         ]),
    triangular(True, False, False, [LOWER, B], FLOATS),
    triangular(False, True, False, [LOWER, In((3, 4), batch_axis=1)]),
    triangular(False, False, True, [In((3, 3)), B]),
    Case("TriangularSolve", lambda a, b: ops.triangular_solve(a, b, transpose=True),
         [LOWER, In((3,))],
         lambda a, b: np.linalg.solve(np.swapaxes(np.tril(a), -1, -2), b[:, None])[..., 0],
         ("float64",), label="a vector"),
    Case("TriangularSolve", complex_solve(ops.triangular_solve), [A, A],
         lambda a, b: complex_solution(a, b, np.tril), ("float64",), label="complex"),
    Case("TriangularSolve", lambda a, b: ops.cholesky_solve(cholesky(positive(a)), b), [A, B],
         lambda a, b: np.linalg.solve(positive_array(a), b), ("float64",), label="cholesky_solve"),
    Case("Inverse", ops.inv, [TRIANGLE], np.linalg.inv, FULL, gradient=False, bad=[
        Bad(ops.inv, [In((2, 3))], ShapeError, "must be square differ, 2 and 3"),
    ]),
    Case("Inverse", lambda a: ops.inv(a + FAR.astype(np.int8)), [A],
         lambda a: np.linalg.inv(a + FAR), FLOATS, rtol=1e-4, label="stack"),
    Case("Inverse", *through(lambda z: ops.inv(z + FAR.astype(np.int8)),
                             lambda z: np.linalg.inv(z + FAR)),
         ("float64",), label="complex"),
    Case("PseudoInverse", ops.pinv, [TRIANGLE], np.linalg.pinv, FULL, gradient=False, atol=1e-5,
         bad=[Bad(ops.pinv, [In((3,))], ShapeError, "a must be a matrix")]),
    Case("PseudoInverse", ops.pinv, [B], np.linalg.pinv, FLOATS, rtol=1e-3, atol=1e-4,
         label="tall"),
    Case("PseudoInverse", lambda a: ops.pinv(a, 0.3), [In((3, 3), values=np.diag([4, 2, 1]))],
         lambda a: np.linalg.pinv(a, 0.3), gradient=False, label="rtol"),
    Case("PseudoInverse", *through(lambda z: ops.pinv(z[..., :2]),
                                   lambda z: np.linalg.pinv(z[..., :2])),
         ("float64",), label="complex"),
)  # fmt: skip
