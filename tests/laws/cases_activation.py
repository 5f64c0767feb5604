"""Cases of graphc/ops/elementwise/activation.py."""

from __future__ import annotations

import math

import numpy as np

from graphc.errors import AttributeValueError, DTypeError
from graphc.ops.elementwise import activation as ops
from tests.laws.case import Bad, Case, In

FLOATS = ("float16", "bfloat16", "float32", "float64")
X = In((4, 5), low=-4.0, high=4.0, batch_axis=0)
WIDE = In((4, 2), values=[[-300, 300], [-88, 88], [0.5, -0.5], [5, -5]], batch_axis=0)
INTEGERS = In((3,), "int32")

erf = np.vectorize(math.erf, otypes=[np.float64])


def sigmoid(x):
    return 0.5 * (1 + np.tanh(0.5 * x))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def log_softmax(x, axis=-1):
    below = x - x.max(axis, keepdims=True)
    return below - np.log(np.exp(below).sum(axis, keepdims=True))


CASES = (
    Case("Relu", ops.relu, [X], lambda x: np.maximum(x, 0), dtypes=("int32", *FLOATS)),
    Case(
        "Relu",
        ops.relu6,
        [In((4, 5), low=-9.0, high=9.0, batch_axis=0)],
        lambda x: np.clip(x, 0, 6),
        label="relu6",
        bad=[Bad(ops.relu, [In((3,), "complex64")], DTypeError, "integer or floating")],
    ),
    Case(
        "LeakyRelu",
        lambda x: ops.leaky_relu(x, 0.2),
        [X],
        lambda x: np.where(x >= 0, x, 0.2 * x),
        dtypes=FLOATS,
        bad=[Bad(ops.leaky_relu, [INTEGERS], DTypeError, "floating, got int32")],
    ),
    Case("Elu", ops.elu, [X], lambda x: np.where(x > 0, x, np.expm1(x)), dtypes=FLOATS),
    Case(
        "Elu",
        lambda x: ops.elu(x, 1.5),
        [WIDE],
        lambda x: np.where(x > 0, x, 1.5 * np.expm1(np.minimum(x, 0))),
        label="wide",
        bad=[Bad(ops.elu, [INTEGERS], DTypeError, "floating, got int32")],
    ),
    Case(
        "Silu",
        ops.silu,
        [X],
        lambda x: x * sigmoid(x),
        dtypes=FLOATS,
        bad=[Bad(ops.silu, [INTEGERS], DTypeError, "floating, got int32")],
    ),
    Case("Gelu", ops.gelu, [X], gelu_tanh, dtypes=FLOATS),
    Case(
        "Gelu",
        lambda x: ops.gelu(x, approximate=False),
        [X],
        lambda x: 0.5 * x * (1 + erf(x / np.sqrt(2))),
        dtypes=FLOATS,
        label="exact",
        bad=[
            Bad(ops.gelu, [INTEGERS], DTypeError, "floating, got int32"),
            Bad(
                lambda x: ops.gelu(x, approximate="tanh"),
                [In((3,))],
                AttributeValueError,
                "approximate must be of kind bool",
            ),
        ],
    ),
    Case("Softmax", ops.softmax, [X], softmax, dtypes=FLOATS),
    Case("Softmax", ops.softmax, [WIDE], softmax, label="wide", gradient=False),
    Case(
        "Softmax",
        lambda x: ops.softmax(x, axis=0),
        [In((4, 3, 2), batch_axis=0)],
        lambda x: softmax(x, 0),
        label="along the batch",
    ),
    Case(
        "Softmax",
        lambda x: ops.softmax(x, axis=1),
        [In((4, 3, 2), batch_axis=0)],
        lambda x: softmax(x, 1),
        label="middle axis",
        bad=[
            Bad(lambda x: ops.softmax(x, 2), [X], AttributeValueError, "axis 2 is out of range"),
            Bad(ops.softmax, [INTEGERS], DTypeError, "floating, got int32"),
        ],
    ),
    Case("LogSoftmax", ops.log_softmax, [X], log_softmax, dtypes=FLOATS),
    Case("LogSoftmax", ops.log_softmax, [WIDE], log_softmax, label="wide", gradient=False),
    Case(
        "LogSoftmax",
        lambda x: ops.log_softmax(x, axis=0),
        [In((4, 3), batch_axis=0)],
        lambda x: log_softmax(x, 0),
        label="along the batch",
        bad=[Bad(ops.log_softmax, [INTEGERS], DTypeError, "floating, got int32")],
    ),
)
