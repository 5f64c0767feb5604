"""The callback that logs a run of `fit`."""

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import optax
import pytest

import graphc as gc
from graphc.errors import AttributeValueError
from graphc.train.tensorboard.step_gradients import gradients_in
from tests.train.tensorboard.events import events, scalars, values
from tests.train.tensorboard.server import board
from tests.train.tensorboard.small_fit import run_job
from tests.train.tensorboard.test_writer import seen


@pytest.fixture
def job() -> gc.train.Job:
    with gc.Graph() as graph:
        w = gc.variable([8.0, 4.0], name="w")
        frozen = gc.variable(1.0, name="frozen", trainable=False)
        loss = gc.reduce_sum(w**2) * frozen
        train = gc.minimize(loss, optax.sgd(0.25))
        return gc.train.Job(graph, train, [], steps=10, metrics={"w": w[0]})


def test_metrics_each_so_many_steps_and_at_the_end(tmp_path: Path, job: gc.train.Job) -> None:
    run_job(job, gc.train.TensorBoard(tmp_path, every=3), steps=7)
    points = scalars(tmp_path / "train", "w")
    assert [step for step, _ in points] == [3, 6, 7]
    assert points[0] == (3, 8 * 0.5**3)
    rates = scalars(tmp_path / "train", "steps_per_second")
    assert [step for step, _ in rates] == [3, 6, 7]
    assert all(rate > 0 for _, rate in rates)


def test_validation_is_a_run_of_its_own(tmp_path: Path, job: gc.train.Job) -> None:
    run_job(job, gc.train.TensorBoard(tmp_path), steps=6, validate=2)
    assert scalars(tmp_path / "validation", "w") == [(2, 102.0), (4, 104.0), (6, 106.0)]


def test_histograms_of_weights_and_gradients(tmp_path: Path, job: gc.train.Job) -> None:
    callback = gc.train.TensorBoard(tmp_path, histograms=2, gradients=True)
    assert callback.session_every == 2
    run_job(job, callback, steps=5)
    found = {(step, tag): rows for step, tag, rows in values(tmp_path / "train")}
    tags = {tag for _, tag in found if "/" in tag}
    assert tags == {"weights/w", "gradients/w"}
    assert found[2, "weights/w"][[0, -1], [0, 1]].tolist() == [
        1.0,
        2.0,
    ]  # [8, 4], halved twice
    assert found[2, "gradients/w"][[0, -1], [0, 1]].tolist() == [4.0, 8.0]  # of [4, 2]
    assert (4, "weights/w") in found
    assert (5, "weights/w") not in found


def test_how_often_it_fetches(tmp_path: Path) -> None:
    def every(**options: Any) -> tuple[int, int | None]:
        callback = gc.train.TensorBoard(tmp_path, every=10, **options)
        return callback.fetch_every, callback.session_every

    assert every() == (10, None)
    assert every(histograms=25) == (10, 25)
    assert every(histograms=25, gradients=True) == (25, 25)
    assert every(histograms=25, gradients=True, learning_rate="rate") == (5, 25)


def test_given_gradients_and_variables(tmp_path: Path, job: gc.train.Job) -> None:
    with job.graph.extend():
        own = gc.constant([1.0, 2.0, 3.0])
    callback = gc.train.TensorBoard(
        tmp_path, histograms=1, gradients={"own": own}, variables=["frozen"]
    )
    run_job(job, callback, steps=1)
    tags = {tag for _, tag, _ in values(tmp_path / "train")}
    assert {"gradients/own", "weights/frozen"} <= tags
    assert "weights/w" not in tags


@pytest.mark.parametrize("kind", ["schedule", "variable", "recorded"])
def test_learning_rate(tmp_path: Path, job: gc.train.Job, kind: str) -> None:
    rate: Any = None
    if kind == "schedule":
        rate = optax.linear_schedule(1.0, 0.0, 4)
    elif kind == "variable":
        rate = "frozen"
    callback = gc.train.TensorBoard(tmp_path, every=1, learning_rate=rate)

    def record(run: Any) -> None:
        if kind == "recorded":
            run.record("learning_rate", run.step / 2)

    run_job(job, callback, steps=3, at_step=record)
    wanted = {
        "schedule": [1.0, 0.75, 0.5],
        "variable": [1.0, 1.0, 1.0],
        "recorded": [0.5, 1.0, 1.5],
    }
    points = scalars(tmp_path / "train", "learning_rate")
    assert points == list(zip([1, 2, 3], wanted[kind], strict=True))


def graphs(folder: Path) -> int:
    return sum(event.HasField("graph_def") for event in events(folder))


def test_a_resumed_run_continues_the_curves(tmp_path: Path, job: gc.train.Job) -> None:
    """The checkpoint is from step 4. The run goes on to 7 and is killed; a second run continues."""
    state = run_job(job, gc.train.TensorBoard(tmp_path, every=1), steps=4, validate=2)
    run_job(
        job, gc.train.TensorBoard(tmp_path, every=1), first=4, steps=7, restored=state, validate=2
    )
    run_job(
        job, gc.train.TensorBoard(tmp_path, every=1), first=4, steps=8, restored=state, validate=2
    )
    assert seen(tmp_path / "train", "w") == [1, 2, 3, 4, 5, 6, 7, 8]
    assert seen(tmp_path / "validation", "w") == [2, 4, 6, 8]
    assert graphs(tmp_path / "train") == 1


def test_a_new_run_replaces_the_old_one(tmp_path: Path, job: gc.train.Job) -> None:
    run_job(job, gc.train.TensorBoard(tmp_path, every=1), steps=6, validate=1)
    run_job(job, gc.train.TensorBoard(tmp_path, every=1), steps=3)
    assert seen(tmp_path / "train", "w") == [1, 2, 3]
    assert seen(tmp_path / "validation", "w") == []


def test_resuming_into_an_empty_folder_writes_the_graph(tmp_path: Path, job: gc.train.Job) -> None:
    state = run_job(job, gc.train.TensorBoard(tmp_path / "a"), steps=2)
    run_job(job, gc.train.TensorBoard(tmp_path / "b"), first=2, steps=4, restored=state)
    assert graphs(tmp_path / "b" / "train") == 1


def test_the_state_is_in_the_files(tmp_path: Path, job: gc.train.Job) -> None:
    """Data logged before a checkpoint is on disk when the checkpoint is written."""
    callback = gc.train.TensorBoard(tmp_path, every=1)

    def look(run: Any) -> None:
        callback.state()
        assert [s for s, _ in scalars(tmp_path / "train", "w")] == list(range(1, run.step))

    run_job(job, callback, steps=5, at_step=look)


def test_a_failed_run(tmp_path: Path, job: gc.train.Job) -> None:
    def fail(run: Any) -> None:
        if run.step == 3:
            raise KeyboardInterrupt

    callback = gc.train.TensorBoard(tmp_path, every=2, hparams={"rate": 0.25}, graph=False)
    with pytest.raises(KeyboardInterrupt):
        run_job(job, callback, steps=5, at_step=fail)
    assert scalars(tmp_path / "train", "w") == [(2, 2.0)]
    assert graphs(tmp_path / "train") == 0
    run_job(job, callback, steps=2)  # the same callback again
    assert seen(tmp_path / "train", "w") == [2]


@pytest.mark.parametrize(
    ("error", "ends"), [(None, 1), (ValueError, 1), (KeyboardInterrupt, 0), (SystemExit, 0)]
)
def test_an_interrupted_run_has_no_end(
    tmp_path: Path, job: gc.train.Job, error: Any, ends: int
) -> None:
    """TensorBoard would still show that end after the run was resumed and has succeeded."""

    def fail(run: Any) -> None:
        if error is not None:
            raise error

    callback = gc.train.TensorBoard(tmp_path, hparams={"rate": 0.25})
    with contextlib.suppress(ValueError, KeyboardInterrupt, SystemExit):
        run_job(job, callback, steps=1, at_step=fail)
    tags = [tag for _, tag, _ in values(tmp_path)]
    assert tags.count("_hparams_/session_start_info") == 1
    assert tags.count("_hparams_/session_end_info") == ends


@pytest.mark.parametrize(
    "options",
    [{"every": 0}, {"every": 1.5}, {"histograms": 0}, {"gradients": True}, {"hparams": {}}],
    ids=str,
)
def test_refusals(tmp_path: Path, options: Any) -> None:
    with pytest.raises(AttributeValueError):
        gc.train.TensorBoard(tmp_path, **options)


def test_gradients_of_several_steps() -> None:
    with gc.Graph() as graph:
        v, w = gc.variable(1.0, name="v"), gc.variable(np.ones(3), name="w")
        gc.minimize(v**2 + gc.reduce_sum(w), optax.adam(0.1))
        gc.train.apply_gradients([(gc.constant(2.0), v)], optax.sgd(0.1), name="other")
    found = gradients_in(graph)
    assert list(found) == ["v", "w", "other/v"]
    assert found["w"].shape == (3,)


@pytest.mark.slow
def test_a_real_tensorboard_shows_both_runs(tmp_path: Path, job: gc.train.Job) -> None:
    callback = gc.train.TensorBoard(tmp_path / "logs" / "job", every=1, hparams={"rate": 0.25})
    run_job(job, callback, steps=4, validate=2)
    ready = {"job/train": "steps_per_second", "job/validation": "w"}
    with board(tmp_path / "logs", ready) as server:
        assert set(server.get("runs")) == {"job", "job/train", "job/validation"}
        assert server.scalars("job/train", "w") == [(1, 4.0), (2, 2.0), (3, 1.0), (4, 0.5)]
        assert server.scalars("job/validation", "w") == [(2, 102.0), (4, 104.0)]
        body = {"allowedStatuses": ["STATUS_SUCCESS"], "startIndex": 0, "sliceSize": 9}
        [group] = server.post("plugin/hparams/session_groups", body)["sessionGroups"]
        names = {(m["name"]["group"], m["name"]["tag"]) for m in group["metricValues"]}
        assert {("train", "w"), ("validation", "w")} <= names
