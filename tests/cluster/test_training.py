"""`fit` in several processes, and its restarts."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

import graphc as gc
from tests.cluster.launched import SCRIPTS, Ended, launched
from tests.reliability import cluster_faults

TRAINING = SCRIPTS / "training.py"


def trained(folder: Path, *harm: object, cache: Path, options: tuple[object, ...] = ()) -> Ended:
    """Runs two processes that train; processes that fail on purpose are started again."""
    ended = launched("-n", 2, "--devices", 1, *options, TRAINING, "--", folder, *harm, cache=cache)
    assert ended.status == 0, ended.errors
    return ended


JOB = Path(cluster_faults.__file__).with_name("cluster_job.py")


def result_of(ended: Ended, worker: int = 0) -> tuple[str, float, int]:
    """The digest of the parameters, the last loss and the number of processes at the end."""
    digest, loss, size = ended.results(worker)[-1].split()
    return digest, float(loss), int(size)


@pytest.mark.slow
def test_another_number_of_processes_goes_on(tmp_path: Path) -> None:
    """The batches stay the same, so the loss equals that of the undisturbed job up to rounding."""
    cache, options = tmp_path / "cache", ("-n", 2, "--devices", 1)
    (tmp_path / "alone").mkdir()
    alone = launched(*options, JOB, "--", tmp_path / "alone", 150, cache=cache)
    _, wanted, size = result_of(alone)
    assert size == 2
    fewer = tmp_path / "fewer"
    fewer.mkdir()
    (fewer / "raise-1").touch()
    ended = launched(*options, "--restarts", 1, "--least", 1, JOB, "--", fewer, 150, cache=cache)
    assert ended.status == 0, ended.errors
    assert "2 -> 1 processes: without those that failed" in ended.errors
    _, loss, size = result_of(ended)
    assert size == 1 and loss == pytest.approx(wanted, rel=1e-9)
    folder, number = tmp_path / "more", tmp_path / "number"
    number.write_text("1")
    job = cluster_faults.Launched(folder, 400, "--size-file", number)
    job.wait_for_steps(30, ranks=1)
    number.write_text("2")
    (digest,) = job.result()
    assert digest.endswith(" 2")
    assert any("1 -> 2 processes" in line for line in job.said)
    begun = [int(line.split()[0]) for line in (folder / "resumed-0").read_text().splitlines()]
    assert begun[0] == 0 and begun[1] >= 30  # from the checkpoint of the common last step


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
    """The clocks of the processes differ, and only the chief writes the best checkpoint."""
    script = SCRIPTS / "saving.py"
    ended = launched("-n", 2, "--silence", 30, script, "--", tmp_path, cache=tmp_path / "cache")
    assert ended.status == 0, ended.errors
    assert len(gc.train.Checkpointer(tmp_path).steps()) >= 2  # one of them is the last step
    assert gc.train.Checkpointer(tmp_path / "best").steps() == [40]
