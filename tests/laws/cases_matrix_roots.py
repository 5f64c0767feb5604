"""Cases of graphc/ops/matrices/matrix_roots.py."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.ops.elementwise.complex_parts import make_complex, real
from graphc.ops.matrices import matrix_roots as ops
from tests.laws.case import Bad, Case, In

FLOATS = ("float32", "float64")
FULL = ("float32", "float64", "complex64", "complex128")
# No eigenvalue is the negative of another one.
FEW = np.arange(16).reshape(4, 2, 2) / 16
A = In((4, 2, 2), values=FEW + np.diag([2, 4]), batch_axis=0)
B = In((4, 3, 3), values=np.diag([1, 2, 3]) + np.eye(3, k=1) + np.zeros((4, 3, 3)), batch_axis=0)
C = In((4, 2, 3), batch_axis=0)
# Of full rank, also as integers and bools: the factors of a singular matrix are not unique.
RANK_2 = np.array([[3, 1], [0, 2], [1, 1]]) + np.arange(4)[:, None, None] * [[1, 0], [0, 0], [0, 0]]
TALL = In((4, 3, 2), values=RANK_2, batch_axis=0)
DIAGONAL = In((2, 2), values=np.diag([4, 1]))  # also works for bools
SAME = In((2, 2), values=[[1, 0], [0, 1]])  # equal singular values


def of_each(function):
    return lambda *stacks: np.stack([function(*xs) for xs in zip(*stacks, strict=True)])


def polar_oracle(side):
    def oracle(a):
        pairs = [scipy.linalg.polar(m, side) for m in a.reshape(-1, *a.shape[-2:])]
        u, p = (np.stack(parts) for parts in zip(*pairs, strict=True))
        return (u, p) if a.ndim > 2 else (u[0], p[0])

    return oracle


CASES = (
    Case("Sylvester", ops.solve_sylvester, [A, B, C], of_each(scipy.linalg.solve_sylvester), FULL,
         rtol=1e-4, atol=1e-5, bad=[
            Bad(ops.solve_sylvester, [In((2, 3)), In((3, 3)), In((2, 3))], ShapeError,
                "must be square differ, 2 and 3"),
            Bad(ops.solve_sylvester, [In((2, 2)), In((3, 3)), In((3, 2))], ShapeError,
                "the rows of c differ, 2 and 3"),
            Bad(ops.solve_sylvester, [In((4, 2, 2)), In((3, 3)), In((4, 2, 3))], ShapeError,
                "not as many axes"),
            Bad(ops.solve_sylvester, [In((2, 2), "float16")] * 3, DTypeError, "must be float32"),
         ]),
    Case("MatrixSquareRoot", ops.sqrtm, [DIAGONAL], scipy.linalg.sqrtm, FULL, label="two"),
    Case("MatrixSquareRoot", ops.sqrtm, [A], of_each(scipy.linalg.sqrtm), FLOATS,
         rtol=1e-4, atol=1e-5, bad=[
            Bad(ops.sqrtm, [In((2, 3))], ShapeError, "must be square differ, 2 and 3"),
            Bad(ops.sqrtm, [In((2,))], ShapeError, "must be a matrix"),
         ]),
    Case("MatrixSquareRoot", lambda a, b: real(ops.sqrtm(make_complex(a, b))), [A, A],
         lambda a, b: np.real(of_each(scipy.linalg.sqrtm)(a + 1j * b)), ("float64",),
         label="complex"),
    Case("Polar", ops.polar, [TALL], polar_oracle("right"), FULL, rtol=1e-4, atol=1e-5, bad=[
            Bad(lambda a: ops.polar(a, "up"), [In((2, 2))], AttributeValueError, "left or right"),
            Bad(ops.polar, [In((2,))], ShapeError, "must be a matrix"),
         ]),
    Case("Polar", lambda a: ops.polar(a, "left"), [C], polar_oracle("left"), ("float64",),
         label="left"),
    Case("Polar", ops.polar, [SAME], polar_oracle("right"), ("float64",), label="equal values"),
    Case("Polar", lambda a, b: [real(x) for x in ops.polar(make_complex(a, b))], [TALL, TALL],
         lambda a, b: [np.real(x) for x in polar_oracle("right")(a + 1j * b)], ("float64",),
         label="complex"),
)  # fmt: skip
