"""Cases of graphc/ops/nn/loss.py."""

from __future__ import annotations

import numpy as np

from graphc.errors import DTypeError, ShapeError
from graphc.ops.core.emit import emit
from graphc.ops.nn import loss as ops
from tests.laws.case import Bad, Case, In
from tests.laws.cases_activation import FLOATS, log_softmax, sigmoid, softmax

LOGITS = In((4, 5), low=-4.0, high=4.0, batch_axis=0)
LABELS = In((4,), "int32", values=[0, 4, 2, 2], batch_axis=0)
DY = In((4,), low=0.5, high=1.5, batch_axis=0)
WIDE = In((4, 2), values=[[-300, 300], [-88, 88], [0.5, -0.5], [5, -5]], batch_axis=0)


def dense(logits, labels):
    return -(labels * log_softmax(logits)).sum(-1)


def sparse(logits, labels):
    outside = (labels < 0) | (labels >= logits.shape[-1])
    picked = np.take_along_axis(log_softmax(logits), np.where(outside, 0, labels)[..., None], -1)
    return np.where(outside, np.nan, -picked[..., 0])


def build_sparse_gradient(logits, labels, dy):
    loss = ops.sparse_softmax_cross_entropy(logits, labels)
    return emit(ops.SPARSE_SOFTMAX_CROSS_ENTROPY_GRADIENT, (logits, labels, loss, dy))


def sparse_gradient(logits, labels, dy):
    one_hot = labels[..., None] == np.arange(logits.shape[-1])
    return (softmax(logits) - one_hot) * dy[..., None]


def binary(x, z):
    p, q = sigmoid(x), sigmoid(-x)
    return -z * np.log(p) - (1 - z) * np.log(q)


CASES = (
    Case(
        "SoftmaxCrossEntropy",
        ops.softmax_cross_entropy,
        [LOGITS, In((4, 5), low=0.0, high=1.0, batch_axis=0)],
        dense,
        dtypes=FLOATS,
    ),
    Case(
        "SoftmaxCrossEntropy",
        ops.softmax_cross_entropy,
        [In((2, 3, 4), batch_axis=2), In((2, 3, 4), low=0.0, high=1.0)],
        dense,
        label="classes cut",
        bad=[
            Bad(
                ops.softmax_cross_entropy,
                [In((4, 5)), In((4, 3))],
                ShapeError,
                "sizes of logits and labels differ, 5 and 3",
            ),
            Bad(
                ops.softmax_cross_entropy,
                [In((4, 5)), In((4,), "int32", values=[0, 1, 2, 3])],
                ShapeError,
                "sparse_softmax_cross_entropy",
            ),
        ],
    ),
    Case(
        "SparseSoftmaxCrossEntropy",
        ops.sparse_softmax_cross_entropy,
        [LOGITS, LABELS],
        sparse,
        dtypes=FLOATS,
    ),
    Case(
        "SparseSoftmaxCrossEntropy",
        ops.sparse_softmax_cross_entropy,
        [
            In((4, 2, 3), batch_axis=0),
            In((4, 2), "int64", values=[[0, 1], [2, 2], [1, 0], [0, 2]], batch_axis=0),
        ],
        sparse,
        label="sequence",
    ),
    Case(
        "SparseSoftmaxCrossEntropy",
        ops.sparse_softmax_cross_entropy,
        [
            In((4, 200), batch_axis=0),
            In((4,), "int8", values=[-1, 127, -128, 0], batch_axis=0),
        ],
        sparse,
        gradient=False,
        label="labels out of range",
    ),
    Case(
        "SparseSoftmaxCrossEntropy",
        ops.sparse_softmax_cross_entropy,
        [WIDE, In((4,), "uint8", values=[1, 0, 1, 0], batch_axis=0)],
        sparse,
        gradient=False,
        label="wide",
        bad=[
            Bad(
                ops.sparse_softmax_cross_entropy,
                [In((4, 5)), In((3,), "int32", values=[0, 1, 2])],
                ShapeError,
                "sizes of logits and labels differ, 4 and 3",
            ),
            Bad(
                ops.sparse_softmax_cross_entropy,
                [In((4, 5)), In((4, 5))],
                DTypeError,
                "softmax_cross_entropy",
            ),
            Bad(
                ops.sparse_softmax_cross_entropy,
                [In((4, 5)), In((4, 1), "int32")],
                ShapeError,
                "labels must have one axis fewer than logits, got 2 for 2",
            ),
            Bad(
                ops.sparse_softmax_cross_entropy,
                [In((4, 5), "int32"), LABELS],
                DTypeError,
                "logits must be floating",
            ),
        ],
    ),
    Case(
        "SparseSoftmaxCrossEntropyGradient",
        build_sparse_gradient,
        [LOGITS, LABELS, DY],
        sparse_gradient,
        dtypes=FLOATS,
    ),
    Case(
        "SparseSoftmaxCrossEntropyGradient",
        build_sparse_gradient,
        [
            In((4, 2, 3), batch_axis=0),
            In((4, 2), "int64", values=[[0, -1], [2, 3], [1, 0], [0, 2]], batch_axis=0),
            In((4, 2), batch_axis=0),
        ],
        sparse_gradient,
        gradient=False,  # the loss is NaN there
        label="labels out of range",
    ),
    Case(
        "SigmoidCrossEntropy",
        ops.sigmoid_cross_entropy,
        [LOGITS, In((4, 5), low=0.0, high=1.0, batch_axis=0)],
        binary,
        dtypes=FLOATS,
    ),
    Case(
        "SigmoidCrossEntropy",
        ops.sigmoid_cross_entropy,
        [LOGITS, In((5,), low=0.0, high=1.0)],
        binary,
        label="row of labels",
    ),
    Case(
        "SigmoidCrossEntropy",
        lambda x: ops.sigmoid_cross_entropy(x, 1.0),
        [WIDE],
        lambda x: np.logaddexp(0, -x),
        gradient=False,
        label="wide",
        bad=[
            Bad(
                ops.sigmoid_cross_entropy,
                [In((4, 5)), In((4, 3))],
                ShapeError,
                "do not broadcast",
            )
        ],
    ),
)
