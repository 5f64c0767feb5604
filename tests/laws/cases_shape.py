"""Cases of graphc/ops/arrays/shape.py."""

from __future__ import annotations

import numpy as np

from graphc.errors import AttributeValueError, ShapeError
from graphc.ops.arrays import repeating
from graphc.ops.arrays import shape as ops
from graphc.ops.elementwise.arithmetic import multiply
from graphc.ops.reductions.reduction import reduce_sum
from tests.laws.case import Bad, Case, In

ALL = ("bool", "int4", "uint8", "int32", "bfloat16", "float32", "float64", "complex64")
A = In((4, 3, 2), batch_axis=0)
MIDDLE = In((3, 4, 2), batch_axis=1)
MATRIX = In((8, 3), "float32")


def apply(function, *args, **kwargs):
    """The same call for the builder and for NumPy."""
    return lambda x: function(x, *args, **kwargs)


def partial_sum(x):
    """A sum over the batch: in a data-parallel run, its value is still partial when it is moved."""
    return reduce_sum(x, axis=0)


RESHAPES = (
    (A, (4, 6), "merge the minor axes"),
    (A, (12, 2), "merge the batch as the major axis"),
    (A, (2, 12), "the batch does not divide: gathered on 4"),
    (A, (1, 4, 1, 6), "axes of size 1"),
    (A, (-1,), "ravel"),
    (In((8, 3), batch_axis=0), (4, -1), "split the batch"),
    (MIDDLE, (3, 8), "the batch as the major one of a merged pair"),
    (MIDDLE, (12, 2), "the batch as the minor one: gathered"),
    (In((4, 1), batch_axis=0), (4,), "drop an axis"),
)
TRANSPOSES = ((None, A), ((1, 0, 2), A), ((2, 0, 1), MIDDLE), ((0, -1, 1), A))
BROADCASTS = (
    (A, (4, 3, 2), "the same"),
    (A, (5, 4, 3, 2), "in front"),
    (In((4, 1, 2), batch_axis=0), (4, 3, 2), "along an axis of size 1"),
    (In((1, 2)), (4, 3, 2), "both"),
    (In(()), (2, 3), "a scalar"),
)

CASES = (
    *[
        Case("Reshape", apply(ops.reshape, shape), [x], apply(np.reshape, shape), ALL, label=label)
        for x, shape, label in RESHAPES
    ],
    Case(
        "Reshape",
        lambda x: ops.reshape(partial_sum(x), (2, 3)),
        [A],
        lambda x: x.sum(0).reshape(2, 3),
        label="partial",
        bad=[
            Bad(apply(ops.reshape, (5, 5)), [MATRIX], ShapeError, "24 elements do not fit"),
            Bad(apply(ops.reshape, (-1, 7)), [MATRIX], ShapeError, "do not divide into"),
            Bad(apply(ops.reshape, (-1, -1)), [MATRIX], ShapeError, "more than one -1"),
            Bad(apply(ops.reshape, (-2, 12)), [MATRIX], AttributeValueError, "none negative"),
            Bad(apply(ops.reshape, (0, -1)), [MATRIX], ShapeError, "do not divide into"),
            Bad(apply(ops.reshape, (2.5, 4)), [MATRIX], AttributeValueError, "must be an int"),
            Bad(apply(ops.squeeze, 1), [MATRIX], ShapeError, "has size 3, not 1"),
            Bad(apply(ops.expand_dims, 4), [MATRIX], AttributeValueError, "out of range"),
            Bad(apply(ops.expand_dims, (0, 0)), [MATRIX], AttributeValueError, "occurs twice"),
        ],
    ),
    Case("Reshape", ops.ravel, [MIDDLE], np.ravel, label="ravel"),
    Case("Reshape", apply(ops.ravel), [In(())], np.ravel, label="ravel a scalar", gradient=False),
    Case("Reshape", apply(ops.flatten, 1), [A], lambda x: x.reshape(4, 6), label="flatten"),
    Case(
        "Reshape",
        apply(ops.expand_dims, (0, -1)),
        [A],
        apply(np.expand_dims, (0, -1)),
        label="expand_dims",
    ),
    Case("Reshape", ops.squeeze, [In((4, 1, 3, 1), batch_axis=0)], np.squeeze, label="squeeze"),
    Case(
        "Reshape",
        apply(ops.squeeze, -1),
        [In((4, 1, 3, 1), batch_axis=0)],
        apply(np.squeeze, -1),
        label="squeeze one",
    ),
    *[
        Case("Transpose", apply(ops.transpose, p), [x], apply(np.transpose, p), ALL, label=str(p))
        for p, x in TRANSPOSES
    ],
    Case(
        "Transpose",
        lambda x: ops.transpose(partial_sum(x)),
        [A],
        lambda x: x.sum(0).T,
        label="partial",
        bad=[
            Bad(
                apply(ops.transpose, (0, 0)),
                [MATRIX],
                ShapeError,
                "not a permutation of the 2 axes",
            ),
            Bad(apply(ops.transpose, (0,)), [MATRIX], ShapeError, "name each axis once"),
            Bad(apply(ops.transpose, (0, 2)), [MATRIX], AttributeValueError, "axis 2 is out of"),
            Bad(apply(ops.moveaxis, (0, 1), 0), [MATRIX], AttributeValueError, "cannot move"),
        ],
    ),
    Case("Transpose", apply(ops.swapaxes, 0, -1), [A], apply(np.swapaxes, 0, -1), label="swap"),
    Case("Transpose", apply(ops.moveaxis, 0, -1), [A], apply(np.moveaxis, 0, -1), label="move"),
    Case(
        "Transpose",
        apply(ops.moveaxis, (2, 0), (0, 1)),
        [A],
        apply(np.moveaxis, (2, 0), (0, 1)),
        label="move two",
    ),
    *[
        Case(
            "BroadcastTo",
            apply(ops.broadcast_to, shape),
            [x],
            apply(np.broadcast_to, shape),
            ALL,
            label=label,
        )
        for x, shape, label in BROADCASTS
    ],
    Case(
        "BroadcastTo",
        lambda x: ops.broadcast_to(partial_sum(x), (4, 3, 2)),
        [A],
        lambda x: np.broadcast_to(x.sum(0), (4, 3, 2)),
        label="partial",
        bad=[
            Bad(apply(ops.broadcast_to, (8, 4)), [MATRIX], ShapeError, "does not broadcast to"),
            Bad(apply(ops.broadcast_to, (3,)), [MATRIX], ShapeError, "does not broadcast to"),
            Bad(apply(ops.broadcast_to, (-1, 3)), [MATRIX], AttributeValueError, "negative"),
        ],
    ),
    Case(
        "BroadcastTo",
        lambda x: multiply(ops.broadcast_to(x, (4, 3)), 2.0),
        [In((4, 1), batch_axis=0)],
        lambda x: np.broadcast_to(x, (4, 3)) * 2,
        label="then used",
    ),
    Case("BroadcastTo", apply(repeating.tile, (2, 3)), [A], apply(np.tile, (2, 3)), label="tile"),
    Case(
        "BroadcastTo",
        apply(repeating.tile, (2, 1, 1, 2)),
        [A],
        apply(np.tile, (2, 1, 1, 2)),
        label="t",
    ),
    Case("BroadcastTo", apply(repeating.repeat, 3, 1), [A], apply(np.repeat, 3, 1), label="repeat"),
    Case(
        "BroadcastTo", apply(repeating.repeat, 2), [A], apply(np.repeat, 2), label="repeat raveled"
    ),
)
