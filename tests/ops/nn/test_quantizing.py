"""Fake quantization quantizes and dequantizes; its gradient is 1 inside the range."""

from __future__ import annotations

import jax
import numpy as np

import graphc as gc
from graphc.autodiff.reverse import gradients
from graphc.build.placeholders import placeholder
from graphc.ir.graph import Graph
from tests.laws.harness import evaluate, functional

X = np.array([[-2.0, -1.0, 0.0, 0.3], [0.999, 1.5, 3.0, -5.0]], np.float32)


def run(build, *arrays):
    graph = Graph()
    with graph:
        xs = [placeholder(a.shape, a.dtype, name=f"x{i}") for i, a in enumerate(arrays)]
        fetches = build(*xs)
    return evaluate(functional(graph, fetches, xs), arrays)


def test_fake_quantisation_is_quantisation_and_back() -> None:
    """Uses the scale and the zero point of the adjusted range; equal to the last bit; 0 stays 0."""
    low, high = np.float32(-1.0), np.float32(1.5)
    scale = np.float32(2.5) / np.float32(255)
    zero = np.uint8(round(1.0 / float(scale)))

    def both(x):
        q = gc.quantize(x, scale, zero, dtype="uint8")
        return gc.fake_quantize(x, low, high), gc.dequantize(q, scale, zero)

    fake, back = run(both, X)
    np.testing.assert_array_equal(fake, back)
    assert fake[0, 2] == 0
    assert np.unique(fake).size == 5  # -2, -1 and -5 have one quantized value, 1.5 and 3 another


def test_the_gradient_passes_to_what_decided_the_value() -> None:
    weights = np.arange(1.0, 9.0, dtype=np.float32).reshape(2, 4)

    def adjoints(x, low, high):
        return gradients([gc.sum(gc.fake_quantize(x, low, high) * weights)], [x, low, high])

    of_x, of_low, of_high = run(adjoints, X, np.float32(-1.01), np.float32(1.6))
    np.testing.assert_array_equal(of_x, [[0, 2, 3, 4], [5, 6, 0, 0]])
    assert (of_low, of_high) == (1 + 8, 7)


def test_a_range_for_each_column_and_one_end_for_all() -> None:
    low = np.array([-1.0, -2.0, -4.0, -8.0], np.float32)

    def adjoints(x, low, high):
        y = gc.fake_quantize(x, low, high, axis=-1)
        return [y, *gradients([gc.sum(y)], [x, low, high])]

    y, of_x, of_low, of_high = run(adjoints, X, low, np.float32(1.25))
    assert abs(y - np.clip(X, low, 1.25)).max() < 9.25 / 255
    np.testing.assert_array_equal(of_x, [[0, 1, 1, 1], [1, 0, 0, 1]])
    np.testing.assert_array_equal(of_low, [1, 0, 0, 0])
    assert of_high == 2


def test_ranges_without_a_width_and_inverted_ones() -> None:
    empty, inverted = run(
        lambda x: [gc.fake_quantize(x, 0.0, 0.0), gc.fake_quantize(x, 1.0, -1.0)], X
    )
    assert (empty == 0).all()
    assert np.isnan(inverted).all()


def test_jax_differentiates_it_likewise() -> None:
    with Graph() as graph:
        x = placeholder((2, 4), "float32", name="x")
        y = gc.sum(gc.fake_quantize(x, -1.01, 1.6))
    function, state = gc.to_jax(graph, y)
    found = jax.grad(lambda x: function(state, {"x": x})[0])(X)
    np.testing.assert_array_equal(found, [[0, 1, 1, 1], [1, 1, 0, 0]])
