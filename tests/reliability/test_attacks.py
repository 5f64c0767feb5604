"""The attacks of docs/reliability.md: few rounds by default, all with `pytest --long`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.reliability import (
    cluster_faults,
    feeds,
    forged_files,
    interrupts,
    meshes,
    server_attack,
    server_soak,
    soak,
    threads,
)

Rounds = Callable[[int, int], int]
REPOSITORY = Path(__file__).parents[2]


@pytest.mark.slow
def test_interrupts_leave_the_state_of_a_whole_step(rounds: Rounds) -> None:
    number = rounds(100, 2_000)
    tally = interrupts.attack_all(number, seed=0, each=number > 100)
    print(tally)
    assert (tally["lost"], tally["crashes"], tally["hangs"]) == (0, 0, 0)
    assert tally["rounds"] >= number - len(interrupts.FORMS)


@pytest.mark.slow
def test_work_that_was_interrupted_succeeds_afterwards(rounds: Rounds) -> None:
    """In a process of its own: a trace that is broken off can break JAX for good."""
    number = rounds(50, 2_000)
    done = subprocess.run(
        [sys.executable, "-m", "tests.reliability.interrupted_work", str(number), "0"],
        cwd=REPOSITORY,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    tally = json.loads(done.stdout)
    print(tally, done.stderr)
    assert (tally["rounds"], tally.get("errors"), tally.get("broken")) == (number, None, None)


@pytest.mark.slow
def test_threads_see_whole_steps_only(rounds: Rounds) -> None:
    number = rounds(2_000, 100_000)
    tally = threads.attack_all(number, seed=0, each=number > 2_000)
    print(tally)
    assert [tally[name] for name in ("torn", "lost", "errors", "crashes", "hangs")] == [0] * 5
    assert tally["rounds"] >= number - threads.THREADS * len(threads.FORMS)


@pytest.mark.slow
@pytest.mark.one_jax
def test_killed_writers_leave_whole_files_or_none(rounds: Rounds, tmp_path: Path) -> None:
    number = rounds(5, 200)
    done = subprocess.run(
        [sys.executable, "-m", "tests.reliability.kills", str(number), "0", str(tmp_path)],
        cwd=REPOSITORY,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    tally = json.loads((tmp_path / "tally.json").read_text())
    print(json.dumps(tally))
    assert sum(counts["rounds"] for counts in tally.values()) >= number
    for kind, counts in tally.items():
        assert counts["rounds"] == counts.get("whole", 0) + counts.get("nothing", 0), (kind, counts)
        assert "victims that failed" not in counts, done.stderr


@pytest.mark.slow
@pytest.mark.one_jax
def test_a_job_that_is_ended_again_and_again(rounds: Rounds, tmp_path: Path) -> None:
    """The job runs for 30 seconds, or 30 minutes: no data is lost, and memory does not grow."""
    done = subprocess.run(
        [sys.executable, soak.__file__, str(rounds(1, 60) / 2), "7", str(tmp_path)],
        cwd=REPOSITORY,
        env=os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    tally = json.loads(done.stdout.splitlines()[-1])
    print(tally)
    assert tally["same"] and tally["one curve"] and tally["SIGTERM"] + tally["SIGKILL"] >= 3
    assert max(tally["memory, disturbed"]["mb"], tally["memory, undisturbed"]["mb"]) < 50


@pytest.mark.slow
@pytest.mark.one_jax
def test_faults_of_a_cluster(rounds: Rounds, tmp_path: Path) -> None:
    number = rounds(5, 50)
    tally = cluster_faults.attack_all(number, 0, tmp_path)
    print(json.dumps(tally))
    assert sum(tally["faults"].values()) == number
    assert tally["same parameters"] and tally["same log"]
    assert tally["repeated steps"] <= 2 * tally["checkpoint every"]
    failures = number - tally["faults"]["slow"]
    assert len(tally["seconds to the next step"]) == failures


@pytest.mark.slow
def test_forged_files_do_no_harm(rounds: Rounds) -> None:
    tally = forged_files.attack(rounds(500, 10_000), seed=0)
    print(tally)
    assert tally.told == []
    assert tally.rounds == rounds(500, 10_000)
    assert tally.kinds.keys() == {name for name, _ in forged_files.KINDS}
    for kind, seen in tally.kinds.items():  # each kind passes the checksums, or is refused
        assert seen["refused"] + seen["same"] + seen["another"] > 0, kind
    assert tally.outcomes["refused"] > tally.rounds / 5
    assert tally.outcomes["same"] > tally.rounds / 20


def test_values_are_kept_or_refused(rounds: Rounds) -> None:
    tally = feeds.attack_values(rounds(3_000, 40_000), seed=0)
    print(tally)
    assert tally.silent == tally.raw == tally.needless == 0
    assert tally.kept + tally.refused == tally.rounds
    assert min(tally.kept, tally.refused) > tally.rounds // 10


def test_results_do_not_follow_later_writes(rounds: Rounds) -> None:
    tally = feeds.attack_memory(rounds(200, 4_000), seed=0)
    print(tally)
    assert tally.wrong == 0
    assert tally.rounds >= 200


@pytest.mark.slow
def test_random_programs_on_meshes(rounds: Rounds) -> None:
    tally = meshes.attack(rounds(3, 500), seed=0)
    print(tally)
    assert tally.compared > tally.programs
    assert not tally.wrong
    assert not tally.refused
    assert not tally.crashed


@pytest.mark.slow
def test_malformed_requests(rounds: Rounds, tmp_path: Path) -> None:
    number = rounds(400, 100_000)
    tally = server_attack.attack(number, 0, tmp_path, parts=rounds(2, 10))
    print(json.dumps(tally))
    assert tally["requests"] >= number
    assert (tally["wrong"], tally["crashes"], tally["stderr"]) == ([], 0, "")
    kinds = tally["kinds"]
    assert kinds["valid"].keys() == {"200"} and kinds["gRPC valid"].keys() == {"OK"}
    assert max(tally["files"]) <= 25 and max(tally["threads"]) < 80
    assert max(tally["lines of metrics"]) < 1_500
    assert number < 100_000 or tally["growth MB"] < 15


@pytest.mark.slow
def test_a_server_with_new_and_damaged_versions(rounds: Rounds, tmp_path: Path) -> None:
    """Some versions, or 30 minutes of them: no request fails, and memory does not grow."""
    minutes, seconds = rounds(0, 30), rounds(0, 5)
    tally = server_soak.attack(minutes, tmp_path, rest=float(seconds))
    print(json.dumps(tally))
    assert tally["wrong"] == [] and tally["exit"] == 0
    assert tally["requests"] > 0 and tally["versions"] >= 3 and tally["damaged"] >= 1
    assert not minutes or tally["growth MB"] < 10
