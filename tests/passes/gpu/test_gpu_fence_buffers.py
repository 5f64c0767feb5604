"""GpuFenceBuffers: slices of buffers that many variables share."""

from __future__ import annotations

from graphc.passes.gpu.gpu_fence_buffers import GpuFenceBuffers
from tests.passes.check import check, check_stays

FENCE = GpuFenceBuffers(fewest=3)


def test_what_is_split_of_a_buffer_is_cut_before_it_is_used() -> None:
    check(
        FENCE,
        """
        program p(x: f32[2], b: state f32[6]) {
          %0, %1, %2 = Split(b) {axis=0, sizes=[2, 2, 2]} : f32[2], f32[2], f32[2]
          %3 = Add(x, %0) : f32[2]
          %4 = Multiply(%1, %2) : f32[2]
          return y = %3, z = %4
        }
        """,
        """
        program p(x: f32[2], b: state f32[6]) {
          %0, %1, %2 = Split(b) {axis=0, sizes=[2, 2, 2]} : f32[2], f32[2], f32[2]
          %3 = Fence(%0) {number=0} : f32[2]
          %4 = Fence(%1) {number=0} : f32[2]
          %5 = Fence(%2) {number=0} : f32[2]
          %6 = Add(x, %3) : f32[2]
          %7 = Multiply(%4, %5) : f32[2]
          return y = %6, z = %7
        }
        """,
    )


def test_so_are_slices_of_some_of_its_variables_and_in_bodies() -> None:
    """The buffer is a carry, as in the programs of `run_steps`."""
    slices = """
        %0 = Slice({b}) {{starts=[0], limits=[1], strides=[1]}} : f32[1]
        %1 = Slice({b}) {{starts=[1], limits=[2], strides=[1]}} : f32[1]
        %2 = Slice({b}) {{starts=[2], limits=[3], strides=[1]}} : f32[1]
        %3 = Add(%0, %1) : f32[1]
        %4 = Add(%2, %3) : f32[1]
        %5 = Concatenate(%4, %4, %4, %4) {{axis=0}} : f32[4]
    """.format(b="a0")
    fenced = """
        %0 = Slice(a0) {starts=[0], limits=[1], strides=[1]} : f32[1]
        %1 = Fence(%0) {number=0} : f32[1]
        %2 = Slice(a0) {starts=[1], limits=[2], strides=[1]} : f32[1]
        %3 = Fence(%2) {number=0} : f32[1]
        %4 = Slice(a0) {starts=[2], limits=[3], strides=[1]} : f32[1]
        %5 = Fence(%4) {number=0} : f32[1]
        %6 = Add(%1, %3) : f32[1]
        %7 = Add(%5, %6) : f32[1]
        %8 = Concatenate(%7, %7, %7, %7) {axis=0} : f32[4]
    """

    def steps(body: str, result: str) -> str:
        return f"""
        program p(b: state f32[4]) {{
          %0 = Scan(b) {{consts=0, carries=1, length=5}} : f32[4] with step(a0: f32[4]) {{
            {body}
            return r0 = {result}
          }}
          return state b = %0
        }}
        """

    check(FENCE, steps(slices, "%5"), steps(fenced, "%8"))


def test_buffers_of_few_variables_stay_and_so_does_what_is_no_buffer() -> None:
    check_stays(
        FENCE,
        """
        program p(x: f32[2], b: state f32[4], c: state f32[3, 2]) {
          %0, %1 = Split(b) {axis=0, sizes=[2, 2]} : f32[2], f32[2]
          %2, %3, %4 = Split(c) {axis=0, sizes=[1, 1, 1]} : f32[1, 2], f32[1, 2], f32[1, 2]
          %5 = Add(%0, %1) : f32[2]
          %6, %7 = Split(%5) {axis=0, sizes=[1, 1]} : f32[1], f32[1]
          return y = %6, z = %7, u = %2, v = %3, w = %4
        }
        """,
    )
