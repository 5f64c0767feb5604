"""Several steps per call: the same results as with single steps."""

import numpy as np
import pytest

import graphc as gc
from graphc.train import call_size
from tests.train.conftest import batches


class Every(gc.train.Callback):
    """Reads the session at some steps."""

    def __init__(self, every):
        self.session_every, self.seen = every, []

    def on_step(self, run):
        self.seen.append((run.step, float(run.metrics["loss"])))
        if self.session_every and run.step % self.session_every == 0:
            self.seen.append(float(run.session.get("w")))


class Fetching(gc.train.Callback):
    """Fetches a tensor at some steps."""

    session_every = None

    def __init__(self, tensor, every):
        self.fetches, self.fetch_every, self.seen = {"value": tensor}, every, []

    def on_step(self, run):
        if run.step % self.fetch_every == 0:
            self.seen.append((run.step, float(run.fetched["value"])))


def carry_out(small, steps_per_call, every, fetch_every, count=43, **options):
    session = small.session()
    watch, fetch = Every(every), Fetching(small.double, fetch_every)
    check = gc.train.Validation(batches(2), {"loss": small.loss}, every_steps=10)
    history = gc.train.fit(
        session,
        small.job(batches(count)),
        steps=count,
        validation=check,
        callbacks=[watch, fetch],
        steps_per_call=steps_per_call,
        **options,
    )
    return session, history, watch.seen, fetch.seen


@pytest.mark.parametrize("every", [None, 1, 6])
@pytest.mark.parametrize("fetch_every", [1, 7])
def test_the_same_as_single_steps(small, every, fetch_every):
    one = carry_out(small, 1, every, fetch_every)
    other = carry_out(small, 4, every, fetch_every)
    assert one[0].get("w").tobytes() == other[0].get("w").tobytes()
    np.testing.assert_array_equal(one[1].metrics["loss"], other[1].metrics["loss"])
    assert one[1].validation["loss"][1].tolist() == other[1].validation["loss"][1].tolist()
    assert one[2:] == other[2:]


@pytest.fixture
def counted(monkeypatch):
    """The sizes of the calls of `run_steps`."""
    sizes = []
    run_steps = gc.Session.run_steps

    def counting(self, fetches, feeds, n):
        sizes.append(n)
        return run_steps(self, fetches, feeds, n)

    monkeypatch.setattr(gc.Session, "run_steps", counting)
    return sizes


def test_calls_respect_the_callbacks(small, counted):
    carry_out(small, 4, 8, 13)
    # fetches at 13, 26, 39; the session at 8, 16, ...; validation at 10, 20, ...
    assert counted == [4] * len(counted)
    assert 4 <= len(counted) <= 8
    counted.clear()
    carry_out(small, 4, 1, 13)
    assert counted == []


def test_uneven_batches_run_one_by_one(small):
    uneven = [{"x": np.full(1 + i % 3, i, "f4")} for i in range(12)]
    one, other = small.session(), small.session()
    a = gc.train.fit(one, small.job(uneven), epochs=1, steps_per_call=1)
    b = gc.train.fit(other, small.job(uneven), epochs=1, steps_per_call=5)
    np.testing.assert_array_equal(a.metrics["loss"], b.metrics["loss"])


def test_a_wrong_batch_in_a_call_is_named(small):
    wrong = [*batches(6), {"y": 1.0}]
    with pytest.raises(gc.errors.GraphcError, match="y"):
        gc.train.fit(small.session(), small.job(wrong), steps=7, steps_per_call=4)


def test_auto_uses_calls_that_pay(small, counted):
    plain = small.session()
    for _ in range(5):  # on a busy machine, several steps per call may look slower
        session = small.session()
        auto = gc.train.fit(session, small.job(batches(3000)), steps=3000)
        if counted:
            break
    single = gc.train.fit(plain, small.job(batches(3000)), steps=3000, steps_per_call=1)
    assert counted
    assert counted
    assert set(counted) <= {4, 8, 16, 32, 64, 128}
    np.testing.assert_array_equal(auto.metrics["loss"], single.metrics["loss"])
    assert session.get("w").tobytes() == plain.get("w").tobytes()


def test_auto_leaves_long_steps_alone(small, counted, monkeypatch):
    monkeypatch.setattr(call_size, "_SLOWEST", 0.0)
    gc.train.fit(small.session(), small.job(batches(200)), steps=200)
    assert counted == []


def test_auto_does_not_call_back_twice(counted):
    graph = gc.Graph(seed=0)
    with graph:
        w = gc.variable(1.0, name="w")
        told = gc.py_callback(lambda x: seen.append(1) or x, gc.TensorSpec((), "float32"), w)
        train = w.assign_add(told * 0.1)
    seen = []
    gc.train.fit(gc.Session(graph), gc.train.Job(graph, train, [{}] * 300, steps=300))
    assert len(seen) == 300
    assert counted == []


def test_auto_rejects_other_bits(small, monkeypatch):
    several = gc.Session.run_steps

    def other(self, fetches, feeds, n):
        found = several(self, fetches, feeds, n)
        self.set("w", self.get("w") + 1)
        return found

    monkeypatch.setattr(gc.Session, "run_steps", other)
    one, plain = small.session(), small.session()
    gc.train.fit(one, small.job(batches(2000)), steps=2000)
    gc.train.fit(plain, small.job(batches(2000)), steps=2000, steps_per_call=1)
    assert one.get("w").tobytes() == plain.get("w").tobytes()


@pytest.mark.parametrize("steps_per_call", [1, 5])
def test_a_long_history_is_thinned_out(small, monkeypatch, steps_per_call):
    """The memory of a job that runs for weeks must not grow with its steps."""
    n = 203
    job = small.job(batches(n), epochs=1)
    whole = gc.train.fit(small.session(), job, steps_per_call=steps_per_call)
    assert (whole.every, len(whole.metrics["loss"])) == (1, n)
    monkeypatch.setattr("graphc.train.recorder._MOST", 8)
    rate = gc.train.LearningRateLogger(float, every=1)  # a schedule: the number of earlier steps
    thin = gc.train.fit(small.session(), job, steps_per_call=steps_per_call, callbacks=[rate])
    assert thin.every > 8
    assert len(thin.metrics["loss"]) < 48
    assert np.array_equal(thin.metrics["loss"], whole.metrics["loss"][:: thin.every])
    steps, rates = thin.recorded["learning_rate"]
    assert len(steps) < 17
    assert steps[0] == 1
    assert np.array_equal(steps - 1, rates)
