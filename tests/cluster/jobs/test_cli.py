"""`graphc submit` and `graphc jobs` on a queue in a folder, in this process."""

import json
import os
import time
from pathlib import Path

import pytest

from graphc.cli import main
from graphc.cli.arguments import parse
from graphc.cli.jobs_serve import capacity_of
from graphc.cluster.jobs.capacity import Capacity
from graphc.cluster.jobs.spec import JobSpec, Need
from graphc.errors import AttributeValueError
from tests.cluster.jobs.helpers import script, service_of, until, use_shell


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHC_JOBS", str(tmp_path / "queue"))
    monkeypatch.delenv("GRAPHC_JOBS_SERVER", raising=False)
    monkeypatch.chdir(tmp_path)


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    try:
        status = main(arguments)
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 2
    out, err = capsys.readouterr()
    return status, out, err


def test_a_job_from_the_command_line(tmp_path: Path, capsys, monkeypatch) -> None:
    use_shell(monkeypatch)
    script(tmp_path, 'echo "hello $*"')
    limits = ("-n", "2", "--memory", "1GiB", "--time-limit", "2h", "--name", "mine")
    status, out, err = run(capsys, "submit", "job.py", *limits, "--", "--rate", "0.1")
    assert (status, out) == (0, "job 1 (mine) is queued\n")
    assert "no service runs this queue now" in err
    service = service_of(tmp_path)
    until(service, lambda: service.store.get(1).ended)
    service.close()
    status, out, _ = run(capsys, "jobs", "list")
    assert status == 0 and "1 succeeded" in out and "mine" in out
    assert run(capsys, "jobs", "log", "1")[1] == "hello --rate 0.1\n"
    status, out, err = run(capsys, "jobs", "log", "1", "--follow")
    assert (status, out) == (0, "hello --rate 0.1\n") and "job 1 (mine): succeeded" in err
    shown = json.loads(run(capsys, "jobs", "show", "1", "--json")[1])
    assert shown["spec"] == {"script": str(tmp_path / "job.py"), "name": "mine", "processes": 2,
                             "memory": 1 << 30, "time_limit": 7200.0,
                             "arguments": ["--rate", "0.1"]}  # fmt: skip


def test_following_a_job_that_fails(tmp_path: Path, capsys, monkeypatch) -> None:
    use_shell(monkeypatch)
    script(tmp_path, "echo no; exit 4")
    run(capsys, "submit", "job.py")
    service = service_of(tmp_path)
    until(service, lambda: service.store.get(1).ended)
    service.close()
    status, out, err = run(capsys, "jobs", "log", "1", "--follow")
    assert (status, out) == (4, "no\n") and "failed: it ended with exit status 4" in err


def test_actions(tmp_path: Path, capsys) -> None:
    script(tmp_path, "exit 0")
    run(capsys, "submit", "job.py")
    assert run(capsys, "jobs", "resume", "1")[0] == 2
    assert "stopped" in run(capsys, "jobs", "stop", "1")[1]
    status, _, err = run(capsys, "jobs", "stop", "1")
    assert status == 2 and "has already ended" in err
    assert "queued" in run(capsys, "jobs", "restart", "1")[1]
    assert json.loads(run(capsys, "jobs", "list", "--json")[1])["counts"]["queued"] == 1


def test_a_job_file(tmp_path: Path, capsys) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    script(folder, "exit 0", "a.py")
    (folder / "job.yaml").write_text("script: a.py\nprocesses: 2\narguments: [x]\n")
    status, out, _ = run(capsys, "submit", "folder/job.yaml", "--dry-run", "--priority", "3",
                         "--", "y")  # fmt: skip
    assert status == 0 and json.loads(out) == {
        "script": str(folder / "a.py"), "name": "a", "processes": 2, "priority": 3,
        "arguments": ["x", "y"],
    }  # fmt: skip
    assert not (tmp_path / "queue" / "jobs").exists()


def test_kubernetes(tmp_path: Path, capsys) -> None:
    yaml = pytest.importorskip("yaml")
    job = {"script": "in/the/image.py", "kubernetes": {"image": "x"}}
    (tmp_path / "job.json").write_text(json.dumps(job))
    status, out, _ = run(capsys, "submit", "job.json", "--to", "kubernetes", "--dry-run")
    assert status == 0 and [each["kind"] for each in yaml.safe_load_all(out)] == [
        "JobSet",
        "Service",
    ]
    status, _, err = run(capsys, "submit", "job.json", "--to", "kubernetes", "--wait")
    assert status == 2 and "kubectl wait" in err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["submit", "missing.yaml"], "cannot read 'missing.yaml'"),
        (["submit", "missing.py"], "there is no file 'missing.py'"),
        (["submit", "job.txt"], "its ending must be .yaml"),
        (["submit", "job.py", "--memory", "lots", "--restarts", "-1"], "the job has 2 mistakes"),
        (["submit", "job.yaml", "--train"], "--train is for scripts"),
        (["submit", "job.py", "--server", "http://x"], "needs a token"),
        (["submit", "job.py", "--server", "http://x", "--queue", "y"], "name two queues"),
        (["submit", "job.py", "--queue", "job.py/x"], "cannot create the queue"),
        (["jobs", "lst"], "did you mean 'list'?"),
        (["jobs", "stop"], "which job? give its number"),
        (["jobs", "stop", "7"], "there is no job 7"),
        (["jobs", "stop", "-7"], "'-7' is not a number"),
        (["jobs", "serve"], "from which folders may jobs run scripts?"),
        (["jobs", "serve", "--root", "missing"], "'missing' is not a folder"),
        (["jobs", "serve", "--root", ".", "--port", "99999"], "--port must be"),
        (["jobs", "serve", "--root", ".", "--users", "missing"], "cannot read 'missing'"),
        (["jobs", "serve", "--root", ".", "--tls-key", "x"], "belong together"),
        (["jobs", "serve", "--root", ".", "--max-memory", "x"], "--max-memory must be a size"),
        (["jobs", "serve", "--root", ".", "--gpus", "0,0"], "names a GPU twice"),
        (["jobs", "serve", "--root", ".", "--gpus", "0", "--max-devices", "2"], "is more than"),
    ],
)
def test_mistakes(tmp_path: Path, capsys, monkeypatch, arguments: list[str], told: str) -> None:
    monkeypatch.delenv("GRAPHC_TOKEN", raising=False)
    script(tmp_path, "exit 0")
    (tmp_path / "job.yaml").write_text("script: job.py\n")
    status, _, err = run(capsys, *arguments)
    assert status == 2 and told in err and "Traceback" not in err


def test_the_capacity_of_a_service() -> None:
    cpus = len(os.sched_getaffinity(0))
    own = capacity_of(parse(["jobs", "serve"]))
    assert own.total[:2] == (cpus, cpus) and own.total.memory > 1 << 28 and own.gpus == ()
    given = ["--gpus", "0, 2", "--max-processes", "8", "--max-memory", "1GiB"]
    assert capacity_of(parse(["jobs", "serve", *given])) == Capacity(
        Need(8, 2, 1 << 30), ("0", "2")
    )
    with pytest.raises(AttributeValueError):
        capacity_of(parse(["jobs", "serve", "--max-memory", "0"]))


def test_the_queue_of_another_folder(tmp_path: Path, capsys) -> None:
    script(tmp_path, "exit 0")
    run(capsys, "submit", "job.py", "--queue", "other")
    assert "no jobs" in run(capsys, "jobs", "list")[1]
    assert "1 queued" in run(capsys, "jobs", "list", "--queue", "other")[1]
    service = service_of(tmp_path)  # the service of the first folder
    service.store.submit("x", JobSpec.of({"script": "job.py"}), time.time())
    assert "no service runs" not in run(capsys, "jobs", "list")[2]
    service.close()
