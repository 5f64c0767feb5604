"""Cases of graphc/ops/control/custom_gradient.py.

The law compares gradients with those of the values, so the rules here are the true derivatives.
tests/jaxpr has other rules.
"""

from __future__ import annotations

import numpy as np

from graphc.errors import DTypeError, ShapeError
from graphc.ops.control import custom_gradient as ops
from graphc.ops.elementwise.transcendental import cos, sin
from tests.laws.case import Bad, Case, In

A = In((4, 3), batch_axis=0)


def sine(x):
    return ops.with_gradient([sin(x)], [x], lambda xs, dys: [dys[0] * cos(xs[0])])[0]


def product_and_sum(x, i, y):
    return ops.with_gradient(
        [x * y, x + y],
        [x, i, y],
        lambda xs, dys: [dys[0] * xs[2] + dys[1], dys[0] * xs[0] + dys[1]],
    )


CASES = (
    Case(
        "CustomGradient",
        sine,
        [A],
        np.sin,
        bad=[
            Bad(
                lambda x: ops.with_gradient([x], [x], lambda xs, dys: [xs[0][0]]),
                [In((4, 3), "float32")],
                ShapeError,
                r"adjoint 0 that the region gives must be f32\[4, 3\], got f32\[3\]",
            ),
            Bad(
                lambda x: ops.with_gradient([x], [x], lambda xs, dys: [x]),
                [In((4, 3), "float32")],
                ShapeError,
                "must take the xs",
            ),
            Bad(
                lambda i: ops.with_gradient([i], [i], lambda xs, dys: []),
                [In((4, 3), "int32")],
                DTypeError,
                "must be floating or complex, got int32",
            ),
        ],
    ),
    Case(
        "CustomGradient",
        product_and_sum,
        [A, In((4,), "int32", batch_axis=0), A],
        lambda x, i, y: (x * y, x + y),
        label="several",
    ),
    Case(
        "Undifferentiable", lambda x: ops.undifferentiable(x, "why"), [A], np.array, gradient=False
    ),
)
