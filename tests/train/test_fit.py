"""`fit`: steps, epochs, validation, the order of callback methods, and failures."""

import threading

import numpy as np
import pytest

import graphc as gc
from tests.train.conftest import Small, batches


class Calls(gc.train.Callback):
    """Records the calls, and raises an error in one of them."""

    def __init__(self, fail=None, log=None):
        self.fail, self.log = fail, [] if log is None else log

    def _call(self, name, *what):
        self.log.append((name, *what))
        if name == self.fail:
            raise RuntimeError(f"in {name}")

    def on_start(self, run):
        self._call("start", run.step)

    def on_step(self, run):
        self._call("step", run.step)

    def on_validation(self, run):
        self._call("validation", run.step)

    def on_epoch(self, run):
        self._call("epoch", run.epoch)

    def on_exception(self, run, error):
        self._call("exception", type(error).__name__)

    def on_end(self, run):
        self._call("end", run.step)


def test_the_order_of_the_calls(small):
    calls = Calls()
    check = gc.train.Validation(batches(1), {"loss": small.loss}, every_steps=2, every_epochs=1)
    history = gc.train.fit(
        small.session(), small.job(batches(3)), epochs=2, validation=check, callbacks=[calls]
    )
    assert calls.log == [
        ("start", 0),
        ("step", 1),
        ("step", 2),
        ("validation", 2),
        ("step", 3),
        ("validation", 3),
        ("epoch", 1),
        ("step", 4),
        ("validation", 4),
        ("step", 5),
        ("step", 6),
        ("validation", 6),
        ("epoch", 2),
        ("end", 6),
    ]
    assert (history.steps, history.epochs, history.stopped) == (6, 2, None)


@pytest.mark.parametrize("fail", ["start", "step", "validation", "epoch", "end"])
def test_an_exception_in_each_method_tells_all_callbacks(small, fail):
    first, second = Calls(fail), Calls()
    check = gc.train.Validation(batches(1), {"loss": small.loss})
    with pytest.raises(RuntimeError, match=f"in {fail}"):
        gc.train.fit(
            small.session(),
            small.job(batches(2)),
            epochs=2,
            validation=check,
            callbacks=[first, second],
        )
    if fail == "start":  # the second callback has not started
        assert second.log == []
    else:
        told = [call for call in second.log if call[0] in ("exception", "end")]
        steps = {"step": 1, "validation": 2, "epoch": 2, "end": 4}[fail]
        expected = [("end", steps)]
        assert told == (expected if fail == "end" else [("exception", "RuntimeError"), *expected])
    assert first.log[-1][0] == "end"


def test_errors_after_an_error_are_notes(small):
    class Worse(Calls):
        def on_exception(self, run, error):
            raise ValueError("worse")

        def on_end(self, run):
            raise KeyError("worst")

    last = Calls()
    with pytest.raises(RuntimeError, match="in step") as caught:
        gc.train.fit(
            small.session(),
            small.job(batches(3)),
            steps=3,
            callbacks=[Calls("step"), Worse(), last],
        )
    notes = "\n".join(caught.value.__notes__)
    assert "worse" in notes
    assert "worst" in notes
    assert last.log[-2:] == [("exception", "RuntimeError"), ("end", 1)]


def test_steps_and_epochs_whichever_comes_first(small):
    session = small.session()
    assert gc.train.fit(session, small.job(batches(3)), steps=4, epochs=2).steps == 4
    found = gc.train.fit(session, small.job(batches(3)), steps=6, epochs=2)
    assert (found.steps, found.epochs) == (6, 2)
    assert gc.train.fit(session, small.job(batches(3)), steps=60, epochs=2).steps == 6
    assert gc.train.fit(session, small.job(batches(3), steps=2)).steps == 2
    assert gc.train.fit(session, small.job(batches(3), steps=2), epochs=1).steps == 3


def test_batches_that_end_in_an_epoch_of_steps(small):
    calls = Calls()
    with pytest.raises(gc.errors.FeedError, match="ended after 3 of 5 steps"):
        gc.train.fit(small.session(), small.job(batches(3)), steps=5, callbacks=[calls])
    assert calls.log[-2:] == [("exception", "FeedError"), ("end", 3)]


def test_an_iterator_has_one_epoch(small):
    assert gc.train.fit(small.session(), small.job(iter(batches(3))), epochs=1).steps == 3
    with pytest.raises(gc.errors.FeedError, match="epoch 1 has no batches"):
        gc.train.fit(small.session(), small.job(iter(batches(3))), epochs=2)
    with pytest.raises(gc.errors.FeedError, match="epoch 0 has no batches"):
        gc.train.fit(small.session(), small.job([]), epochs=2)


@pytest.mark.parametrize("prefetch", [None, 4])
@pytest.mark.parametrize("steps_per_call", [1, 2])
def test_no_more_batches_are_read_than_steps(small, prefetch, steps_per_call):
    source = iter(batches(9))
    gc.train.fit(
        small.session(),
        small.job(source),
        steps=5,
        prefetch=prefetch,
        steps_per_call=steps_per_call,
    )
    assert len(list(source)) == 4


def test_each_epoch_of_a_pipeline_has_another_order(small):
    seen = []
    data = gc.data.from_arrays({"x": np.arange(6, dtype="f4")}).shuffle(seed=3).batch(2)
    data = data.map(lambda feeds: (seen.append(feeds["x"].tolist()), feeds)[1])
    gc.train.fit(small.session(), small.job(data), epochs=3)
    epochs = [[x for batch in seen[i : i + 3] for x in batch] for i in (0, 3, 6)]
    expected = gc.data.from_arrays(np.arange(6.0)).shuffle(seed=3).repeat(3)
    assert [x for epoch in epochs for x in epoch] == list(expected)
    assert epochs[0] != epochs[1]


def test_a_validation_of_zero_batches(small):
    check = gc.train.Validation([], {"loss": small.loss}, every_steps=1)
    with pytest.raises(gc.errors.FeedError, match="there are no batches"):
        gc.train.fit(small.session(), small.job(batches(3)), steps=2, validation=check)


def test_validation_changes_no_state(small):
    graph = gc.Graph(seed=1)
    with graph:
        x = gc.placeholder((None,), name="x")
        w = gc.variable(1.0, name="w")
        noise = gc.nn.dropout(x * w, 0.5)
        loss = gc.reduce_mean(gc.square(noise))
        import optax

        train = gc.minimize(loss, optax.sgd(0.01))
        mean = gc.metrics.Mean(noise)
    job = gc.train.Job(graph, train, batches(8), metrics={"mean": mean, "loss": loss})
    check = gc.train.Validation(batches(3), {"mean": mean}, every_steps=2)
    plain, checked = gc.Session(graph), gc.Session(graph)
    a = gc.train.fit(plain, job, epochs=1)
    b = gc.train.fit(checked, job, epochs=1, validation=check)
    np.testing.assert_array_equal(a.metrics["mean"], b.metrics["mean"])
    np.testing.assert_array_equal(a.metrics["loss"], b.metrics["loss"])


def test_stop_in_on_start_runs_nothing(small):
    class Never(gc.train.Callback):
        def on_start(self, run):
            run.stop("never")

    history = gc.train.fit(small.session(), small.job(batches(3)), steps=3, callbacks=[Never()])
    assert (history.steps, history.stopped) == (0, "never")


def test_two_fits_in_one_process_and_in_threads(small):
    sessions = [small.session() for _ in range(3)]
    threads = [
        threading.Thread(
            target=gc.train.fit, args=(s, small.job(batches(20))), kwargs={"steps": 20}
        )
        for s in sessions[1:]
    ]
    for thread in threads:
        thread.start()
    gc.train.fit(sessions[0], small.job(batches(20)), steps=20)
    for thread in threads:
        thread.join()
    assert len({float(s.get("w")) for s in sessions}) == 1


def test_a_metric_that_is_no_scalar(small):
    with small.graph:
        vector = small.x * 2
    job = small.job(batches(3), metrics={"vector": vector})
    with pytest.raises(gc.errors.AttributeValueError, match=r"'vector' must be a scalar.*\(2,\)"):
        gc.train.fit(small.session(), job, steps=3)


def test_a_failing_source_ends_the_loop(small):
    def source():
        yield from batches(2)
        raise OSError("the file is gone")

    calls = Calls()
    with pytest.raises(OSError, match="the file is gone"):
        gc.train.fit(small.session(), small.job(source()), steps=5, callbacks=[calls])
    assert calls.log[-2:] == [("exception", "OSError"), ("end", 2)]


WRONG = {
    "steps": ({"steps": 0}, "steps must be an int of at least 1, got 0"),
    "epochs": ({"epochs": 1.5}, "epochs must be an int"),
    "nothing": ({}, "neither steps nor epochs"),
    "per_call": ({"steps": 1, "steps_per_call": "all"}, "steps_per_call must be"),
    "callback": ({"steps": 1, "callbacks": [print]}, "must be a gc.train.Callback"),
    "class": ({"steps": 1, "callbacks": [gc.train.Callback]}, "must be a gc.train.Callback"),
    "validation": ({"steps": 1, "validation": []}, "must be a gc.train.Validation"),
    "checkpoint": ({"steps": 1, "checkpoint": 3}, "must be a folder"),
    "checkpoint_steps": ({"steps": 1, "checkpoint_steps": 3}, "need a checkpoint"),
    "seconds": ({"steps": 1, "checkpoint": "f", "checkpoint_seconds": 0}, "above 0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(small, name):
    options, message = WRONG[name]
    with pytest.raises(gc.errors.AttributeValueError, match=message):
        gc.train.fit(small.session(), small.job(batches(3)), **options)


def test_endless_batches_need_steps():
    small = Small()
    endless = gc.data.Batches({"x": np.ones(4, "f4")}, 2)
    with pytest.raises(gc.errors.AttributeValueError, match="has no end"):
        gc.train.fit(small.session(), small.job(endless), epochs=2)
