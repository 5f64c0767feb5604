"""Cases of graphc/ops/elementwise/integers.py."""

from __future__ import annotations

import numpy as np

from graphc.errors import DTypeError
from graphc.ops.elementwise import integers as ops
from tests.laws.case import Bad, Case, In

INTEGERS = ("int8", "uint8", "int32", "uint32", "int64")
X = In((4, 3), low=0.0, high=40.0, batch_axis=0)
ROW = In((3,), values=[6, 1, 8])
BITS = In((4,), values=[0, 1, 5, 127], batch_axis=0)


def bit_count(x):
    return np.vectorize(lambda v: int(v).bit_count())(x)


CASES = (
    Case("Gcd", ops.gcd, [X, ROW], np.gcd, INTEGERS,
         bad=[Bad(ops.gcd, [In((2,), "float32")] * 2, DTypeError, "x must be integers")]),
    Case("Lcm", ops.lcm, [In((4, 3), low=1.0, high=9.0, batch_axis=0), ROW], np.lcm, INTEGERS),
    Case("PopulationCount", ops.population_count, [BITS], bit_count, INTEGERS,
         bad=[Bad(ops.population_count, [In((2,), "int4")], DTypeError, "of 8 bits or more")]),
    Case("LeadingZeros", ops.leading_zeros, [BITS],
         lambda x: x.dtype.itemsize * 8 - np.ceil(np.log2(x + 1.0)), INTEGERS),
)  # fmt: skip
