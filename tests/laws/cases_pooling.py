"""Cases of graphc/ops/nn/pooling.py. The oracle stacks the taps of each window."""

from __future__ import annotations

import numpy as np

from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.ops.core.emit import emit
from graphc.ops.nn import pooling as ops
from tests.laws.case import Bad, Case, In
from tests.laws.cases_conv import cut, plain, taps

X = In((4, 5, 4, 2), batch_axis=0, distinct=True)
FLOATS = ("float16", "bfloat16", "float32", "float64")


def stack(x, window, strides, padding, dilation, fill):
    padded = np.pad(x, ((0, 0), *padding, (0, 0)), constant_values=fill)
    every = taps(x.shape[1:-1], window, strides, padding, dilation)
    return np.stack([padded[places] for _, places in every])


def attributes(window, strides, **attrs):
    filled = plain(len(window), **attrs)
    return window, strides, filled["padding"], filled["dilation"]


def max_pool(x, window, strides, **attrs):
    return stack(x.astype(float), *attributes(window, strides, **attrs), -np.inf).max(0)


def max_gradient(x, dy, window, strides, by_taps=False, **attrs):
    sliding = attributes(window, strides, **attrs)
    padding, size = sliding[2], x.shape[1:-1]
    first = stack(x, *sliding, -np.inf).argmax(0)
    dx = np.pad(np.zeros_like(x), ((0, 0), *padding, (0, 0)))
    for i, (_, places) in enumerate(taps(size, *sliding)):
        dx[places] += np.where(first == i, dy, 0)
    return cut(dx, padding, size)


def avg_pool(x, window, strides, count_include_pad=False, **attrs):
    sliding = attributes(window, strides, **attrs)
    counts = stack(np.ones_like(x), *sliding, float(count_include_pad)).sum(0)
    return stack(x, *sliding, 0).sum(0) / counts


def avg_gradient(dy, size, window, strides, count_include_pad=False, by_taps=False, **attrs):
    sliding = attributes(window, strides, **attrs)
    ones = np.ones((dy.shape[0], *size, dy.shape[-1]))
    counts = stack(ones, *sliding, float(count_include_pad)).sum(0)
    dx = np.pad(np.zeros_like(ones), ((0, 0), *sliding[2], (0, 0)))
    for _, places in taps(size, *sliding):
        dx[places] += dy / counts
    return cut(dx, sliding[2], size)


OVERLAP = dict(window=(3, 2), strides=(2, 1), padding=((1, 1), (0, 1)))
DILATED = dict(window=(2, 2), strides=(1, 2), padding=((1, 0), (1, 1)), dilation=(2, 1))


def max_gradient_case(attrs, dy, label):
    none = plain(len(attrs["window"]))
    full = {"padding": none["padding"], "dilation": none["dilation"], **attrs}
    return Case(
        "MaxPoolGradient",
        lambda x, dy: emit(ops.MAX_POOL_GRADIENT, (x, dy), **full),
        [X, In(dy, batch_axis=0)],
        lambda x, dy: max_gradient(x, dy, **full),
        label=label,
    )


def avg_gradient_case(attrs, dy, label):
    none = plain(len(attrs["window"]))
    full = {"padding": none["padding"], "count_include_pad": False, **attrs}
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
        lambda x: max_pool(x, (3, 3), (2, 2), padding=((1, 1), (0, 1))), label="same",
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
                "a window of 6 does not fit into 5 elements of axis 1"),
            Bad(lambda x: ops.max_pool(x, 2, padding=2), [In((4, 5, 4, 2))], ShapeError,
                "must be smaller than the window's 2"),
            Bad(lambda x: ops.max_pool(x, 2), [In((4, 5))], ShapeError, "got 2 axes"),
            Bad(lambda x: emit(ops.MAX_POOL, (x,), window=(2,), strides=(1,), padding=((0, 0),),
                               dilation=(1,)),
                [In((4, 5, 4, 2))], ShapeError, "with 1 axes between, got 4 axes"),
            Bad(lambda x: ops.max_pool(x, 2), [In((4, 5, 4, 2), "complex64")], DTypeError,
                "real numbers"),
            Bad(lambda x: ops.max_pool(x, (2, 0)), [In((4, 5, 4, 2))], AttributeValueError,
                "window must be a positive int or 2 of them"),
            Bad(lambda x: ops.max_pool(x, 2, padding=(1, 1)), [In((4, 5, 4, 2))],
                AttributeValueError, "padding must be"),
        ],
    ),
    Case(
        "MaxPool", lambda x: ops.max_pool(x, 3, 2, padding=1),
        [In((4, 6, 2), batch_axis=0, distinct=True)],
        lambda x: max_pool(x, (3,), (2,), padding=((1, 1),)), label="one axis",
    ),
    Case(
        "MaxPool",
        lambda x: emit(ops.MAX_POOL, (x,), dilation=(1, 1), by_taps=True, **OVERLAP),
        [X], lambda x: max_pool(x, **OVERLAP), label="taps",
    ),
    max_gradient_case(dict(window=(2, 2), strides=(2, 2)), (4, 2, 2, 2), "apart"),
    max_gradient_case(OVERLAP, (4, 3, 4, 2), "overlap"),
    max_gradient_case(DILATED, (4, 4, 3, 2), "dilation"),
    max_gradient_case(dict(window=(2, 2), strides=(2, 2), by_taps=True), (4, 2, 2, 2), "taps"),
    max_gradient_case({**OVERLAP, "by_taps": True}, (4, 3, 4, 2), "overlapping taps"),
    max_gradient_case(
        dict(window=(2, 1), strides=(3, 2), padding=((1, 0), (0, 0)), by_taps=True),
        (4, 2, 2, 2), "taps with gaps",
    ),
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
    Case(
        "AvgPool", lambda x: ops.avg_pool(x, 2, 1, padding=((0, 1), (1, 0), (0, 0))),
        [In((4, 2, 3, 2, 2), batch_axis=0)],
        lambda x: avg_pool(x, (2, 2, 2), (1, 1, 1), padding=((0, 1), (1, 0), (0, 0))),
        label="three axes",
    ),
    Case(
        "AvgPool",
        lambda x: emit(ops.AVG_POOL, (x,), count_include_pad=False, by_taps=True, **OVERLAP),
        [X], lambda x: avg_pool(x, **OVERLAP), label="taps",
    ),
    avg_gradient_case(dict(window=(2, 2), strides=(2, 2)), (4, 2, 2, 2), "apart"),
    avg_gradient_case(OVERLAP, (4, 3, 4, 2), "overlap"),
    avg_gradient_case({**OVERLAP, "count_include_pad": True}, (4, 3, 4, 2), "padding counts"),
    avg_gradient_case({**OVERLAP, "by_taps": True}, (4, 3, 4, 2), "overlapping taps"),
    avg_gradient_case(
        dict(window=(2, 1), strides=(3, 2), padding=((1, 0), (0, 0)), by_taps=True),
        (4, 2, 2, 2), "taps with gaps",
    ),
)  # fmt: skip
