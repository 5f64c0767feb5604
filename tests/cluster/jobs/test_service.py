"""The service of a queue, with real shell processes."""

import os
import signal
import time
from pathlib import Path

import pytest

from graphc.cluster.jobs.capacity import Capacity
from graphc.cluster.jobs.processes import members
from graphc.cluster.jobs.roots import Roots
from graphc.cluster.jobs.runs import RunFolder
from graphc.cluster.jobs.scheduling import Quota
from graphc.cluster.jobs.spec import JobSpec, Need
from graphc.errors import AttributeValueError, ClusterError, GraphcError
from tests.cluster.jobs.helpers import (
    ended,
    log_of,
    script,
    service_of,
    serving,
    submit,
    until,
    use_shell,
)


@pytest.fixture(autouse=True)
def shell(monkeypatch: pytest.MonkeyPatch) -> None:
    use_shell(monkeypatch)


def test_a_job_runs(tmp_path: Path) -> None:
    script(tmp_path, 'echo "$GRAPHC_JOB $1 $(pwd)"; echo 1 > "$GRAPHC_OUTPUT_DIR/x"')
    with serving(tmp_path) as service:
        number = submit(service, parameters={"rate": 0.5})
        job = ended(service, number)
        assert (job.state, job.exit, job.reason) == ("succeeded", 0, "")
        assert log_of(service, number) == f"{number} --rate=0.5 {tmp_path}\n"
        assert (service.folder / f"jobs/{number}/run-1/outputs/x").exists()


def test_a_job_fails(tmp_path: Path) -> None:
    script(tmp_path, "exit 3")
    script(tmp_path, "kill -9 $$", "killed.py")
    with serving(tmp_path) as service:
        job = ended(service, submit(service))
        assert (job.state, job.exit, job.reason) == ("failed", 3, "it ended with exit status 3")
        job = ended(service, submit(service, script="killed.py"))
        assert (job.state, job.reason) == ("failed", "it was ended by SIGKILL")


def test_the_environment_keeps_secrets(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("GRAPHC_TOKEN", "a-token-123")
    script(tmp_path, "env")
    with serving(tmp_path) as service:
        number = submit(service)
        ended(service, number)
        assert "a-token-123" not in log_of(service, number)
        assert f"GRAPHC_JOB={number}\n" in log_of(service, number)


def test_jobs_wait_for_each_other(tmp_path: Path) -> None:
    script(tmp_path, 'while [ ! -e "$1" ]; do sleep 0.02; done')
    go = tmp_path / "go"
    with serving(tmp_path) as service:
        first, second, third = (
            submit(service, processes=n, arguments=[str(go)]) for n in (3, 2, 1)
        )
        until(service, lambda: service.store.get(first).state == "running")
        for _ in range(5):
            service.tick()
        # The third job passes the second one: both fit once the first job has ended.
        assert service.store.get(second).state == "queued"
        assert service.store.get(third).state == "running"
        go.touch()
        assert {ended(service, n).state for n in (first, second, third)} == {"succeeded"}
        assert service.store.get(second).started >= service.store.get(first).ended


def test_each_job_has_gpus_of_its_own(tmp_path: Path) -> None:
    script(tmp_path, 'echo "$CUDA_VISIBLE_DEVICES"; while [ ! -e go ]; do sleep 0.02; done')
    capacity = Capacity(Need(8, 4, 1 << 40), ("4", "5", "6", "GPU-7"))
    with serving(tmp_path, capacity=capacity) as service:
        jobs = [submit(service, devices=2), submit(service, processes=2), submit(service)]
        until(service, lambda: len(service.store.active("running")) == 2)
        (tmp_path / "go").touch()
        assert all(ended(service, number).state == "succeeded" for number in jobs)
        first, second, third = (log_of(service, number).strip() for number in jobs)
        assert (first, second) == ("4,5", "6,GPU-7") and third in ("4", "6")  # from the first ended


def test_stopping(tmp_path: Path) -> None:
    script(tmp_path, "echo ready; exec sleep 60")
    with serving(tmp_path) as service:
        number = submit(service)
        until(service, lambda: (service.folder / "jobs/1/run-1/log.txt").exists())
        until(service, lambda: "ready" in log_of(service, number))
        service.store.stop(number, time.time())
        job = ended(service, number)
        assert (job.state, job.exit) == ("stopped", 128 + signal.SIGTERM)


def test_stopping_before_the_command_has_begun(tmp_path: Path) -> None:
    script(tmp_path, "exec sleep 60")
    with serving(tmp_path) as service:
        for _ in range(5):
            number = submit(service)
            service.tick()
            service.store.stop(number, time.time())
            began = time.monotonic()
            assert ended(service, number).state == "stopped"
            assert time.monotonic() - began < 5


def test_what_ignores_sigterm_is_killed(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("graphc.cluster.jobs.service._PATIENCE", 0.2)
    script(tmp_path, "trap '' TERM; echo ready; setsid sleep 61 & sleep 62")
    with serving(tmp_path) as service:
        number = submit(service, grace=0.2)
        until(service, lambda: (service.folder / "jobs/1/run-1/log.txt").exists())
        until(service, lambda: "ready" in log_of(service, number))
        token = f"{RunFolder(service.folder, number, 1).path}:1"
        until(service, lambda: len(members([token])[token]) >= 3)
        service.store.stop(number, time.time())
        assert ended(service, number).state == "stopped"
        assert members([token])[token] == []


def test_what_a_job_leaves_behind_is_killed(tmp_path: Path) -> None:
    """A leftover process may hold devices."""
    script(tmp_path, "setsid sleep 61 & sleep 0.1; exit 0")
    with serving(tmp_path) as service:
        number = submit(service)
        token = f"{RunFolder(service.folder, number, 1).path}:1"
        until(service, lambda: len(members([token])[token]) >= 3)
        assert ended(service, number).state == "succeeded"
        assert members([token])[token] == []


def test_time_limits_and_deadlines(tmp_path: Path) -> None:
    script(tmp_path, "exec sleep 60")
    with serving(tmp_path, devices=1) as service:
        limited = submit(service, time_limit=0.2)
        late = submit(service, deadline=0.3)
        job = ended(service, limited)
        assert (job.state, job.reason) == ("failed", "it ran longer than its time limit")
        assert "deadline" in ended(service, late).reason
        both = submit(service, deadline=0.2)
        until(service, lambda: service.store.get(both).state == "running")
        assert "deadline" in ended(service, both).reason


def test_a_deadline_in_the_queue(tmp_path: Path) -> None:
    now = [1000.0]
    service = service_of(tmp_path, devices=1, clock=lambda: now[0])
    script(tmp_path, "exec sleep 60")
    submit(service)
    service.tick()
    waits = service.store.submit("ann", JobSpec.of({"script": "job.py", "deadline": 50}), now[0])
    for second in (1001.0, 1049.0):
        now[0] = second
        service.tick()
        assert service.store.get(waits).state == "queued"
    now[0] = 1050.0
    service.tick()
    job = service.store.get(waits)
    assert (job.state, job.started) == ("failed", None)
    service.store.stop(1, now[0])
    until(service, lambda: not service.store.active("running"))
    service.close()


def test_memory(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("graphc.cluster.jobs.service._MEMORY_TURN", 0.0)
    python = os.path.realpath("/proc/self/exe")
    code = "x = b'1' * (60 << 20); import time; time.sleep(60)"
    script(tmp_path, f'GRAPHC_LAUNCHER=1 exec {python} -c "{code}"')
    with serving(tmp_path) as service:
        small, large = submit(service, memory="30MiB"), submit(service, memory="1GiB")
        job = ended(service, small)
        assert (job.state, job.reason) == ("failed", "it used more than its memory, 30 MiB")
        assert service.store.get(large).state == "running"


def test_a_log_without_an_end(tmp_path: Path) -> None:
    script(tmp_path, "while true; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; done")
    with serving(tmp_path, most_log=100_000) as service:
        job = ended(service, submit(service, grace=1))
        assert (job.state, job.reason) == ("failed", "its log has more than 97.66 KiB")


def test_restart_and_resume(tmp_path: Path) -> None:
    script(tmp_path, 'ls "$GRAPHC_CHECKPOINT_DIR"; touch "$GRAPHC_CHECKPOINT_DIR/$(date +%N)"; '
           'sleep 0.1; exit 3')  # fmt: skip
    with serving(tmp_path) as service:
        number = submit(service)
        for fresh, lines in ((False, 1), (False, 3), (True, 0), (False, 1)):
            before = ended(service, number).started
            service.store.again(number, time.time(), fresh=fresh)
            job = ended(service, number)
            assert job.exit == 3 and job.ended - job.started >= 0.1 and job.started > before
            assert len(log_of(service, number).split()) == lines


# -- the end of the service ------------------------------------------------------------------------


def test_the_next_service_finds_the_jobs(tmp_path: Path) -> None:
    script(tmp_path, 'while [ ! -e go ]; do sleep 0.02; done; exit "$1"')
    before = service_of(tmp_path)
    good, bad = submit(before, arguments=[0]), submit(before, arguments=[5])
    until(before, lambda: len(before.store.active("running")) == 2)
    before.close()
    with serving(tmp_path) as service:
        for _ in range(5):
            service.tick()
        assert len(service.store.active("running")) == 2
        (tmp_path / "go").touch()
        assert (ended(service, good).exit, ended(service, bad).exit) == (0, 5)
        assert service.store.get(good).starts == 1


def test_jobs_that_ended_meanwhile(tmp_path: Path) -> None:
    script(tmp_path, "while [ ! -e go ]; do sleep 0.02; done; exit 4")
    before = service_of(tmp_path)
    number = submit(before)
    until(before, lambda: before.store.active("running"))
    before.close()
    (tmp_path / "go").touch()
    exit_file = tmp_path / "queue/jobs/1/run-1/exit-1"
    end = time.monotonic() + 20
    while not exit_file.exists() and time.monotonic() < end:
        time.sleep(0.02)
    with serving(tmp_path) as service:
        service.tick()
        assert service.store.get(number).exit == 4


@pytest.mark.parametrize("restarts", [0, 1])
def test_jobs_that_were_lost(tmp_path: Path, restarts: int) -> None:
    """After a restart of the machine, for example, none of the processes exists."""
    script(tmp_path, 'if [ -e "$GRAPHC_CHECKPOINT_DIR/x" ]; then exit 0; fi; '
           'touch "$GRAPHC_CHECKPOINT_DIR/x"; kill -9 $PPID; kill -9 $$')  # fmt: skip
    with serving(tmp_path) as service:
        job = ended(service, submit(service, restarts=restarts))
        if restarts:
            assert (job.state, job.starts, job.run) == ("succeeded", 2, 1)
        else:
            assert job.state == "failed" and "its processes were lost" in job.reason


def test_a_service_that_ended_between_deciding_and_starting(tmp_path: Path) -> None:
    script(tmp_path, "exit 0")
    with serving(tmp_path) as service:
        number = submit(service)
        service.store.start(number, "", time.time())  # the service ended before it started the job
        job = ended(service, number)
        assert (job.state, job.losses) == ("succeeded", 0)


def test_one_service_runs_a_queue(tmp_path: Path) -> None:
    with serving(tmp_path), pytest.raises(ClusterError, match="another service runs the queue"):
        service_of(tmp_path)
    service_of(tmp_path).close()


# -- refused jobs ----------------------------------------------------------------------------------


def test_programs_outside_of_the_roots(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    for folder in (inside, outside):
        folder.mkdir()
        script(folder, "exit 0")
    (inside / "link.py").symlink_to(outside / "job.py")
    (inside / "circle.py").symlink_to(inside / "circle.py")
    (inside / "folder.py").mkdir()
    roots = Roots([inside])
    assert roots.find("job.py") == roots.find(str(inside / "job.py")) == inside / "job.py"
    for path in ("../out/job.py", str(outside / "job.py"), "link.py", "circle.py", "folder.py",
                 "missing.py", "a\0.py", "x" * 5000, "/dev/zero", ""):  # fmt: skip
        with pytest.raises(AttributeValueError, match="no file"):
            roots.find(path)
    assert roots.programs() == ["circle.py", "job.py", "link.py"]
    with pytest.raises(GraphcError, match="is not a folder"):
        Roots([tmp_path / "missing"])


def test_a_program_that_has_gone_or_moved_outside(tmp_path: Path) -> None:
    """Roots are also checked when a job starts: it may have been submitted without a service."""
    with serving(tmp_path) as service:
        for name in ("missing.py", "/etc/../etc/hosts.py"):
            job = ended(service, submit(service, script=name))
            assert job.state == "failed" and "it could not start: no file" in job.reason


def test_jobs_for_a_larger_service(tmp_path: Path) -> None:
    script(tmp_path, "exit 0")
    with serving(tmp_path, devices=2, quotas={"bob": Quota(devices=1)}) as service:
        assert "the service has 2" in ended(service, submit(service, processes=3)).reason
        assert "the quota is 1" in ended(service, submit(service, "bob", processes=2)).reason
        assert ended(service, submit(service)).state == "succeeded"


def test_a_full_disk_is_reported_and_jobs_wait(tmp_path: Path, monkeypatch) -> None:
    script(tmp_path, "exit 0")
    with serving(tmp_path) as service:
        number = submit(service)
        monkeypatch.setattr("graphc.cluster.jobs.service._LEAST_FREE", 1 << 62)
        before = service.generation
        with pytest.raises(ClusterError, match="the disk of the queue is full"):
            service.tick()
        assert service.store.get(number).state == "queued" and service.generation > before
        monkeypatch.undo()
        use_shell(monkeypatch)
        assert ended(service, number).state == "succeeded"


def test_the_folder_is_private(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        assert service.folder.stat().st_mode & 0o077 == 0


def test_the_real_command(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.undo()  # use the real launcher, not the shell
    folder = RunFolder(tmp_path, 1, 1)
    program = tmp_path / "a.py"
    spec = JobSpec.of({"script": "a.py", "processes": 2, "devices": 3, "restarts": 4,
                       "silence": "5s", "parameters": {"x": 1}})  # fmt: skip
    command = folder.command(spec, program, {})
    assert command[2:] == [
        "graphc", "launch", "-n", "2", "--devices", "3", "--restarts", "4", "--grace", "10.0",
        "--silence", "5.0", str(program), "--", "--x=1",
    ]  # fmt: skip
    train = folder.command(JobSpec.of({"train": "a.py", "save": True}), program, {})
    at = train.index("train")
    assert Path(train[at - 2]).name == "command.py" and "--resume" in train
    assert train[train.index("--save") + 1] == str(folder.path / "outputs" / "model.gcx")
    run = JobSpec.of({"artifact": "m.gcx", "inputs": {"x": "x.npy"}, "signature": "f"})
    assert folder.command(run, program, {"x": tmp_path / "x.npy"})[-3:] == [
        "--signature=f", "--input", f"x={tmp_path}/x.npy",
    ]  # fmt: skip


def test_a_service_in_a_thread_goes_on_after_errors(tmp_path: Path, monkeypatch, capsys) -> None:
    import threading

    service, end, calls = service_of(tmp_path), threading.Event(), []

    def tick() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise OSError("the disk is full")
        end.set()

    monkeypatch.setattr(service, "tick", tick)
    monkeypatch.setattr(end, "wait", lambda seconds: None)
    service.run(end)
    assert len(calls) == 2 and service.problem == ""
    assert "OSError: the disk is full" in capsys.readouterr().err
    service.close()
