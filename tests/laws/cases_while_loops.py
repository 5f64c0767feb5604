"""Cases of graphc/ops/control/while_loops.py. tests/ops tests gradients, which JAX lacks."""

from __future__ import annotations

import numpy as np

from graphc.errors import AttributeValueError, DTypeError, GraphcError, GraphError, ShapeError
from graphc.ops.arrays.slicing import flip
from graphc.ops.control.while_loops import fori_loop, while_loop
from graphc.ops.draws.location_scale import normal
from graphc.ops.elementwise.comparison import less
from graphc.ops.elementwise.transcendental import tanh
from graphc.ops.matrices.matrix_product import matmul
from graphc.ops.reductions.reduction import reduce_max, reduce_sum
from tests.laws.case import Bad, Case, In

BATCH = In((4, 3), low=0.5, high=1.5, batch_axis=0)
VECTOR = In((3,), "float32")


def grown(limit):
    """Doubles the rows until their largest element reaches 20, and counts the trips."""

    def build(x):
        return while_loop(
            lambda c: less(reduce_max(c[0]), 20.0),
            lambda c: (c[0] * 2.0, c[1] + 1),
            (x, 0),
            max_trip_count=limit,
        )

    return build


def grown_oracle(limit):
    def oracle(x):
        trips = 0
        while x.max() < 20 and trips != limit:
            x, trips = x * 2, trips + 1
        return x, np.int32(trips)

    return oracle


def recurrent(w, x):
    """Uses outer tensors in the condition and in the body."""
    return while_loop(
        lambda h: less(reduce_sum(h * h), reduce_sum(w * w) + 40.0),
        lambda h: tanh(h @ w) + x + h,
        x,
    )


def recurrent_oracle(w, x):
    h = x
    while np.sum(h * h) < np.sum(w * w) + 40:
        h = np.tanh(h @ w) + x + h
    return h


def computed_bounds(limit=None):
    return lambda x, low, high: fori_loop(
        low, high, lambda i, c: c * 0.5 + x * i, x, max_trip_count=limit
    )


def bounds_oracle(limit=None):
    def oracle(x, low, high):
        c = x
        for i in range(int(low), int(high))[:limit]:
            c = c * 0.5 + x * i
        return c

    return oracle


def bound(value):
    return In((), "int32", values=value)


def bad(cond, body, error, match, **options):
    return Bad(lambda x: while_loop(cond, body, x, **options), [VECTOR], error, match)


CASES = (
    *(
        Case(
            "While",
            grown(limit),
            [BATCH],
            grown_oracle(limit),
            gradient=False,
            label=f"{limit} trips at most",
        )
        for limit in (None, 2, 30)
    ),
    Case(
        "While",
        recurrent,
        [In((3, 3)), BATCH],
        recurrent_oracle,
        gradient=False,
        label="outer tensors",
        bad=[
            bad(lambda x: x, lambda x: x, ShapeError, r"must return one bool, got f32\[3\]"),
            bad(lambda x: x[0], lambda x: x, DTypeError, "must return one bool, got f32"),
            bad(lambda x: True, lambda x: (x, x), GraphcError, "before the body and .* after it"),
            bad(lambda x: True, lambda x: x[:2], ShapeError, "sizes of carry 0 .* differ, 3 and 2"),
            bad(
                lambda x: True,
                lambda x: reduce_sum(x),
                ShapeError,
                r"carry 0 is f32\[3\] before the body and f32\[\] after it",
                max_trip_count=5,
            ),
            bad(
                lambda x: less(normal(()), 0.0),
                lambda x: x,
                GraphError,
                "the condition assigns a variable, draws random numbers or calls Python",
            ),
            *(
                bad(
                    lambda x: True,
                    lambda x: x,
                    AttributeValueError,
                    f"max_trip_count must be a positive int or a named size, got {count}",
                    max_trip_count=count,
                )
                for count in (0, -1, 2.0, True)
            ),
            Bad(
                lambda x: fori_loop(0, x, lambda i, c: c, x),
                [VECTOR],
                DTypeError,
                r"a bound must be an integer scalar, got f32\[3\]",
            ),
        ],
    ),
    *(
        Case(
            "While",
            computed_bounds(limit),
            [BATCH, bound(low), bound(high)],
            bounds_oracle(limit),
            gradient=False,
            label=f"from {low} to {high}, {limit} at most",
        )
        for low, high, limit in ((0, 4, None), (-2, 3, 3), (2, 2, 3), (3, -1, None))
    ),
    Case(
        "While",
        lambda x: while_loop(lambda c: less(c[1], 3), lambda c: (flip(c[0], 1), c[1] + 1), (x, 0)),
        [BATCH],
        lambda x: (x[:, ::-1], np.int32(3)),
        dtypes=("bool", "int32", "bfloat16", "float64", "complex64"),
        gradient=False,
        label="any dtype",
    ),
    Case(
        "Scan",
        lambda w, x: fori_loop(1, 4, lambda i, c: tanh(matmul(c, w)) * i, x),
        [In((3, 3)), BATCH],
        lambda w, x: np.tanh(np.tanh(np.tanh(x @ w) @ w) * 2 @ w) * 3,
        label="fori_loop",
    ),
    Case(
        "Scan",
        lambda x: fori_loop(4, 1, lambda i, c: c * i, x),
        [BATCH],
        lambda x: x,
        gradient=False,
        label="fori_loop without a turn",
    ),
)
