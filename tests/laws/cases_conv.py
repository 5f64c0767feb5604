"""Cases of graphc/ops/conv.py. The oracle adds up one tap of the kernel after the other."""

from __future__ import annotations

import numpy as np

from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.ops import conv as ops
from graphc.ops.emit import emit
from tests.laws.case import Bad, Case, In

NONE = ((0, 0), (0, 0))


def taps(size, kernel, strides, padding, dilation):
    """For each tap its indices, and the rows and columns of the padded input it meets."""
    out = [
        (n + sum(p) - (k - 1) * d - 1) // s + 1
        for n, k, s, p, d in zip(size, kernel, strides, padding, dilation, strict=True)
    ]
    for i, j in np.ndindex(*kernel):
        rows = i * dilation[0] + strides[0] * np.arange(out[0])
        columns = j * dilation[1] + strides[1] * np.arange(out[1])
        yield (i, j), np.ix_(rows, columns), out


def pad(x, padding):
    return np.pad(x, ((0, 0), *padding, (0, 0)))


def whole_kernel(w, groups):
    """A grouped kernel as an ordinary one with zeros between groups."""
    rows, columns, inner, filters = w.shape
    full = np.zeros((rows, columns, inner * groups, filters), w.dtype)
    each = filters // groups
    for g in range(groups):
        full[:, :, g * inner : (g + 1) * inner, g * each : (g + 1) * each] = w[
            ..., g * each : (g + 1) * each
        ]
    return full


def conv(x, w, strides=(1, 1), padding=NONE, dilation=(1, 1), groups=1):
    x, w = pad(x, padding), whole_kernel(w, groups)
    total = 0
    for (i, j), (rows, columns), _ in taps(x.shape[1:3], w.shape[:2], strides, NONE, dilation):
        total = total + x[:, rows, columns] @ w[i, j]
    return total


def input_gradient(dy, w, size, strides=(1, 1), padding=NONE, dilation=(1, 1), groups=1):
    w = whole_kernel(w, groups)
    (top, bottom), (left, right) = padding
    dx = np.zeros((dy.shape[0], size[0] + top + bottom, size[1] + left + right, w.shape[2]))
    for (i, j), (rows, columns), _ in taps(dx.shape[1:3], w.shape[:2], strides, NONE, dilation):
        dx[:, rows, columns] += dy @ w[i, j].T
    return dx[:, top : top + size[0], left : left + size[1]]


def kernel_gradient(x, dy, size, strides=(1, 1), padding=NONE, dilation=(1, 1), groups=1):
    x = pad(x, padding)
    channels, filters = x.shape[3], dy.shape[3]
    full = np.zeros((*size, channels, filters))
    for (i, j), (rows, columns), _ in taps(x.shape[1:3], size, strides, NONE, dilation):
        full[i, j] = np.einsum("nhwc,nhwf->cf", x[:, rows, columns], dy)
    inner, each = channels // groups, filters // groups
    blocks = [
        full[:, :, g * inner : (g + 1) * inner, g * each : (g + 1) * each] for g in range(groups)
    ]
    return np.concatenate(blocks, -1)


X = In((4, 5, 4, 2), batch_axis=0)
W = In((3, 2, 2, 3))
STRIDED = dict(strides=(2, 1), padding=((1, 2), (0, 1)), dilation=(1, 2))
GROUPED = dict(strides=(1, 2), padding=((0, 1), (1, 0)), dilation=(2, 1), groups=2)
PLAIN = dict(strides=(1, 1), padding=NONE, dilation=(1, 1), groups=1)


def gradient_case(op, function, first, second, size, attrs, label):
    """One of the two gradient operators, which no function of the user's makes alone."""
    record = {"Conv2DInputGradient": ops.CONV2D_INPUT_GRADIENT}.get(op, ops.CONV2D_KERNEL_GRADIENT)
    full = {**PLAIN, **attrs}
    return Case(
        op,
        lambda a, b: emit(record, (a, b), size=size, **full),
        [In(first, batch_axis=0), In(second, batch_axis=0 if "Kernel" in op else None)],
        lambda a, b: function(a, b, size, **full),
        label=label,
    )


CASES = (
    Case(
        "Conv2D",
        ops.conv2d,
        [In((4, 3, 3, 2), batch_axis=0), In((2, 2, 2, 3))],
        conv,
        dtypes=("float16", "bfloat16", "float32", "float64"),
    ),
    Case(
        "Conv2D",
        lambda x, w: ops.conv2d(x, w, padding="same", strides=2),
        [In((4, 6, 5, 2), batch_axis=0), In((3, 3, 2, 2))],
        lambda x, w: conv(x, w, (2, 2), ((0, 1), (1, 1))),
        label="same, strides 2",
    ),
    Case(
        "Conv2D",
        lambda x, w: ops.conv2d(x, w, padding="SAME", dilation=2),
        [X, W],
        lambda x, w: conv(x, w, (1, 1), ((2, 2), (1, 1)), (2, 2)),
        label="same, dilation 2",
    ),
    Case(
        "Conv2D", lambda x, w: ops.conv2d(x, w, **STRIDED), [X, W],
        lambda x, w: conv(x, w, **STRIDED), label="strides, padding, dilation",
    ),
    Case(
        "Conv2D", lambda x, w: ops.conv2d(x, w, **GROUPED), [X, In((2, 2, 1, 4))],
        lambda x, w: conv(x, w, **GROUPED), label="two groups",
    ),
    Case(
        "Conv2D", lambda x, w: ops.conv2d(x, w, padding=1, groups=2), [X, In((3, 3, 1, 2))],
        lambda x, w: conv(x, w, padding=((1, 1), (1, 1)), groups=2), label="depthwise",
        bad=[
            Bad(ops.conv2d, [In((4, 5, 4, 2)), In((3, 2, 3, 3))], ShapeError,
                "channels of x and input channels of w times groups differ, 2 and 3"),
            Bad(ops.conv2d, [In((4, 5, 4, 2)), In((6, 2, 2, 3))], ShapeError,
                "a window of 6 does not fit into 5 rows"),
            Bad(ops.conv2d, [In((4, 5, 2)), W], ShapeError, "got 3 axes"),
            Bad(ops.conv2d, [In((4, 5, 4, 2)), In((2, 2, 2))], ShapeError,
                "w must have 4 axes, got 3"),
            Bad(ops.conv2d, [In((4, 5, 4, 2), "int32"), In((3, 2, 2, 3), "int32")], DTypeError,
                "x must be floating"),
            Bad(lambda x, w: ops.conv2d(x, w, groups=2), [In((4, 5, 4, 2)), In((3, 2, 1, 3))],
                ShapeError, "3 output channels cannot be cut into 2 groups"),
            Bad(lambda x, w: ops.conv2d(x, w, strides=0), [In((4, 5, 4, 2)), W],
                AttributeValueError, "strides must be a positive int or a pair"),
            Bad(lambda x, w: ops.conv2d(x, w, padding="full"), [In((4, 5, 4, 2)), W],
                AttributeValueError, 'padding must be "same", "valid"'),
            Bad(lambda x, w: ops.conv2d(x, w, groups=0), [In((4, 5, 4, 2)), W],
                AttributeValueError, "groups must be a positive int"),
        ],
    ),
    gradient_case("Conv2DInputGradient", input_gradient, (4, 3, 3, 3), (3, 2, 2, 3), (5, 4), {},
                  "plain"),
    gradient_case("Conv2DInputGradient", input_gradient, (4, 3, 3, 3), (3, 2, 2, 3), (5, 4),
                  STRIDED, "strides, padding, dilation"),
    gradient_case("Conv2DInputGradient", input_gradient, (4, 4, 2, 4), (2, 2, 1, 4), (5, 4),
                  GROUPED, "two groups"),
    gradient_case("Conv2DKernelGradient", kernel_gradient, (4, 5, 4, 2), (4, 3, 3, 3), (3, 2), {},
                  "plain"),
    gradient_case("Conv2DKernelGradient", kernel_gradient, (4, 5, 4, 2), (4, 3, 3, 3), (3, 2),
                  STRIDED, "strides, padding, dilation"),
    gradient_case("Conv2DKernelGradient", kernel_gradient, (4, 5, 4, 2), (4, 4, 2, 4), (2, 2),
                  GROUPED, "two groups"),
)  # fmt: skip
