"""Cases of graphc/ops/arrays/scattering_nd.py."""

from __future__ import annotations

import numpy as np

from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.ops.arrays import scattering_nd as ops
from graphc.ops.reductions.reduction import reduce_sum
from tests.laws.case import Bad, Case, In

ALL = ("bool", "uint8", "int32", "bfloat16", "float32", "float64", "complex64")
NUMBERS = ALL[1:]
REAL = ALL[1:-1]
X = In((4, 3, 5), batch_axis=0)
PLAIN = In((4, 3, 5))
PAIRS = In((4, 2), "int32", values=[[0, 0], [3, 2], [-1, 1], [2, -3]], batch_axis=0)
TWICE = In((4, 2), "int32", values=[[0, 0], [3, 2], [-4, 0], [3, -1]], batch_axis=0)
ROWS = In((4, 2, 1), "int32", values=[[[0], [2]], [[1], [0]], [[-1], [0]], [[2], [-3]]],
          batch_axis=0)  # fmt: skip
OUTSIDE = In((4, 2), "int32", values=[[0, 3], [4, 0], [-5, 1], [1, 1]])
U = In((4, 5), batch_axis=0)
M, AT, F = In((4, 3), "float32"), In((2, 2), "int32"), In((2,), "float32")

MEET = {
    "set": lambda x, u: u,
    "add": lambda x, u: x + u,
    "mul": lambda x, u: x * u,
    "min": np.minimum,
    "max": np.maximum,
}


def scatter(op, **attrs):
    return lambda x, i, u: ops.scatter_nd(x, i, u, op, **attrs)


def updated(op, mode="drop"):
    """Updates vector by vector, in Python."""

    def oracle(x, i, u):
        result = np.array(x)
        sizes = x.shape[: i.shape[-1]]
        for where in np.ndindex(i.shape[:-1]):
            place = np.where(i[where] < 0, i[where] + sizes, i[where])
            if mode == "clip":
                place = np.clip(place, 0, np.array(sizes) - 1)
            if ((place >= 0) & (place < sizes)).all():
                result[tuple(place)] = MEET[op](result[tuple(place)], u[where])
        return result

    return oracle


def in_step(op):
    one = updated(op)
    return lambda x, i, u: np.stack([one(*row) for row in zip(x, i, u, strict=True)])


DTYPES = {"set": ALL, "add": NUMBERS, "mul": NUMBERS, "min": REAL, "max": REAL}
OWN = {
    "mul",
    "min",
    "max",
}  # JAX has no derivative of these: see tests/ops/arrays/test_scattering.py

CASES = (
    *[
        Case(
            "ScatterNd",
            scatter(op),
            [PLAIN, PAIRS, U],
            updated(op),
            dtypes,
            gradient=op not in OWN,
            label=op,
        )
        for op, dtypes in DTYPES.items()
    ],
    *[
        Case(
            "ScatterNd",
            scatter(op, batch_dims=1),
            [x, ROWS, In((4, 2, 5), batch_axis=0)],
            in_step(op),
            gradient=op not in OWN,
            label=f"{op} in step, {label}",
        )
        for op in ("set", "mul")
        for label, x in (("x sharded", X), ("x whole", PLAIN))
    ],
    Case("ScatterNd", scatter("set"), [In((4, 3, 8), batch_axis=2), PAIRS, In((4, 8))],
         updated("set"), label="windows sharded"),
    Case("ScatterNd", scatter("set"), [X, PAIRS, U], updated("set"), label="all sharded"),
    Case("ScatterNd", scatter("add"), [PLAIN, TWICE, U], updated("add"), label="add twice"),
    *[
        Case("ScatterNd", scatter(op), [PLAIN, TWICE, U], updated(op), gradient=False,
             label=f"{op} twice")
        for op in ("mul", "min", "max")
    ],
    *[
        Case("ScatterNd", scatter("add", mode=mode), [X, OUTSIDE, In((4, 5))],
             updated("add", mode), label=mode)
        for mode in ("drop", "clip")
    ],
    Case("ScatterNd", scatter("set"), [X, OUTSIDE, In((4, 5))], updated("set"), label="set, drop"),
    Case("ScatterNd", lambda x, i, u: ops.scatter_nd(x, i, reduce_sum(u, axis=0), "add"),
         [PLAIN, OUTSIDE, In((4, 4, 5), batch_axis=0)],
         lambda x, i, u: updated("add")(x, i, u.sum(0)), label="of partial sums"),
    Case(
        "ScatterNd",
        lambda x, i: ops.scatter_nd(x, i, 1, "set"),
        [In((4, 3)), PAIRS],
        lambda x, i: updated("set")(x, i, np.ones(4)),
        label="broadcast",
        bad=[
            Bad(scatter("set"), [M, AT, In((3,), "float32")], ShapeError, "does not broadcast"),
            Bad(scatter("set"), [M, AT, In((2, 2), "float32")], ShapeError, "updates must have ra"),
            Bad(scatter("set"), [M, In((2, 3), "int32"), F], ShapeError, "axes .* are not"),
            Bad(scatter("set"), [M, In((2, 2), "float32"), F], DTypeError, "must be integers"),
            Bad(scatter("set"), [M, AT, In((2,), "float64")], DTypeError, "do not fit into float3"),
            Bad(scatter("add"), [In((2, 2), "bool"), AT, In((2,), "bool")], DTypeError, "numeric"),
            Bad(scatter("max"), [In((2, 2), "complex64"), AT, F], DTypeError, "must be real"),
            Bad(scatter("sub"), [M, AT, F], AttributeValueError, '"set", "add", "mul"'),
            Bad(scatter("set", mode="fill"), [M, AT, F], AttributeValueError, '"clip" or "drop"'),
        ],
    ),
)  # fmt: skip
