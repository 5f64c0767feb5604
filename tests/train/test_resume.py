"""`fit` with checkpoints: a resumed run gives the same bits as an undisturbed run."""

import os
import signal

import numpy as np
import optax
import pytest

import graphc as gc


def made(metrics=True):
    """A network with dropout and Adam, and a job over its batches."""
    graph = gc.Graph(seed=3)
    with graph:
        x = gc.placeholder((None, 4), name="x")
        t = gc.placeholder((None,), name="t")
        h = gc.nn.dropout(gc.nn.Dense(8, activation=gc.tanh, name="h")(x), 0.3)
        y = gc.squeeze(gc.nn.Dense(1, name="y")(h), 1)
        loss = gc.reduce_mean(gc.square(y - t))
        train = gc.minimize(loss, optax.adam(0.01))
    return graph, train, {"loss": loss}


def arrays(n=40):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 4)).astype("f4")
    return {"x": x, "t": x.sum(1)}


def pipeline():
    return gc.data.from_arrays(arrays()).shuffle(seed=1).batch(8)


SOURCES = {
    "pipeline": lambda: pipeline().repeat(),
    "batches": lambda: gc.data.Batches(arrays(), 8, seed=2),
    "list": lambda: list(pipeline().repeat(20)),
    "generator": lambda: (batch for batch in pipeline().repeat(20)),
}


class Stop(gc.train.Callback):
    """Calls a function at a step."""

    session_every = 1

    def __init__(self, step, act):
        self.step, self.act, self.seen = step, act, []

    def on_step(self, run):
        self.seen.append(run.step)
        if run.step == self.step:
            self.act(run)

    def state(self):
        return {"seen": list(self.seen)}

    def restore(self, state):
        self.seen = list(state["seen"])


def same(one, other):
    a, b = one.values(), other.values()
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].tobytes() == b[name].tobytes(), name


def fresh(batches, strategy=None):
    graph, train, metrics = made()
    session = gc.Session(graph, strategy=strategy)
    return session, gc.train.Job(graph, train, batches, metrics=metrics)


@pytest.mark.parametrize("prefetch", [None, 3])
@pytest.mark.parametrize("source", SOURCES)
def test_a_stopped_run_continues_bitwise(source, prefetch, tmp_path):
    whole, job = fresh(SOURCES[source]())
    expected = gc.train.fit(whole, job, steps=30)
    for stop in (7, 19):
        session, job = fresh(SOURCES[source]())
        first = gc.train.fit(
            session,
            job,
            steps=30,
            callbacks=[Stop(stop, lambda run: run.stop("enough"))],
            checkpoint=tmp_path,
            prefetch=prefetch,
        )
        assert first.stopped == "enough"
    session, job = fresh(SOURCES[source]())
    watch = Stop(0, None)
    last = gc.train.fit(session, job, steps=30, callbacks=[watch], checkpoint=tmp_path)
    same(session, whole)
    assert (last.start, last.steps) == (19, 11)
    assert watch.seen == list(range(1, 31))
    np.testing.assert_array_equal(last.metrics["loss"], expected.metrics["loss"][19:])


@pytest.mark.parametrize("checkpoint_steps", [1, 3, 5, None])
def test_epochs_and_validation_resume_bitwise(checkpoint_steps, tmp_path):
    def run(stop, folder):
        session, job = fresh(pipeline())
        watch = Record(stop)
        history = gc.train.fit(
            session,
            job,
            epochs=4,
            validation=gc.train.Validation(pipeline(), job.metrics, every_steps=3, every_epochs=2),
            callbacks=[watch],
            checkpoint=folder,
            checkpoint_steps=None if folder is None else checkpoint_steps,
        )
        return session, watch, history

    whole, expected, history = run(None, None)
    assert [e for e in expected.events if e[0] == "epoch"] == [
        ("epoch", 1, 5),
        ("epoch", 2, 10),
        ("epoch", 3, 15),
        ("epoch", 4, 20),
    ]
    assert history.validation["loss"][0].tolist() == [3, 6, 9, 10, 12, 15, 18, 20]
    for stop in range(2, 20, 3):
        run(stop, tmp_path)
    session, watch, _ = run(None, tmp_path)
    same(session, whole)
    assert watch.events == expected.events


class Record(gc.train.Callback):
    """Records the calls, and stops the loop after a step."""

    def __init__(self, stop):
        self.events, self.stop = [], stop

    def on_step(self, run):
        self.events.append(("step", run.step))
        if run.step == self.stop:
            run.stop("enough")

    def on_validation(self, run):
        self.events.append(("validation", run.step, run.validation["loss"]))

    def on_epoch(self, run):
        self.events.append(("epoch", run.epoch, run.step))

    def state(self):
        return {"events": [list(e) for e in self.events]}

    def restore(self, state):
        self.events = [tuple(e) for e in state["events"]]


def interrupt(number):
    """Raises an interrupt at a call of a method, selected by number."""
    return lambda *_: os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["int", "term"])
@pytest.mark.parametrize(
    "phase", ["on_start", "on_step", "on_validation", "on_epoch", "data", "eval"]
)
def test_signals_in_each_phase_save_and_resume_bitwise(phase, number, tmp_path):
    armed = {"left": 0}

    def hit(at):
        if at == phase and armed["left"] > 0:
            armed["left"] -= 1
            if not armed["left"]:
                os.kill(os.getpid(), number)

    class Signalling(Record):
        def on_start(self, run):
            if phase == "on_start":
                armed["left"] = min(armed["left"], 1)
            hit("on_start")

        def on_step(self, run):
            hit("on_step")
            super().on_step(run)

        def on_validation(self, run):
            hit("on_validation")
            super().on_validation(run)

        def on_epoch(self, run):
            hit("on_epoch")
            super().on_epoch(run)

    def run(folder, callback):
        session, job = fresh(pipeline().map(lambda batch: (hit("data"), batch)[1]))
        validation = gc.train.Validation(
            pipeline().map(lambda batch: (hit("eval"), batch)[1]), job.metrics, every_steps=3
        )
        gc.train.fit(
            session,
            job,
            epochs=4,
            validation=validation,
            callbacks=[callback],
            checkpoint=folder,
        )
        return session

    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    expected = Record(None)
    whole = run(None, expected)
    error = KeyboardInterrupt if number == signal.SIGINT else SystemExit
    armed["left"] = 3
    with pytest.raises(error):
        run(tmp_path, Signalling(None))
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    again = Signalling(None)
    same(run(tmp_path, again), whole)
    assert again.events == expected.events


def test_a_signal_within_run_counts_the_step(tmp_path, monkeypatch):
    session, job = fresh(SOURCES["pipeline"]())
    run = session.run

    def interrupted(*args):
        found = run(*args)
        if calls.append(1) or len(calls) == 4:
            os.kill(os.getpid(), signal.SIGINT)
        return found

    calls = []
    monkeypatch.setattr(session, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        gc.train.fit(session, job, steps=30, checkpoint=tmp_path)
    again, job = fresh(SOURCES["pipeline"]())
    assert gc.train.fit(again, job, steps=30, checkpoint=tmp_path).start == 4
    whole, job = fresh(SOURCES["pipeline"]())
    gc.train.fit(whole, job, steps=30)
    same(again, whole)


def test_a_second_signal_is_not_delayed(tmp_path):
    def twice(run):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("not reached")

    session, job = fresh(SOURCES["pipeline"]())
    with pytest.raises(KeyboardInterrupt):
        gc.train.fit(session, job, steps=9, callbacks=[Stop(4, twice)], checkpoint=tmp_path)
    assert gc.train.Checkpointer(tmp_path).latest() is None  # on_step was interrupted


def test_resuming_past_the_end_runs_nothing(tmp_path):
    session, job = fresh(SOURCES["pipeline"]())
    gc.train.fit(session, job, steps=9, checkpoint=tmp_path)
    again, job = fresh(SOURCES["pipeline"]())
    for steps in (9, 5):
        history = gc.train.fit(again, job, steps=steps, checkpoint=tmp_path)
        assert (history.steps, history.start) == (0, 9)
        assert history.metrics["loss"].shape == (0,)
    same(session, again)
    assert gc.train.Checkpointer(tmp_path).steps() == [9]


def test_a_finished_run_can_be_extended(tmp_path):
    whole, job = fresh(pipeline())
    gc.train.fit(whole, job, epochs=3)
    for epochs in (1, 2, 3):
        session, job = fresh(pipeline())
        gc.train.fit(session, job, epochs=epochs, checkpoint=tmp_path)
    same(session, whole)


def test_without_resume_it_begins_anew(tmp_path):
    session, job = fresh(SOURCES["pipeline"]())
    gc.train.fit(session, job, steps=9, checkpoint=tmp_path)
    again, job = fresh(SOURCES["pipeline"]())
    assert gc.train.fit(again, job, steps=9, checkpoint=tmp_path, resume=False).steps == 9
    same(session, again)


def test_batches_that_do_not_fit_the_position(tmp_path):
    session, job = fresh(SOURCES["pipeline"]())
    gc.train.fit(session, job, steps=9, checkpoint=tmp_path)
    again, job = fresh(list(pipeline()))
    with pytest.raises(gc.errors.StateError, match="have no `restore`"):
        gc.train.fit(again, job, steps=10, checkpoint=tmp_path)
    again, job = fresh(pipeline().take(3))
    with pytest.raises(gc.errors.StateError, match="another pipeline"):
        gc.train.fit(again, job, steps=10, checkpoint=tmp_path)


def test_too_few_batches_for_the_position(tmp_path):
    session, job = fresh(SOURCES["list"]())
    gc.train.fit(session, job, steps=9, checkpoint=tmp_path)
    again, job = fresh(list(pipeline()))
    with pytest.raises(gc.errors.StateError, match="ended after 5 of the 9"):
        gc.train.fit(again, job, steps=10, checkpoint=tmp_path)


def test_a_checkpoint_of_another_origin(tmp_path):
    session, job = fresh(SOURCES["pipeline"]())
    with gc.train.Checkpointer(tmp_path) as saver:
        saver.save(session, 4)
    with pytest.raises(gc.errors.StateError, match="not written by fit"):
        gc.train.fit(session, job, steps=10, checkpoint=tmp_path)


def test_a_failed_checkpoint_fails_the_loop(tmp_path):
    class Failing:
        """A saver whose thread fails."""

        def __init__(self):
            self.steps = []

        def save(self, session, step, *, extra=None, metrics=None, wait=False):
            self.steps.append(step)

        def restore(self, session, step=None):
            return None

        def check(self):
            if self.steps:
                raise gc.errors.CheckpointError("the disk is full")

        def wait(self):
            pass

    session, job = fresh(SOURCES["pipeline"]())
    saver = Failing()
    with pytest.raises(gc.errors.CheckpointError, match="disk is full"):
        gc.train.fit(session, job, steps=30, checkpoint=saver, checkpoint_steps=5)
    assert saver.steps == [5]


def test_the_metrics_of_checkpoints(tmp_path):
    session, job = fresh(pipeline())
    with gc.train.Checkpointer(tmp_path, keep_best=("validation/loss", "min", 1)) as saver:
        gc.train.fit(
            session,
            job,
            epochs=2,
            validation=gc.train.Validation(pipeline(), job.metrics),
            checkpoint=saver,
            checkpoint_steps=5,
        )
        assert saver.restore(session).metrics.keys() == {"loss", "validation/loss"}
        saver.save(session, 11)  # the saver stays open


@pytest.mark.parametrize("strategy", [1, 2, 4])
def test_devices(strategy, tmp_path):
    of = None if strategy == 1 else gc.devices.DataParallel(strategy)
    whole, job = fresh(SOURCES["pipeline"](), of)
    gc.train.fit(whole, job, steps=12)
    for steps in (5, 12):
        session, job = fresh(SOURCES["pipeline"](), of)
        gc.train.fit(session, job, steps=steps, checkpoint=tmp_path)
    same(session, whole)
