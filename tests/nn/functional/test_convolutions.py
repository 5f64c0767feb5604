"""Transposed, depthwise and separable convolutions compared with `jax.lax`; named sizes."""

from __future__ import annotations

import numpy as np
import pytest
from jax import lax

from graphc import nn
from graphc.build import placeholder
from graphc.errors import AttributeValueError, ShapeError
from graphc.ir.graph import Graph
from graphc.runtime.session import Session
from tests.near import assert_near

SPACE = {1: "W", 2: "HW", 3: "DHW"}
TRANSPOSED = {1: nn.conv1d_transpose, 2: nn.conv2d_transpose, 3: nn.conv3d_transpose}


def arrays(*shapes):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def run(build, values, names=()):
    """Runs `build` with placeholders for the values; the sizes of the first one are named."""
    with Graph() as graph:
        first = placeholder(names or values[0].shape)
        tensors = [first, *[placeholder(v.shape) for v in values[1:]]]
        y = build(*tensors)
    return y, Session(graph).run(y, dict(zip(tensors, values, strict=True)))


@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize(
    ("size", "window", "strides", "dilation"),
    [
        ((5,), (3,), (2,), (1,)),
        ((4, 3), (2, 4), (3, 1), (1, 1)),  # a window smaller than its stride
        ((4, 3), (3, 2), (1, 2), (2, 1)),
        ((2, 3, 2), (2, 3, 1), (2, 1, 1), (1, 1, 1)),
    ],
)
def test_transposed_is_that_of_jax(size, window, strides, dilation, padding: str) -> None:
    rank = len(size)
    x, w = arrays((2, *size, 3), (*window, 4, 3))
    names = ("n", *[f"s{i}" for i in range(rank)], 3)
    attrs = dict(strides=strides, dilation=dilation, padding=padding)
    y, got = run(lambda x, w: TRANSPOSED[rank](x, w, **attrs), [x, w], names)
    wanted = lax.conv_transpose(
        x,
        w,
        strides,
        padding.upper(),
        rhs_dilation=dilation,
        dimension_numbers=(f"N{SPACE[rank]}C", f"{SPACE[rank]}IO", f"N{SPACE[rank]}C"),
        transpose_kernel=True,
    )
    assert_near(got, wanted, rtol=1e-5, atol=1e-5)
    assert y.ndim == rank + 2


def test_transposed_with_padding_and_groups() -> None:
    """Checks the definition of the transpose: <conv(y), x> = <y, transposed(x)>."""
    x, w, y = arrays((2, 3, 4, 4), (3, 3, 1, 4), (2, 5, 7, 2))
    attrs = dict(strides=2, padding=((1, 1), (1, 1)), groups=2)
    _, inner = run(lambda y, w: nn.conv2d(y, w, **attrs), [y, w])
    _, outer = run(lambda x, w: nn.conv2d_transpose(x, w, **attrs), [x, w])
    assert outer.shape == y.shape
    assert_near((inner * x).sum(), (outer * y).sum(), rtol=1e-4)


def test_depthwise_and_separable() -> None:
    x, w, mix = arrays((2, 6, 5, 3), (3, 2, 3, 2), (6, 4))
    attrs = dict(strides=(2, 1), padding="same")
    _, got = run(lambda x, w: nn.depthwise_conv(x, w, **attrs), [x, w])
    _, mixed = run(lambda x, w, m: nn.separable_conv(x, w, m, **attrs), [x, w, mix])
    wanted = lax.conv_general_dilated(
        x,
        w.reshape(3, 2, 1, 6),
        (2, 1),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=3,
    )
    assert_near(got, wanted, rtol=1e-5, atol=1e-5)
    assert_near(mixed, wanted @ mix, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda x: nn.conv2d_transpose(x, np.ones((2, 2, 3))), ShapeError, "w must have 2 known"),
        (lambda x: nn.conv1d_transpose(x, np.ones((2, 3, 3))), ShapeError, "batch, width, chan"),
        (
            lambda x: nn.conv2d_transpose(x, np.ones((2, 2, 4, 2), np.float32)),
            ShapeError,
            "differ, 3 and 2",
        ),
        (
            lambda x: nn.conv2d_transpose(x, np.ones((2, 2, 4, 3)), padding="full"),
            AttributeValueError,
            'conv2d_transpose: padding must be "same"',
        ),
        (lambda x: nn.depthwise_conv(x, 1.0), ShapeError, "channels known"),
    ],
)
def test_errors(call, error, match: str) -> None:
    with Graph():
        x = placeholder((2, 4, 4, 3))
        with pytest.raises(error, match=match) as info:
            call(x)
    assert "test_convolutions.py:" in str(info.value)
