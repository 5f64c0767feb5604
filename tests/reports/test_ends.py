"""Runs end when their results are read."""

import pytest

from graphc.reports.ends import with_true_ends
from graphc.reports.node_names import instructions_of
from graphc.reports.xplane import Run

TEXT = """HloModule jit_graph, is_scheduled=true

%body (p: (s32[], f32[8])) -> (s32[], f32[8]) {
  %p = (s32[], f32[8]{0}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %v = f32[8]{0} get-tuple-element(%p), index=1
  %inner = f32[8]{0} exponential(%v)
  %twice = f32[8]{0} add(%inner, %inner)
  ROOT %t = (s32[], f32[8]{0}) tuple(%i, %twice)
}

%cond (q: (s32[], f32[8])) -> pred[] {
  %q = (s32[], f32[8]{0}) parameter(0)
  %j = s32[] get-tuple-element(%q), index=0
  ROOT %less = pred[] compare(%j, %j), direction=LT
}

ENTRY %main (x: f32[8], n: s32[]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %n = s32[] parameter(1)
  %a = f32[8]{0} negate(%x)
  %view = f32[2,4]{1,0} bitcast(%a)
  %b = f32[2,4]{1,0} exponential(%view)
  %sent = f32[8]{0} all-reduce-start(%a)
  %got = f32[8]{0} all-reduce-done(%sent)
  %both = (f32[8]{0}, f32[8]{0}) tuple(%a, %got)
  %first = f32[8]{0} get-tuple-element(%both), index=0
  %c = f32[8]{0} abs(%first)
  %carried = (s32[], f32[8]{0}) tuple(%n, %got)
  %loop = (s32[], f32[8]{0}) while(%carried), condition=%cond, body=%body
  %last = f32[8]{0} get-tuple-element(%loop), index=1
  ROOT %d = f32[8]{0} add(%last, %c)
}
"""


def run(name: str, start: float, end: float, device: int = 0, module: str = "jit_graph") -> Run:
    return Run(module, name, device, start, end, "thread")


@pytest.mark.parametrize(
    ("runs", "ends"),
    [
        pytest.param([run("a", 0, 9)], [9], id="no reader ran"),
        pytest.param([run("a", 0, 9), run("b", 3, 4)], [3, 4], id="a view is read"),
        pytest.param([run("a", 0, 2), run("b", 3, 4)], [2, 4], id="it ended before"),
        pytest.param(
            [run("a", 0, 9), run("b", 5, 6), run("sent", 4, 8)], [4, 6, 8], id="the first"
        ),
        pytest.param([run("a", 0, 9), run("c", 3, 4)], [9, 4], id="of a tuple, one is read"),
        pytest.param([run("sent", 0, 9), run("got", 1, 10)], [9, 10], id="it is only started"),
        pytest.param([run("got", 0, 9), run("loop", 4, 8)], [4, 8], id="a loop reads"),
        pytest.param([run("loop", 0, 9), run("d", 4, 8)], [4, 8], id="a loop is read"),
        pytest.param(
            [run("inner", 0, 9), run("twice", 2, 9), run("inner", 5, 7), run("twice", 7, 8)],
            [2, 9, 7, 8],
            id="each iteration",
        ),
        pytest.param([run("a", 0, 9, 0), run("b", 3, 4, 1)], [9, 4], id="another device"),
        pytest.param([run("a", 0, 9, 0, "m"), run("b", 3, 4, 0, "m")], [9, 4], id="another module"),
    ],
)
def test_ends(runs: list[Run], ends: list[float]) -> None:
    made = with_true_ends(runs, instructions_of(TEXT, None))
    assert [each.end for each in made] == ends
    assert [each._replace(end=0) for each in made] == [each._replace(end=0) for each in runs]


def test_modules_of_one_name_that_differ() -> None:
    """A run of `a` may be of either module: only where they agree is its reader known."""
    other = TEXT.replace("exponential(%view)", "exponential(%x)").replace(
        "all-reduce-start(%a)", "all-reduce-start(%x)"
    )
    tables = instructions_of(f"{TEXT}\n{other}", None)
    runs = [run("a", 0, 9), run("b", 3, 4), run("inner", 5, 9), run("twice", 6, 8)]
    assert [each.end for each in with_true_ends(runs, tables)] == [9, 4, 6, 8]
