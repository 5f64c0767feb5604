"""Cases of graphc/ops/nn/layers/normalization.py."""

from __future__ import annotations

import numpy as np

from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.ops.core.emit import emit
from graphc.ops.nn import normalization as ops
from tests.laws.case import Bad, Case, In

EPSILON = 1e-3
CHANNELS = In((3,))
POSITIVE = In((3,), low=0.5, high=2.0)
FLOATS = ("float16", "bfloat16", "float32", "float64")


def batch_norm(x, mean, variance, scale, offset):
    return (x - mean) / np.sqrt(variance + EPSILON) * scale + offset


def training(x, scale, offset):
    axes = tuple(range(x.ndim - 1))
    mean, variance = x.mean(axes), x.var(axes)
    return batch_norm(x, mean, variance, scale, offset), mean, variance


def layer_norm(x, scale, offset):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + EPSILON) * scale + offset


def layer_norm_gradient(x, scale, dy):
    factor = 1 / np.sqrt(x.var(-1, keepdims=True) + EPSILON)
    rows = (x - x.mean(-1, keepdims=True)) * factor
    along = dy * scale
    dx = along - along.mean(-1, keepdims=True) - rows * (along * rows).mean(-1, keepdims=True)
    axes = tuple(range(x.ndim - 1))
    return dx * factor, (dy * rows).sum(axes), dy.sum(axes)


CASES = (
    Case(
        "BatchNorm",
        lambda *operands: ops.batch_norm(*operands, EPSILON),
        [In((4, 2, 3), batch_axis=0), CHANNELS, POSITIVE, CHANNELS, CHANNELS],
        batch_norm,
        dtypes=("float32", "float64"),
    ),
    Case(
        "BatchNorm",
        lambda *operands: ops.batch_norm(*operands, EPSILON),
        [
            In((4, 3), batch_axis=0),
            In((3,), "float32"),
            In((3,), "float32", low=0.5, high=2.0),
            In((3,), "float32"),
            In((3,), "float32"),
        ],
        batch_norm,
        dtypes=("float16", "bfloat16"),
        label="float32 parameters",
    ),
    Case(
        "BatchNorm",
        lambda *operands: ops.batch_norm_training(*operands, EPSILON),
        [In((4, 2, 2, 3), batch_axis=0), CHANNELS, CHANNELS],
        training,
        label="training",
        bad=[
            Bad(
                ops.batch_norm,
                [In((4, 3)), CHANNELS, CHANNELS, CHANNELS, In((4,))],
                ShapeError,
                "channels of x and offset differ, 3 and 4",
            ),
            Bad(
                lambda *operands: ops.batch_norm(*operands, -1.0),
                [In((4, 3)), *[CHANNELS] * 4],
                AttributeValueError,
                "epsilon must be a float of at least 0",
            ),
            Bad(
                ops.batch_norm,
                [In((4, 3), "float32"), *[In((3,), "float64")] * 4],
                DTypeError,
                "mean must be float32",
            ),
        ],
    ),
    Case(
        "Variance",
        lambda x: ops.moments(x, (0, 1)),
        [In((4, 3, 5), batch_axis=0)],
        lambda x: (x.mean((0, 1)), x.var((0, 1))),
    ),
    Case(
        "Variance",
        lambda x: ops.moments(x, 1, keepdims=True),
        [In((4, 3, 5), batch_axis=0)],
        lambda x: (x.mean(1, keepdims=True), x.var(1, keepdims=True)),
        label="not along the batch",
    ),
    Case(
        "Variance",
        ops.moments,
        [In((4, 50), low=9999.0, high=10001.0, batch_axis=0)],
        lambda x: (x.mean(), x.var()),
        dtypes=("float32",),
        gradient=False,
        layout=False,  # float32 sums themselves differ in the fourth digit
        rtol=2e-4,
        label="far from zero",
        bad=[
            Bad(
                lambda x: ops.moments(x, 2),
                [In((4, 3))],
                AttributeValueError,
                "axis 2 is out of range",
            )
        ],
    ),
    Case(
        "LayerNorm",
        lambda *operands: ops.layer_norm(*operands, EPSILON),
        [In((4, 2, 3), batch_axis=0), CHANNELS, CHANNELS],
        layer_norm,
        dtypes=FLOATS,
    ),
    Case(
        "LayerNorm",
        lambda *operands: ops.layer_norm(*operands, EPSILON),
        [In((2, 4), batch_axis=1), In((4,)), In((4,))],
        layer_norm,
        label="channels cut",
    ),
    Case(
        "LayerNorm",
        lambda *operands: ops.layer_norm(*operands, EPSILON),
        [In((4, 3), batch_axis=0), In((3,), "float32"), In((3,), "float32")],
        layer_norm,
        dtypes=("bfloat16",),
        label="float32 parameters",
        bad=[
            Bad(
                ops.layer_norm,
                [In((4, 3)), In((4,)), In((4,))],
                ShapeError,
                "channels of x and scale differ, 3 and 4",
            ),
            Bad(
                ops.layer_norm,
                [In((3,)), CHANNELS, CHANNELS],
                ShapeError,
                "two axes or more, got 1",
            ),
        ],
    ),
    Case(
        "LayerNormGradient",
        lambda *operands: emit(ops.LAYER_NORM_GRADIENT, operands, epsilon=EPSILON),
        [In((4, 2, 3), batch_axis=0), CHANNELS, In((4, 2, 3), batch_axis=0)],
        layer_norm_gradient,
    ),
)
