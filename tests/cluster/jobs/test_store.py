"""The store of jobs: transitions, order, several processes, damage."""

import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from graphc.cluster.jobs.records import ENDED, FAILED, QUEUED, RUNNING, STOPPED, SUCCEEDED
from graphc.cluster.jobs.spec import JobSpec
from graphc.cluster.jobs.store import Store
from graphc.errors import ClusterError, UnknownNameError

SPEC = JobSpec.of({"script": "train.py", "priority": 1})


@pytest.fixture
def store(tmp_path: Path):
    found = Store(tmp_path / "jobs.sqlite")
    yield found
    found.close()


def test_the_life_of_a_job(store: Store) -> None:
    number = store.submit("ann", SPEC, 10.0)
    assert store.get(number).state == QUEUED and store.get(number).spec == SPEC
    assert store.start(number, "0,1", 20.0) and not store.start(number, "2", 20.0)
    running = store.get(number)
    assert (running.state, running.gpus, running.starts) == (RUNNING, "0,1", 1)
    assert store.finish(number, SUCCEEDED, "", 30.0, 0)
    assert not store.finish(number, FAILED, "", 31.0)
    assert store.get(number).ended == 30.0 and store.get(number).gpus == ""


def test_stopping(store: Store) -> None:
    queued, running = store.submit("ann", SPEC, 0.0), store.submit("ann", SPEC, 0.0)
    store.start(running, "", 1.0)
    for number in (queued, running):
        store.stop(number, 2.0)
    assert store.get(queued).state == STOPPED
    assert (store.get(running).state, store.get(running).wanted) == (RUNNING, "stop")
    store.finish(running, STOPPED, "stopped", 3.0)
    with pytest.raises(ClusterError, match="has already ended: stopped"):
        store.stop(running, 4.0)


def test_restart_and_resume(store: Store) -> None:
    number = store.submit("ann", SPEC, 0.0)
    with pytest.raises(ClusterError, match="has not ended"):
        store.again(number, 1.0, fresh=True)
    for state, fresh, run in zip(ENDED, (False, True, True), (1, 2, 3), strict=True):
        store.start(number, "", 1.0)
        store.finish(number, state, "why", 2.0, 1)
        store.again(number, 3.0, fresh=fresh)
        found = store.get(number)
        starts = 0 if fresh else 1  # a resumed start already has its files
        assert (found.state, found.run, found.starts, found.reason) == (QUEUED, run, starts, "")
        assert (found.ended, found.exit, found.queued) == (None, None, 3.0)


def test_a_lost_job_keeps_its_place(store: Store) -> None:
    first, second = store.submit("ann", SPEC, 0.0), store.submit("bob", SPEC, 1.0)
    store.start(first, "", 2.0)
    store.put_back(first, "lost")
    assert [record.id for record in store.active(QUEUED)] == [first, second]
    store.start(first, "", 2.0)
    store.put_back(first, "never started", lost=False)
    assert (store.get(first).starts, store.get(first).losses) == (2, 1)
    store.finish(first, FAILED, "", 3.0)
    store.again(first, 4.0, fresh=False)
    assert (store.get(first).starts, store.get(first).losses) == (2, 0)


def test_lists(store: Store) -> None:
    ids = [store.submit(user, SPEC, float(i)) for i, user in enumerate(["ann", "bob"] * 3)]
    store.start(ids[4], "", 9.0)
    for number in ids[:2]:
        store.start(number, "", 9.0)
        store.finish(number, FAILED, "", 10.0, 1)
    assert [r.id for r in store.jobs()] == [ids[4], ids[2], ids[3], ids[5], ids[1], ids[0]]
    assert [r.id for r in store.jobs("bob", [QUEUED])] == [ids[3], ids[5]]
    assert [r.id for r in store.jobs(limit=2, before=ids[3])] == [ids[2], ids[1]]
    assert store.counts("ann") == {FAILED: 1, QUEUED: 1, RUNNING: 1}


def test_a_quota_of_waiting_jobs(store: Store) -> None:
    number = store.submit("ann", SPEC, 0.0, most=1)
    store.submit("bob", SPEC, 0.0, most=1)
    with pytest.raises(ClusterError, match="1 jobs of ann wait, and the quota is 1"):
        store.submit("ann", SPEC, 0.0, most=1)
    store.start(number, "", 1.0)
    store.finish(number, FAILED, "", 1.0)
    store.submit("ann", SPEC, 0.0, most=1)
    with pytest.raises(ClusterError, match="the quota is 1"):
        store.again(number, 2.0, fresh=True, most=1)


def test_other_peoples_jobs_do_not_exist(store: Store) -> None:
    number = store.submit("ann", SPEC, 0.0)
    assert store.get(number, "ann").id == number
    for asked, user in ((number, "bob"), (number + 1, "ann"), (0, None)):
        with pytest.raises(UnknownNameError, match="there is no job"):
            store.get(asked, user)


def test_threads_write_at_the_same_time(store: Store) -> None:
    def write() -> None:
        for _ in range(20):
            store.submit("ann", SPEC, time.time())

    threads = [threading.Thread(target=write) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert store.counts() == {QUEUED: 80}


def test_each_change_is_noticed(tmp_path: Path, store: Store) -> None:
    other = Store(tmp_path / "jobs.sqlite")
    seen = {store.version()}
    number = other.submit("ann", SPEC, 0.0)
    seen.add(store.version())
    store.start(number, "", 1.0)
    seen.add(store.version())
    assert len(seen) == 3 and store.version() in seen
    other.close()


def test_a_store_that_cannot_be_written(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("graphc.cluster.jobs.store._WAIT", 0.05)
    store = Store(tmp_path / "jobs.sqlite")
    other = sqlite3.connect(tmp_path / "jobs.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(ClusterError, match="cannot be changed: database is locked"):
        store.submit("ann", SPEC, 0.0)
    other.execute("ROLLBACK")
    (pages,) = other.execute("PRAGMA page_count").fetchone()
    store._connection().execute(f"PRAGMA max_page_count = {pages}")  # as if the disk were full
    with pytest.raises(ClusterError, match="is full"):
        for _ in range(100):
            store.submit("ann", SPEC, 0.0)
    store._connection().execute("PRAGMA max_page_count = 100000")
    assert store.submit("ann", SPEC, 0.0) > 0
    other.close()
    store.close()


def test_files_that_are_not_stores(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sqlite"
    path.write_text("no database" * 1000)
    with pytest.raises(ClusterError, match="is not a store of jobs"):
        Store(path)
    with pytest.raises(ClusterError, match="is not a store of jobs"):
        Store(tmp_path / "missing" / "jobs.sqlite")
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(ClusterError, match="newer graphc"):
        Store(path)


@pytest.mark.slow
@pytest.mark.one_jax
def test_accepted_jobs_survive_kill_9(tmp_path: Path) -> None:
    """A process is killed while it submits: every job that it announced is in the store."""
    code = (
        "import sys, pathlib\n"
        "from graphc.cluster.jobs.spec import JobSpec\n"
        "from graphc.cluster.jobs.store import Store\n"
        "store = Store(pathlib.Path(sys.argv[1]))\n"
        "while True: print(store.submit('ann', JobSpec.of({'script': 'a.py'}), 0.0), flush=True)\n"
    )
    path = tmp_path / "jobs.sqlite"
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    told = [process.stdout.readline() for _ in range(30)]
    process.kill()
    told += process.stdout.read().splitlines()
    process.stdout.close()
    process.wait()
    store = Store(path)
    numbers = [int(line) for line in told if line.strip()]
    assert len(numbers) >= 30
    assert {record.id for record in store.active(QUEUED)} >= set(numbers[:-1])
    store.close()
