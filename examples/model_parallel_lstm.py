"""A stacked LSTM with one layer per device, on lines of Python from the standard library.

Each layer, its optimizer state and its gradients stay on its device; only the sequence between two
layers is transferred. With micro-batches, the layers work concurrently on different micro-batches.

python examples/model_parallel_lstm.py --layers 4 --micro-batches 4
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import optax
import several_devices
import sources

import graphc as gc

VOCABULARY = len(sources.CHARACTERS)


class Model(NamedTuple):
    """The result of `build`."""

    graph: gc.Graph
    text: gc.Tensor
    loss: gc.Tensor
    train: gc.Node


def build(places: Sequence[str], units: int, length: int, micro_batches: int = 1) -> Model:
    """The graph of a training step on text int32 [batch, length + 1], layer i on `places[i]`."""
    graph = gc.Graph(seed=0, name="model_parallel_lstm")
    with graph:
        text = gc.placeholder(("batch", length + 1), "int32", name="text")
        with gc.device(places[0]):
            x = gc.nn.Embedding(VOCABULARY, units, name="embedding")(text[:, :-1])
        for i, place in enumerate(places):
            with gc.device(place):
                x = gc.nn.LSTM(units, name=f"layer{i}")(x)
        with gc.device(places[-1]):
            logits = gc.nn.Dense(VOCABULARY, name="head")(x)
            losses = gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=text[:, 1:])
            loss = gc.reduce_mean(losses, name="loss")
        train = gc.minimize(loss, optax.adam(3e-3), accumulate=micro_batches, name="train")
    return Model(graph, text, loss, train)


def run(model: Model, steps: int, length: int, batch: int, *, log: bool = False) -> gc.Session:
    """Trains the model and prints the results."""
    session = gc.Session(model.graph, log_placement=log)
    pieces = sources.windows(
        sources.encode(sources.read(sources.TRAINING)), length + 1, batch, seed=1
    )
    losses, start = [], 0.0
    for step, piece in zip(range(steps), pieces, strict=False):
        if step == 1:
            start = time.perf_counter()
        losses.append(session.run([model.train, model.loss], {model.text: piece})[1])
    found = np.array([float(value) for value in losses]) / np.log(2)
    seconds = (time.perf_counter() - start) / max(1, steps - 1)
    print(
        f"bits a character {found[0]:.4f} at first, {found[-1]:.4f} at last; "
        f"{1e3 * seconds:.1f} ms a step"
    )
    return session


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--units", type=int, default=128)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--micro-batches", type=int, default=4)
    parser.add_argument("--log", action="store_true", help="print where each node is")
    options = parser.parse_args(argv)
    sizes = {"units": options.units, "length": options.length}
    drive = {"steps": options.steps, "length": options.length, "batch": options.batch}
    places = several_devices.names(options.layers)

    print("on one device:")
    run(build([places[0]] * options.layers, **sizes), **drive)
    print(f"one layer per device, {options.micro_batches} micro-batches:")
    model = build(places, **sizes, micro_batches=options.micro_batches)
    session = run(model, **drive, log=options.log)
    for name, variable in model.graph.variables.items():
        if variable.trainable:
            (device,) = session.get(name).devices()
            print(f"  {name:18} {variable.type!s:14} on {device}")
    (step,) = session.executables
    if step.partition is not None:
        print(
            f"{len(step.partition.clusters)} clusters, {len(step.partition.sends)} values sent "
            "from device to device in a step"
        )


if __name__ == "__main__":
    main()
