"""CpuStrips cuts one or two images into strips for the gradient of a kernel."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphc.ir.verify import verify
from graphc.passes.core.validate import check_meaning
from graphc.passes.cpu.cpu_strips import CpuStrips
from graphc.runtime.targets.prepare import evaluate
from tests.passes.check import check_pair, check_stays, pair, program

PLAIN = "strides=[1, 1], padding=[[1, 1], [1, 1]], dilation=[1, 1]"


def text(
    x: str = "f32[1, 8, 6, 3]",
    dy: str = "f32[1, 8, 6, 4]",
    dw: str = "f32[3, 3, 3, 4]",
    attrs: str = f"size=[3, 3], {PLAIN}",
) -> str:
    """A gradient that stays as it is."""
    return f"""
    x: {x}, dy: {dy}
      %0 = ConvKernelGradient(x, dy) {{{attrs}}} : {dw}
      return out = %0
    => stays
    """


def test_strips_of_two_rows() -> None:
    check_pair(
        CpuStrips(images=4),
        f"""
    x: f32[1, 8, 6, 3], dy: f32[1, 8, 6, 4]
      %0 = ConvKernelGradient(x, dy) {{size=[3, 3], {PLAIN}}} : f32[3, 3, 3, 4]
      return out = %0
    =>
      %0 = Constant() {{value=f32[] 0.0}} : f32[]
      %1 = Pad(x, %0) {{pads=[[0, 0, 0], [1, 1, 0], [0, 0, 0], [0, 0, 0]]}} : f32[1, 10, 6, 3]
      %2 = Slice(%1) {{starts=[0, 0, 0, 0], limits=[1, 4, 6, 3], strides=[1, 1, 1, 1]}} : f32[1, 4, 6, 3]
      %3 = Slice(%1) {{starts=[0, 2, 0, 0], limits=[1, 6, 6, 3], strides=[1, 1, 1, 1]}} : f32[1, 4, 6, 3]
      %4 = Slice(%1) {{starts=[0, 4, 0, 0], limits=[1, 8, 6, 3], strides=[1, 1, 1, 1]}} : f32[1, 4, 6, 3]
      %5 = Slice(%1) {{starts=[0, 6, 0, 0], limits=[1, 10, 6, 3], strides=[1, 1, 1, 1]}} : f32[1, 4, 6, 3]
      %6 = Reshape(%2) {{shape=[1, 1, 4, 6, 3]}} : f32[1, 1, 4, 6, 3]
      %7 = Reshape(%3) {{shape=[1, 1, 4, 6, 3]}} : f32[1, 1, 4, 6, 3]
      %8 = Reshape(%4) {{shape=[1, 1, 4, 6, 3]}} : f32[1, 1, 4, 6, 3]
      %9 = Reshape(%5) {{shape=[1, 1, 4, 6, 3]}} : f32[1, 1, 4, 6, 3]
      %10 = Concatenate(%6, %7, %8, %9) {{axis=1}} : f32[1, 4, 4, 6, 3]
      %11 = Reshape(%10) {{shape=[4, 4, 6, 3]}} : f32[4, 4, 6, 3]
      %12 = Reshape(dy) {{shape=[4, 2, 6, 4]}} : f32[4, 2, 6, 4]
      %13 = ConvKernelGradient(%11, %12) {{size=[3, 3], strides=[1, 1], padding=[[0, 0], [1, 1]], dilation=[1, 1]}} : f32[3, 3, 3, 4]
      return out = %13
    """,  # noqa: E501
    )


@pytest.mark.parametrize(
    "stays",
    [
        pytest.param(text("f32[3, 8, 6, 3]", "f32[3, 8, 6, 4]"), id="three images"),
        pytest.param(text("f32[1, 3, 6, 3]", "f32[1, 3, 6, 4]"), id="three rows"),
        pytest.param(text("f32[n, 8, 6, 3]", "f32[n, 8, 6, 4]"), id="a named size"),
        pytest.param(text("bf16[1, 8, 6, 3]", "bf16[1, 8, 6, 4]", "bf16[3, 3, 3, 4]"), id="narrow"),
        pytest.param(
            text(
                dw="f32[3, 3, 1, 6]", dy="f32[1, 8, 6, 6]", attrs=f"size=[3, 3], {PLAIN}, groups=3"
            ),
            id="groups",
        ),
        pytest.param(
            text(attrs=f"size=[3, 3], {PLAIN}, tiles=[2, 2]"),
            id="tiles",
        ),
        pytest.param(
            text(
                dw="f32[1, 1, 3, 4]",
                attrs="size=[1, 1], strides=[1, 1], padding=[[0, 0], [0, 0]], dilation=[1, 1]",
            ),
            id="a window of one element",
        ),
        pytest.param(
            text(
                "f32[1, 8, 3]",
                "f32[1, 8, 4]",
                "f32[3, 3, 4]",
                "size=[3], strides=[1], padding=[[1, 1]], dilation=[1]",
            ),
            id="a signal",
        ),
    ],
)
def test_stays(stays: str) -> None:
    check_stays(CpuStrips(images=8), pair(stays)[0])


axes_ = st.tuples(
    st.integers(1, 3),  # the window
    st.integers(1, 3),  # the stride
    st.integers(1, 2),  # the dilation
    st.integers(-1, 2),  # padding before
    st.integers(-1, 2),  # and after
    st.integers(4, 11),  # places of the result
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    axes=st.lists(axes_, min_size=2, max_size=3),
    left=st.integers(0, 2),
    batch=st.integers(1, 2),
    seed=st.integers(0, 3),
)
def test_meaning(axes: list[tuple[int, ...]], left: int, batch: int, seed: int) -> None:
    """Of any window, stride, dilation and padding; `left` rows are beyond the last window."""
    window, strides, dilation, low, high, places = zip(*axes, strict=True)
    rows = zip(window, strides, dilation, places, strict=True)
    reach = [(n - 1) * step + (k - 1) * gap + 1 for k, step, gap, n in rows]
    more = [min(left, step - 1) for step in strides]
    rows = zip(reach, low, high, more, strict=True)
    size = [n - a - b + extra for n, a, b, extra in rows]
    if min(size) < 1:
        return
    sides = [[a, b] for a, b in zip(low, high, strict=True)]
    attrs = f"strides={[*strides]}, padding={sides}, dilation={[*dilation]}"
    image, result, kernel = [batch, *size, 2], [batch, *places, 3], [*window, 2, 3]
    before = program(
        f"""
        program p(x: f64{image}, dy: f64{result}) {{
          %0 = ConvKernelGradient(x, dy) {{size={[*window]}, {attrs}}} : f64{kernel}
          return dw = %0
        }}
        """
    )
    after, changed = CpuStrips().run(before)
    assert changed == (max(window) > 1)
    verify(after, "functional")
    assert CpuStrips().run(after).changed == 0
    difference = check_meaning(before, after, evaluate, seed)
    assert difference is None, difference
