"""Cases of graphc/ops/nn/conv.py. The oracle adds one tap of the kernel after the other."""

from __future__ import annotations

import numpy as np

from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.ops.core.emit import emit
from graphc.ops.nn import conv as ops
from tests.laws.case import Bad, Case, In


def taps(size, kernel, strides, padding, dilation):
    """For each tap its indices, and the indices of the padded input that it multiplies."""
    out = [
        (n + sum(p) - (k - 1) * d - 1) // s + 1
        for n, k, s, p, d in zip(size, kernel, strides, padding, dilation, strict=True)
    ]
    for tap in np.ndindex(*kernel):
        rows = zip(tap, out, strides, dilation, strict=True)
        yield tap, (slice(None), *np.ix_(*[i * d + s * np.arange(n) for i, n, s, d in rows]))


def pad(x, padding):
    return np.pad(x, ((0, 0), *padding, (0, 0)))


def cut(x, padding, size):
    """`x` without its padding."""
    inside = [slice(low, low + n) for (low, _), n in zip(padding, size, strict=True)]
    return x[(slice(None), *inside)]


def whole_kernel(w, groups):
    """A grouped kernel as an ordinary kernel with zeros between the groups."""
    *window, inner, filters = w.shape
    full = np.zeros((*window, inner * groups, filters), w.dtype)
    each = filters // groups
    for g in range(groups):
        block = slice(g * each, (g + 1) * each)
        full[..., g * inner : (g + 1) * inner, block] = w[..., block]
    return full


def plain(rank, **attrs):
    one = (1,) * rank
    none = ((0, 0),) * rank
    return {**dict(strides=one, padding=none, dilation=one, groups=1), **attrs}


def conv(x, w, **attrs):
    strides, padding, dilation, groups = plain(w.ndim - 2, **attrs).values()
    x, w = pad(x, padding), whole_kernel(w, groups)
    none = ((0, 0),) * len(strides)
    return sum(
        x[places] @ w[tap]
        for tap, places in taps(x.shape[1:-1], w.shape[:-2], strides, none, dilation)
    )


def input_gradient(dy, w, size, strides, padding, dilation, groups):
    w = whole_kernel(w, groups)
    dx = pad(np.zeros((dy.shape[0], *size, w.shape[-2])), padding)
    for tap, places in taps(size, w.shape[:-2], strides, padding, dilation):
        dx[places] += dy @ w[tap].T
    return cut(dx, padding, size)


def kernel_gradient(x, dy, size, strides, padding, dilation, groups):
    channels, filters = x.shape[-1], dy.shape[-1]
    full = np.zeros((*size, channels, filters))
    for tap, places in taps(x.shape[1:-1], size, strides, padding, dilation):
        rows = pad(x, padding)[places].reshape(-1, channels)
        full[tap] = rows.T @ dy.reshape(-1, filters)
    inner, each = channels // groups, filters // groups
    blocks = [
        full[..., g * inner : (g + 1) * inner, g * each : (g + 1) * each] for g in range(groups)
    ]
    return np.concatenate(blocks, -1)


X = In((4, 5, 4, 2), batch_axis=0)
W = In((3, 2, 2, 3))
STRIDED = dict(strides=(2, 1), padding=((1, 2), (0, 1)), dilation=(1, 2))
GROUPED = dict(strides=(1, 2), padding=((0, 1), (1, 0)), dilation=(2, 1), groups=2)


TILES = dict(tiles=(2, 3), images=2)  # an internal option
ROUND = dict(padding=((1, 1), (0, 2)))


def gradient_case(op, function, first, second, size, attrs, label, **how):
    """One of the two gradient operators, which no public function creates."""
    record = {"ConvInputGradient": ops.CONV_INPUT_GRADIENT}.get(op, ops.CONV_KERNEL_GRADIENT)
    full = plain(len(size), **attrs)
    return Case(
        op,
        lambda a, b: emit(record, (a, b), size=size, **full, **how),
        [In(first, batch_axis=0), In(second, batch_axis=0 if "Kernel" in op else None)],
        lambda a, b: function(a, b, size, **full),
        label=label,
        atol=4e-6 if how else 1e-6,
    )


CASES = (
    Case(
        "Conv",
        ops.conv2d,
        [In((4, 3, 3, 2), batch_axis=0), In((2, 2, 2, 3))],
        conv,
        dtypes=("float16", "bfloat16", "float32", "float64"),
    ),
    Case(
        "Conv",
        lambda x, w: ops.conv2d(x, w, padding="same", strides=2),
        [In((4, 6, 5, 2), batch_axis=0), In((3, 3, 2, 2))],
        lambda x, w: conv(x, w, strides=(2, 2), padding=((0, 1), (1, 1))),
        label="same, strides 2",
    ),
    Case(
        "Conv",
        lambda x, w: ops.conv2d(x, w, padding="SAME", dilation=2),
        [X, W],
        lambda x, w: conv(x, w, padding=((2, 2), (1, 1)), dilation=(2, 2)),
        label="same, dilation 2",
    ),
    Case(
        "Conv", lambda x, w: ops.conv2d(x, w, **STRIDED), [X, W],
        lambda x, w: conv(x, w, **STRIDED), label="strides, padding, dilation",
    ),
    Case(
        "Conv", lambda x, w: ops.conv2d(x, w, **GROUPED), [X, In((2, 2, 1, 4))],
        lambda x, w: conv(x, w, **GROUPED), label="two groups",
    ),
    Case(
        "Conv", lambda x, w: ops.conv2d(x, w, padding=1, groups=2), [X, In((3, 3, 1, 2))],
        lambda x, w: conv(x, w, padding=((1, 1), (1, 1)), groups=2), label="depthwise",
        bad=[
            Bad(ops.conv2d, [In((4, 5, 4, 2)), In((3, 2, 3, 3))], ShapeError,
                "channels of x and input channels of w times groups differ, 2 and 3"),
            Bad(ops.conv2d, [In((4, 5, 4, 2)), In((6, 2, 2, 3))], ShapeError,
                "a window of 6 does not fit into 5 elements of axis 1"),
            Bad(ops.conv2d, [In((4, 5, 2)), W], ShapeError, "got 3 axes"),
            Bad(ops.conv2d, [In((4, 5, 4, 2)), In((2, 2, 2))], ShapeError,
                "w must have 4 axes, got 3"),
            Bad(ops.conv2d, [In((4, 5, 4, 2), "int32"), In((3, 2, 2, 3), "int32")], DTypeError,
                "x must be floating"),
            Bad(lambda x, w: ops.conv2d(x, w, groups=2), [In((4, 5, 4, 2)), In((3, 2, 1, 3))],
                ShapeError, "3 output channels cannot be cut into 2 groups"),
            Bad(lambda x, w: ops.conv2d(x, w, strides=0), [In((4, 5, 4, 2)), W],
                AttributeValueError, "strides must be a positive int or 2 of them"),
            Bad(lambda x, w: ops.conv2d(x, w, padding="full"), [In((4, 5, 4, 2)), W],
                AttributeValueError, 'padding must be "same", "valid"'),
            Bad(lambda x, w: ops.conv2d(x, w, groups=0), [In((4, 5, 4, 2)), W],
                AttributeValueError, "groups must be a positive int"),
        ],
    ),
    Case(
        "Conv", lambda x, w: ops.conv1d(x, w, strides=2, padding="same", dilation=2),
        [In((4, 6, 2), batch_axis=0), In((3, 2, 3))],
        lambda x, w: conv(x, w, strides=(2,), padding=((1, 2),), dilation=(2,)),
        label="one axis",
        bad=[
            Bad(ops.conv1d, [In((4, 5, 4, 2)), W], ShapeError,
                r"conv1d: x must be .batch, width, channels., got 4 axes"),
            Bad(lambda x, w: emit(ops.CONV, (x, w), **plain(2)), [In((4, 5, 2)), In((3, 2, 3))],
                ShapeError, "strides must have one entry for each of 1 spatial axes"),
        ],
    ),
    Case(
        "Conv",
        lambda x, w: ops.conv3d(x, w, strides=(1, 2, 1), padding=((1, 0), (0, 0), (0, 1)),
                                groups=2),
        [In((4, 2, 3, 3, 2), batch_axis=0), In((2, 2, 2, 1, 2))],
        lambda x, w: conv(x, w, strides=(1, 2, 1), padding=((1, 0), (0, 0), (0, 1)), groups=2),
        label="three axes",
    ),
    Case(
        "Conv", lambda x, w: emit(ops.CONV, (x, w), **plain(2, **ROUND), **TILES),
        [In((4, 5, 4, 2), batch_axis=0), In((3, 2, 2, 3))],
        lambda x, w: conv(x, w, **ROUND), label="tiles", atol=4e-6,
        bad=[
            Bad(lambda x, w: emit(ops.CONV, (x, w), **plain(2, strides=(2, 1)), **TILES), [X, W],
                ShapeError, "tiles are for two spatial axes, without strides"),
            Bad(lambda x, w: emit(ops.CONV, (x, w), **plain(2), tiles=(2, 8)), [X, W],
                ShapeError, r"a tile of 8 results of 2 taps needs 8 \+ 2 - 1 points of at most 8"),
            Bad(lambda x, w: emit(ops.CONV, (x, w), **plain(2), tiles=(2, 2), images=-1), [X, W],
                AttributeValueError, "images must be an int of at least 0"),
            Bad(lambda x, w: emit(ops.CONV, (x, w), **plain(2), **TILES),
                [In((4, 5, 4, 2), "float16"), In((3, 2, 2, 3), "float16")],
                DTypeError, "x must be float32 or float64 where there are tiles"),
        ],
    ),
    gradient_case("ConvInputGradient", input_gradient, (4, 3, 3, 3), (3, 2, 2, 3), (5, 4), {},
                  "plain"),
    gradient_case("ConvInputGradient", input_gradient, (4, 5, 5, 3), (3, 2, 2, 3), (5, 4), ROUND,
                  "tiles", **TILES),
    gradient_case("ConvKernelGradient", kernel_gradient, (4, 5, 4, 2), (4, 5, 5, 3), (3, 2), ROUND,
                  "tiles", **TILES),
    gradient_case("ConvInputGradient", input_gradient, (4, 2, 2), (3, 2, 2), (6,),
                  dict(strides=(2,)), "one axis"),
    gradient_case("ConvInputGradient", input_gradient, (4, 3, 3, 3), (3, 2, 2, 3), (5, 4),
                  STRIDED, "strides, padding, dilation"),
    gradient_case("ConvInputGradient", input_gradient, (4, 4, 2, 4), (2, 2, 1, 4), (5, 4),
                  GROUPED, "two groups"),
    gradient_case("ConvKernelGradient", kernel_gradient, (4, 5, 4, 2), (4, 3, 3, 3), (3, 2), {},
                  "plain"),
    gradient_case("ConvKernelGradient", kernel_gradient, (4, 2, 2, 2, 1), (4, 2, 1, 2, 2),
                  (1, 2, 1), {}, "three axes"),
    gradient_case("ConvKernelGradient", kernel_gradient, (4, 5, 4, 2), (4, 3, 3, 3), (3, 2),
                  STRIDED, "strides, padding, dilation"),
    gradient_case("ConvKernelGradient", kernel_gradient, (4, 5, 4, 2), (4, 4, 2, 4), (2, 2),
                  GROUPED, "two groups"),
)  # fmt: skip
