"""CpuPooling rewrites max pooling and its gradient; the results do not change."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from graphc.ir.verify import verify
from graphc.ops.nn.pool_taps import max_by_taps, max_gradient_by_taps
from graphc.passes.core.validate import check_meaning
from graphc.passes.cpu.cpu_pooling import CpuPooling
from graphc.runtime.targets.prepare import evaluate
from tests.near import assert_near
from tests.passes.check import check_pair, check_stays, pair, program

ATTRS = "strides=[2, 2], padding=[[0, 0], [0, 0]], dilation=[1, 1]"


def test_small_windows_are_written_out() -> None:
    check_pair(
        CpuPooling(),
        f"""
        x: f32[2, 7, 7, 3], dy: f32[2, 3, 3, 3]
          %0 = MaxPool(x) {{window=[3, 3], {ATTRS}}} : f32[2, 3, 3, 3]
          %1 = MaxPoolGradient(x, dy) {{window=[3, 3], {ATTRS}}} : f32[2, 7, 7, 3]
          return y = %0, dx = %1
        =>
          %0 = MaxPool(x) {{window=[3, 3], {ATTRS}, by_taps=true}} : f32[2, 3, 3, 3]
          %1 = MaxPoolGradient(x, dy) {{window=[3, 3], {ATTRS}, by_taps=true}} : f32[2, 7, 7, 3]
          return y = %0, dx = %1
        """,
    )


def test_averages_of_windows_that_overlap_are_written_out() -> None:
    attrs = "window=[3, 2], strides=[1, 2], padding=[[1, 1], [0, 0]]"
    check_pair(
        CpuPooling(),
        f"""
        x: f32[2, 7, 8, 3], dy: f32[2, 7, 4, 3]
          %0 = AvgPool(x) {{{attrs}}} : f32[2, 7, 4, 3]
          %1 = AvgPoolGradient(dy) {{size=[7, 8], {attrs}}} : f32[2, 7, 8, 3]
          return y = %0, dx = %1
        =>
          %0 = AvgPool(x) {{{attrs}, by_taps=true}} : f32[2, 7, 4, 3]
          %1 = AvgPoolGradient(dy) {{size=[7, 8], {attrs}, by_taps=true}} : f32[2, 7, 8, 3]
          return y = %0, dx = %1
        """,
    )


@pytest.mark.parametrize("window", ["[2, 2], strides=[2, 3]", "[5, 5], strides=[1, 1]"])
def test_averages_of_windows_apart_and_of_large_ones_stay(window: str) -> None:
    attrs = f"window={window}, padding=[[0, 0], [0, 0]]"
    size = "[2, 4, 3, 3]" if "3]" in window else "[2, 4, 4, 3]"
    text = f"""
    x: f32[2, 8, 8, 3]
      %0 = AvgPool(x) {{{attrs}}} : f32{size}
      return out = %0
    => stays
    """
    check_stays(CpuPooling(), pair(text)[0])


def test_large_ones_and_those_that_are_stay() -> None:
    for attrs in (f"window=[5, 5], {ATTRS}", f"window=[5, 5], {ATTRS}, by_taps=true"):
        text = f"""
        x: f32[2, 9, 9, 3], dy: f32[2, 3, 3, 3]
          %0 = MaxPoolGradient(x, dy) {{{attrs}}} : f32[2, 9, 9, 3]
          return out = %0
        => stays
        """
        check_stays(CpuPooling(), pair(text)[0])


MASKED = """
    x: f32[2, 7, 7, 3], dy: f32[2, 3, 3, 3]
      %0 = Constant() {{value=f32[] 0.0}} : f32[]
      %1 = MaxPoolGradient(x, dy) {{window=[3, 3], {attrs}}} : f32[2, 7, 7, 3]
      %2 = Greater(x, %0) : bool[2, 7, 7, 3]
      %3 = Where(%2, %1, %0) : f32[2, 7, 7, 3]
      %4 = ReduceSum(%3) {{axes=[0, 1, 2]}} : f32[3]
      return dx = %3, db = %4"""


def test_windows_are_asked_for_the_relu_before_and_summed_for_its_bias() -> None:
    taps = f"window=[3, 3], {ATTRS}, by_taps=true"
    check_pair(
        CpuPooling(),
        f"""{MASKED.format(attrs=ATTRS)}
        =>
          %1 = MaxPool(x) {{{taps}}} : f32[2, 3, 3, 3]
          %2 = Constant() {{value=f32[] 0.0}} : f32[]
          %3 = LessEqual(%1, %2) : bool[2, 3, 3, 3]
          %4 = Constant() {{value=f32[] 0.0}} : f32[]
          %5 = Where(%3, %4, dy) : f32[2, 3, 3, 3]
          %6 = MaxPoolGradient(x, %5) {{{taps}}} : f32[2, 7, 7, 3]
          %7 = ReduceSum(%5) {{axes=[0, 1, 2]}} : f32[3]
          return dx = %6, db = %7
        """,
    )


def test_nan_goes_on_as_it_did() -> None:
    text = """program p(x: f32[1, 4, 1], dy: f32[1, 1, 1]) {
      %0 = Constant() {value=f32[] 0.0} : f32[]
      %1 = MaxPoolGradient(x, dy) {window=[4], strides=[4], padding=[[0, 0]], dilation=[1]} : f32[1, 4, 1]
      %2 = Greater(x, %0) : bool[1, 4, 1]
      %3 = Where(%2, %1, %0) : f32[1, 4, 1]
      return dx = %3
    }"""  # noqa: E501
    before = program(text)
    after = CpuPooling().run(before).program
    for x, dy in (([1, 2, np.nan, 3], 5), ([1, 2, 4, 3], np.nan), ([-1, -2, -4, -3], 5)):
        given = [np.float32(x).reshape(1, 4, 1), np.float32(dy).reshape(1, 1, 1)]
        (want,), (got,) = evaluate(before, given), evaluate(after, given)
        np.testing.assert_array_equal(got, want)


def test_padding_may_swallow_what_is_summed() -> None:
    padded = ATTRS.replace("padding=[[0, 0], [0, 0]]", "padding=[[1, 0], [0, 0]]")
    after = CpuPooling().run(program(pair(MASKED.format(attrs=padded) + "\n => stays")[0])).program
    (total,) = [node for node in after.nodes if node.op.name == "ReduceSum"]
    assert after.producers()[total.inputs[0]].op.name == "MaxPoolGradient"


@pytest.mark.parametrize("ends", ["%3, other = %1", "%3, other = %4"])
def test_a_gradient_with_other_users_is_not_computed_twice(ends: str) -> None:
    text = f"""
    x: f32[2, 7, 7, 3], dy: f32[2, 3, 3, 3]
      %0 = Constant() {{value=f32[] 0.0}} : f32[]
      %1 = MaxPoolGradient(x, dy) {{window=[3, 3], {ATTRS}, by_taps=true}} : f32[2, 7, 7, 3]
      %2 = Greater(x, %0) : bool[2, 7, 7, 3]
      %3 = Where(%2, %1, %0) : f32[2, 7, 7, 3]
      %4 = Negative(%1) : f32[2, 7, 7, 3]
      return dx = {ends}
    => stays
    """
    check_stays(CpuPooling(), pair(text)[0])


# Of each axis: taps, step, how much larger it is than the window, padding before and after.
AXES = st.lists(
    st.tuples(*[st.integers(1, 3)] * 2, st.integers(0, 4), *[st.integers(0, 2)] * 2),
    min_size=1,
    max_size=2,
)


def sliding(axes: list[tuple[int, ...]]) -> tuple[str, list[int], list[int]]:
    """The attributes of a window, and the shapes of the images and of the result."""
    window, strides = [taps for taps, *_ in axes], [step for _, step, *_ in axes]
    sides = [[min(low, taps - 1), min(high, taps - 1)] for taps, *_, low, high in axes]
    size = [taps + more for taps, _, more, *_ in axes]
    rows = zip(size, window, strides, sides, strict=True)
    places = [(n + low + high - taps) // step + 1 for n, taps, step, (low, high) in rows]
    attrs = f"window={window}, strides={strides}, padding={sides}"
    return attrs, [2, *size, 3], [2, *places, 3]


@pytest.mark.slow
@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    axes=AXES,
    bound=st.sampled_from([0.0, 0.5, -1.0]),
    seed=st.integers(0, 3),
)
def test_meaning(axes: list[tuple[int, ...]], bound: float, seed: int) -> None:
    """Pooling, its gradient, the gradient of a ReLU before it, and of a bias before that."""
    attrs, image, result = sliding(axes)
    attrs += f", dilation={[1] * len(axes)}"
    before = program(
        f"""
        program p(x: f64{image}, dy: f64{result}) {{
          %0 = Constant() {{value=f64[] {bound}}} : f64[]
          %1 = Constant() {{value=f64[] 0.0}} : f64[]
          %2 = MaxPool(x) {{{attrs}}} : f64{result}
          %3 = MaxPoolGradient(x, dy) {{{attrs}}} : f64{image}
          %4 = Greater(x, %0) : bool{image}
          %5 = Where(%4, %3, %1) : f64{image}
          %6 = ReduceSum(%5) {{axes={list(range(len(axes) + 1))}}} : f64[3]
          return y = %2, dx = %5, db = %6
        }}
        """
    )
    after, changed = CpuPooling().run(before)
    assert changed >= 3
    verify(after, "functional")
    difference = check_meaning(before, after, evaluate, seed)
    assert difference is None, difference


@pytest.mark.slow
@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    axes=AXES,
    counts=st.booleans(),
    seed=st.integers(0, 3),
)
def test_meaning_of_averages(axes: list[tuple[int, ...]], counts: bool, seed: int) -> None:
    attrs, image, result = sliding(axes)
    attrs += f", count_include_pad={str(counts).lower()}"
    before = program(
        f"""
        program p(x: f64{image}, dy: f64{result}) {{
          %0 = AvgPool(x) {{{attrs}}} : f64{result}
          %1 = AvgPoolGradient(dy) {{size={image[1:-1]}, {attrs}}} : f64{image}
          return y = %0, dx = %1
        }}
        """
    )
    after, changed = CpuPooling().run(before)
    assert changed == (2 if any(taps > step for taps, step, *_ in axes) else 0)
    verify(after, "functional")
    difference = check_meaning(before, after, evaluate, seed)
    assert difference is None, difference


POOLINGS = {
    "apart": ((2, 2), (2, 2), ((0, 0), (0, 0))),
    "overlapping": ((3, 3), (2, 2), ((1, 1), (0, 1))),
    "each place": ((2, 3), (1, 1), ((1, 0), (1, 1))),
    "with gaps": ((1, 2), (3, 3), ((0, 0), (1, 0))),
}


@pytest.mark.parametrize(("window", "strides", "padding"), POOLINGS.values(), ids=POOLINGS)
def test_ties_go_to_the_first_as_in_select_and_scatter(
    window: tuple[int, ...], strides: tuple[int, ...], padding: tuple[tuple[int, int], ...]
) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 3, (2, 7, 8, 3)).astype(np.float32)
    x[0, 2:4, 3] = np.nan  # select-and-scatter prefers the value after a NaN
    x[1, :4, :4] = -np.inf

    def pool(x: jax.Array) -> jax.Array:
        sides = ((0, 0), *padding, (0, 0))
        return lax.reduce_window(x, -np.inf, lax.max, (1, *window, 1), (1, *strides, 1), sides)

    y, pull = jax.vjp(pool, x)
    dy = rng.standard_normal(y.shape).astype(np.float32)
    attrs = {"window": window, "strides": strides, "padding": padding, "dilation": (1, 1)}
    np.testing.assert_array_equal(max_by_taps(x, attrs), y)
    got = max_gradient_by_taps(x, dy, attrs)
    assert_near(got, pull(dy)[0], rtol=1e-6, atol=1e-6)
