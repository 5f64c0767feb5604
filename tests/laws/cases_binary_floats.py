"""Cases of graphc/ops/elementwise/binary_floats.py."""

from __future__ import annotations

import numpy as np

from graphc.errors import AttributeValueError, DTypeError
from graphc.ops.elementwise import binary_floats as ops
from tests.laws.case import Bad, Case, In

FLOATING = ("float16", "bfloat16", "float32", "float64")
A = In((4, 3), batch_axis=0)
WHOLE = In((5,), values=[-20.0, -3.0, 0.0, 7.0, 15.0])
ODD = In((6,), values=[0.0, -0.0, np.inf, -np.inf, np.nan, -0.75])
COMPLEX = [In((2,), "complex64")]


def reduced(x):
    return ops.reduce_precision(x, 5, 10)


def as_float16(x):
    return x.astype(np.float32).astype(np.float16)


CASES = (
    Case("Exp2", ops.exp2, [A], np.exp2, (*FLOATING, "complex64")),
    Case("Exp2", ops.exp2, [WHOLE], np.exp2, ("float32", "float64"), rtol=0.0, atol=0.0,
         gradient=False, label="whole"),
    Case("Frexp", ops.frexp, [A], np.frexp, FLOATING,
         bad=[Bad(ops.frexp, COMPLEX, DTypeError, "x must be floating")]),
    Case("Frexp", ops.frexp, [ODD], np.frexp, gradient=False, label="odd"),
    Case("ReducePrecision", reduced, [A], as_float16, ("float32",), gradient=False, rtol=0.0,
         atol=0.0, bad=[
            Bad(reduced, COMPLEX, DTypeError, "x must be floating"),
            Bad(lambda x: ops.reduce_precision(x, 0, 3), [A], AttributeValueError, "at least 1"),
            Bad(lambda x: ops.reduce_precision(x, 5, -1), [A], AttributeValueError, "at least 0"),
         ]),
    # Its adjoint is JAX's; a step function has no finite differences to compare with.
    Case("ReducePrecision", lambda x: ops.reduce_precision(x, 8, 3), [A], None, FLOATING,
         label="gradient"),
)  # fmt: skip
