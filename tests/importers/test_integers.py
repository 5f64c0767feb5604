"""Products and convolutions of 8-bit integers are exact, in every form."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.importers.core.integers import convolution, integers, product

RNG = np.random.default_rng(0)
DTYPES = ("int8", "uint8")


def some(dtype: str, *shape: int) -> Any:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype)


def differences(x: Any, zero: Any) -> Any:
    return x.astype(np.int64) - (0 if zero is None else zero.astype(np.int64))


def run(function: Any, **arrays: Any) -> Any:
    """The value of a function of placeholders; arrays that are None stay None."""
    with gc.Graph() as graph:
        given = {
            name: None if x is None else gc.placeholder(x.shape, x.dtype, name=name)
            for name, x in arrays.items()
        }
        y = function(**given)
        assert y.dtype == np.int32
    feeds = {given[name]: x for name, x in arrays.items() if x is not None}
    return np.asarray(gc.Session(graph).run(y, feeds))


@pytest.mark.parametrize(("a", "b"), list(itertools.product(DTYPES, DTYPES)))
@pytest.mark.parametrize("zeros", ["", "a", "b", "ab"])
@pytest.mark.parametrize("is_known", [False, True])
def test_products(a: str, b: str, zeros: str, is_known: bool) -> None:
    x, y = some(a, 2, 70, 300), some(b, 300, 5)
    zx = some(a, 70, 1) if "a" in zeros else None
    zy = some(b, 5) if "b" in zeros else None

    def multiply(x: Any, y: Any, zx: Any, zy: Any) -> Any:
        known = (weights, zy_value) if is_known else ()
        return product(integers(x, zx), integers(y, zy, *known))

    weights, zy_value = y, zy
    got = run(multiply, x=x, y=y, zx=zx, zy=zy)
    assert np.array_equal(got, differences(x, zx) @ differences(y, zy))


def test_products_of_vectors() -> None:
    x, y, zx = some("uint8", 300), some("int8", 300, 4), some("uint8")
    got = run(lambda x, y, zx: product(integers(x, zx), integers(y, None)), x=x, y=y, zx=zx)
    assert np.array_equal(got, differences(x, zx) @ y.astype(np.int64))


def test_transposed() -> None:
    x, y, zy = some("int8", 3, 300), some("uint8", 5, 300), some("uint8", 5, 1)

    def multiply(x: Any, y: Any, zy: Any) -> Any:
        return product(integers(x, None).transposed().transposed(), integers(y, zy).transposed())

    got = run(multiply, x=x, y=y, zy=zy)
    assert np.array_equal(got, x.astype(np.int64) @ differences(y, zy).T)


@pytest.mark.parametrize("zero", [None, 0, 127, 128, 129])
def test_known_weights_need_no_zero_point_if_the_differences_fit(zero: int | None) -> None:
    weights = np.array([[0, 255]], np.uint8)
    given = None if zero is None else np.uint8(zero)
    with gc.Graph():
        made = integers(gc.constant(weights), given, weights, given)
    assert (made.zero is None) == (zero == 128)


def expected(x: Any, w: Any, strides: Any, pads: Any, dilation: Any, groups: int) -> Any:
    """A convolution in two spatial axes, tap by tap."""
    x = np.pad(x, [(0, 0), (0, 0), *pads])
    outputs, channels, *window = w.shape
    sizes = [
        (n - d * (k - 1) - 1) // s + 1
        for n, k, s, d in zip(x.shape[2:], window, strides, dilation, strict=True)
    ]
    y = np.zeros((len(x), outputs, *sizes), np.int64)
    for i, j in itertools.product(*map(range, window)):
        rows, columns = (
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, n, s, d in zip((i, j), sizes, strides, dilation, strict=True)
        )
        for o in range(outputs):
            first = o // (outputs // groups) * channels
            part = x[:, first : first + channels, rows, columns]
            y[:, o] += np.einsum("bchw,c->bhw", part, w[o, :, i, j])
    return y


@pytest.mark.parametrize(
    ("channels", "window", "groups", "how"),
    [
        (70, (1, 1), 1, {}),
        (70, (1, 1), 1, {"strides": (2, 1), "pads": [(1, 0), (0, 2)]}),
        (40, (3, 3), 1, {"pads": [(1, 1), (1, 1)]}),
        (300, (2, 1), 1, {"strides": (2, 2), "dilation": (2, 1), "pads": [(2, 1), (0, 3)]}),
        (3, (5, 5), 1, {"strides": (2, 2), "pads": [(2, 2), (2, 2)]}),
        (8, (3, 3), 8, {"pads": [(1, 1), (1, 1)], "dilation": (2, 2)}),
        (240, (3, 3), 4, {"pads": [(0, 1), (1, 0)]}),
    ],
)
@pytest.mark.parametrize(("a", "b"), [("uint8", "int8"), ("int8", "uint8")])
@pytest.mark.parametrize("has_zeros", [False, True])
def test_convolutions(
    channels: int,
    window: tuple[int, int],
    groups: int,
    how: dict[str, Any],
    a: str,
    b: str,
    has_zeros: bool,
) -> None:
    full = {"strides": (1, 1), "dilation": (1, 1), "pads": [(0, 0)] * 2, **how, "groups": groups}
    x, w = some(a, 2, channels, 9, 8), some(b, 8, channels // groups, *window)
    zx = some(a) if has_zeros else None
    zw = some(b, 8, 1, 1, 1) if has_zeros else None
    got = run(
        lambda x, w, zx, zw: convolution(integers(x, zx), integers(w, zw), **full),
        x=x,
        w=w,
        zx=zx,
        zw=zw,
    )
    assert np.array_equal(got, expected(differences(x, zx), differences(w, zw), **full))


def test_extreme_sums_are_exact() -> None:
    x, zx = np.full((1, 514, 3, 3), 255, np.uint8), np.uint8(0)
    w = np.full((2, 514, 3, 3), -128, np.int8)
    how: Any = {"strides": (1, 1), "dilation": (1, 1), "pads": [(0, 0)] * 2}
    got = run(
        lambda x, w, zx: convolution(integers(x, zx), integers(w, None), **how), x=x, w=w, zx=zx
    )
    assert got.tolist() == [[[[-255 * 128 * 514 * 9]]] * 2]


@pytest.mark.parametrize("channels", [28, 80, 200])
def test_long_sums_of_groups_are_exact(channels: int) -> None:
    """Odd sums above 2**24 are no numbers of float32."""
    x, w = (
        RNG.integers(250, 256, s).astype(np.uint8)
        for s in ((1, channels * 2, 3, 4), (2, channels, 3, 3))
    )
    how: Any = {"strides": (1, 1), "dilation": (1, 1), "pads": [(0, 0)] * 2, "groups": 2}
    got = run(lambda x, w: convolution(integers(x, None), integers(w, None), **how), x=x, w=w)
    assert np.array_equal(got, expected(x, w.astype(np.int64), **how))
