"""Patches, and pooling that returns the index of the maximum; known and named sizes."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from graphc import nn
from graphc.build import placeholder
from graphc.errors import AttributeValueError, ShapeError
from graphc.ir.graph import Graph
from graphc.runtime.session import Session
from tests.near import assert_near

CASES = [
    ((2, 6, 5, 3), ("n", "h", "w", 3), dict(window=2)),
    ((2, 6, 5, 3), ("n", 6, 5, 3), dict(window=(3, 2), strides=(2, 1), padding="same")),
    ((2, 6, 5, 3), ("n", "h", "w", "c"), dict(window=2, strides=1, padding=1, dilation=2)),
    ((2, 7, 3), ("n", "t", 3), dict(window=3, strides=2)),
    ((1, 3, 4, 3, 2), (1, "d", 4, 3, 2), dict(window=2, strides=1)),
]


def run(build, value, shape):
    with Graph() as graph:
        x = placeholder(shape, value.dtype)
        y = build(x)
        fetches = list(y) if isinstance(y, tuple) else [y]
    return Session(graph).run(fetches, {x: value})


@pytest.mark.parametrize(("size", "shape", "attrs"), CASES)
def test_patches_are_those_of_jax(size, shape, attrs) -> None:
    x = np.random.default_rng(0).standard_normal(size).astype(np.float32)
    (got,) = run(lambda x: nn.patches(x, **attrs), x, shape)
    rank = len(size) - 2
    axes = "DHW"[-rank:]

    def each(value):
        return value if isinstance(value, tuple) else (value,) * rank

    window = each(attrs["window"])
    padding = attrs.get("padding", "valid")
    wanted = lax.conv_general_dilated_patches(
        x,
        window,
        each(attrs.get("strides", window)),
        padding.upper() if isinstance(padding, str) else [(padding, padding)] * rank,
        rhs_dilation=each(attrs.get("dilation", 1)),
        dimension_numbers=(f"N{axes}C", f"{axes}IO", f"N{axes}C"),
    )
    # JAX keeps the taps of a channel adjacent.
    split = wanted.reshape(*wanted.shape[:-1], size[-1], -1)
    assert_near(got, jnp.swapaxes(split, -1, -2).reshape(got.shape), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize(("size", "shape", "attrs"), CASES)
def test_the_maximum_is_where_it_is_said_to_be(size, shape, attrs, dtype: str) -> None:
    x = np.random.default_rng(0).permutation(np.prod(size)).reshape(size).astype(dtype)
    x = x - x.dtype.type(x.size)  # all negative: zeros of the padding would be the maximum
    largest, place = run(lambda x: nn.max_pool_with_argmax(x, **attrs), x, shape)
    (wanted,) = run(lambda x: nn.max_pool(x, **attrs), x, shape)
    np.testing.assert_array_equal(largest, wanted)
    assert place.dtype == np.int32
    flat = x.reshape(size[0], -1, size[-1])
    found = np.take_along_axis(flat, place.reshape(size[0], -1, size[-1]), 1)
    np.testing.assert_array_equal(found.reshape(largest.shape), largest)


def test_the_first_of_equal_ones() -> None:
    _, place = run(lambda x: nn.max_pool_with_argmax(x, 2), np.zeros((1, 4, 4, 1)), (1, 4, 4, 1))
    np.testing.assert_array_equal(place[0, ..., 0], [[0, 2], [8, 10]])


@pytest.mark.parametrize("value", [np.float32("-inf"), np.float32("nan"), np.int32(-(2**31))])
def test_padding_is_never_the_place_of_the_maximum(value) -> None:
    x = np.full((1, 3, 3, 1), value)
    _, place = run(lambda x: nn.max_pool_with_argmax(x, 3, 1, "same"), x, x.shape)
    np.testing.assert_array_equal(place[0, ..., 0], [[0, 0, 1], [0, 0, 1], [3, 3, 4]])


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda x: nn.patches(x, 5), ShapeError, "a window of 5 does not fit into 4 elements"),
        (lambda x: nn.patches(x[0, 0], 2), ShapeError, "got 2 axes"),
        (lambda x: nn.patches(x, (2, 2, 2)), AttributeValueError, "a positive int or 2 of them"),
        (lambda x: nn.max_pool_with_argmax(x, 5), ShapeError, "a window of 5 does not fit"),
    ],
)
def test_errors(call, error, match: str) -> None:
    with Graph():
        x = placeholder((2, 4, 4, 3))
        with pytest.raises(error, match=match) as info:
            call(x)
    assert "test_patches.py:" in str(info.value)
