"""A multi-layer perceptron on handwritten digits: the smallest complete program.

python examples/digits_mlp.py --devices 4
"""

from __future__ import annotations

import argparse

import digits
import optax

import graphc as gc


def build(*, dtype: str = "float32", batch: int = 128) -> gc.train.Job:
    """The graph, its training step and its data."""
    data = digits.load(dtype)
    graph = gc.Graph(seed=0, name="digits_mlp")
    with graph:
        x = gc.placeholder((None, 8, 8, 1), dtype, name="x")
        y = gc.placeholder((None,), "int32", name="y")
        h = gc.nn.Sequential(
            [
                gc.nn.Flatten(),
                gc.nn.Dense(128, activation=gc.nn.relu, name="hidden1", dtype=dtype),
                gc.nn.Dense(64, activation=gc.nn.relu, name="hidden2", dtype=dtype),
            ]
        )(x)
        logits = gc.nn.Dense(10, name="out", dtype=dtype)(h)
        losses = gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=y)
        loss = gc.reduce_mean(losses, name="loss")
        schedule = optax.cosine_decay_schedule(3e-3, 300)
        train = gc.minimize(loss, optax.adamw(schedule), name="train")
        accuracy = digits.accuracy(logits, y)

    signatures = {"predict": gc.Signature({"x": x}, {"logits": logits})}
    return digits.job(graph, train, loss, accuracy, data, batch, steps=300, signatures=signatures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    strategy = gc.devices.DataParallel(options.devices) if options.devices > 1 else None
    job = build()
    session = gc.Session(job.graph, strategy=strategy)
    gc.train.fit(session, job, steps=options.steps)
    for name, value in job.evaluate(session).items():
        print(f"{name} {value:.4f}")


if __name__ == "__main__":
    main()
