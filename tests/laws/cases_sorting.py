"""Cases of graphc/ops/reductions/sorting.py."""

from __future__ import annotations

import numpy as np

from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.ops.core.emit import emit
from graphc.ops.reductions import sorting as ops
from tests.laws.case import Bad, Case, In

REAL = ("int32", "float16", "bfloat16", "float32", "float64")
X = In((4, 3, 2), batch_axis=0, distinct=True)
TIES = In((4, 5), values=np.array([[2, 1, 2, 1, 0]] * 4) + np.arange(4)[:, None], batch_axis=0)


def greatest(x, k):
    order = np.argsort(-x.astype(np.float64), -1, kind="stable")[..., :k]
    return np.take_along_axis(x, order, -1), order.astype(np.int32)


def sorted_together(x, y):
    order = np.argsort(x, 0, kind="stable")
    return np.take_along_axis(x, order, 0), np.take_along_axis(y, order, 0)


CASES = (
    *[
        Case("Sort", lambda x, axis=axis: ops.sort(x, axis), [X],
             lambda x, axis=axis: np.sort(x, axis), dtypes=REAL, label=f"axis {axis}")
        for axis in (0, 1, -1)
    ],
    Case("Sort", lambda x: ops.sort(x, descending=True), [X],
         lambda x: np.sort(x, -1)[..., ::-1], label="descending"),
    Case("Sort", ops.argsort, [TIES], lambda x: np.argsort(x, -1, kind="stable").astype(np.int32),
         dtypes=("int32", "float32"), gradient=False, label="places of equal ones", bad=[
            Bad(lambda x: ops.sort(x, 1), [In((3,))], AttributeValueError, "axis 1 is out of"),
            Bad(ops.sort, [In((3,), "complex64")], DTypeError, "must be real or bool"),
            Bad(lambda x, y: emit(ops.SORT, (x, y), axis=0), [In((3,)), In((4,))], ShapeError,
                "sizes of the operands differ"),
            Bad(lambda x: emit(ops.SORT, (x,), axis=0, keys=2), [In((3,))], ShapeError,
                "there are 2 keys for 1 operands"),
         ]),
    Case("Sort", lambda x, y: emit(ops.SORT, (x, y), axis=0, keys=1),
         [In((5, 4), batch_axis=1, distinct=True), In((5, 4), batch_axis=1)], sorted_together,
         label="another in step"),
    Case("Sort", lambda b: ops.sort(b), [In((4, 3), batch_axis=0)], lambda b: np.sort(b, -1),
         dtypes=("bool",), gradient=False, label="bool"),
    Case("TopK", lambda x: ops.top_k(x, 2), [X], lambda x: greatest(x, 2), dtypes=REAL),
    Case("TopK", lambda x: ops.top_k(x, 3), [TIES], lambda x: greatest(x, 3), gradient=False,
         label="equal ones", bad=[
            Bad(lambda x: ops.top_k(x, 4), [In((2, 3))], ShapeError, "k is 4 of 3 elements"),
            Bad(lambda x: ops.top_k(x, -1), [In((3,))], AttributeValueError, "k must not be neg"),
            Bad(lambda x: ops.top_k(x, 1), [In(())], ShapeError, "x must have an axis"),
         ]),
)  # fmt: skip
