"""scikit-learn's bundled handwritten digits: 1,797 images of 8x8 pixels, in ten classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import graphc as gc

SPLIT_SEED = 0
TEST_EXAMPLES = 360


def load(dtype: str = "float32") -> dict[str, np.ndarray]:
    """`x_train [1437, 8, 8, 1]`, `y_train [1437]`, `x_test [360, ...]`, `y_test`.

    Pixels are between 0 and 1. The split is a permutation by `SPLIT_SEED`.
    """
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(SPLIT_SEED).permutation(len(labels))
    x = (images[order] / 16.0).astype(dtype).reshape(-1, 8, 8, 1)
    y = labels[order].astype("int32")
    return {
        "x_train": x[TEST_EXAMPLES:],
        "y_train": y[TEST_EXAMPLES:],
        "x_test": x[:TEST_EXAMPLES],
        "y_test": y[:TEST_EXAMPLES],
    }


def accuracy(logits: gc.Tensor, labels: gc.Tensor) -> gc.Tensor:
    """The share of the images whose largest logit is that of their label."""
    correct = gc.equal(gc.argmax(logits, axis=-1), labels)
    return gc.reduce_mean(gc.cast(correct, "float32"), name="accuracy")


def job(
    graph: gc.Graph,
    train: gc.Tensor,
    loss: gc.Tensor,
    accuracy: gc.Tensor,
    data: Mapping[str, np.ndarray],
    batch: int,
    **more: Any,
) -> gc.train.Job:
    """A job that trains on the training images, fed to x and y, and prints the accuracy on the
    others.

    Args:
        more: further arguments of `gc.train.Job`.
    """

    def evaluate(session: gc.Session) -> dict[str, float]:
        feeds = {"x": data["x_test"], "y": data["y_test"]}
        return {"test accuracy": float(session.run(accuracy, feeds))}

    batches = gc.data.Batches({"x": data["x_train"], "y": data["y_train"]}, batch, seed=1)
    return gc.train.Job(graph, train, batches, metrics={"loss": loss}, evaluate=evaluate, **more)
