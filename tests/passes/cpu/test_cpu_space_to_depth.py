"""CpuSpaceToDepth rewrites convolutions with few channels and large strides."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphc.ir.verify import verify
from graphc.passes.core.validate import check_meaning
from graphc.passes.cpu.cpu_pointwise import CpuPointwise
from graphc.passes.cpu.cpu_space_to_depth import CpuSpaceToDepth
from graphc.runtime.targets.prepare import evaluate
from tests.passes.check import check_pair, check_stays, pair, program

PAIRS = {
    "patches of three places": """
    x: f32[8, 10, 3], w: f32[3, 3, 16]
      %0 = Conv(x, w) {strides=[3], padding=[[1, 0]], dilation=[1]} : f32[8, 3, 16]
      return out = %0
    =>
      %0 = Reshape(w) {shape=[1, 9, 16]} : f32[1, 9, 16]
      %1 = Constant() {value=f32[] 0.0} : f32[]
      %2 = Pad(x, %1) {pads=[[0, 0, 0], [1, -2, 0], [0, 0, 0]]} : f32[8, 9, 3]
      %3 = Reshape(%2) {shape=[8, 3, 3, 3]} : f32[8, 3, 3, 3]
      %4 = Transpose(%3) {perm=[0, 1, 2, 3]} : f32[8, 3, 3, 3]
      %5 = Reshape(%4) {shape=[8, 3, 9]} : f32[8, 3, 9]
      %6 = Conv(%5, %0) {strides=[1], padding=[[0, 0]], dilation=[1]} : f32[8, 3, 16]
      return out = %6
    """,
    "the kernel's gradient of patches": """
    x: f32[8, 8, 9, 3], dy: f32[8, 4, 3, 16]
      %0 = ConvKernelGradient(x, dy) {size=[2, 3], strides=[2, 3], padding=[[0, 0], [0, 0]], dilation=[1, 1]} : f32[2, 3, 3, 16]
      return out = %0
    =>
      %1 = Reshape(x) {shape=[8, 4, 2, 3, 3, 3]} : f32[8, 4, 2, 3, 3, 3]
      %2 = Transpose(%1) {perm=[0, 1, 3, 2, 4, 5]} : f32[8, 4, 3, 2, 3, 3]
      %3 = Reshape(%2) {shape=[8, 4, 3, 18]} : f32[8, 4, 3, 18]
      %4 = ConvKernelGradient(%3, dy) {size=[1, 1], strides=[1, 1], padding=[[0, 0], [0, 0]], dilation=[1, 1]} : f32[1, 1, 18, 16]
      %5 = Reshape(%4) {shape=[2, 3, 3, 16]} : f32[2, 3, 3, 16]
      return out = %5
    """,  # noqa: E501
}


@pytest.mark.parametrize("text", PAIRS.values(), ids=PAIRS)
def test_rewritten(text: str) -> None:
    check_pair(CpuSpaceToDepth(), text)


STAYS = {
    "no stride": (3, "[1]", "[[0, 0]]", "[1]", 6),
    "many channels": (5, "[3]", "[[0, 1]]", "[1]", 3),
    "a dilation": (3, "[3]", "[[0, 0]]", "[2]", 2),
    "windows that overlap": (3, "[2]", "[[0, 1]]", "[1]", 4),
    "a window smaller than the stride": (3, "[4]", "[[0, 0]]", "[1]", 2),
}


@pytest.mark.parametrize("case", STAYS.values(), ids=STAYS)
def test_stays(case: tuple[int, str, str, str, int]) -> None:
    channels, strides, padding, dilation, places = case
    attrs = f"strides={strides}, padding={padding}, dilation={dilation}"
    text = f"""
    x: f32[2, 8, {channels}], w: f32[3, {channels}, 4]
      %0 = Conv(x, w) {{{attrs}}} : f32[2, {places}, 4]
      return out = %0
    => stays
    """
    check_stays(CpuSpaceToDepth(), pair(text)[0])


def test_patches_become_a_product() -> None:
    before = pair(
        """
        x: f32[2, 8, 8, 3], w: f32[4, 4, 3, 16]
          %0 = Conv(x, w) {strides=[4, 4], padding=[[0, 0], [0, 0]], dilation=[1, 1]} : f32[2, 2, 2, 16]
          return out = %0
        => stays
        """  # noqa: E501
    )[0]
    deep = CpuSpaceToDepth().run(program(before)).program
    kinds = [node.op.name for node in CpuPointwise().run(deep).program.nodes]
    assert "Conv" not in kinds
    assert kinds.count("MatMul") == 1


@pytest.mark.slow
@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    axes=st.lists(st.tuples(st.integers(1, 3), *[st.integers(0, 2)] * 3), min_size=1, max_size=2),
    channels=st.integers(1, 4),
    seed=st.integers(0, 3),
)
def test_meaning(axes: list[tuple[int, ...]], channels: int, seed: int) -> None:
    """The product and the kernel's gradient, for patches of any size cut from any image."""
    window = [step for step, *_ in axes]
    size = [2 * step + more for step, more, *_ in axes]
    sides = [[low, high] for *_, low, high in axes]
    rows = zip(size, window, sides, strict=True)
    places = [(n + low + high) // step for n, step, (low, high) in rows]
    attrs = f"strides={window}, padding={sides}, dilation={[1] * len(axes)}"
    image, result, kernel = [2, *size, channels], [2, *places, 3], [*window, channels, 3]
    before = program(
        f"""
        program p(x: f64{image}, w: f64{kernel}, dy: f64{result}) {{
          %0 = Conv(x, w) {{{attrs}}} : f64{result}
          %1 = ConvKernelGradient(x, dy) {{size={window}, {attrs}}} : f64{kernel}
          return y = %0, dw = %1
        }}
        """
    )
    after, changed = CpuSpaceToDepth().run(before)
    assert changed == (2 if max(window) > 1 else 0)
    verify(after, "functional")
    difference = check_meaning(before, after, evaluate, seed)
    assert difference is None, difference
