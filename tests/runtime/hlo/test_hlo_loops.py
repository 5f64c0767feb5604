"""How often the kernels in loops, branches and calls count."""

import pytest

from tests.runtime.hlo_snippets import (
    KNOWN,
    LOOP,
    LOOP_ENTRY,
    cost,
    loop,
)


def test_a_loop_counts_as_often_as_it_runs() -> None:
    found = loop(bound=1000, config=KNOWN)  # the recorded trip count takes precedence over `bound`
    assert found.matrix_flops == {"tf32": 24 * 2 * 8 * 16 * 16}
    assert found.kernels == 1 + 24 * 3  # a copy; product, counter and condition in each iteration
    assert found.bytes_accessed == 8 + 24 * (4 * (8 * 16 * 2 + 16 * 16) + 12 + 9)
    assert not found.notes


@pytest.mark.parametrize(("start", "bound", "trips"), [(0, 24, 24), (4, 24, 20), (30, 24, 0)])
def test_a_counter_tells_the_iterations(start: int, bound: int, trips: int) -> None:
    assert loop(start, bound).matrix_flops.get("tf32", 0) == trips * 2 * 8 * 16 * 16


def test_a_counter_may_take_larger_steps() -> None:
    changed = LOOP.replace("BOUND", "24").replace(
        "%one = s32[] constant(1)", "%one = s32[] constant(5)"
    )
    found = cost(LOOP_ENTRY.replace("START", "0"), changed)
    assert found.matrix_flops == {"tf32": 5 * 2 * 8 * 16 * 16}


def test_an_unknown_number_of_iterations_is_noted() -> None:
    found = loop(LT="GT")
    assert found.matrix_flops == {"tf32": 2 * 8 * 16 * 16}
    assert found.notes == ("the number of iterations of while.5 is not known: counted once",)


def test_loops_in_loops() -> None:
    inner = LOOP.replace("BOUND", "24").replace(
        "ROOT %tuple = ",
        "%w5 = (s32[], f32[8,16], f32[16,16]) while(%arg), condition=%c2, body=%b2"
        ', backend_config={"known_trip_count":{"n":"3"}}\n  ROOT %tuple = ',
    )
    extra = """
%c2 (arg: (s32[], f32[8,16], f32[16,16])) -> pred[] {
  %arg = (s32[], f32[8,16], f32[16,16]) parameter(0)
  ROOT %true = pred[] constant(true)
}

%b2 (arg: (s32[], f32[8,16], f32[16,16])) -> (s32[], f32[8,16], f32[16,16]) {
  %arg = (s32[], f32[8,16], f32[16,16]) parameter(0)
  %x = f32[8,16] get-tuple-element(%arg), index=1
  %y = f32[8,16] copy(%x)
  ROOT %t = (s32[], f32[8,16], f32[16,16]) tuple(%y, %y, %y)
}
"""
    found = cost(LOOP_ENTRY.replace("START", "0"), extra + inner)
    assert found.kernels == 1 + 24 * (3 + 3)


BRANCHES = """
%cheap (x: f32[64,64]) -> f32[64,64] {
  %x = f32[64,64] parameter(0)
  ROOT %n = f32[64,64] negate(%x)
}

%dear (x: f32[64,64]) -> f32[64,64] {
  %x = f32[64,64] parameter(0)
  ROOT %d = f32[64,64] dot(%x, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


@pytest.mark.parametrize(
    "branches",
    [
        "branch_computations={%cheap, %dear, %cheap}",
        "true_computation=%dear, false_computation=%cheap",
        "true_computation=%cheap, false_computation=%dear",
    ],
)
def test_a_conditional_counts_as_its_costliest_branch(branches: str) -> None:
    found = cost(
        f"""
        %x = f32[64,64] parameter(0)
        %i = s32[] parameter(1)
        ROOT %c = f32[64,64] conditional(%i, %x, %x, %x), {branches}
        """,
        BRANCHES,
    )
    assert (found.matrix_flops, found.kernels) == ({"tf32": 2 * 64**3}, 1)


def test_calls_count_as_what_they_call() -> None:
    entry = "%x = f32[64,64] parameter(0)\nROOT %c = f32[64,64] call(%x), to_apply=%cheap"
    assert cost(entry, BRANCHES).vector_flops == 64 * 64


def test_asynchronous_kernels_count_once() -> None:
    found = cost(
        """
        %x = f32[64,64] parameter(0)
        %s = ((f32[64,64]), f32[64,64], u32[]) fusion-start(%x), kind=kLoop, calls=%cheap
        %d = f32[64,64] fusion-done(%s)
        %cs = (f32[64,64], f32[64,64], u32[]) copy-start(%d)
        ROOT %cd = f32[64,64] copy-done(%cs)
        """,
        BRANCHES,
    )
    assert (found.kernels, found.vector_flops) == (2, 64 * 64)
    assert found.bytes_accessed == 4 * 64 * 64 * 4
