"""Random pipelines: items equal those of plain Python, and every position can be restored."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.data.reference_pipeline import ENOUGH, Plan, build, plain, plans, reference

FEW = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
MANY = settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("lines"))


def items_of(iterator: Any, n: int = ENOUGH) -> list[Any]:
    return [plain(item) for item in islice(iterator, n)]


def check(plan: Plan, taken: int, folder: str) -> None:
    pipeline = build(plan, folder)
    want = list(islice(reference(plan)(0), 3 * ENOUGH))
    with iter(pipeline) as items:
        assert items_of(items, taken) == want[:taken]
        state = items.state()
        assert state["count"] == min(taken, len(want))
    for copied in (json.loads(json.dumps(state)), pickle.loads(pickle.dumps(state))):
        with iter(pipeline) as again:
            again.restore(copied)
            first = items_of(again, 3)
            second = json.loads(json.dumps(again.state()))
            assert first == want[taken : taken + 3]
        with iter(pipeline) as later:  # a state after a restored state
            later.restore(second)
            assert items_of(later) == want[taken + 3 : taken + 3 + ENOUGH]
    if pipeline.count is not None:
        assert pipeline.count == len(want) or len(want) == 3 * ENOUGH


@FEW
@given(plans(), st.integers(0, 30))
def test_a_random_pipeline(folder: str, plan: Plan, taken: int) -> None:
    check(plan, taken, folder)


@pytest.mark.slow
@MANY
@given(plans(), st.integers(0, 60))
def test_many_random_pipelines(folder: str, plan: Plan, taken: int) -> None:
    check(plan, taken, folder)


OTHER_PROCESS = """
import json, sys
from tests.data.reference_pipeline import build, plain
from itertools import islice

for line in sys.stdin:
    plan, folder, state, n = json.loads(line)
    with iter(build(plan, folder)) as items:
        items.restore(state)
        print(json.dumps([plain(item) for item in islice(items, n)]))
"""


@pytest.mark.slow
def test_positions_of_random_pipelines_in_a_fresh_process(folder: str) -> None:
    cases: list[Any] = []

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(plans(), st.integers(0, 40))
    def collect(plan: Plan, taken: int) -> None:
        with iter(build(plan, folder)) as items:
            items_of(items, taken)
            state = items.state()
            cases.append((plan, state, items_of(items)))

    collect()
    lines = "\n".join(json.dumps([plan, folder, state, ENOUGH]) for plan, state, _ in cases)
    done = subprocess.run(
        [sys.executable, "-c", OTHER_PROCESS],
        input=lines,
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    got = [json.loads(line) for line in done.stdout.splitlines()]
    assert got == [rest for _, _, rest in cases]
