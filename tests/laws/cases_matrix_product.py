"""Cases of graphc/ops/matrices/matrix_product.py."""

from __future__ import annotations

import numpy as np

from graphc.errors import DTypeError, ShapeError
from graphc.ops.matrices import matrix_product as ops
from graphc.ops.reductions.reduction import reduce_sum
from tests.laws.case import Bad, Case, In

ALL = ("bool", "int8", "int32", "bfloat16", "float16", "float32", "float64", "complex64")
A, B = In((4, 3), batch_axis=0), In((3, 2))
M, N, S = In((4, 3), "float32"), In((5, 2), "float32"), In((), "float32")


def product(ta=False, tb=False):
    return lambda a, b: ops.matmul(a, b, transpose_a=ta, transpose_b=tb)


def oracle(ta=False, tb=False):
    return lambda a, b: np.matmul(
        np.swapaxes(a, -1, -2) if ta else a, np.swapaxes(b, -1, -2) if tb else b
    )


FLAGS = ((False, False), (False, True), (True, False), (True, True))
BATCHES = (
    ((4,), (4,), 0, 0),
    ((4, 5), (), 0, None),
    ((), (4, 5), None, 0),
    ((4, 1), (4, 5), 0, 0),
    ((4, 5), (5,), 0, None),
    ((4, 5), (1, 5), 0, None),
    ((1, 5), (4, 1), None, 0),
    ((5, 4), (1, 4), 1, 1),
    ((1,), (2, 4), None, 1),
)


def batched(lead_a, lead_b, axis_a, axis_b, ta, tb):
    return [
        In((*lead_a, *((2, 3) if ta else (3, 2))), batch_axis=axis_a),
        In((*lead_b, *((3, 2) if tb else (2, 3))), batch_axis=axis_b),
    ]


CASES = (
    Case(
        "MatMul",
        product(),
        [A, B],
        np.matmul,
        ALL,
        rtol=1e-4,
        bad=[
            Bad(ops.matmul, [M, N], ShapeError, "inner dimensions differ, 3 and 5"),
            Bad(ops.matmul, [M, S], ShapeError, "scalar"),
            Bad(
                ops.matmul,
                [In((2, 4, 3), "float32"), In((5, 3, 2), "float32")],
                ShapeError,
                "do not broadcast",
            ),
            Bad(
                ops.matmul,
                [In((4, 3), "float8_e4m3fn"), In((3, 2), "int4")],
                DTypeError,
                "no implicit promotion",
            ),
        ],
    ),
    *[
        Case("MatMul", product(*f), [In(s, batch_axis=0), In(t)], oracle(*f), ALL, label=f"{f}")
        for f, s, t in zip(
            FLAGS,
            ((4, 3), (4, 3), (4, 8), (4, 8)),
            ((3, 2), (2, 3), (4, 2), (2, 4)),
            strict=True,
        )
    ],
    Case("MatMul", product(True), [A, In((4, 2), batch_axis=0)], oracle(True), label="a sum"),
    Case("MatMul", product(), [In((2, 4), batch_axis=1), In((4, 3))], np.matmul, label="left"),
    Case("MatMul", product(), [In((2, 4)), In((4, 3), batch_axis=0)], np.matmul, label="right"),
    Case("MatMul", product(), [B, In((2, 4), batch_axis=1)], np.matmul, label="columns"),
    Case("MatMul", product(False, True), [A, A], oracle(False, True), label="gram"),
    *[
        Case(
            "MatMul",
            product(*flags),
            batched(*lead, *flags),
            oracle(*flags),
            label=f"{lead} {flags}",
        )
        for lead in BATCHES
        for flags in FLAGS
    ],
    Case(
        "MatMul",
        lambda a, b: ops.matmul(reduce_sum(a, axis=0), b),
        [In((4, 2, 3), batch_axis=0), B],
        lambda a, b: a.sum(0) @ b,
        label="partial",
    ),
    Case(
        "MatMul",
        lambda a, b: ops.matmul(a, b),
        [In((4, 3), "float32", batch_axis=0), In((3, 2), "T")],
        np.matmul,
        dtypes=("int32", "bfloat16", "float32", "float64"),
        label="promoted",
        gradient=False,
    ),
    Case(
        "MatMul",
        lambda a: ops.matmul(a, np.eye(3, dtype=np.int8)),
        [A],
        lambda a: a,
        dtypes=("float64",),
        label="an array",
    ),
    Case(
        "Multiply",
        ops.outer,
        [In((4,), batch_axis=0), In((2, 3))],
        np.outer,
        label="outer",
    ),
)
