"""Cases of graphc/ops/elementwise/rounding.py."""

from __future__ import annotations

import numpy as np

from graphc.errors import DTypeError
from graphc.ops.elementwise import rounding as ops
from tests.laws.case import Bad, Case, In

INEXACT = ("float16", "bfloat16", "float32", "float64")

A = In((4, 3), batch_axis=0)

CASES: tuple[Case, ...] = (
    Case("Floor", ops.floor, [A], np.floor, dtypes=INEXACT, gradient=False),
    Case("Ceil", ops.ceil, [A], np.ceil, dtypes=INEXACT, gradient=False),
    Case(
        "Round",
        ops.rint,
        [In((4, 2), values=[[0.5, 1.5], [2.5, -0.5], [1.2, -1.7], [3.0, -2.5]], batch_axis=0)],
        np.rint,
        dtypes=INEXACT,
        gradient=False,
        bad=[
            Bad(
                ops.rint,
                [In((2,), "complex64")],
                DTypeError,
                "Round: x must be integer or floating",
            )
        ],
    ),
    Case(
        "Round",
        lambda x: ops.rint(ops.ceil(ops.floor(x))),
        [In((4,), batch_axis=0)],
        lambda x: x,
        dtypes=("int32", "uint8"),
        gradient=False,
        label="integers pass through",
    ),
)
