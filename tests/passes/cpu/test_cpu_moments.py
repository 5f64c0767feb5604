"""CpuMoments rewrites sums over differences from a mean."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gc
from graphc.passes.cpu.cpu_moments import CpuMoments
from tests.near import assert_near
from tests.passes.check import check_pair, check_stays, pair

PAIRS = {
    "a variance": """
    x: f32[8, 4, 4], m: f32[1, 1, 4]
      %0 = Variance(x, m) {axes=[0, 1], count=32} : f32[1, 1, 4]
      return out = %0
    =>
      %0 = Fence(m) {number=0} : f32[1, 1, 4]
      %1 = Variance(x, %0) {axes=[0, 1], count=32} : f32[1, 1, 4]
      return out = %1
    """,
    "the gradient of a scale; other users keep the difference": """
    x: f32[8, 4, 4], m: f32[4], dy: f32[8, 4, 4]
      %0 = Subtract(x, m) : f32[8, 4, 4]
      %1 = Multiply(dy, %0) : f32[8, 4, 4]
      %2 = ReduceSum(%1) {axes=[0, 1]} : f32[4]
      return out = %2, centred = %0
    =>
      %0 = Subtract(x, m) : f32[8, 4, 4]
      %1 = Fence(m) {number=1} : f32[4]
      %2 = Subtract(x, %1) : f32[8, 4, 4]
      %3 = Multiply(dy, %2) : f32[8, 4, 4]
      %4 = ReduceSum(%3) {axes=[0, 1]} : f32[4]
      return out = %4, centred = %0
    """,
    "a sum of squares": """
    x: f32[8, 4, 4], m: f32[4]
      %0 = Subtract(x, m) : f32[8, 4, 4]
      %1 = Square(%0) : f32[8, 4, 4]
      %2 = ReduceSum(%1) {axes=[0, 1]} : f32[4]
      return out = %2, centred = %0
    =>
      %0 = Subtract(x, m) : f32[8, 4, 4]
      %1 = Fence(m) {number=0} : f32[4]
      %2 = Subtract(x, %1) : f32[8, 4, 4]
      %3 = Square(%2) : f32[8, 4, 4]
      %4 = ReduceSum(%3) {axes=[0, 1]} : f32[4]
      return out = %4, centred = %0
    """,
    "the product of a difference with itself": """
    x: f32[8, 4, 4], m: f32[4]
      %0 = Subtract(x, m) : f32[8, 4, 4]
      %1 = Multiply(%0, %0) : f32[8, 4, 4]
      %2 = ReduceSum(%1) {axes=[0, 1]} : f32[4]
      return out = %2
    =>
      %0 = Fence(m) {number=0} : f32[4]
      %1 = Subtract(x, %0) : f32[8, 4, 4]
      %2 = Multiply(%1, %1) : f32[8, 4, 4]
      %3 = ReduceSum(%2) {axes=[0, 1]} : f32[4]
      return out = %3
    """,
    "the difference first": """
    x: f32[8, 4, 4], m: f32[4], dy: f32[8, 4, 4]
      %0 = Subtract(x, m) : f32[8, 4, 4]
      %1 = Multiply(%0, dy) : f32[8, 4, 4]
      %2 = ReduceSum(%1) {axes=[0, 1]} : f32[4]
      return out = %2
    =>
      %0 = Fence(m) {number=1} : f32[4]
      %1 = Subtract(x, %0) : f32[8, 4, 4]
      %2 = Multiply(%1, dy) : f32[8, 4, 4]
      %3 = ReduceSum(%2) {axes=[0, 1]} : f32[4]
      return out = %3
    """,
}


@pytest.mark.parametrize("text", PAIRS.values(), ids=PAIRS)
def test_fenced(text: str) -> None:
    check_pair(CpuMoments(elements=64), text)


@pytest.mark.parametrize("text", PAIRS.values(), ids=PAIRS)
def test_small_tensors_and_what_is_fenced_stay(text: str) -> None:
    before, after = pair(text)
    check_stays(CpuMoments(), before)
    check_stays(CpuMoments(elements=64), after)


def test_differences_of_one_shape_and_other_sums_stay() -> None:
    text = """
    x: f32[8, 4, 4], m: f32[8, 4, 4], dy: f32[8, 4, 4]
      %0 = Subtract(x, m) : f32[8, 4, 4]
      %1 = Multiply(dy, %0) : f32[8, 4, 4]
      %2 = ReduceSum(%1) {axes=[0, 1]} : f32[4]
      %3 = Multiply(dy, x) : f32[8, 4, 4]
      %4 = ReduceSum(%3) {axes=[0, 1]} : f32[4]
      return out = %2, other = %4
    => stays
    """
    check_stays(CpuMoments(elements=64), pair(text)[0])


def trained(pipeline: str, **kwargs: object) -> list[np.ndarray]:
    """Two steps of a convolution with batch norm in float64, large enough for the pass."""
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((None, 32, 32, 8), "float64", name="x")
        norm = gc.nn.BatchNorm(dtype="float64", name="norm")
        y = gc.nn.relu(norm(gc.nn.Conv2D(8, 1, dtype="float64", name="conv")(x), training=True))
        loss = gc.reduce_mean(gc.square(y - 1.0), name="loss")
        slopes = gc.gradients(loss, [v for v in graph.variables.values() if v.trainable])
    feeds = {"x": np.random.default_rng(9).standard_normal((16, 32, 32, 8))}
    options = gc.CompileOptions(pipeline=pipeline, cache=None)
    session = gc.Session(graph, options=options, **kwargs)
    fetches = [loss, *slopes, *graph.collection("updates")]
    return [np.asarray(value) for value in session.run(fetches, feeds)]


def test_o3_gives_what_o0_does() -> None:
    for got, wanted in zip(trained("O3"), trained("O0"), strict=True):
        assert_near(got, wanted, rtol=1e-11, atol=1e-15)


def test_on_replicas_too() -> None:
    strategy = gc.devices.DataParallel(2)
    for got, wanted in zip(trained("O3", strategy=strategy), trained("O0"), strict=True):
        assert_near(got, wanted, rtol=1e-11, atol=1e-15)
