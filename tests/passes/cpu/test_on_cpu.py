"""The passes for CPU run only on CPU and only with O3."""

from __future__ import annotations

from graphc.config import CompileOptions
from graphc.passes.core.target import Target
from graphc.passes.pipelines import after_binding

NAMES = [
    *("cpu-space-to-depth", "cpu-pointwise", "cpu-winograd", "cpu-strips"),
    *("cpu-pooling", "cpu-moments"),
]


def names(pipeline: str, platform: str) -> list[str]:
    passes = after_binding(CompileOptions(pipeline=pipeline), Target(platform))
    return [a_pass.name for a_pass in passes if a_pass.name.startswith("cpu-")]


def test_o3_on_cpu_has_them_in_this_order() -> None:
    assert names("O3", "cpu") == NAMES


def test_others_have_none() -> None:
    assert [names("O3", "gpu"), names("O3", "any"), names("O2", "cpu")] == [[], [], []]


def test_o2_has_the_exact_ones_for_many_convolutions() -> None:
    passes = after_binding(CompileOptions(pipeline="O2"), Target("cpu", convolves=True))
    found = [a_pass.name for a_pass in passes if a_pass.name.startswith("cpu-")]
    assert found == [name for name in NAMES if name != "cpu-winograd"]


def test_they_come_before_rolling() -> None:
    passes = after_binding(CompileOptions(pipeline="O3"), Target("cpu"))
    found = [a_pass.name for a_pass in passes]
    assert found.index("cpu-moments") < found.index("roll-repeats")
