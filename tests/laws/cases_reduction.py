"""Cases of graphc/ops/reductions/reduction.py."""

from __future__ import annotations

import numpy as np
from scipy import special

from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.ops.reductions import reduction as ops
from tests.laws.case import Bad, Case, In

NUMBERS = ("int32", "float16", "bfloat16", "float32", "float64", "complex64", "complex128")
INEXACT = NUMBERS[1:]
REAL = NUMBERS[:5]
A = In((4, 3, 2), batch_axis=0)
DISTINCT = In((4, 3, 2), batch_axis=0, distinct=True)
FLAGS = In((4, 3), values=[[1, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]], batch_axis=0)
# Every axis with and without sharding, reduction and kept dimensions.
CHOICES = (
    {"axis": None},
    {"axis": 0},
    {"axis": 1, "keepdims": True},
    {"axis": (0, 2), "keepdims": True},
    {"axis": (-1, 1)},
)


def table(op, function, oracle, operand, dtypes=("float32", "float64"), **options):
    """One case for each choice of axes; the first one with every dtype."""
    return tuple(
        Case(
            op,
            lambda x, choice=choice: function(x, **choice),
            [operand],
            lambda x, choice=choice: oracle(x, **choice),
            dtypes=dtypes if choice["axis"] is None else dtypes[-2:],
            label=str(choice),
            **options,
        )
        for choice in CHOICES
    )


def logsumexp(x, axis=None, keepdims=False):
    return special.logsumexp(x, axis=axis, keepdims=keepdims)


CASES = (
    *table("ReduceSum", ops.reduce_sum, np.sum, A, NUMBERS),
    Case("ReduceSum", lambda x: ops.reduce_sum(x, axis=()), [A], lambda x: x, label="no axes"),
    Case(
        "ReduceSum",
        ops.reduce_sum,
        [In((4, 3), values=[[100, 100, 100]] * 4, batch_axis=0)],
        lambda x: np.sum(x, dtype=np.int32).astype(np.uint32 if x.dtype == np.uint8 else np.int32),
        dtypes=("bool", "int8", "uint8", "int16"),
        gradient=False,
        label="narrow integers",
        bad=[
            Bad(
                lambda x: ops.reduce_sum(x, axis=2),
                [In((4, 3), "float32")],
                AttributeValueError,
                "ReduceSum: axis 2 is out of range for rank 2",
            ),
            Bad(
                lambda x: ops.reduce_sum(x, axis=(0, -2)),
                [In((4, 3), "float32")],
                AttributeValueError,
                "axis 0 is named twice",
            ),
            Bad(
                lambda x: ops.reduce_sum(x, axis="rows"),
                [In((4, 3), "float32")],
                AttributeValueError,
                "axis must be an int",
            ),
        ],
    ),
    *table("ReduceMean", ops.reduce_mean, np.mean, A, INEXACT),
    Case(
        "ReduceMean",
        ops.reduce_mean,
        [In((4, 3), batch_axis=0)],
        lambda x: np.mean(x).astype(np.float32),
        dtypes=("int32",),
        gradient=False,
        label="integers",
        bad=[
            Bad(
                lambda x: ops.reduce_mean(x, dtype=int),
                [In((3,))],
                DTypeError,
                "dtype must be floating or complex, got int",
            ),
        ],
    ),
    *table("ReduceMax", ops.reduce_max, np.max, DISTINCT),
    *table("ReduceMin", ops.reduce_min, np.min, DISTINCT),
    Case("ReduceMax", ops.reduce_max, [A], np.max, dtypes=REAL, gradient=False, label="dtypes"),
    Case("ReduceMin", ops.reduce_min, [A], np.min, dtypes=REAL, gradient=False, label="dtypes"),
    Case(
        "ReduceMax", ops.reduce_max, [FLAGS], np.max, dtypes=("bool",), gradient=False, label="bool"
    ),
    Case(
        "ReduceMax",
        lambda x: ops.reduce_max(x, axis=1),
        [In((4, 3), batch_axis=0, distinct=True)],
        lambda x: np.max(x, axis=1),
        label="matrix",
        bad=[
            Bad(ops.reduce_max, [In((0, 3), "float32")], ShapeError, "no elements to reduce"),
            Bad(ops.reduce_max, [In((2,), "complex64")], DTypeError, "must be real or bool"),
        ],
    ),
    *table("ReduceProd", ops.reduce_prod, np.prod, A, NUMBERS, rtol=1e-4),
    Case(
        "ReduceProd",
        lambda x: ops.reduce_prod(x, axis=1),
        [In((4, 2), values=[[0, 2], [3, 0], [1, 2], [0, 0]], batch_axis=0)],
        lambda x: np.prod(x, axis=1),
        label="zeros",
    ),
    Case("ReduceAny", ops.reduce_any, [FLAGS], np.any, dtypes=("bool",), gradient=False),
    Case(
        "ReduceAny",
        lambda x: ops.reduce_any(x, axis=1, keepdims=True),
        [FLAGS],
        lambda x: np.any(x, axis=1, keepdims=True),
        dtypes=("bool",),
        gradient=False,
        label="axis",
    ),
    Case(
        "ReduceAny",
        lambda x: ops.reduce_any(x, axis=0),
        [In((4, 2), values=[[0, 0], [2, 0], [0, 0], [-1, 0]], batch_axis=0)],
        lambda x: np.any(x, axis=0),
        dtypes=("int32",),
        gradient=False,
        label="integers",
    ),
    Case("ReduceAll", ops.reduce_all, [FLAGS], np.all, dtypes=("bool",), gradient=False),
    Case(
        "ReduceAll",
        lambda x: ops.reduce_all(x, axis=-1),
        [FLAGS],
        lambda x: np.all(x, axis=-1),
        dtypes=("bool",),
        gradient=False,
        label="axis",
    ),
    *table("LogSumExp", ops.logsumexp, logsumexp, A, ("float16", "bfloat16", "float32", "float64")),
    Case(
        "LogSumExp",
        lambda x: ops.logsumexp(x, axis=1),
        [In((4, 2), values=[[1000, 999], [-1000, -1000], [0, 0], [500, -500]], batch_axis=0)],
        lambda x: special.logsumexp(x, axis=1),
        label="far from 0",
        bad=[Bad(ops.logsumexp, [In((2,), "complex64")], DTypeError, "must be floating")],
    ),
    *table("ReduceMean", ops.reduce_variance, np.var, A),
    Case(
        "ReduceMean",
        lambda x: ops.reduce_variance(x, axis=0),
        [A],
        lambda x: np.var(x, axis=0),
        dtypes=("complex64", "complex128"),
        label="variance of complex numbers",
    ),
)
