"""The source text of a script whose job trains quickly."""

HELPER = """
import numpy as np

def data(examples=64):
    x = np.random.default_rng(0).normal(size=(examples, 3)).astype("float32")
    return {"x": x, "t": x @ np.array([[1.0], [-2.0], [0.5]], "float32")}
"""

SCRIPT = '''\
"""Linear regression."""
import sys

import helper  # beside this file

import graphc as gc
import optax

RATE = float(sys.argv[1]) if len(sys.argv) > 1 else 0.1


def build():
    graph = gc.Graph(seed=0, name="regression")
    with graph:
        x = gc.placeholder(("batch", 3), name="x")
        t = gc.placeholder(("batch", 1), name="t")
        y = gc.identity(gc.nn.Dense(1, name="fit")(x), name="y")
        loss = gc.reduce_mean(gc.square(y - t), name="loss")
        train = gc.minimize(loss, optax.sgd(RATE), name="train")
    data = helper.data()

    def evaluate(session):
        return {"final loss": float(session.run(loss, data))}

    return gc.train.Job(
        graph,
        train,
        gc.data.Batches(data, 16),
        steps=30,
        metrics={"loss": loss},
        evaluate=evaluate,
        signatures={
            "predict": gc.Signature({"x": x}, {"y": y}),
            "train": gc.Signature({"x": x, "t": t}, {"loss": loss}, updates=[train]),
        },
    )


if __name__ == "__main__":
    raise AssertionError("only graphc imports this")
'''
