"""The instructions that run at the same time share this time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphc.reports.attribution import attribute
from graphc.reports.xplane import Mark, Run


def run(name: str, start: float, end: float, device: int = 0) -> Run:
    return Run("m", name, device, 1e9 * start, 1e9 * end, "thread")


def shared(runs: list[Run], *steps: tuple[float, float]) -> dict[str, float]:
    marks = [Mark("graphc.step", 1e9 * a, 1e9 * b) for a, b in steps or [(0, 10)]]
    times = attribute(
        sorted(runs, key=lambda r: r.start), marks, lambda r: r.instruction.startswith("while")
    )
    found = {name: round(seconds, 9) for (_, name), seconds in times.seconds.items()}
    return {**found, "idle": round(times.idle, 9)}


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        pytest.param([], {"idle": 10}, id="nothing"),
        pytest.param([run("a", 1, 3), run("b", 4, 5)], {"a": 2, "b": 1, "idle": 7}, id="in turn"),
        pytest.param([run("a", 0, 4), run("b", 2, 6)], {"a": 3, "b": 3, "idle": 4}, id="overlap"),
        pytest.param(
            [run("a", 0, 6, device=i) for i in range(3)], {"a": 6, "idle": 4}, id="three devices"
        ),
        pytest.param(
            [run("while.1", 0, 8), run("a", 1, 3), run("a", 4, 6)],
            {"a": 4, "while.1": 4, "idle": 2},
            id="a loop",
        ),
        pytest.param(
            [run("while.1", 0, 9), run("while.2", 2, 6), run("a", 3, 5)],
            {"a": 2, "while.2": 2, "while.1": 5, "idle": 1},
            id="a loop in a loop",
        ),
        pytest.param([run("a", 8, 20)], {"a": 2, "idle": 8}, id="beyond the step"),
        pytest.param([run("a", 12, 20)], {"idle": 10}, id="outside the step"),
        pytest.param([run("a", 3, 3)], {"idle": 10}, id="no time at all"),
    ],
)
def test_shares(runs: list[Run], expected: dict[str, float]) -> None:
    assert {name: time for name, time in shared(runs).items() if time} == expected


def test_time_between_steps_does_not_count() -> None:
    runs = [run("a", 0, 1), run("b", 2, 3), run("a", 4, 6)]
    assert shared(runs, (0, 2), (3.5, 7)) == {"a": 3, "idle": 2.5}


def test_counts_are_of_one_device() -> None:
    runs = [run("a", t, t + 1, device=d) for t in (0, 2, 4) for d in range(4)] + [run("b", 7, 8)]
    times = attribute(sorted(runs, key=lambda r: r.start), [Mark("", 0, 1e10)], lambda r: False)
    assert times.runs == {("m", "a"): 3, ("m", "b"): 1}


spans = st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.integers(0, 5), st.integers(0, 2))


@given(st.lists(spans, max_size=20))
def test_sum_is_the_time_in_which_anything_runs(rows: list[tuple[str, int, int, int]]) -> None:
    runs = [run(name, start, start + length, device) for name, start, length, device in rows]
    busy = {t for _, start, length, _ in rows for t in range(start, start + length) if t < 10}
    found = shared(runs)
    assert found.pop("idle") == pytest.approx(10 - len(busy), abs=1e-6)
    assert sum(found.values()) == pytest.approx(len(busy), abs=1e-6)
