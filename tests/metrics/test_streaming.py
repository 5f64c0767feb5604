"""Streaming metrics compared with scikit-learn and NumPy over the whole data."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from sklearn import metrics as sk

import graphc as gc
from tests.near import assert_near

RNG = np.random.default_rng(3)
COUNT, CLASSES = 53, 4
DATA = {
    "label": RNG.integers(0, CLASSES, COUNT).astype(np.int32),
    "scores": RNG.normal(size=(COUNT, CLASSES)).astype(np.float32),
    "p": (RNG.integers(0, 101, COUNT) / 100).astype(np.float32),
    "binary": RNG.integers(0, 2, COUNT).astype(np.int32),
    "weight": RNG.integers(0, 3, COUNT).astype(np.int32),
}
CUTS = (0, 16, 32, 45, 52, 53)
D, M = DATA, gc.metrics
BEST = D["scores"].argmax(-1)
HARD = D["p"] >= 0.5
W = D["weight"]
Feeds = dict[str, gc.Tensor]

# name -> the metric of the feeds, and its value from another library
CASES: dict[str, tuple[Callable[[Feeds], Any], Any]] = {
    "mean": (lambda f: M.Mean(f["p"]), D["p"].astype(float).mean()),
    "mean_weighted": (
        lambda f: M.Mean(f["p"], weights=f["weight"]),
        np.average(D["p"].astype(float), weights=W),
    ),
    "sum": (lambda f: M.Sum(f["p"]), D["p"].astype(float).sum()),
    "accuracy": (
        lambda f: M.Accuracy(labels=f["label"], predictions=f["scores"]),
        sk.accuracy_score(D["label"], BEST),
    ),
    "accuracy_binary": (
        lambda f: M.Accuracy(labels=f["binary"], predictions=f["p"], weights=f["weight"]),
        sk.accuracy_score(D["binary"], HARD, sample_weight=W),
    ),
    "accuracy_dense": (
        lambda f: M.Accuracy(
            labels=gc.one_hot(f["label"], CLASSES), predictions=f["scores"], dense=True
        ),
        sk.accuracy_score(D["label"], BEST),
    ),
    "top_k": (
        lambda f: M.TopK(labels=f["label"], predictions=f["scores"], k=2),
        sk.top_k_accuracy_score(D["label"], D["scores"], k=2),
    ),
    "mse": (
        lambda f: M.MeanSquaredError(labels=f["binary"], predictions=f["p"]),
        sk.mean_squared_error(D["binary"], D["p"].astype(float)),
    ),
    "mae": (
        lambda f: M.MeanAbsoluteError(labels=f["binary"], predictions=f["p"], weights=f["weight"]),
        sk.mean_absolute_error(D["binary"], D["p"].astype(float), sample_weight=W),
    ),
    "perplexity": (lambda f: M.Perplexity(f["p"]), np.exp(D["p"].astype(float).mean())),
    "confusion": (
        lambda f: M.ConfusionMatrix(
            labels=f["label"], predictions=f["scores"], num_classes=CLASSES, weights=f["weight"]
        ),
        sk.confusion_matrix(D["label"], BEST, sample_weight=W),
    ),
    "iou": (
        lambda f: M.MeanIoU(labels=f["label"], predictions=f["scores"], num_classes=CLASSES),
        sk.jaccard_score(D["label"], BEST, average="macro"),
    ),
    "auc_roc": (
        lambda f: M.AUC(labels=f["binary"], predictions=f["p"], weights=f["weight"]),
        sk.roc_auc_score(D["binary"], D["p"], sample_weight=W),
    ),
    "auc_pr": (
        lambda f: M.AUC(labels=f["binary"], predictions=f["p"], curve="PR"),
        sk.average_precision_score(D["binary"], D["p"]),
    ),
}
for _name, _ours, _theirs in (
    ("precision", M.Precision, sk.precision_score),
    ("recall", M.Recall, sk.recall_score),
    ("f1", M.F1, sk.f1_score),
):
    CASES[f"{_name}_binary"] = (
        lambda f, ours=_ours: ours(labels=f["binary"], predictions=f["p"]),
        _theirs(D["binary"], HARD),
    )
    for _average in ("macro", "micro", "weighted"):
        CASES[f"{_name}_{_average}"] = (
            lambda f, ours=_ours, average=_average: ours(
                labels=f["label"], predictions=f["scores"], num_classes=CLASSES, average=average
            ),
            _theirs(D["label"], BEST, average=_average),
        )


def built(make: Callable[[Feeds], Any]) -> tuple[gc.Graph, Any]:
    graph = gc.Graph(seed=0)
    with graph:
        feeds = {
            name: gc.placeholder((None, *value.shape[1:]), value.dtype, name=name)
            for name, value in DATA.items()
        }
        return graph, make(feeds)


def batch(begin: int, end: int) -> dict[str, np.ndarray]:
    return {name: value[begin:end] for name, value in DATA.items()}


class Found(NamedTuple):
    """The results of one session for a metric."""

    by_batches: Any
    after_reset: list[Any]  # the state
    of_all: Any
    read_alone: Any


@pytest.fixture(scope="module", params=[1, 4])
def found(request: pytest.FixtureRequest) -> dict[str, Found]:
    """The results of one session for each case: all metrics are in one program."""

    def makers(feeds: Feeds) -> dict[str, Any]:
        return {name: make(feeds) for name, (make, _) in CASES.items()}

    graph, metrics = built(makers)
    updates, values, resets = (
        [getattr(metric, what) for metric in metrics.values()]
        for what in ("update", "value", "reset")
    )
    strategy = gc.devices.DataParallel(request.param) if request.param > 1 else None
    with gc.Session(graph, strategy=strategy, unused_feeds="ignore") as session:
        for begin, end in pairwise(CUTS):
            session.run(updates, batch(begin, end))
        by_batches = session.run(values)
        session.run(resets)
        states = [[session.get(v) for v in metric.variables] for metric in metrics.values()]
        of_all = session.run([*updates, *values], DATA)[len(updates) :]
        columns = (by_batches, states, of_all, session.run(values))
        assert not any(v.trainable for metric in metrics.values() for v in metric.variables)
    return {name: Found(*row) for name, *row in zip(CASES, *columns, strict=True)}


@pytest.mark.xdist_group("streaming metrics")
@pytest.mark.parametrize("case", sorted(CASES))
def test_batches_of_any_size_give_the_value_of_the_whole(
    case: str, found: dict[str, Found]
) -> None:
    expected = CASES[case][1]
    assert_near(found[case].by_batches, expected, rtol=1e-12)
    assert found[case].after_reset
    assert not any(np.any(state) for state in found[case].after_reset)
    assert_near(found[case].of_all, expected, rtol=1e-12)
    assert_near(found[case].read_alone, expected, rtol=1e-12)


def test_counts_beyond_float32_are_exact() -> None:
    graph, metric = built(lambda f: M.Accuracy(labels=f["binary"], predictions=f["p"] * 0 + 1))
    with gc.Session(graph, unused_feeds="ignore") as session:
        session.set_all({v: np.int64(2**40) for v in metric.variables})
        session.run(metric.update, DATA)
        counts = [int(session.get(v)) for v in metric.variables]
    assert counts == [2**40 + int(D["binary"].sum()), 2**40 + COUNT]
