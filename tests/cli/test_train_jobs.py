"""`graphc train`: checkpoints, validation, logs and limits."""

import json
import re
import signal

import pytest

import graphc as gc
from tests.cli.scripts import HELPER, SCRIPT
from tests.cli.test_cli import run

__all__ = ["run"]


@pytest.fixture(scope="module")
def validated(tmp_path_factory):
    """A script whose job has a validation."""
    folder = tmp_path_factory.mktemp("scripts")
    (folder / "helper.py").write_text(HELPER)
    path = folder / "validated.py"
    option = "        evaluate=evaluate,\n"
    more = '        validation=gc.train.Validation([data], {"loss": loss}),\n'
    path.write_text(SCRIPT.replace(option, option + more))
    return path


@pytest.fixture(scope="module")
def plain(validated):
    path = validated.with_name("plain.py")
    path.write_text(SCRIPT)
    return path


def facts(result):
    code, out, err = result
    assert (code, err) == (0, "")
    return json.loads(out)


def test_resume_gives_the_same_as_one_run(run, plain, tmp_path):
    command = ("train", plain, "--json")
    whole = facts(run(*command))
    folder = ("--checkpoint-dir", tmp_path / "state")
    first = facts(run(*command, *folder, "--steps", 11))
    assert (first["start"], first["steps"]) == (0, 11)
    rest = facts(run(*command, *folder, "--resume"))
    assert (rest["start"], rest["steps"]) == (11, 19)
    assert rest["metrics"]["loss"]["last"] == whole["metrics"]["loss"]["last"]
    assert rest["evaluation"] == whole["evaluation"]
    past = facts(run(*command, *folder, "--resume"))
    assert (past["start"], past["steps"], past["metrics"]) == (30, 0, {})
    code, out, _ = run("train", plain, *folder, "--resume")
    assert code == 0
    assert "after step 30" in out


def test_resume_begins_where_there_is_no_checkpoint(run, plain, tmp_path):
    found = facts(run("train", plain, "--json", "--checkpoint-dir", tmp_path, "--resume"))
    assert (found["start"], found["steps"]) == (0, 30)


def test_a_folder_with_checkpoints_is_not_overwritten(run, plain, tmp_path):
    run("train", plain, "--steps", 2, "--checkpoint-dir", tmp_path)
    code, _, err = run("train", plain, "--steps", 2, "--checkpoint-dir", tmp_path)
    assert code != 0
    assert "the latest of step 2" in err
    assert "--resume" in err


def test_resume_needs_a_folder(run, plain):
    code, _, err = run("train", plain, "--resume")
    assert code != 0
    assert "--checkpoint-dir" in err


def test_validation_early_stop_and_logs(run, validated, tmp_path):
    command = ("train", validated, "--json", "--validate-every", 4, "--log-dir", tmp_path / "log")
    found = facts(run(*command))
    lines = [json.loads(line) for line in (tmp_path / "log" / "log.jsonl").read_text().splitlines()]
    assert len(lines) == 30
    at = [line["step"] for line in lines if "validation/loss" in line]
    assert at == list(range(4, 29, 4))
    assert found["validation"]["loss"] == lines[27]["validation/loss"]
    assert (
        (tmp_path / "log" / "log.csv").read_text().startswith("step,epoch,loss,validation/loss\n")
    )
    still = facts(run(*command, "--early-stop", 2, "--", "0.0"))  # with a learning rate of 0
    assert still["steps"] == 12
    assert "has not improved for 2 validations" in still["stopped"]


PIPELINE = """
import os, signal, sys
import numpy as np, optax
import graphc as gc

def build():
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((None,), name="x")
        w = gc.variable(1.0, name="w")
        loss = gc.reduce_mean((w * x - 1) ** 2)
        train = gc.minimize(loss, optax.sgd(0.1))
    data = gc.data.from_arrays({"x": np.linspace(0, 1, 12, dtype="f4")}).shuffle(seed=1).batch(3)
    return gc.train.Job(graph, train, data.map(stop), epochs=4, metrics={"loss": loss})

calls = []

def stop(batch):
    calls.append(batch)
    if sys.argv[1:] == [str(len(calls))]:
        os.kill(os.getpid(), signal.SIGTERM)
    return batch
"""


def test_a_pipeline_keeps_its_epochs_and_its_position(run, tmp_path):
    """As in `gc.train.fit`, each epoch is shuffled differently."""
    script = tmp_path / "pipeline.py"
    script.write_text(PIPELINE)
    space = {}
    exec(PIPELINE, space)
    job = space["build"]()
    session = gc.Session(job.graph)
    history = gc.train.fit(session, job)
    found = facts(run("train", script, "--json"))
    assert found["metrics"]["loss"]["last"] == float(history.metrics["loss"][-1])
    command = ("train", script, "--json", "--checkpoint-dir", tmp_path / "state", "--resume")
    code, _, err = run(*command, "--", "10")
    assert (code, err) == (128 + signal.SIGTERM, "")
    saved = gc.train.Checkpointer(tmp_path / "state")
    reached = saved.latest()  # the signal caused a checkpoint
    assert 8 <= reached <= 10
    assert facts(run(*command))["start"] == reached
    again = gc.Session(job.graph)
    assert saved.restore(again).step == 16
    assert again.get("w") == session.get("w")


def test_a_folder_of_logs_that_cannot_be_made(run, plain, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = run("train", plain, "--steps", 2, "--log-dir", tmp_path / "file" / "log")
    assert code != 0
    assert "CsvLogger: cannot write" in err and "Traceback" not in err


@pytest.mark.parametrize("option", ["--validate-every", "--early-stop"])
def test_options_of_a_validation_need_one(run, plain, option):
    code, _, err = run("train", plain, option, 3)
    assert code != 0
    assert re.search(f"gives no validation, so {option} has no meaning", err)


def test_early_stop_needs_a_loss(run, validated):
    script = validated.with_name("other.py")
    text = validated.read_text()
    assert '[data], {"loss"' in text
    script.write_text(text.replace('[data], {"loss"', '[data], {"error"'))
    code, _, err = run("train", script, "--early-stop", 3)
    assert code != 0
    assert "--early-stop looks at the metric 'loss'" in err
    assert "has 'error'" in err


def test_time_limit(run, plain):
    code, out, _ = run("train", plain, "--steps", 10**8, "--time-limit", 0.3)
    assert code == 0
    assert "the time limit of 0.3 s" in out
