"""Color conversions compared with the standard library; values and gradients at gray."""

from __future__ import annotations

import colorsys

import jax
import numpy as np
import pytest

import graphc as gc
from graphc import nn
from graphc.errors import DTypeError, ShapeError
from tests.near import assert_near

COLORS = np.array(
    [[0.2, 0.6, 0.3], [0.9, 0.1, 0.4], [0.3, 0.2, 0.8], [0.7, 0.7, 0.1], [1, 0, 0], [0, 0.5, 0.5]]
)
GREY = np.array([[0.0, 0.0, 0.0], [0.4, 0.4, 0.4], [1.0, 1.0, 1.0]])
EVERY = np.concatenate([COLORS, GREY])


def run(build, *arrays):
    with gc.Graph() as graph:
        feeds = {gc.placeholder(a.shape, a.dtype): a for a in arrays}
        fetches = build(*feeds)
    return jax.tree.map(np.asarray, gc.Session(graph).run(fetches, feeds))


def mapped(function, x):
    return np.array([function(*row) for row in x.reshape(-1, 3)]).reshape(x.shape)


def test_hue_saturation_and_value() -> None:
    hsv = mapped(colorsys.rgb_to_hsv, EVERY)
    assert_near(run(nn.rgb_to_hsv, EVERY), hsv, rtol=1e-7, atol=1e-12)
    turned = hsv + np.array([2.0, 0.0, 0.0])  # hues repeat
    assert_near(run(nn.hsv_to_rgb, turned), EVERY, rtol=1e-7, atol=1e-12)
    half = run(lambda x: nn.rgb_to_hsv(gc.cast(x, "bfloat16")), COLORS)
    assert half.dtype.name == "bfloat16"


def test_gradients() -> None:
    def build(x):
        y = nn.rgb_to_hsv(x)
        return [gc.gradients([y[..., i]], [x])[0] for i in range(3)]

    for grad in run(build, GREY):
        assert np.isfinite(grad).all()
    step = 1e-6
    for i, grad in enumerate(run(build, COLORS[:3])):
        for channel in range(3):
            move = step * np.eye(3)[channel]
            above, below = (mapped(colorsys.rgb_to_hsv, COLORS[:3] + s * move) for s in (1, -1))
            slope = (above - below)[..., i] / (2 * step)
            assert_near(grad[..., channel], slope, rtol=1e-6, atol=1e-8)

    def back(x):
        return gc.gradients([nn.adjust_hue(x, 0.1), nn.adjust_saturation(x, 2.0)], [x])

    assert np.isfinite(run(back, EVERY)[0]).all()


def test_luma() -> None:
    for there, again in ((nn.rgb_to_yiq, nn.yiq_to_rgb), (nn.rgb_to_yuv, nn.yuv_to_rgb)):
        found = run(there, EVERY)
        assert_near(found[..., :1], run(nn.rgb_to_grayscale, EVERY), rtol=1e-9)
        assert_near(found[-3:, 1:], 0, rtol=1e-7, atol=1e-7)  # gray has no color
        assert_near(run(again, found), EVERY, rtol=1e-7, atol=1e-9)
    yiq = mapped(colorsys.rgb_to_yiq, EVERY)
    assert_near(run(nn.rgb_to_yiq, EVERY), yiq, rtol=1e-7, atol=0.01)  # colorsys uses other digits


@pytest.mark.parametrize("factor", [0.0, 0.5, 1.7, 9.0])
def test_saturation_and_hue(factor: float) -> None:
    def saturated(r, g, b):
        h, s, v = colorsys.rgb_to_hsv(r, g, b)
        return colorsys.hsv_to_rgb(h, min(s * factor, 1), v)

    def turned(r, g, b):
        h, s, v = colorsys.rgb_to_hsv(r, g, b)
        return colorsys.hsv_to_rgb((h + factor) % 1, s, v)

    more, other = run(lambda x: [nn.adjust_saturation(x, factor), nn.adjust_hue(x, factor)], EVERY)
    assert_near(more, mapped(saturated, EVERY), rtol=1e-7, atol=1e-12)
    assert_near(other, mapped(turned, EVERY), rtol=1e-7, atol=1e-12)
    each = np.full(len(EVERY), factor)  # one factor per pixel
    same = run(lambda x, f: [nn.adjust_saturation(x, f), nn.adjust_hue(x, f)], EVERY, each)
    assert_near(same, [more, other], rtol=1e-7, atol=1e-12)


def test_contrast_and_brightness() -> None:
    x = np.random.default_rng(0).uniform(size=(2, 3, 4, 3)).astype(np.float32)
    mean = x.mean((1, 2), keepdims=True)
    more, lighter = run(lambda x: [nn.adjust_contrast(x, 2), nn.adjust_brightness(x, 0.25)], x)
    assert_near(more, mean + 2 * (x - mean), rtol=1e-5, atol=1e-6)
    assert_near(lighter, x + np.float32(0.25), rtol=1e-7)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda x: nn.rgb_to_hsv(x[..., :2]), ShapeError, r"rgb_to_hsv: x must be \[\.\.\., 3\]"),
        (lambda x: nn.adjust_hue(gc.cast(x, "uint8"), 0.1), DTypeError, "cast it, and divide"),
        (lambda x: nn.adjust_contrast(x[0], 2), ShapeError, "got 2 axes"),
    ],
)
def test_errors(call, error, match: str) -> None:
    with gc.Graph():
        x = gc.placeholder((2, 4, 3))
        with pytest.raises(error, match=match) as info:
            call(x)
    assert "test_colors.py:" in str(info.value)
