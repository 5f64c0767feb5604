"""`fit` in several processes, and its restarts."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

import graphc as gc
from tests.cluster.launched import SCRIPTS, Ended, launched

TRAINING = SCRIPTS / "training.py"


def trained(folder: Path, *harm: object, cache: Path, options: tuple[object, ...] = ()) -> Ended:
    """Two processes that train; those that harm themselves are started again."""
    ended = launched("-n", 2, "--devices", 1, *options, TRAINING, "--", folder, *harm, cache=cache)
    assert ended.status == 0, ended.errors
    return ended


@pytest.mark.slow
def test_what_ends_a_process_does_not_change_the_result(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    undisturbed = trained(tmp_path / "undisturbed", cache=cache)
    result = undisturbed.results(0)
    assert len(result) == 1
    assert undisturbed.results(1) == result
    for harm in ("kill", "fail", "stop"):
        options = ("--restarts", 2, "--silence", 15, "--grace", 2)
        ended = trained(tmp_path / harm, harm, 25, cache=cache, options=options)
        assert "restart 1 of 2" in ended.errors
        assert [ended.results(worker) for worker in (0, 1)] == [result, result]
        # The chief alone has written the log, and each step has one row.
        log = (tmp_path / harm / "log.csv").read_text()
        assert log == (tmp_path / "undisturbed" / "log.csv").read_text()


@pytest.mark.slow
def test_a_signal_to_one_process_ends_all_after_the_same_step(tmp_path: Path) -> None:
    undisturbed = trained(tmp_path / "undisturbed", cache=tmp_path / "cache")
    folder = tmp_path / "end"
    options = ("-n", 2, "--devices", 1, "--silence", 15, TRAINING, "--", folder)
    ended = launched(*options, "end", 25, cache=tmp_path / "cache")
    assert ended.status == 128 + signal.SIGTERM, ended.errors
    last = gc.train.Checkpointer(folder).latest()
    assert last is not None and last >= 25
    assert trained(folder, cache=tmp_path / "cache").results(0) == undisturbed.results(0)


@pytest.mark.slow
def test_all_write_pieces_after_the_same_step(tmp_path: Path) -> None:
    """The clocks of the processes differ, and the chief alone writes the best checkpoint."""
    script = SCRIPTS / "saving.py"
    ended = launched("-n", 2, "--silence", 30, script, "--", tmp_path, cache=tmp_path / "cache")
    assert ended.status == 0, ended.errors
    assert len(gc.train.Checkpointer(tmp_path).steps()) >= 2  # one of them is the last
    assert gc.train.Checkpointer(tmp_path / "best").steps() == [40]
