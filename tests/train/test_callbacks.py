"""The callbacks of graphc."""

import csv
import io
import json
import math
import sys

import numpy as np
import optax
import pytest

import graphc as gc
from tests.near import assert_near
from tests.train.conftest import Small, batches


def checks(values):
    """A validation whose results are these values, one after the other."""
    graph = gc.Graph(seed=0)
    with graph:
        w = gc.variable(0.0, name="w")
        x = gc.placeholder((), name="x")
        train = gc.minimize(w**2, optax.inject_hyperparams(optax.sgd)(learning_rate=1.0))
        figure = gc.identity(x)
    left = iter(values)

    class One:
        def __iter__(self):
            return iter([{"x": next(left)}])

    job = gc.train.Job(graph, train, [{}] * len(values), steps=len(values))
    return gc.Session(graph), job, gc.train.Validation(One(), {"loss": figure}, every_steps=1)


@pytest.mark.parametrize(
    ("values", "options", "steps"),
    [
        ([3, 2, 1, 1, 1, 1], {"patience": 2}, 5),
        ([3, 2, 1, 2, 0, 1, 1], {"patience": 2}, 7),
        ([3, 2.95, 2.9, 2.85, 2.8], {"patience": 2, "min_change": 0.5}, 3),
        ([1, 2, 3, 3, 2, 4], {"patience": 2, "mode": "max"}, 5),
        ([math.nan, math.nan, 1.0], {"patience": 2}, 2),
    ],
    ids=["flat", "again", "min_change", "max", "nan"],
)
def test_early_stopping(values, options, steps):
    session, job, check = checks(values)
    stop = gc.train.EarlyStopping("validation/loss", **options)
    assert gc.train.fit(session, job, validation=check, callbacks=[stop]).steps == steps


def test_early_stopping_continues_its_count(tmp_path):
    values = [3, 1, 2, 2, 2, 2, 2]
    session, job, check = checks(values)
    for steps in (3, 4, 7):
        stop = gc.train.EarlyStopping("validation/loss", patience=3)
        history = gc.train.fit(
            session, job, steps=steps, validation=check, callbacks=[stop], checkpoint=tmp_path
        )
    assert (history.start, history.steps) == (4, 1)
    assert "1 is the best" in history.stopped


def test_early_stopping_on_a_metric_of_the_job(small):
    stop = gc.train.EarlyStopping("loss", patience=1, mode="max")
    history = gc.train.fit(small.session(), small.job(batches(3)), epochs=9, callbacks=[stop])
    assert history.epochs == 2
    assert "for 1 epochs" in history.stopped


def test_a_metric_that_does_not_exist(small):
    for made in (
        gc.train.EarlyStopping("validation/lose"),
        gc.train.ReduceOnPlateau("validation/lose"),
        gc.train.BestCheckpoint("nowhere", "validation/lose"),
    ):
        check = gc.train.Validation(batches(1), {"loss": small.loss})
        with pytest.raises(gc.errors.UnknownNameError, match="did you mean 'validation/loss'"):
            gc.train.fit(
                small.session(),
                small.job(batches(3)),
                steps=3,
                validation=check,
                callbacks=[made],
            )


def test_reduce_on_plateau():
    values = [3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1]
    session, job, check = checks(values)
    reduce = gc.train.ReduceOnPlateau(
        "validation/loss", factor=0.5, patience=2, cooldown=1, minimum=0.3
    )
    history = gc.train.fit(session, job, validation=check, callbacks=[reduce])
    steps, rates = history.recorded["learning_rate"]
    assert steps.tolist() == [4, 7]
    assert_near(rates, [0.5, 0.3], rtol=1e-6)
    assert float(session.get("train/hyperparams/learning_rate")) == pytest.approx(0.3)


def test_a_rate_that_no_variable_holds(small):
    for callback in (gc.train.ReduceOnPlateau("loss"), gc.train.LearningRateLogger()):
        with pytest.raises(gc.errors.UnknownNameError, match="0 variables of a learning rate"):
            gc.train.fit(small.session(), small.job(batches(1)), steps=1, callbacks=[callback])


@pytest.mark.parametrize("steps_per_call", [1, 4])
def test_learning_rate_logger(steps_per_call):
    schedule = optax.cosine_decay_schedule(1.0, 12)
    small = Small(optax.inject_hyperparams(optax.sgd)(learning_rate=schedule))
    variable = gc.train.LearningRateLogger(every=3)
    recorded = []
    for logger in (variable, gc.train.LearningRateLogger(schedule, every=3)):
        history = gc.train.fit(
            small.session(),
            small.job(batches(12)),
            steps=12,
            callbacks=[logger],
            steps_per_call=steps_per_call,
        )
        recorded.append(history.recorded["learning_rate"])
    assert recorded[0][0].tolist() == [3, 6, 9, 12]
    assert_near(recorded[0][1], recorded[1][1], rtol=1e-6)


@pytest.mark.parametrize("steps_per_call", [1, 3])
def test_nan_at_step_1_stops_without_a_checkpoint(small, steps_per_call, tmp_path):
    bad = [{"x": np.full(2, np.nan, "f4")}, *batches(5)]
    history = gc.train.fit(
        small.session(),
        small.job(bad),
        steps=6,
        callbacks=[gc.train.StopOnNaN()],
        checkpoint=tmp_path,
        checkpoint_steps=1,
        steps_per_call=steps_per_call,
    )
    assert history.stopped == "loss is nan at step 1"
    assert gc.train.Checkpointer(tmp_path).steps() == []


def test_nan_keeps_the_checkpoint_before(small, tmp_path):
    bad = [*batches(4), {"x": np.full(2, np.inf, "f4")}, *batches(5)]
    gc.train.fit(
        small.session(),
        small.job(bad),
        steps=9,
        callbacks=[gc.train.StopOnNaN()],
        checkpoint=tmp_path,
        checkpoint_steps=2,
    )
    assert gc.train.Checkpointer(tmp_path).steps() == [2, 4]


def test_nan_in_the_validation():
    session, job, check = checks([1.0, math.nan, 1.0])
    history = gc.train.fit(session, job, validation=check, callbacks=[gc.train.StopOnNaN()])
    assert history.stopped == "validation/loss is nan at step 2"


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("steps_per_call", [1, 2])
def test_logs_have_a_row_for_each_step(small, steps_per_call, tmp_path):
    check = gc.train.Validation(batches(1), {"loss": small.loss}, every_steps=4)
    paths = tmp_path / "new" / "log.csv", tmp_path / "new" / "log.jsonl"
    history = gc.train.fit(
        small.session(),
        small.job(batches(150)),
        epochs=1,
        validation=check,
        callbacks=[
            gc.train.LearningRateLogger(lambda step: 1 / (step + 1), every=5),
            gc.train.CsvLogger(paths[0]),
            gc.train.JsonLinesLogger(paths[1]),
        ],
        steps_per_call=steps_per_call,
    )
    table, objects = rows(paths[0]), lines(paths[1])
    assert [int(row["step"]) for row in table] == list(range(1, 151))
    assert [row["step"] for row in objects] == list(range(1, 151))
    assert [float(row["loss"]) for row in table] == history.metrics["loss"].tolist()
    assert [row["loss"] for row in objects] == history.metrics["loss"].tolist()
    found = [row["validation/loss"] for row in objects if "validation/loss" in row]
    assert found == history.validation["loss"][1].tolist()
    assert [row["step"] for row in objects if "learning_rate" in row] == list(range(5, 151, 5))
    assert [float(r["learning_rate"]) for r in table if r["learning_rate"]] == [
        row["learning_rate"] for row in objects if "learning_rate" in row
    ]


def test_logs_continue_after_a_kill(small, tmp_path):
    paths = tmp_path / "log.csv", tmp_path / "log.jsonl"

    def run(steps):
        gc.train.fit(
            small.session(),
            small.job(batches(9)),
            steps=steps,
            callbacks=[gc.train.CsvLogger(paths[0]), gc.train.JsonLinesLogger(paths[1])],
            checkpoint=tmp_path / "state",
        )

    run(4)
    with paths[0].open("a") as file:  # written after the checkpoint, with half a line
        file.write("5,0,lost\n3")  # of 30
    with paths[1].open("a") as file:
        file.write('{"step": 5}\n{"st')
    run(9)
    assert [int(row["step"]) for row in rows(paths[0])] == list(range(1, 10))
    assert [row["step"] for row in lines(paths[1])] == list(range(1, 10))
    assert "lost" not in paths[0].read_text()


def test_an_interrupted_validation_leaves_one_row(small, tmp_path):
    """The last checkpoint already wrote the row of the step, and the validation is repeated."""
    paths = tmp_path / "log.csv", tmp_path / "log.jsonl"
    held_out = [{"x": np.full(2, 1, "f4")}]

    def interrupted():
        yield from held_out
        raise KeyboardInterrupt

    def run(steps, validated):
        gc.train.fit(
            small.session(),
            small.job(batches(9)),
            steps=steps,
            validation=gc.train.Validation(validated, {"loss": small.loss}, every_steps=3),
            callbacks=[gc.train.CsvLogger(paths[0]), gc.train.JsonLinesLogger(paths[1])],
            checkpoint=tmp_path / "state",
        )

    with pytest.raises(KeyboardInterrupt):
        run(9, interrupted())
    run(9, held_out)
    table, objects = rows(paths[0]), lines(paths[1])
    assert [int(row["step"]) for row in table] == list(range(1, 10))
    assert [row["step"] for row in objects] == list(range(1, 10))
    assert [row["step"] for row in objects if "validation/loss" in row] == [3, 6, 9]
    for row, same in zip(table, objects, strict=True):
        assert {name: float(value) for name, value in row.items() if value} == same
    assert all("loss" in row for row in objects)


def test_figures_that_are_not_finite_in_json(small, tmp_path):
    bad = [{"x": np.full(2, value, "f4")} for value in (np.inf, np.nan)]
    gc.train.fit(
        small.session(),
        small.job(bad),
        steps=2,
        callbacks=[gc.train.JsonLinesLogger(tmp_path / "log")],
    )
    assert [row["loss"] for row in lines(tmp_path / "log")] == ["inf", "nan"]


def test_best_checkpoint_restores_the_best(tmp_path):
    session, job, check = checks([3, 1, 2, 0.5, 4, math.nan])
    best = gc.train.BestCheckpoint(tmp_path, "validation/loss")
    gc.train.fit(session, job, validation=check, callbacks=[best])
    saver = gc.train.Checkpointer(tmp_path)
    assert saver.steps() == [4]
    restored = saver.restore(session)
    assert restored.metrics["validation/loss"] == 0.5
    assert restored.extra["fit"]["step"] == 4


def test_fit_continues_from_the_best(small, tmp_path):
    def options(folder):
        check = gc.train.Validation(batches(2), {"loss": small.loss}, every_steps=3)
        return {
            "steps": 9,
            "validation": check,
            "callbacks": [gc.train.BestCheckpoint(folder, mode="max")],
        }

    whole, again = small.session(), small.session()
    gc.train.fit(whole, small.job(batches(9)), **options(tmp_path / "a"))
    best = gc.train.Checkpointer(tmp_path / "a")
    history = gc.train.fit(again, small.job(batches(9)), checkpoint=best, **options(tmp_path / "b"))
    assert history.start in (3, 6, 9)
    assert again.get("w").tobytes() == whole.get("w").tobytes()


def test_time_limit(small, tmp_path):
    endless = iter(lambda: {"x": np.ones(2, "f4")}, None)
    history = gc.train.fit(
        small.session(),
        small.job(endless),
        steps=10**9,
        callbacks=[gc.train.TimeLimit(0.2)],
        checkpoint=tmp_path,
    )
    assert history.stopped == "the time limit of 0.2 s"
    assert gc.train.Checkpointer(tmp_path).latest() == history.steps


@pytest.mark.parametrize("steps_per_call", [1, 4])
def test_histograms(small, steps_per_call):
    class Writer:
        def __init__(self):
            self.found = []

        def histogram(self, name, values, step):
            self.found.append((name, step, float(values)))

    writer = Writer()
    with small.graph:
        made = gc.train.Histograms(small.loss, every=5, writer=writer)
    session = small.session()
    gc.train.fit(
        session,
        small.job(batches(10)),
        steps=10,
        callbacks=[made],
        steps_per_call=steps_per_call,
    )
    assert [(name, step) for name, step, _ in writer.found] == [
        (name, step) for step in (5, 10) for name in ("weights/w", "gradients/w")
    ]
    assert made.values["weights/w"] == np.asarray(session.get("w"))
    assert made.histogram("gradients/w", 3)[0].sum() == 1


def test_progress_shows_rate_and_metrics(small, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    gc.train.fit(small.session(), small.job(batches(5)), steps=5)
    text = shown.getvalue()
    assert "5/5" in text
    assert "loss=" in text
    assert "step/s" in text
    shown.truncate(0)
    gc.train.fit(small.session(), small.job(batches(5)), epochs=2)
    assert "10/10" in shown.getvalue()
    shown.truncate(0)
    shown.seek(0)
    gc.train.fit(small.session(), small.job(batches(5)), steps=5, progress=False)
    assert shown.getvalue() == ""


@pytest.mark.parametrize("logger", [gc.train.CsvLogger, gc.train.JsonLinesLogger])
def test_a_log_that_cannot_be_written(small, logger, tmp_path):
    (tmp_path / "file").write_text("")
    job = small.job(batches(2))
    with pytest.raises(gc.errors.GraphcError, match=f"{logger.__name__}: cannot write .*file.log"):
        gc.train.fit(small.session(), job, steps=2, callbacks=[logger(tmp_path / "file" / "log")])


@pytest.mark.parametrize(
    ("callbacks", "what"),
    [(gc.train.TimeLimit(9), "callbacks must be a list, got"), ([3], "must be a gc.train.Callb")],
    ids=["one", "int"],
)
def test_callbacks_that_are_none(small, callbacks, what):
    with pytest.raises(gc.errors.AttributeValueError, match=what):
        gc.train.fit(small.session(), small.job(batches(2)), steps=2, callbacks=callbacks)


def test_a_state_that_is_no_dict(small, tmp_path):
    class Odd(gc.train.Callback):
        def state(self):
            return 3

    job = small.job(batches(2))
    with pytest.raises(gc.errors.AttributeValueError, match=r"Odd.state\(\) must return a dict"):
        gc.train.fit(small.session(), job, steps=2, callbacks=[Odd()], checkpoint=tmp_path)


WRONG = {
    "mode": lambda: gc.train.EarlyStopping("loss", mode="least"),
    "metric": lambda: gc.train.EarlyStopping(3),
    "patience": lambda: gc.train.EarlyStopping("loss", patience=0),
    "factor": lambda: gc.train.ReduceOnPlateau("loss", factor=1.5),
    "seconds": lambda: gc.train.TimeLimit(-1),
    "text": lambda: gc.train.TimeLimit("1h"),
    "every": lambda: gc.train.CsvLogger("log", every=0),
    "path": lambda: gc.train.JsonLinesLogger(3),
    "nan": lambda: gc.train.StopOnNaN(every=0.5),
    "validation": lambda: gc.train.Validation([], {}, every_steps=0),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(name):
    with pytest.raises(gc.errors.AttributeValueError):
        WRONG[name]()
