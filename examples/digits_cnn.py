"""A convolutional network on handwritten digits, on one device or on several.

python examples/digits_cnn.py --devices 4
graphc train examples/digits_cnn.py --devices 4
"""

from __future__ import annotations

import argparse

import digits
import numpy as np
import optax

import graphc as gc

STEPS = 400


def optimizer() -> optax.GradientTransformation:
    """Adam with a learning rate that decreases to zero at the last step."""
    return optax.adam(optax.cosine_decay_schedule(4e-3, STEPS))


def network(x: gc.Tensor, *, training: bool, layers: dict | None = None) -> gc.Tensor:
    """Logits `[batch, 10]` of images `[batch, 8, 8, 1]`."""
    h = layers["conv1"](x)
    h = gc.nn.max_pool(layers["conv2"](h), 2)
    h = gc.reshape(h, (h.shape[0], -1))
    h = gc.nn.dropout(layers["hidden"](h), 0.5) if training else layers["hidden"](h)
    return layers["out"](h)


def make_layers(dtype: str) -> dict:
    """The layers; calling them twice shares their variables."""
    relu = gc.nn.relu
    return {
        "conv1": gc.nn.Conv2D(32, 3, activation=relu, name="conv1", dtype=dtype, padding="same"),
        "conv2": gc.nn.Conv2D(64, 3, activation=relu, name="conv2", dtype=dtype, padding="same"),
        "hidden": gc.nn.Dense(128, activation=relu, name="hidden", dtype=dtype),
        "out": gc.nn.Dense(10, name="out", dtype=dtype),
    }


def build(
    *,
    dtype: str = "float32",
    dropout: bool = True,
    batch: int = 128,
    tx: optax.GradientTransformation | None = None,
) -> gc.train.Job:
    """The graph, its training step and its data: the function that `graphc train` calls."""
    data = digits.load(dtype)
    graph = gc.Graph(seed=0, name="digits_cnn")
    with graph:
        x = gc.placeholder(("batch", 8, 8, 1), dtype, name="x")
        y = gc.placeholder(("batch",), "int32", name="y")
        layers = make_layers(dtype)
        train_logits = network(x, training=dropout, layers=layers)
        losses = gc.nn.sparse_softmax_cross_entropy(logits=train_logits, labels=y)
        loss = gc.reduce_mean(losses, name="loss")
        train = gc.minimize(loss, tx or optimizer(), name="train")
        logits = gc.identity(network(x, training=False, layers=layers), name="logits")
        accuracy = digits.accuracy(logits, y)

    signatures = {
        "predict": gc.Signature({"x": x}, {"logits": logits}),
        "train": gc.Signature({"x": x, "y": y}, {"loss": loss}, updates=[train]),
    }
    return digits.job(graph, train, loss, accuracy, data, batch, steps=STEPS, signatures=signatures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args()
    strategy = gc.devices.DataParallel(options.devices) if options.devices > 1 else None
    job = build()
    session = gc.Session(job.graph, strategy=strategy)
    history = gc.train.fit(session, job, steps=options.steps)
    print(f"loss {np.mean(history.metrics['loss'][-20:]):.4f}")
    for name, value in job.evaluate(session).items():
        print(f"{name} {value:.4f}")


if __name__ == "__main__":
    main()
