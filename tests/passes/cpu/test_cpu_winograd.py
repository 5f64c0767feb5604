"""Which convolutions CpuWinograd computes in tiles, and how."""

from __future__ import annotations

from typing import Any

import numpy as np
import optax
import pytest

import graphc as gc
from graphc.passes.cpu import cpu_winograd
from graphc.passes.cpu.cpu_winograd import CpuWinograd
from tests.compiling import optimised
from tests.near import assert_near
from tests.passes.check import check_pair, check_stays, pair

SAME = "strides=[1, 1], padding=[[1, 1], [1, 1]], dilation=[1, 1]"
WIDE = "strides=[1, 1], padding=[[2, 2], [2, 2]], dilation=[1, 1]"
LARGE, TAPS = f"size=[27, 27], {WIDE}", f"size=[5, 5], {WIDE}"
REWRITTEN = {
    "three by three": f"""
    x: f32[32, 28, 28, 256], w: f32[3, 3, 256, 256]
      %0 = Conv(x, w) {{{SAME}}} : f32[32, 28, 28, 256]
      return out = %0
    =>
      %0 = Conv(x, w) {{{SAME}, tiles=[4, 4], images=4}} : f32[32, 28, 28, 256]
      return out = %0
    """,
    "all images at a time": f"""
    x: f32[2, 28, 28, 256], w: f32[3, 3, 256, 256]
      %0 = Conv(x, w) {{{SAME}}} : f32[2, 28, 28, 256]
      return out = %0
    =>
      %0 = Conv(x, w) {{{SAME}, tiles=[4, 4]}} : f32[2, 28, 28, 256]
      return out = %0
    """,
    "a prime batch": f"""
    x: f32[31, 28, 28, 256], w: f32[3, 3, 256, 256]
      %0 = Conv(x, w) {{{SAME}}} : f32[31, 28, 28, 256]
      return out = %0
    =>
      %0 = Conv(x, w) {{{SAME}, tiles=[4, 4], images=1}} : f32[31, 28, 28, 256]
      return out = %0
    """,
    "tiles that fit better": f"""
    x: f32[32, 9, 28, 256], w: f32[3, 3, 256, 256]
      %0 = Conv(x, w) {{{SAME}}} : f32[32, 9, 28, 256]
      return out = %0
    =>
      %0 = Conv(x, w) {{{SAME}, tiles=[3, 4], images=16}} : f32[32, 9, 28, 256]
      return out = %0
    """,
    "the input's gradient": f"""
    dy: f32[8, 27, 27, 192], w: f32[5, 5, 64, 192]
      %0 = ConvInputGradient(dy, w) {{{LARGE}}} : f32[8, 27, 27, 64]
      return out = %0
    =>
      %0 = ConvInputGradient(dy, w) {{{LARGE}, tiles=[4, 4], images=4}} : f32[8, 27, 27, 64]
      return out = %0
    """,
    "the kernel's gradient": f"""
    x: f32[8, 27, 27, 64], dy: f32[8, 27, 27, 192]
      %0 = ConvKernelGradient(x, dy) {{{TAPS}}} : f32[5, 5, 64, 192]
      return out = %0
    =>
      %0 = ConvKernelGradient(x, dy) {{{TAPS}, tiles=[4, 4], images=4}} : f32[5, 5, 64, 192]
      return out = %0
    """,
    "float64 takes half as many images": f"""
    x: f64[32, 28, 28, 256], w: f64[3, 3, 256, 256]
      %0 = Conv(x, w) {{{SAME}}} : f64[32, 28, 28, 256]
      return out = %0
    =>
      %0 = Conv(x, w) {{{SAME}, tiles=[4, 4], images=2}} : f64[32, 28, 28, 256]
      return out = %0
    """,
}


@pytest.mark.parametrize("text", REWRITTEN.values(), ids=REWRITTEN)
def test_rewritten(text: str) -> None:
    check_pair(CpuWinograd(bytes=24_000_000), text)


def conv(
    x: str = "f32[32, 28, 28, 256]",
    w: str = "f32[3, 3, 256, 256]",
    y: str = "f32[32, 28, 28, 256]",
    attrs: str = SAME,
) -> str:
    text = f"x: {x}, w: {w}\n  %0 = Conv(x, w) {{{attrs}}} : {y}\n  return out = %0\n=> stays"
    return pair(text)[0]


STAYS = {
    "few channels": conv("f32[32, 28, 28, 16]", "f32[3, 3, 16, 32]", "f32[32, 28, 28, 32]"),
    "few filters": conv(w="f32[3, 3, 256, 8]", y="f32[32, 28, 28, 8]"),
    "a large image, whose transforms are": conv(
        "f32[1, 448, 448, 64]", "f32[3, 3, 64, 64]", "f32[1, 448, 448, 64]"
    ),
    "a few places, to which the kernel's transform is much": conv(
        "f32[1, 4, 4, 256]", y="f32[1, 4, 4, 256]"
    ),
    "a window larger than any tile": conv(w="f32[8, 3, 256, 256]", y="f32[32, 23, 28, 256]"),
    "strides": conv(y="f32[32, 28, 14, 256]", attrs=SAME.replace("[1, 1]", "[1, 2]", 1)),
    "dilation": conv(
        y="f32[32, 28, 26, 256]", attrs=SAME.replace("dilation=[1, 1]", "dilation=[1, 2]")
    ),
    "groups": conv(w="f32[3, 3, 128, 256]", attrs=SAME + ", groups=2"),
    "narrow dtypes": conv(
        *["bf16" + t for t in ("[32, 28, 28, 256]", "[3, 3, 256, 256]", "[32, 28, 28, 256]")]
    ),
    "named sizes": conv("f32[n, 28, 28, 256]", y="f32[n, 28, 28, 256]"),
    "one axis": pair(
        """
        x: f32[32, 784, 256], w: f32[3, 256, 256]
          %0 = Conv(x, w) {strides=[1], padding=[[1, 1]], dilation=[1]} : f32[32, 784, 256]
          return out = %0
        => stays
        """
    )[0],
    "what has tiles": conv(attrs=SAME + ", tiles=[2, 2]"),
}


@pytest.mark.parametrize("text", STAYS.values(), ids=STAYS)
def test_stays(text: str) -> None:
    check_stays(CpuWinograd(), text)


def trained(graph: gc.Graph) -> Any:
    """Two convolutions with a ReLU between them, and a step of SGD."""
    rng = np.random.default_rng(0)
    with graph:
        x = gc.placeholder((None, 9, 8, 5), "float32", name="x")
        for i, shape in enumerate([(3, 3, 5, 6), (5, 4, 6, 3)]):
            kernel = np.float32(rng.standard_normal(shape) / 8)
            x = gc.nn.relu(gc.nn.conv2d(x, gc.variable(kernel, name=f"w{i}"), padding="same"))
        loss = gc.reduce_mean(gc.square(x - 0.1), name="loss")
        return gc.minimize(loss, optax.sgd(0.5), name="train"), loss


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2])
def test_o3_gives_what_o0_does(devices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The convolutions are small, but the test makes the pass use tiles."""
    monkeypatch.setattr(cpu_winograd, "_LEAST_GAIN", 1e9)
    graph = gc.Graph(seed=0)
    fetches = trained(graph)
    strategy = None if devices == 1 else gc.devices.DataParallel(devices)
    feed = {"x": np.random.default_rng(1).standard_normal((4, 9, 8, 5)).astype(np.float32)}
    found = {}
    for pipeline in ("O0", "O3"):
        options = gc.CompileOptions(pipeline=pipeline, cache=None, validate=pipeline == "O3")
        with optimised():
            session = gc.Session(graph, strategy=strategy, options=options)
            losses = [session.run(list(fetches), feed)[1] for _ in range(3)]
        found[pipeline] = [np.asarray(losses), *map(session.get, ("w0", "w1"))]
    for a, b in zip(*found.values(), strict=True):
        assert_near(a, b, rtol=1e-4, atol=1e-6)
