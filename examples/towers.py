"""Data parallelism by hand: towers that share their variables, one on each device.

Each tower takes its part of the batch. The gradients are averaged and applied once, with a
decreasing learning rate and moving averages of the parameters for evaluation.
`gc.devices.DataParallel` does the same with a graph written for one device. The hand-written form
shows what happens on each device, and can be changed there.

python examples/towers.py --towers 4

Source: Abadi et al., TensorFlow, arXiv:1603.04467, section 7, "Data parallel training".
"""

from __future__ import annotations

import argparse

import digits
import numpy as np
import optax
import several_devices

import graphc as gc

STEPS = 300
WEIGHT_DECAY = 1e-4


def make_layers(dtype: str) -> list:
    """Makes the layers. Every tower calls them; they create their variables in the first one."""
    return [
        gc.nn.Conv2D(16, 3, activation=gc.nn.relu, name="conv", dtype=dtype, padding="same"),
        gc.nn.MaxPool2D(2),
        gc.nn.Flatten(),
        gc.nn.Dense(64, activation=gc.nn.relu, name="hidden", dtype=dtype),
        gc.nn.Dense(10, name="out", dtype=dtype),
    ]


def add_losses(graph: gc.Graph, logits: gc.Tensor, labels: gc.Tensor) -> None:
    """Adds the tower's terms of the loss to the collection "losses"."""
    each = gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=labels)
    graph.add_to_collection("losses", gc.reduce_mean(each, name="cross_entropy"))
    kernels = [v for v in graph.variables.values() if v.name.endswith("/kernel")]
    squares = sum(gc.reduce_sum(gc.square(kernel)) for kernel in kernels)
    graph.add_to_collection("losses", gc.multiply(squares, WEIGHT_DECAY, name="penalty"))


def averaged(towers: list[list[gc.Tensor]]) -> list[gc.Tensor]:
    """The mean over the towers of each variable's gradient."""
    return [sum(same) / len(same) for same in zip(*towers, strict=True)]


def build(*, towers: int = 4, dtype: str = "float32", batch: int = 128) -> gc.train.Job:
    """The graph, its training step and its data.

    Args:
        towers: the number of equal parts of a batch, one for each device.
    """
    data = digits.load(dtype)
    places = several_devices.names(towers)
    graph = gc.Graph(seed=0, name="towers")
    with graph:
        x = gc.placeholder(("batch", 8, 8, 1), dtype, name="x")
        y = gc.placeholder(("batch",), "int32", name="y")
        network = gc.nn.Sequential(make_layers(dtype), name="network")
        losses, gradients = [], []
        parts = zip(gc.split(x, towers), gc.split(y, towers), strict=True)
        for i, (images, labels) in enumerate(parts):
            with gc.device(places[i]), gc.name_scope(f"tower_{i}"):
                add_losses(graph, network(images), labels)
                losses.append(sum(graph.collection("losses", scope=f"tower_{i}")))
                variables = [v for v in graph.variables.values() if v.trainable]
                gradients.append(gc.gradients(losses[-1], variables))
        with gc.device(places[0]):
            loss = gc.divide(sum(losses), towers, name="loss")
            rate = optax.exponential_decay(0.1, STEPS // 3, 0.3, staircase=True)
            apply = gc.train.apply_gradients(
                zip(averaged(gradients), variables, strict=True), optax.sgd(rate, momentum=0.9)
            )
            step = gc.variable(np.int32(0), name="step").assign_add(1)
            averages = gc.train.moving_averages(variables, 0.99, num_updates=step)
            train = gc.group(apply, averages.update)
            accuracy = digits.accuracy(network(x), y)

    def evaluate(session: gc.Session) -> dict[str, float]:
        feeds = {"x": data["x_test"], "y": data["y_test"]}
        last = float(session.run(accuracy, feeds))
        with averages.swapped(session):
            return {
                "test accuracy": last,
                "test accuracy of the averages": float(session.run(accuracy, feeds)),
            }

    return gc.train.Job(
        graph,
        train,
        gc.data.Batches({"x": data["x_train"], "y": data["y_train"]}, batch, seed=1),
        steps=STEPS,
        metrics={"loss": loss},
        evaluate=evaluate,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--towers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args()
    job = build(towers=options.towers)
    session = gc.Session(job.graph)
    gc.train.fit(session, job, steps=options.steps)
    for name, value in job.evaluate(session).items():
        print(f"{name} {value:.4f}")


if __name__ == "__main__":
    main()
