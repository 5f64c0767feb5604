"""Cases of graphc/ops/matrices/contraction.py."""

from __future__ import annotations

import numpy as np

from graphc.errors import AttributeValueError, ShapeError
from graphc.ops.matrices import contraction as ops
from graphc.ops.matrices.matrix_product import matmul
from graphc.ops.reductions.reduction import reduce_sum
from tests.laws.case import Bad, Case, In

ALL = ("bool", "int32", "bfloat16", "float32", "float64", "complex64")
A = In((4, 3, 5), batch_axis=0)
M = In((4, 5), "float32")
V = In((5,), "float32")


def dot(contracting, batch=((), ())):
    return lambda a, b: ops.dot_general(a, b, contracting, batch)


def einsum(spec):
    return lambda a, b: np.einsum(spec, a, b)


GENERAL = (
    ("a,a->", [In((4,), batch_axis=0), In((4,), batch_axis=0)], ((0,), (0,)), ((), ())),
    ("abc,cd->abd", [A, In((5, 2))], ((2,), (0,)), ((), ())),
    ("abc,dc->abd", [A, In((2, 5))], ((-1,), (-1,)), ((), ())),
    ("abc,abd->cd", [A, In((4, 3, 2), batch_axis=0)], ((0, 1), (0, 1)), ((), ())),
    ("abc,bad->cd", [A, In((3, 4, 2), batch_axis=1)], ((0, 1), (1, 0)), ((), ())),
    ("abc,acd->abd", [A, In((4, 5, 2), batch_axis=0)], ((2,), (1,)), ((0,), (0,))),
    ("abc,dab->abcd", [A, In((2, 4, 3), batch_axis=1)], ((), ()), ((0, 1), (1, 2))),
    ("abc,dca->bad", [A, In((2, 5, 3))], None, None),
    ("abc,d->abcd", [A, In((2,))], ((), ()), ((), ())),
    ("ab,ca->bc", [In((3, 4), batch_axis=1), In((2, 3))], ((0,), (1,)), ((), ())),
    ("ab,cb->ac", [In((3, 4)), In((8, 4), batch_axis=0)], ((1,), (1,)), ((), ())),
    ("ab,cb->ac", [In((4, 3), batch_axis=0), In((4, 3), batch_axis=0)], ((1,), (1,)), ((), ())),
)

CASES = (
    *[
        Case("DotGeneral", dot(c, b), inputs, einsum(spec), ALL, label=f"{i} {spec}", rtol=1e-4)
        for i, (spec, inputs, c, b) in enumerate(GENERAL)
        if c is not None
    ],
    Case(
        "DotGeneral",
        dot(((0,), (0,))),
        [In((4, 3), batch_axis=0), In((4, 2))],
        einsum("ab,ac->bc"),
        label="one sharded",
        bad=[
            Bad(dot(((1,), (0,))), [M, M], ShapeError, "contracted dimensions differ, 5 and 4"),
            Bad(dot(((1, 1), (0, 1))), [M, M], ShapeError, "named twice"),
            Bad(dot(((2,), (0,))), [M, M], AttributeValueError, "axis 2 is out of range"),
            Bad(dot(((1,), ())), [M, M], ShapeError, "equal numbers of contracted axes"),
            Bad(dot(((1,), (1,)), ((0,), (0,))), [M, In((3, 5), "float32")], ShapeError, "batch"),
            Bad(lambda a, b: ops.tensordot(a, b, 3), [M, M], AttributeValueError, "sum over 3"),
        ],
    ),
    Case(
        "DotGeneral",
        lambda a, b: ops.dot_general(reduce_sum(a, axis=0), b, ((0,), (0,))),
        [A, In((3, 2))],
        lambda a, b: a.sum(0).T @ b,
        label="partial",
    ),
    Case(
        "DotGeneral",
        lambda a: ops.dot_general(reduce_sum(a, axis=0), reduce_sum(a, axis=0), ((0,), (0,))),
        [A],
        lambda a: a.sum(0).T @ a.sum(0),
        label="both partial",
    ),
    Case("DotGeneral", matmul, [A, In((5,))], np.matmul, label="matmul by a vector"),
    Case("DotGeneral", matmul, [In((3,)), A], np.matmul, label="matmul of a vector"),
    Case(
        "DotGeneral",
        matmul,
        [In((4,), batch_axis=0), In((4,), batch_axis=0)],
        np.matmul,
        label="matmul of vectors",
    ),
    Case("DotGeneral", ops.tensordot, [A, In((3, 5, 2))], np.tensordot, label="tensordot"),
    Case(
        "DotGeneral",
        lambda a, b: ops.tensordot(a, b, ([0, 2], [1, 0])),
        [A, In((5, 4), batch_axis=1)],
        lambda a, b: np.tensordot(a, b, ([0, 2], [1, 0])),
        label="tensordot of axes",
    ),
)
