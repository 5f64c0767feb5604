"""Which XLA options a program gets; options of the user take precedence."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import graphc as gc
from graphc.passes.cpu.xla_options import quicker_options, suited_options
from tests.compiling import optimised
from tests.passes.check import pair, program

ATTRS = "strides=[1, 1], padding=[[0, 0], [0, 0]], dilation=[1, 1]"
TRAINED = pair(
    f"""
    x: f32[2, 4, 4, 3], dy: f32[2, 2, 2, 5]
      %0 = ConvKernelGradient(x, dy) {{size=[3, 3], {ATTRS}}} : f32[3, 3, 3, 5]
      return out = %0
    => stays
    """
)[0]
FORWARD = pair(
    f"""
    x: f32[2, 4, 4, 3], w: f32[3, 3, 3, 5]
      %0 = Conv(x, w) {{{ATTRS}}} : f32[2, 2, 2, 5]
      return out = %0
    => stays
    """
)[0]
LEVEL = "xla_backend_optimization_level"
PRODUCTS = "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"
OPTION, SCHEDULER = "xla_cpu_experimental_ynn_fusion_type", "xla_cpu_scheduler_type"


def test_gradients_of_convolutions_on_cpu_have_two() -> None:
    assert list(suited_options(program(TRAINED), "cpu", True)) == [OPTION, SCHEDULER]
    assert list(suited_options(program(TRAINED), "cpu", False)) == [OPTION]
    assert suited_options(program(TRAINED), "gpu", True) == {}


@pytest.mark.parametrize("at_o3", [False, True])
def test_convolutions_without_gradients_have_one(at_o3: bool) -> None:
    assert suited_options(program(FORWARD), "cpu", at_o3) == {OPTION: PRODUCTS}
    assert suited_options(program(FORWARD), "gpu", at_o3) == {}
    in_tiles = FORWARD.replace("dilation=[1, 1]", "dilation=[1, 1], tiles=[2, 2]")
    assert list(suited_options(program(in_tiles), "cpu", at_o3)) == [OPTION, SCHEDULER]
    assert suited_options(program(in_tiles), "gpu", at_o3) == {}
    product = "program p(x: f32[4, 4]) {\n%0 = MatMul(x, x) : f32[4, 4]\nreturn out = %0\n}"
    assert suited_options(program(product), "cpu", at_o3) == {}


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("%1 = Softmax(r) {axis=1} : f32[256, 128]", True),
        ("%1 = Softmax(r) {axis=0} : f32[256, 128]", False),
        ("%1 = ReduceSum(r) {axes=[1]} : f32[256]", True),
        ("%1 = ReduceSum(r) {axes=[0]} : f32[128]", False),
        ("%1 = LayerNorm(r, b, b) {epsilon=1e-5} : f32[256, 128]", True),
        ("%1 = Softmax(few) {axis=1} : f32[2, 1000]", False),
    ],
)
def test_many_rows_are_reduced_by_the_library(line: str, kept: bool) -> None:
    """XLA takes up to 20 times as long. A convolution before another reduction would get there."""
    text = FORWARD.replace("(x:", "(r: f32[256, 128], b: f32[128], few: f32[2, 1000], x:")
    text = text.replace("return out = %0", f"{line}\n      return out = %0, rows = %1")
    found = suited_options(program(text), "cpu", False)[OPTION]
    assert ("REDUCE" in found) == kept


def test_convolutions_that_eigen_does_not_have_stay_in_the_library() -> None:
    """XLA's own loops for them took 10 to 40 times as long."""
    for text, wanted in ((FORWARD, []), (TRAINED, [SCHEDULER])):
        wide = text.replace("f32", "f64")
        assert list(suited_options(program(wide), "cpu", True)) == wanted
        narrow = text.replace("f32", "bf16")
        assert OPTION in suited_options(program(narrow), "cpu", True)


def test_options_of_the_environment_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", f"--{OPTION}=LIBRARY_FUSION_TYPE_DOT")
    assert suited_options(program(FORWARD), "cpu", True) == {}
    assert list(suited_options(program(TRAINED), "cpu", True)) == [SCHEDULER]


def options_seen(monkeypatch: pytest.MonkeyPatch, options: gc.CompileOptions) -> dict[str, object]:
    """The XLA options for the compilation of a step that trains a convolution."""
    seen: list[dict[str, object] | None] = []
    compile = jax.stages.Lowered.compile

    def watched(
        self: jax.stages.Lowered, compiler_options: dict[str, object] | None = None
    ) -> object:
        seen.append(compiler_options)
        return compile(self, compiler_options)

    monkeypatch.setattr(jax.stages.Lowered, "compile", watched)
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((2, 6, 6, 3), "float32", name="x")
        w = gc.variable(np.ones((3, 3, 3, 4), np.float32), name="w")
        (slope,) = gc.gradients(gc.reduce_sum(gc.square(gc.nn.conv2d(x, w))), [w])
    gc.Session(graph, options=options).run(slope, {"x": np.ones((2, 6, 6, 3), np.float32)})
    return seen[-1] or {}


@pytest.mark.parametrize(
    ("pipeline", "given", "wanted"),
    [
        ("O3", {}, "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT,LIBRARY_FUSION_TYPE_REDUCE"),
        ("O3", {OPTION: "LIBRARY_FUSION_TYPE_DOT"}, "LIBRARY_FUSION_TYPE_DOT"),
        ("O2", {}, "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT,LIBRARY_FUSION_TYPE_REDUCE"),
        ("O1", {}, None),
    ],
)
def test_o2_and_o3_take_it_and_the_users_win(
    monkeypatch: pytest.MonkeyPatch, pipeline: str, given: dict[str, str], wanted: str | None
) -> None:
    options = gc.CompileOptions(pipeline=pipeline, cache=None, xla_options=given)
    assert wanted == options_seen(monkeypatch, options).get(OPTION)


@pytest.mark.parametrize(("pipeline", "has"), [("O0", False), ("O1", False), ("O2", True)])
def test_o2_takes_both_for_many_convolutions(
    monkeypatch: pytest.MonkeyPatch, pipeline: str, has: bool
) -> None:
    monkeypatch.setattr("graphc.passes.core.target._MANY", 1)
    options = gc.CompileOptions(pipeline=pipeline, cache=None)
    with optimised():
        seen = options_seen(monkeypatch, options)
    assert {OPTION in seen, SCHEDULER in seen} == {has}
    assert (LEVEL in seen) == (pipeline != "O0")


def test_o2_takes_both_for_large_temporaries(monkeypatch: pytest.MonkeyPatch) -> None:
    """See `_CLEARED`."""
    options = gc.CompileOptions(cache=None)
    assert SCHEDULER not in options_seen(monkeypatch, options)
    monkeypatch.setattr("graphc.passes.cpu.xla_options._CLEARED", 256)
    assert {OPTION, SCHEDULER} <= options_seen(monkeypatch, options).keys()


@pytest.mark.parametrize(
    ("pipeline", "given", "wanted"),
    [("O0", {}, None), ("O2", {}, 2), ("O2", {LEVEL: 1}, 1), ("O3", {}, None)],
)
def test_below_o3_llvm_compiles_quicker_and_the_users_level_wins(
    monkeypatch: pytest.MonkeyPatch, pipeline: str, given: dict[str, int], wanted: int | None
) -> None:
    options = gc.CompileOptions(pipeline=pipeline, cache=None, xla_options=given)
    with optimised():
        assert wanted == options_seen(monkeypatch, options).get(LEVEL)


def test_the_level_is_for_cpu_and_that_of_the_environment_wins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    assert quicker_options(program(TRAINED), "cpu") == {}  # conftest.py disables optimizations
    with optimised():
        assert quicker_options(program(TRAINED), "cpu") == {LEVEL: 2}
        assert quicker_options(program(TRAINED), "gpu") == {}
        monkeypatch.setenv("XLA_FLAGS", f"--{LEVEL}=0")
        assert quicker_options(program(TRAINED), "cpu") == {}


DRAWN = """
    program p(key: u32[2], w: f32[4, 5]) {
      %0 = RandomNormal(key) {shape=[3, 4], dtype=f32} : f32[3, 4]
"""


@pytest.mark.parametrize(
    ("rest", "wanted"),
    [
        ("return out = %0\n}", {}),
        ("%1 = MatMul(%0, w) : f32[3, 5]\nreturn out = %1\n}", {LEVEL: 2}),
    ],
)
def test_draws_alone_keep_the_bits_of_jax(
    monkeypatch: pytest.MonkeyPatch, rest: str, wanted: dict[str, int]
) -> None:
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    with optimised():
        assert quicker_options(program(DRAWN + rest), "cpu") == wanted
