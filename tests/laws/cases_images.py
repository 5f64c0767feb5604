"""Cases of local_response, morphology, sampling and suppression in graphc/ops."""

from __future__ import annotations

import numpy as np
from scipy import ndimage

from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.ops.core.emit import emit
from graphc.ops.nn import local_response
from graphc.ops.tasks import morphology, sampling, suppression
from tests.laws.case import Bad, Case, In
from tests.laws.cases_conv import cut, taps

FLOATS = ("float16", "bfloat16", "float32", "float64")
REAL = ("uint8", "int32", *FLOATS)

# -- local response normalization -------------------------------------------------------------

LRN = dict(radius=2, bias=1.5, alpha=0.3, beta=0.75)
WIDE = dict(radius=9, bias=2.0, alpha=0.1, beta=0.6)
CHANNELS = In((4, 2, 6), batch_axis=0)


def neighbours(x, radius):
    places = np.arange(x.shape[-1])
    return x @ (abs(places[:, None] - places) <= radius)


def lrn(x, radius, bias, alpha, beta):
    return x / (bias + alpha * neighbours(x * x, radius)) ** beta


def lrn_gradient(x, dy, radius, bias, alpha, beta):
    scale = bias + alpha * neighbours(x * x, radius)
    inner = neighbours(dy * x * scale ** (-beta - 1), radius)
    return dy * scale**-beta - 2 * alpha * beta * x * inner


def lrn_gradient_case(attrs, label):
    return Case(
        "LocalResponseNormGradient",
        lambda x, dy: emit(local_response.LOCAL_RESPONSE_NORM_GRADIENT, (x, dy), **attrs),
        [CHANNELS, CHANNELS],
        lambda x, dy: lrn_gradient(x, dy, **attrs),
        label=label,
    )


RESPONSE = (
    Case(
        "LocalResponseNorm",
        lambda x: local_response.local_response_norm(x, **LRN),
        [CHANNELS],
        lambda x: lrn(x, **LRN),
        FLOATS,
        bad=[
            Bad(local_response.local_response_norm, [In((3,))], ShapeError, "got 1 axes"),
            Bad(local_response.local_response_norm, [In((3, 2), "int32")], DTypeError, "floating"),
            Bad(
                lambda x: local_response.local_response_norm(x, -1),
                [In((3, 2))],
                AttributeValueError,
                "radius must be an int of at least 0",
            ),
        ],
    ),
    Case(
        "LocalResponseNorm",
        lambda x: local_response.local_response_norm(x, **WIDE),
        [In((2, 12), batch_axis=1)],
        lambda x: lrn(x, **WIDE),
        label="many neighbours",
    ),
    lrn_gradient_case(LRN, "few"),
    lrn_gradient_case(WIDE, "many neighbours"),
)

# -- dilation ---------------------------------------------------------------------------------

PLAIN = dict(strides=(1, 1), padding=((0, 0), (0, 0)), dilation=(1, 1))
LOOSE = dict(strides=(2, 1), padding=((1, 1), (0, 1)), dilation=(1, 2))
X = In((4, 5, 4, 2), batch_axis=0, distinct=True)
K = In((3, 2, 2), low=0, high=1.7, distinct=True)


def sums(x, k, strides, padding, dilation):
    """The value of each tap, with its position in the padded image. Padding is never a maximum."""
    padded = np.pad(x.astype(float), ((0, 0), *padding, (0, 0)), constant_values=-np.inf)
    every = taps(x.shape[1:-1], k.shape[:2], strides, padding, dilation)
    return [(padded[places] + k[tap], tap, places) for tap, places in every]


def dilate(x, k, **attrs):
    return np.max([values for values, _, _ in sums(x, k, **attrs)], 0)


def dilate_gradient(x, k, dy, **attrs):
    every = sums(x, k, **attrs)
    first = np.argmax([values for values, _, _ in every], 0)
    dx, dk = np.pad(np.zeros_like(x), ((0, 0), *attrs["padding"], (0, 0))), np.zeros_like(k)
    for i, (_, tap, places) in enumerate(every):
        part = np.where(first == i, dy, 0)
        dx[places] += part
        dk[tap] = part.sum((0, 1, 2))
    return cut(dx, attrs["padding"], x.shape[1:-1]), dk


def gradient_case(attrs, dy, label, x=X, axis=0):
    return Case(
        "Dilation2DGradient",
        lambda x, k, dy: emit(morphology.DILATION_2D_GRADIENT, (x, k, dy), **attrs),
        [x, K if axis == 0 else In((2, 2, 4), batch_axis=2), In(dy, batch_axis=axis)],
        lambda x, k, dy: dilate_gradient(x, k, dy, **attrs),
        label=label,
        gradient=axis == 0,
    )


DILATION = (
    Case(
        "Dilation2D",
        morphology.dilation2d,
        [X, K],
        lambda x, k: dilate(x, k, **PLAIN),
        REAL,
        bad=[
            Bad(morphology.dilation2d, [X, In((2, 2))], ShapeError, r"and kernel \[height, width"),
            Bad(morphology.dilation2d, [X, In((2, 2, 3))], ShapeError, "channels .* differ, 2 and"),
            Bad(
                morphology.dilation2d, [X, In((6, 1, 2))], ShapeError, "a window of 6 does not fit"
            ),
            Bad(
                lambda x, k: morphology.dilation2d(x, k, padding=3),
                [X, K],
                ShapeError,
                "must be smaller than the kernel's 3",
            ),
            Bad(
                lambda x, k: morphology.dilation2d(x, k, 0), [X, K], AttributeValueError, "strides"
            ),
            Bad(
                morphology.dilation2d,
                [In((1, 2, 2, 1), "complex64"), In((1, 1, 1), "complex64")],
                DTypeError,
                "integer or floating",
            ),
        ],
    ),
    Case(
        "Dilation2D",
        lambda x, k: morphology.dilation2d(x, k, **LOOSE),
        [X, K],
        lambda x, k: dilate(x, k, **LOOSE),
        label="strides, padding and gaps",
    ),
    Case(
        "Dilation2D",
        lambda x, k: morphology.dilation2d(x, k, padding="same"),
        [In((2, 3, 3, 4), batch_axis=3, distinct=True), In((2, 2, 4), batch_axis=2)],
        lambda x, k: dilate(x, k, **{**PLAIN, "padding": ((0, 1), (0, 1))}),
        label="channels cut",
    ),
    Case(
        "Dilation2D",
        lambda x, k: morphology.erosion2d(x, k, padding=1),
        [X, K],
        lambda x, k: (
            -dilate(-x.astype(float), k[::-1, ::-1], **{**PLAIN, "padding": ((1, 1),) * 2})
        ),
        ("int8", "int32", *FLOATS),
        label="erosion",
    ),
    gradient_case(LOOSE, (4, 3, 3, 2), "loose"),
    gradient_case(
        PLAIN, (2, 2, 2, 4), "channels cut", In((2, 3, 3, 4), batch_axis=3, distinct=True), 3
    ),
)

# -- coordinates and boxes --------------------------------------------------------------------

PLACES = In((2, 4, 3), low=-2.4, high=5.4, batch_axis=1)
IMAGE = In((4, 3))
SCIPY_MODES = {"constant": "grid-constant", "wrap": "grid-wrap"}


def map_case(order, mode, dtypes=("float32", "float64"), **more):
    return Case(
        "MapCoordinates",
        lambda x, c: sampling.map_coordinates(x, c, order, mode, 0.5),
        [IMAGE, PLACES],
        lambda x, c: ndimage.map_coordinates(
            x, c, order=order, mode=SCIPY_MODES.get(mode, mode), cval=0.5
        ),
        dtypes,
        label=f"{mode} {order}",
        **more,
    )


COORDINATES = (
    map_case(
        1,
        "constant",
        bad=[
            Bad(
                sampling.map_coordinates, [IMAGE, In((3, 2))], ShapeError, r"must be \[2, \.\.\.\]"
            ),
            Bad(
                lambda x, c: sampling.map_coordinates(x, c, 3),
                [IMAGE, PLACES],
                AttributeValueError,
                "order must be 0 or 1",
            ),
            Bad(
                sampling.map_coordinates,
                [IMAGE, In((2, 2), "complex64")],
                DTypeError,
                "coordinates must be floating",
            ),
            Bad(
                lambda x, c: sampling.map_coordinates(x, c, mode="mirror"),
                [In((4, 1)), PLACES],
                ShapeError,
                "two elements or more",
            ),
        ],
    ),
    map_case(0, "nearest"),
    map_case(1, "reflect"),
    Case(
        "MapCoordinates",
        lambda x, c: sampling.map_coordinates(x, c, mode="wrap"),
        [In((5,)), In((1, 4), "float32", values=[[-0.75, 1.5, 3.25, 4.5]], batch_axis=1)],
        lambda x, c: (
            ndimage.map_coordinates(x.real, c, order=1, mode="grid-wrap")
            + 1j * ndimage.map_coordinates(x.imag, c, order=1, mode="grid-wrap")
            if np.iscomplexobj(x)
            else ndimage.map_coordinates(x, c, order=1, mode="grid-wrap")
        ),
        (*FLOATS, "complex64"),
        label="one axis",
    ),
)


def crop(x, boxes, images, size, nearest, fill):
    """Computes element by element."""
    height, width = x.shape[1] - 1, x.shape[2] - 1
    result = np.full((len(boxes), *size, x.shape[3]), fill, float)
    for n, i, j in np.ndindex(*result.shape[:3]):
        top, left, bottom, right = boxes[n]
        low_high = ((top, bottom, height, i, size[0]), (left, right, width, j, size[1]))
        row, column = (
            last * (low + k * (high - low) / (count - 1) if count > 1 else (low + high) / 2)
            for low, high, last, k, count in low_high
        )
        if not (0 <= row <= height and 0 <= column <= width):
            continue
        image = x[min(max(images[n], 0), len(x) - 1)]
        if nearest:
            result[n, i, j] = image[int(row + 0.5), int(column + 0.5)]
            continue
        near = [(1 - abs(row - r)) * (1 - abs(column - c)) * image[r, c]
                for r, c in np.ndindex(*image.shape[:2])
                if abs(row - r) < 1 and abs(column - c) < 1]  # fmt: skip
        result[n, i, j] = sum(near)
    return result


PHOTOS = In((2, 4, 3, 2), batch_axis=None)
BOXES = In((4, 4), values=[[0.1, 0.1, 0.8, 0.9], [0.9, 0.3, 0.2, 0.6], [-0.3, 0.2, 0.55, 1.4],
                           [0.15, 0.35, 0.45, 0.6]], batch_axis=0)  # fmt: skip
OWNERS = In((4,), "int32", values=[1, 0, 1, 7], batch_axis=0)


def crop_case(size, method, fill=0.0, dtypes=("float32", "float64"), **more):
    return Case(
        "CropAndResize",
        lambda x, b, i: sampling.crop_and_resize(x, b, i, size, method, fill),
        [PHOTOS, BOXES, OWNERS],
        lambda x, b, i: crop(x, b, i, size, method == "nearest", fill),
        dtypes,
        label=method,
        **more,
    )


CROPS = (
    crop_case(
        (3, 2),
        "bilinear",
        bad=[
            Bad(
                lambda x, b, i: sampling.crop_and_resize(x, b, i, 2),
                [PHOTOS, In((3, 4)), OWNERS],
                ShapeError,
                "numbers of boxes and of images differ, 3 and 4",
            ),
            Bad(
                lambda x, b: sampling.crop_and_resize(x, b, b, 2),
                [PHOTOS, BOXES],
                DTypeError,
                "images must be integers",
            ),
            Bad(
                lambda x, b, i: sampling.crop_and_resize(x, b, i, (2, 0)),
                [PHOTOS, BOXES, OWNERS],
                AttributeValueError,
                "a height and a width, both positive",
            ),
        ],
    ),
    crop_case((1, 3), "nearest", 0.5),
    Case(
        "CropAndResize",
        lambda x, b, i: sampling.crop_and_resize(x, b, i, 2),
        [In((2, 3, 3, 4), batch_axis=3), In((1, 4), values=[[0, 0.5, 0.75, 1]]),
         In((1,), "uint8", values=[1])],
        lambda x, b, i: crop(x, b, i, (2, 2), False, 0.0),
        FLOATS,
        label="channels cut",
        gradient=False,  # the boxes touch the border
    ),
)  # fmt: skip

# -- suppression ------------------------------------------------------------------------------


def suppress(boxes, scores, size, overlap, threshold):
    boxes, scores = boxes.astype(float), scores.astype(float)
    ends = np.concatenate([np.minimum(boxes[:, :2], boxes[:, 2:]),
                           np.maximum(boxes[:, :2], boxes[:, 2:])], 1)  # fmt: skip
    chosen = []
    for i in np.argsort(-scores, kind="stable"):
        if not scores[i] > threshold or len(chosen) == size:
            continue
        for j in chosen:
            sides = np.minimum(ends[i, 2:], ends[j, 2:]) - np.maximum(ends[i, :2], ends[j, :2])
            shared = np.prod(np.maximum(sides, 0))
            both = sum(np.prod(ends[k, 2:] - ends[k, :2]) for k in (i, j)) - shared
            if shared / both > overlap:
                break
        else:
            chosen.append(i)
    return np.array([*chosen, *[-1] * (size - len(chosen))]), len(chosen)


def suppress_all(boxes, scores, *attrs):
    found = [suppress(b, s, *attrs) for b, s in zip(boxes, scores, strict=True)]
    places, counts = zip(*found, strict=True)
    return np.array(places, np.int32), np.array(counts, np.int32)


MANY = In((4, 7, 4), low=0, high=1, batch_axis=0)
SCORES = In((4, 7), distinct=True, batch_axis=0)

SUPPRESSION = (
    Case(
        "NonMaxSuppression",
        lambda b, s: suppression.non_max_suppression(b, s, 5, 0.2, -1.0),
        [MANY, SCORES],
        lambda b, s: suppress_all(b, s, 5, 0.2, -1.0),
        ("float16", "float32", "float64"),
        bad=[
            Bad(
                lambda b, s: suppression.non_max_suppression(b, s, 2),
                [In((4, 7, 3)), SCORES],
                ShapeError,
                r"boxes must be \[\.\.\., n, 4\]",
            ),
            Bad(
                lambda b, s: suppression.non_max_suppression(b, s, 2, 1.5),
                [MANY, SCORES],
                AttributeValueError,
                "overlap must lie between 0 and 1",
            ),
            Bad(
                lambda b, s: suppression.non_max_suppression(b, s, 2),
                [In((2, 4), "complex64"), In((2,), "complex64")],
                DTypeError,
                "floating",
            ),
        ],
    ),
    Case(
        "NonMaxSuppression",
        lambda b, s: suppression.non_max_suppression(b, s, 3),
        [In((3, 4), values=[[0, 0, 1, 1], [1, 1, 0, 0.1], [2, 2, 2, 2]]),
         In((3,), values=[1, 2, np.nan])],
        lambda b, s: (np.array([1, -1, -1], np.int32), np.int32(1)),
        ("float32",),
        label="turned corners, NaN",
    ),
)  # fmt: skip

CASES = (*RESPONSE, *DILATION, *COORDINATES, *CROPS, *SUPPRESSION)
