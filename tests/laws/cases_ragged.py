"""Cases of graphc/ops/matrices/ragged.py."""

from __future__ import annotations

import numpy as np

from graphc.errors import DTypeError, ShapeError
from graphc.ops.core.emit import emit
from graphc.ops.matrices import ragged as ops
from tests.laws.case import Bad, Case, In

NUMBERS = ("int8", "int32", "float16", "bfloat16", "float32", "float64")
SIZES = In((3,), "int32", values=[2, 0, 1])  # one group is empty, one row is in no group
ROWS = In((4, 2), batch_axis=0)


def groups(a, sizes):
    ends = np.cumsum(sizes)
    return [slice(end - size, end) for size, end in zip(sizes, ends, strict=True)]


def dot(a, b, sizes):
    result = np.zeros((a.shape[0], b.shape[2]))
    for rows, matrix in zip(groups(a, sizes), b, strict=True):
        result[rows] = a[rows] @ matrix
    return result


def outer(a, b, sizes):
    return np.stack([a[rows].T @ b[rows] for rows in groups(a, sizes)])


CASES = (
    Case("RaggedDot", ops.ragged_dot, [ROWS, In((3, 2, 4), batch_axis=2), SIZES], dot, NUMBERS,
         bad=[
            Bad(ops.ragged_dot, [In((4, 2)), In((3, 3, 5)), SIZES], ShapeError,
                "inner dimensions differ, 2 and 3"),
            Bad(ops.ragged_dot, [In((4, 2)), In((2, 2, 5)), SIZES], ShapeError,
                "numbers of matrices and of groups differ, 2 and 3"),
            Bad(ops.ragged_dot, [In((4, 2)), In((2, 5)), SIZES], ShapeError, "b must have 3 axes"),
            Bad(ops.ragged_dot, [In((2,)), In((3, 2, 5)), SIZES], ShapeError, "a must be a matrix"),
            Bad(ops.ragged_dot, [In((4, 2)), In((3, 2, 5)), In((3,))], DTypeError,
                "group_sizes must be integers"),
            Bad(ops.ragged_dot, [In((4, 2), "complex64"), In((3, 2, 5)), SIZES], DTypeError,
                "a must be floating or integers"),
         ]),
    Case("RaggedDot", ops.ragged_dot, [In((4, 4), batch_axis=1), In((3, 4, 2)), SIZES], dot,
         ("float64",), label="contracted axis cut"),
    Case("RaggedOuter", lambda a, b, sizes: emit(ops.RAGGED_OUTER, (a, b, sizes)),
         [ROWS, In((4, 3)), SIZES], outer, NUMBERS, bad=[
            Bad(lambda a, b, sizes: emit(ops.RAGGED_OUTER, (a, b, sizes)),
                [In((4, 2)), In((3, 2)), SIZES], ShapeError, "numbers of rows differ, 4 and 3"),
         ]),
    Case("RaggedOuter", lambda a, b, sizes: emit(ops.RAGGED_OUTER, (a, b, sizes)),
         [In((4, 3)), In((4, 4), batch_axis=1), SIZES], outer, ("float64",), label="columns cut"),
)  # fmt: skip
