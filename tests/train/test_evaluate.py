"""`evaluate`, `predict`, and streaming metrics within `fit`."""

import numpy as np
import optax
import pytest

import graphc as gc
from tests.near import assert_near


class Classifier:
    """A linear classifier with metrics."""

    def __init__(self):
        self.graph = gc.Graph(seed=0)
        with self.graph:
            self.x = gc.placeholder(("batch", 3), name="x")
            self.t = gc.placeholder(("batch",), "int32", name="t")
            self.logits = gc.nn.Dense(4, name="d")(self.x)
            self.losses = gc.nn.sparse_softmax_cross_entropy(logits=self.logits, labels=self.t)
            self.loss = gc.reduce_mean(self.losses)
            self.train = gc.minimize(self.loss, optax.sgd(0.05))
            self.accuracy = gc.metrics.Accuracy(labels=self.t, predictions=self.logits)
            self.mean = gc.metrics.Mean(self.losses)

    @property
    def metrics(self):
        return {"loss": self.loss, "accuracy": self.accuracy, "mean": self.mean}


def data(n=23):
    rng = np.random.default_rng(0)
    x, t = rng.normal(size=(23, 3)).astype("f4"), rng.integers(0, 4, 23).astype("i4")
    return {"x": x[:n], "t": t[:n]}


def batches(size, n=23):
    return gc.data.from_arrays(data(n)).batch(size)


@pytest.fixture(scope="module")
def made():
    return Classifier()


@pytest.mark.parametrize("devices", [1, 2, 4])
@pytest.mark.parametrize("size", [4, 5, 23])
def test_metrics_are_exact_for_uneven_batches(made, devices, size):
    strategy = None if devices == 1 else gc.devices.DataParallel(devices)
    session = gc.Session(made.graph, strategy=strategy)
    alone = gc.Session(made.graph).run([made.logits, made.losses], data())
    logits, losses = map(np.asarray, alone)
    found = gc.train.evaluate(session, batches(size), made.metrics)
    assert list(found) == ["loss", "accuracy", "mean"]
    assert found["accuracy"] == np.mean(np.argmax(logits, 1) == data()["t"])
    expected = np.mean(np.asarray(losses, np.float64))
    assert found["mean"] == pytest.approx(expected, rel=1e-7)
    assert found["loss"] == pytest.approx(expected, rel=1e-6)
    assert gc.train.evaluate(session, batches(size), made.metrics) == found  # the metrics restart


@pytest.mark.parametrize("devices", [1, 2])
def test_predict_joins_uneven_batches(made, devices):
    strategy = None if devices == 1 else gc.devices.DataParallel(devices)
    session = gc.Session(made.graph, strategy=strategy)
    feeds = ({"x": batch["x"]} for batch in batches(5))
    found = gc.train.predict(session, feeds, {"logits": made.logits, "nest": [made.logits]})
    expected = gc.Session(made.graph).run(made.logits, {"x": data()["x"]})
    assert_near(found["logits"], expected, rtol=1e-6)
    assert isinstance(found["logits"], np.ndarray)
    np.testing.assert_array_equal(found["nest"][0], found["logits"])


def test_steps_limit_the_batches(made):
    session = gc.Session(made.graph)
    some = gc.train.evaluate(session, batches(5), made.metrics, steps=2)
    assert some == gc.train.evaluate(session, batches(5, 10), made.metrics)
    first = ({"x": batch["x"]} for batch in batches(5))
    assert gc.train.predict(session, first, made.logits, steps=2).shape == (10, 4)


def test_no_batches_and_no_examples(made):
    session = gc.Session(made.graph)
    with pytest.raises(gc.errors.FeedError, match="evaluate: there are no batches"):
        gc.train.evaluate(session, [], made.metrics)
    with pytest.raises(gc.errors.FeedError, match="predict: there are no batches"):
        gc.train.predict(session, iter([]), made.logits)
    empty = {name: array[:0] for name, array in data().items()}
    with pytest.raises(gc.errors.FeedError, match="have no examples"):
        gc.train.evaluate(session, [empty], {"loss": made.loss})
    found = gc.train.evaluate(session, [empty, data()], {"loss": made.loss})
    assert found == gc.train.evaluate(session, [data()], {"loss": made.loss})


@pytest.mark.parametrize("batches", [3, {"x": np.zeros((2, 4))}], ids=["int", "feeds"])
def test_batches_that_are_none(made, batches):
    session = gc.Session(made.graph)
    for call in (
        lambda: gc.train.predict(session, batches, made.logits),
        lambda: gc.train.evaluate(session, batches, made.metrics),
    ):
        with pytest.raises(gc.errors.FeedError, match="batches must be an iterable of feeds, got"):
            call()


def test_wrong_arguments(made):
    session = gc.Session(made.graph)
    for steps in (0, -1, "2"):
        with pytest.raises(gc.errors.AttributeValueError, match="predict: steps must be an int"):
            gc.train.predict(session, batches(5), made.logits, steps=steps)
    with pytest.raises(gc.errors.AttributeValueError, match="metrics must be a dict, got list"):
        gc.train.evaluate(session, batches(5), [made.loss])


def test_the_weight_of_a_batch_is_that_of_its_rows():
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((None,), name="x")
        table = gc.placeholder((100,), name="table")
        mean = gc.reduce_mean(x) + 0 * gc.reduce_sum(table)
    feeds = [{"x": np.full(n, v, "f4"), "table": np.zeros(100)} for n, v in ((3, 1), (1, 5))]
    assert gc.train.evaluate(gc.Session(graph), feeds, {"mean": mean}) == {"mean": 2.0}


def test_a_metric_that_is_no_scalar(made):
    with pytest.raises(gc.errors.AttributeValueError, match="must be a scalar"):
        gc.train.evaluate(gc.Session(made.graph), batches(5), {"losses": made.losses})


@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("steps_per_call", [1, 3])
def test_metrics_of_the_job_cover_the_epoch(made, devices, steps_per_call):
    strategy = None if devices == 1 else gc.devices.DataParallel(devices)
    session = gc.Session(made.graph, strategy=strategy)
    job = gc.train.Job(made.graph, made.train, batches(4), metrics=made.metrics)
    check = gc.train.Validation(batches(6), {"accuracy": made.accuracy}, every_steps=4)
    history = gc.train.fit(session, job, epochs=2, validation=check, steps_per_call=steps_per_call)
    sizes = np.array([4, 4, 4, 4, 4, 3] * 2)
    losses = history.metrics["loss"] * sizes
    for epoch in (slice(0, 6), slice(6, 12)):
        expected = np.cumsum(losses[epoch]) / np.cumsum(sizes[epoch])
        assert_near(history.metrics["mean"][epoch], expected, rtol=1e-5)
    assert history.validation["accuracy"][0].tolist() == [4, 8, 12]
    right = history.metrics["accuracy"][5] * 23
    assert right == pytest.approx(round(right))


def test_metrics_of_an_extended_run_begin_anew_with_the_epoch(made, tmp_path):
    def run(session, epochs, folder=None):
        job = gc.train.Job(made.graph, made.train, batches(4), metrics=made.metrics)
        return gc.train.fit(session, job, epochs=epochs, checkpoint=folder)

    whole = run(gc.Session(made.graph), 2)
    run(gc.Session(made.graph), 1, tmp_path)
    rest = run(gc.Session(made.graph), 2, tmp_path)
    np.testing.assert_array_equal(rest.metrics["accuracy"], whole.metrics["accuracy"][6:])


def test_metrics_of_the_job_resume_within_an_epoch(made, tmp_path):
    def run(session, steps, folder=None):
        job = gc.train.Job(made.graph, made.train, batches(4), metrics=made.metrics)
        return gc.train.fit(session, job, steps=steps, epochs=3, checkpoint=folder)

    whole = run(gc.Session(made.graph), 15)
    run(gc.Session(made.graph), 9, tmp_path)
    rest = run(gc.Session(made.graph), 15, tmp_path)
    for name in made.metrics:
        np.testing.assert_array_equal(rest.metrics[name], whole.metrics[name][9:])


def test_outputs_that_predict_cannot_join():
    with gc.Graph() as graph:
        x = gc.placeholder((None, None), name="x")
        rows = x * 2
        total, mean = gc.reduce_sum(x, 0, name="total"), gc.reduce_mean(x, name="mean")
        w = gc.variable(np.ones(3, np.float32), name="w")
        step = gc.group(w.assign_add(w.read()), name="step")
        doubled = gc.concatenate([x, x], 0)
    session = gc.Session(graph)
    few, more, wide = ({"x": np.ones(shape, np.float32)} for shape in [(2, 3), (4, 3), (2, 4)])
    for output, text in [
        (total, r"'total:0' has no axis of examples\n  its shape is \(.*\)\n"),
        (mean, r"'mean:0' has no axis of examples\n  its shape is \(\)\n"),
        ([rows, mean], "'mean:0' has no axis"),
        (w, "'w' has no axis of examples"),
    ]:
        with pytest.raises(gc.errors.AttributeValueError, match=text):
            gc.train.predict(session, [few, more], output)
    with pytest.raises(gc.errors.ShapeError, match=r"batch 0 has \(2, 3\), batch 1 has \(2, 4\)"):
        gc.train.predict(session, [few, wide], rows)
    found = gc.train.predict(session, [few, more], [rows, step, rows.node])
    assert found[0].shape == (6, 3) and found[1:] == [None, None]
    assert session.get("w").tolist() == [4, 4, 4]  # it ran twice
    found = gc.train.predict(session, [few, more], {"all": [rows, rows], "twice": doubled})
    assert found["all"][1].shape == (6, 3) and found["twice"].shape == (12, 3)


def test_predict_with_a_batch_of_a_fixed_size():
    with gc.Graph() as graph:
        x = gc.placeholder((2, 3), name="x")
        y = gc.reduce_sum(x, 1)
    found = gc.train.predict(gc.Session(graph), [{x: np.ones((2, 3))}] * 3, y)
    assert found.tolist() == [3.0] * 6
