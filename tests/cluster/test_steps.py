"""Steps over the devices of several processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cluster.launched import SCRIPTS, launched
from tests.near import assert_near

STEPS = SCRIPTS / "steps.py"


def results(processes: int, devices: int, cache: Path, *arguments: object) -> list[dict[str, Any]]:
    """The results of each process."""
    ended = launched("-n", processes, "--devices", devices, STEPS, "--", *arguments, cache=cache)
    assert ended.status == 0, ended.errors
    return [json.loads(ended.results(worker)[0]) for worker in range(processes)]


def check_one_result(found: list[dict[str, Any]], alone: dict[str, Any]) -> None:
    """Checks that all processes have the state and losses of one process. Each process gets its own
    rows; on a mesh, each gets all rows."""
    assert len({one["digest"] for one in found}) == 1
    assert all(one["losses"] == found[0]["losses"] for one in found)
    assert_near(found[0]["losses"], alone["losses"], rtol=1e-9)
    assert_near(list(found[0]["sums"].values()), list(alone["sums"].values()), rtol=1e-9)
    rows = [one["rows"] for one in found]
    if len(rows[0]) == len(alone["rows"]):
        assert all(own == rows[0] for own in rows)
        assert_near(rows[0], alone["rows"], rtol=1e-8)
    else:
        assert_near(np.concatenate(rows), alone["rows"], rtol=1e-8)
    assert all(one["kernel"] == one["sums"]["dense/kernel"] for one in found)


@pytest.mark.slow
def test_two_processes_train_as_one_does(tmp_path: Path) -> None:
    (alone,) = results(1, 2, tmp_path / "one", 3)
    check_one_result(results(2, 1, tmp_path / "two", 3), alone)


@pytest.mark.slow
def test_any_number_of_processes_trains_as_one_does(tmp_path: Path) -> None:
    (alone,) = results(1, 4, tmp_path / "one", 200)
    for processes in (2, 4):
        cache = tmp_path / str(processes)
        found = results(processes, 4 // processes, cache, 200)
        check_one_result(found, alone)
        again = results(processes, 4 // processes, cache, 200)
        assert [one["digest"] for one in again] == [one["digest"] for one in found]
        assert all(all(one["cached"]) for one in again)  # nothing was compiled


@pytest.mark.slow
def test_slots_in_pieces_over_processes(tmp_path: Path) -> None:
    (alone,) = results(1, 2, tmp_path / "one", 20)
    check_one_result(results(2, 1, tmp_path / "two", 20, "shard"), alone)


@pytest.mark.slow
def test_parameters_in_pieces_over_processes(tmp_path: Path) -> None:
    (alone,) = results(1, 2, tmp_path / "one", 20)
    check_one_result(results(2, 1, tmp_path / "two", 20, "parameters"), alone)


@pytest.mark.slow
def test_a_mesh_over_two_processes(tmp_path: Path) -> None:
    """Each process feeds half of the rows and stores half of each layer."""
    (alone,) = results(1, 4, tmp_path / "one", 3, "2x2")
    found = results(2, 2, tmp_path / "two", 3, "2x2")
    check_one_result(found, alone)
    assert [one["part"] for one in found] == [[0, 2], [1, 2]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processes", "grid", "parts"),
    [
        (2, "1x4", [[0, 1], [0, 1]]),  # the layers are sharded, and both processes feed all rows
        (4, "2x2", [[0, 2], [0, 2], [1, 2], [1, 2]]),
    ],
)
def test_meshes_of_any_form_over_processes(
    processes: int, grid: str, parts: list[list[int]], tmp_path: Path
) -> None:
    (alone,) = results(1, 4, tmp_path / "one", 200, grid)
    found = results(processes, 4 // processes, tmp_path / "several", 200, grid)
    check_one_result(found, alone)
    assert [one["part"] for one in found] == parts
    again = results(processes, 4 // processes, tmp_path / "several", 200, grid)
    assert [one["digest"] for one in again] == [one["digest"] for one in found]
    assert all(all(one["cached"]) for one in again)  # nothing was compiled
