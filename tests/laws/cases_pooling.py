"""Cases of graphc/ops/pooling.py. The oracle stacks the taps of each window."""

from __future__ import annotations

import numpy as np

from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.ops import pooling as ops
from graphc.ops.emit import emit
from tests.laws.case import Bad, Case, In
from tests.laws.cases_conv import NONE, taps

X = In((4, 5, 4, 2), batch_axis=0, distinct=True)
FLOATS = ("float16", "bfloat16", "float32", "float64")


def stack(x, window, strides, padding, dilation, fill):
    x = np.pad(x, ((0, 0), *padding, (0, 0)), constant_values=fill)
    every = taps(x.shape[1:3], window, strides, NONE, dilation)
    return np.stack([x[:, rows, columns] for _, (rows, columns), _ in every])


def max_pool(x, window, strides, padding=NONE, dilation=(1, 1)):
    return stack(x.astype(float), window, strides, padding, dilation, -np.inf).max(0)


def max_gradient(x, dy, window, strides, padding=NONE, dilation=(1, 1)):
    first = stack(x, window, strides, padding, dilation, -np.inf).argmax(0)
    (top, bottom), (left, right) = padding
    dx = np.zeros((x.shape[0], x.shape[1] + top + bottom, x.shape[2] + left + right, x.shape[3]))
    every = taps(dx.shape[1:3], window, strides, NONE, dilation)
    for tap, (_, (rows, columns), _) in enumerate(every):
        dx[:, rows, columns] += np.where(first == tap, dy, 0)
    return dx[:, top : top + x.shape[1], left : left + x.shape[2]]


def avg_pool(x, window, strides, padding=NONE, count_include_pad=False):
    sums = stack(x, window, strides, padding, (1, 1), 0).sum(0)
    ones = np.ones_like(x)
    counts = stack(ones, window, strides, padding, (1, 1), float(count_include_pad)).sum(0)
    return sums / counts


def avg_gradient(dy, size, window, strides, padding=NONE, count_include_pad=False):
    ones = np.ones((dy.shape[0], *size, dy.shape[3]))
    counts = stack(ones, window, strides, padding, (1, 1), float(count_include_pad)).sum(0)
    (top, bottom), (left, right) = padding
    dx = np.zeros((dy.shape[0], size[0] + top + bottom, size[1] + left + right, dy.shape[3]))
    for _, (rows, columns), _ in taps(dx.shape[1:3], window, strides, NONE, (1, 1)):
        dx[:, rows, columns] += dy / counts
    return dx[:, top : top + size[0], left : left + size[1]]


OVERLAP = dict(window=(3, 2), strides=(2, 1), padding=((1, 1), (0, 1)))
DILATED = dict(window=(2, 2), strides=(1, 2), padding=((1, 0), (1, 1)), dilation=(2, 1))


def max_gradient_case(attrs, dy, label):
    full = {"padding": NONE, "dilation": (1, 1), **attrs}
    return Case(
        "MaxPoolGradient",
        lambda x, dy: emit(ops.MAX_POOL_GRADIENT, (x, dy), **full),
        [X, In(dy, batch_axis=0)],
        lambda x, dy: max_gradient(x, dy, **full),
        label=label,
    )


def avg_gradient_case(attrs, dy, label):
    full = {"padding": NONE, "count_include_pad": False, **attrs}
    return Case(
        "AvgPoolGradient",
        lambda dy: emit(ops.AVG_POOL_GRADIENT, (dy,), size=(5, 4), **full),
        [In(dy, batch_axis=0)],
        lambda dy: avg_gradient(dy, (5, 4), **full),
        label=label,
    )


CASES = (
    Case(
        "MaxPool", lambda x: ops.max_pool(x, 2), [X],
        lambda x: max_pool(x, (2, 2), (2, 2)), dtypes=("int32", *FLOATS),
    ),
    Case(
        "MaxPool", lambda x: ops.max_pool(x, 3, 2, "same"), [X],
        lambda x: max_pool(x, (3, 3), (2, 2), ((1, 1), (0, 1))), label="same",
        dtypes=("uint8", "float32", "float64"),
    ),
    Case("MaxPool", lambda x: ops.max_pool(x, **OVERLAP), [X],
         lambda x: max_pool(x, **OVERLAP), label="overlap"),
    Case(
        "MaxPool", lambda x: ops.max_pool(x, **DILATED), [X],
        lambda x: max_pool(x, **DILATED), label="dilation",
    ),
    Case(
        "MaxPool", lambda x: ops.max_pool(x, 2), [In((2, 4, 4, 4), batch_axis=3, distinct=True)],
        lambda x: max_pool(x, (2, 2), (2, 2)), label="channels cut",
    ),
    Case(
        "MaxPool", lambda x: ops.max_pool(x, 2), [In((2, 4, 4, 2), batch_axis=1, distinct=True)],
        lambda x: max_pool(x, (2, 2), (2, 2)), label="rows cut",
        bad=[
            Bad(lambda x: ops.max_pool(x, 6), [In((4, 5, 4, 2))], ShapeError,
                "a window of 6 does not fit into 5 rows"),
            Bad(lambda x: ops.max_pool(x, 2, padding=2), [In((4, 5, 4, 2))], ShapeError,
                "must be smaller than the window's 2"),
            Bad(lambda x: ops.max_pool(x, 2), [In((4, 5, 4))], ShapeError, "got 3 axes"),
            Bad(lambda x: ops.max_pool(x, 2), [In((4, 5, 4, 2), "complex64")], DTypeError,
                "real numbers"),
            Bad(lambda x: ops.max_pool(x, (2, 0)), [In((4, 5, 4, 2))], AttributeValueError,
                "window must be a positive int or a pair"),
            Bad(lambda x: ops.max_pool(x, 2, padding=(1, 1)), [In((4, 5, 4, 2))],
                AttributeValueError, "padding must be"),
        ],
    ),
    max_gradient_case(dict(window=(2, 2), strides=(2, 2)), (4, 2, 2, 2), "apart"),
    max_gradient_case(OVERLAP, (4, 3, 4, 2), "overlap"),
    max_gradient_case(DILATED, (4, 4, 3, 2), "dilation"),
    Case(
        "AvgPool", lambda x: ops.avg_pool(x, 2), [X],
        lambda x: avg_pool(x, (2, 2), (2, 2)), dtypes=FLOATS,
    ),
    Case("AvgPool", lambda x: ops.avg_pool(x, **OVERLAP), [X],
         lambda x: avg_pool(x, **OVERLAP), label="overlap"),
    Case(
        "AvgPool", lambda x: ops.avg_pool(x, **OVERLAP, count_include_pad=True), [X],
        lambda x: avg_pool(x, **OVERLAP, count_include_pad=True), label="padding counts",
        bad=[
            Bad(lambda x: ops.avg_pool(x, 2), [In((4, 5, 4, 2), "int32")], DTypeError,
                "floating, got int32"),
            Bad(lambda x: ops.avg_pool(x, 2, padding="full"), [In((4, 5, 4, 2))],
                AttributeValueError, "padding must be"),
        ],
    ),
    avg_gradient_case(dict(window=(2, 2), strides=(2, 2)), (4, 2, 2, 2), "apart"),
    avg_gradient_case(OVERLAP, (4, 3, 4, 2), "overlap"),
    avg_gradient_case({**OVERLAP, "count_include_pad": True}, (4, 3, 4, 2), "padding counts"),
)  # fmt: skip
