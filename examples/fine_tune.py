"""Learns the digits 5 to 9 from a few examples, with layers of a network for 0 to 4.

python examples/fine_tune.py

The first network is trained and saved as a checkpoint. The second one has the same convolutions in
another scope, and a new last layer. A partial restore gives it the convolutions. It trains the last
layer first, then all layers at a lower rate. For comparison, the same network is trained from its
initial values.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from typing import Any

import digits
import numpy as np
import optax

import graphc as gc

Data = Mapping[str, np.ndarray[Any, Any]]
SHOTS = 4  # examples of each of the new digits


def network(scope: str, x: gc.Tensor) -> gc.Tensor:
    """Features of images [batch, 8, 8, 1]; the variables are in a scope."""
    with gc.name_scope(scope):
        h = gc.nn.Conv2D(16, 3, activation=gc.nn.relu, name="conv_1")(x)
        h = gc.nn.Conv2D(32, 3, activation=gc.nn.relu, name="conv_2")(h)
        return gc.nn.Flatten()(h)


def build(scope: str, head: str) -> tuple[gc.Graph, dict[str, Any]]:
    """A classifier of five digits: the graph, and its parts by name."""
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder(("batch", 8, 8, 1), name="x")
        y = gc.placeholder(("batch",), "int32", name="y")
        logits = gc.nn.Dense(5, name=head)(network(scope, x))
        losses = gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=y)
        loss = gc.reduce_mean(losses, name="loss")
        last = [v for name, v in graph.variables.items() if name.startswith(f"{head}/")]
        parts = {
            "all": gc.minimize(loss, optax.adam(3e-4), name="all"),
            "last": gc.minimize(loss, optax.adam(3e-3), variables=last, name="last"),
            "accuracy": gc.metrics.Accuracy(labels=y, predictions=logits),
        }
    return graph, parts


def of_digits(data: Data, first: int, part: str, shots: int | None = None) -> Data:
    """The images of five digits starting at `first`, with labels from 0; perhaps a few of each."""
    x, y = data[f"x_{part}"], data[f"y_{part}"]
    rows = [np.flatnonzero(y == digit)[:shots] for digit in range(first, first + 5)]
    chosen = np.concatenate(rows)
    return {"x": x[chosen], "y": y[chosen].astype(np.int32) - first}


def train(session: gc.Session, fetch: Any, data: Data, steps: int) -> None:
    """Runs steps on shuffled batches of 20 examples."""
    batches = gc.data.from_arrays(dict(data)).shuffle(seed=0).batch(20).repeat()
    job = gc.train.Job(session.graph, fetch, batches, steps=steps)
    gc.train.fit(session, job, progress=False)


def accuracy(session: gc.Session, parts: Mapping[str, Any], data: Data) -> float:
    """The share of correctly classified examples."""
    batches = gc.data.from_arrays(dict(data)).batch(100)
    return gc.train.evaluate(session, batches, {"accuracy": parts["accuracy"]})["accuracy"]


def main() -> tuple[float, float]:
    """Prints both accuracies on the test images of the new digits, and returns them."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--steps", type=int, default=300)
    steps = arguments.parse_args().steps
    data = digits.load()
    few, tests = of_digits(data, 5, "train", SHOTS), of_digits(data, 5, "test")

    graph, parts = build("encoder", "zero_to_four")
    first = gc.Session(graph)
    train(first, parts["all"], of_digits(data, 0, "train"), steps)

    graph, parts = build("backbone", "five_to_nine")
    tuned, alone = gc.Session(graph), gc.Session(graph)
    with tempfile.TemporaryDirectory() as folder:
        gc.save(first, folder)
        report = gc.train.restore(
            tuned,
            folder,
            include=["backbone/*/kernel", "backbone/*/bias"],
            rename={"encoder/*": "backbone/*"},
        )
    print(report)
    for session in (tuned, alone):
        train(session, parts["last"], few, steps // 3)
        train(session, parts["all"], few, steps // 3)
    found = accuracy(tuned, parts, tests), accuracy(alone, parts, tests)
    print(
        f"{len(few['y'])} examples: fine-tuned {found[0]:.3f}, from initial values {found[1]:.3f}"
    )
    return found


if __name__ == "__main__":
    main()
