"""CpuPointwise rewrites convolutions whose window is one element."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphc as gc
from graphc.ir.verify import verify
from graphc.passes.core.validate import check_meaning
from graphc.passes.cpu.cpu_pointwise import CpuPointwise
from graphc.runtime.targets.prepare import evaluate
from tests.compiling import optimised
from tests.near import assert_near
from tests.passes.check import check_pair, check_stays, pair, program

PLAIN = "padding=[[0, 0], [0, 0]], dilation=[1, 1]"
REWRITTEN = {
    "a product with a row for each place": f"""
    x: f32[2, 4, 4, 3], w: f32[1, 1, 3, 5]
      %0 = Conv(x, w) {{strides=[1, 1], {PLAIN}}} : f32[2, 4, 4, 5]
      return out = %0
    =>
      %0 = Reshape(x) {{shape=[32, 3]}} : f32[32, 3]
      %1 = Reshape(w) {{shape=[3, 5]}} : f32[3, 5]
      %2 = MatMul(%0, %1) : f32[32, 5]
      %3 = Reshape(%2) {{shape=[2, 4, 4, 5]}} : f32[2, 4, 4, 5]
      return out = %3
    """,
    "a stride takes the places out first": f"""
    x: f32[2, 4, 5, 3], w: f32[1, 1, 3, 5]
      %0 = Conv(x, w) {{strides=[2, 3], {PLAIN}}} : f32[2, 2, 2, 5]
      return out = %0
    =>
      %0 = Slice(x) {{starts=[0,0,0,0], limits=[2,3,4,3], strides=[1,2,3,1]}} : f32[2, 2, 2, 3]
      %1 = Reshape(%0) {{shape=[8, 3]}} : f32[8, 3]
      %2 = Reshape(w) {{shape=[3, 5]}} : f32[3, 5]
      %3 = MatMul(%1, %2) : f32[8, 5]
      %4 = Reshape(%3) {{shape=[2, 2, 2, 5]}} : f32[2, 2, 2, 5]
      return out = %4
    """,
    "one axis, float64": """
    x: f64[2, 4, 3], w: f64[1, 3, 5]
      %0 = Conv(x, w) {strides=[1], padding=[[0, 0]], dilation=[1]} : f64[2, 4, 5]
      return out = %0
    =>
      %0 = Reshape(x) {shape=[8, 3]} : f64[8, 3]
      %1 = Reshape(w) {shape=[3, 5]} : f64[3, 5]
      %2 = MatMul(%0, %1) : f64[8, 5]
      %3 = Reshape(%2) {shape=[2, 4, 5]} : f64[2, 4, 5]
      return out = %3
    """,
    "the input's gradient": f"""
    dy: f32[2, 4, 4, 5], w: f32[1, 1, 3, 5]
      %0 = ConvInputGradient(dy, w) {{size=[4, 4], strides=[1, 1], {PLAIN}}} : f32[2, 4, 4, 3]
      return out = %0
    =>
      %0 = Reshape(dy) {{shape=[32, 5]}} : f32[32, 5]
      %1 = Reshape(w) {{shape=[3, 5]}} : f32[3, 5]
      %2 = MatMul(%0, %1) {{transpose_b=true}} : f32[32, 3]
      %3 = Reshape(%2) {{shape=[2, 4, 4, 3]}} : f32[2, 4, 4, 3]
      return out = %3
    """,
    "zeros between the places of a stride": f"""
    dy: f32[2, 2, 2, 5], w: f32[1, 1, 3, 5]
      %0 = ConvInputGradient(dy, w) {{size=[4, 5], strides=[2, 3], {PLAIN}}} : f32[2, 4, 5, 3]
      return out = %0
    =>
      %0 = Reshape(dy) {{shape=[8, 5]}} : f32[8, 5]
      %1 = Reshape(w) {{shape=[3, 5]}} : f32[3, 5]
      %2 = MatMul(%0, %1) {{transpose_b=true}} : f32[8, 3]
      %3 = Reshape(%2) {{shape=[2, 2, 2, 3]}} : f32[2, 2, 2, 3]
      %4 = Constant() {{value=f32[] 0.0}} : f32[]
      %5 = Pad(%3, %4) {{pads=[[0, 0, 0], [0, 1, 1], [0, 1, 2], [0, 0, 0]]}} : f32[2, 4, 5, 3]
      return out = %5
    """,
    "the kernel's gradient": f"""
    x: f32[2, 4, 4, 3], dy: f32[2, 4, 4, 5]
      %0 = ConvKernelGradient(x, dy) {{size=[1, 1], strides=[1, 1], {PLAIN}}} : f32[1, 1, 3, 5]
      return out = %0
    =>
      %0 = Reshape(x) {{shape=[32, 3]}} : f32[32, 3]
      %1 = Reshape(dy) {{shape=[32, 5]}} : f32[32, 5]
      %2 = MatMul(%0, %1) {{transpose_a=true}} : f32[3, 5]
      %3 = Reshape(%2) {{shape=[1, 1, 3, 5]}} : f32[1, 1, 3, 5]
      return out = %3
    """,
    "the fewer channels as rows": f"""
    x: f32[2, 4, 4, 5], dy: f32[2, 2, 2, 3]
      %0 = ConvKernelGradient(x, dy) {{size=[1, 1], strides=[2, 2], {PLAIN}}} : f32[1, 1, 5, 3]
      return out = %0
    =>
      %0 = Slice(x) {{starts=[0,0,0,0], limits=[2,3,3,5], strides=[1,2,2,1]}} : f32[2, 2, 2, 5]
      %1 = Reshape(dy) {{shape=[8, 3]}} : f32[8, 3]
      %2 = Reshape(%0) {{shape=[8, 5]}} : f32[8, 5]
      %3 = MatMul(%1, %2) {{transpose_a=true}} : f32[3, 5]
      %4 = Transpose(%3) {{perm=[1, 0]}} : f32[5, 3]
      %5 = Reshape(%4) {{shape=[1, 1, 5, 3]}} : f32[1, 1, 5, 3]
      return out = %5
    """,
    "many rows and a small product: an image at a time": f"""
    x: f32[2, 32, 32, 3], dy: f32[2, 32, 32, 5]
      %0 = ConvKernelGradient(x, dy) {{size=[1, 1], strides=[1, 1], {PLAIN}}} : f32[1, 1, 3, 5]
      return out = %0
    =>
      %0 = Reshape(x) {{shape=[2, 1024, 3]}} : f32[2, 1024, 3]
      %1 = Reshape(dy) {{shape=[2, 1024, 5]}} : f32[2, 1024, 5]
      %2 = MatMul(%0, %1) {{transpose_a=true}} : f32[2, 3, 5]
      %3 = ReduceSum(%2) {{axes=[0]}} : f32[3, 5]
      %4 = Reshape(%3) {{shape=[1, 1, 3, 5]}} : f32[1, 1, 3, 5]
      return out = %4
    """,
}


@pytest.mark.parametrize("text", REWRITTEN.values(), ids=REWRITTEN)
def test_rewritten(text: str) -> None:
    check_pair(CpuPointwise(), text)


STAYS = {
    "a larger window": "w: f32[2, 1, 3, 5]; strides=[1, 1], padding=[[0, 1], [0, 0]]",
    "padding": "w: f32[1, 1, 3, 5]; strides=[2, 2], padding=[[1, 0], [1, 0]]",
    "groups": "w: f32[1, 1, 1, 6]; strides=[1, 1], padding=[[0, 0], [0, 0]], groups=3",
}


@pytest.mark.parametrize("text", STAYS.values(), ids=STAYS)
def test_stays(text: str) -> None:
    kernel, _, attrs = text.partition("; ")
    filters = kernel[-2]
    size = "3, 3" if "[2, 2]" in attrs else "4, 4"
    node = f"Conv(x, w) {{{attrs}, dilation=[1, 1]}} : f32[2, {size}, {filters}]"
    text = f"x: f32[2, 4, 4, 3], {kernel}\n  %0 = {node}\n  return out = %0\n=> stays"
    check_stays(CpuPointwise(), pair(text)[0])


def test_narrow_dtypes_and_named_sizes_stay() -> None:
    for x in ("bf16[2, 4, 4, 3]", "f32[n, 4, 4, 3]"):
        kind, shape = x.partition("[")[0], x.partition("[")[2].replace(" 3]", " 5]")
        node = f"Conv(x, w) {{strides=[1, 1], {PLAIN}}} : {kind}[{shape}"
        text = f"x: {x}, w: {kind}[1, 1, 3, 5]\n  %0 = {node}\n  return out = %0\n=> stays"
        check_stays(CpuPointwise(), pair(text)[0])


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    size=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    strides=st.lists(st.integers(1, 3), min_size=3, max_size=3),
    channels=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    batch=st.integers(1, 3),
    seed=st.integers(0, 3),
)
def test_meaning(
    size: list[int], strides: list[int], channels: tuple[int, int], batch: int, seed: int
) -> None:
    """The product and both gradients, for any rank and stride."""
    steps = strides[: len(size)]
    places = [-(-n // step) for n, step in zip(size, steps, strict=True)]
    ones, none = [1] * len(size), [[0, 0]] * len(size)
    attrs = f"strides={steps}, padding={none}, dilation={ones}"
    image, result = [batch, *size, channels[0]], [batch, *places, channels[1]]
    kernel = [*ones, *channels]
    before = program(
        f"""
        program p(x: f64{image}, w: f64{kernel}, dy: f64{result}) {{
          %0 = Conv(x, w) {{{attrs}}} : f64{result}
          %1 = ConvInputGradient(dy, w) {{size={size}, {attrs}}} : f64{image}
          %2 = ConvKernelGradient(x, dy) {{size={ones}, {attrs}}} : f64{kernel}
          return y = %0, dx = %1, dw = %2
        }}
        """
    )
    after, changed = CpuPointwise().run(before)
    assert changed == 3
    verify(after, "functional")
    difference = check_meaning(before, after, evaluate, seed)
    assert difference is None, difference


def trained(pipeline: str, stride: int, **kwargs: object) -> list[np.ndarray]:
    """A training step in float64 of two pointwise layers with another layer between them."""
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((None, 9, 9, 4), "float64", name="x")
        kernels = [
            gc.variable(np.random.default_rng(i).standard_normal(shape), name=f"w{i}")
            for i, shape in enumerate([(1, 1, 4, 6), (3, 3, 6, 6), (1, 1, 6, 3)])
        ]
        h = gc.tanh(gc.nn.conv2d(x, kernels[0], strides=stride))
        h = gc.nn.max_pool(gc.tanh(gc.nn.conv2d(h, kernels[1], padding="same")), 3, 2, 1)
        loss = gc.reduce_mean(gc.square(gc.nn.conv2d(h, kernels[2])), name="loss")
        slopes = gc.gradients(loss, kernels)
    feeds = {"x": np.random.default_rng(9).standard_normal((4, 9, 9, 4))}
    options = gc.CompileOptions(pipeline=pipeline, cache=None)
    session = gc.Session(graph, options=options, **kwargs)
    return [np.asarray(value) for value in session.run([loss, *slopes], feeds)]


@pytest.mark.slow
@pytest.mark.parametrize("stride", [1, 2])
@optimised()
def test_o3_gives_what_o0_does(stride: int) -> None:
    for got, wanted in zip(trained("O3", stride), trained("O0", stride), strict=True):
        assert_near(got, wanted, rtol=1e-12)


@pytest.mark.slow
@optimised()
def test_on_replicas_too() -> None:
    strategy = gc.devices.DataParallel(2)
    for got, wanted in zip(trained("O3", 2, strategy=strategy), trained("O0", 2), strict=True):
        assert_near(got, wanted, rtol=1e-12)
