"""Cases of graphc/ops/scipy_api/convolving.py."""

from __future__ import annotations

import numpy as np

from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.ops.core.declaring import record
from graphc.ops.core.emit import emit_one
from graphc.ops.scipy_api import convolving as ops
from tests.laws.case import Bad, Case, In

X, Y = In((8,), batch_axis=0), In((3,))
A, M = In((3,), "float32"), In((2, 3), "float32")

CASES = (
    *[
        Case(
            "Convolve",
            lambda x, y, mode=mode: ops.convolve(x, y, mode),
            [X, Y],
            lambda x, y, mode=mode: np.convolve(x, y, mode),
            ("bfloat16", "float32", "float64", "complex64"),
            label=mode,
        )
        for mode in ("full", "same", "valid")
    ],
    Case(
        "Convolve",
        lambda x, y: ops.convolve(y, x, "same"),
        [X, In((4,))],
        lambda x, y: np.convolve(y, x, "same"),
        label="the longer last",
        bad=[
            Bad(ops.convolve, [A, M], ShapeError, "must be vectors"),
            Bad(ops.convolve, [A, In((0,), "float32")], ShapeError, "no elements"),
            Bad(lambda x: ops.convolve(x, x, "half"), [A], AttributeValueError, '"full", "same"'),
            Bad(lambda x: emit_one(record(ops.convolve), (x, x)), [In((3,), "int32")], DTypeError,
                "floating or complex"),
        ],
    ),
    Case(
        "Convolve",
        lambda x, y: ops.correlate(x, y, "full"),
        [X, Y],
        lambda x, y: np.correlate(x, y, "full"),
        ("float32", "float64", "complex64"),
        label="correlate",
    ),
    Case(
        "Convolve",
        lambda x, y: ops.correlate(x, y, "same"),
        [In((4,)), X],
        lambda x, y: np.correlate(x, y, "same"),
        ("float32", "complex64"),
        label="correlate, the longer last",
    ),
)  # fmt: skip
