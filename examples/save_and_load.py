"""Saves a whole training step, and continues training from the file alone.

python examples/save_and_load.py
"""

from __future__ import annotations

import tempfile
from itertools import islice
from pathlib import Path

import digits
import numpy as np
import optax

import graphc as gc


def build() -> tuple[gc.Graph, dict[str, gc.Signature]]:
    """A small classifier, with one signature to predict and one to train."""
    graph = gc.Graph(seed=0, name="digits_linear")
    with graph:
        x = gc.placeholder(("batch", 8, 8, 1), name="x")
        y = gc.placeholder(("batch",), "int32", name="y")
        logits = gc.nn.Dense(10, name="out")(gc.reshape(x, (x.shape[0], 64)))
        losses = gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=y)
        loss = gc.reduce_mean(losses, name="loss")
        train = gc.minimize(loss, optax.adam(1e-2), name="train")
    return graph, {
        "predict": gc.Signature({"x": x}, {"logits": logits}),
        "train": gc.Signature({"x": x, "y": y}, {"loss": loss}, updates=[train]),
    }


def main() -> None:
    data = digits.load()
    batches = gc.data.Batches({"x": data["x_train"], "y": data["y_train"]}, 128, seed=1)
    graph, signatures = build()
    session = gc.Session(graph)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "digits.gcx"
        gc.save(session, path, signatures=signatures)
        model = gc.load(path)
        state = model.state()
        for feeds in islice(batches, 100):
            outputs, state = model.signatures["train"](state, **feeds)
            loss = session.run(["loss:0", "train"], feeds)[0]
        print(f"loss {float(outputs['loss']):.6f} from the file, {float(loss):.6f} in the session")
        logits = model.signatures["predict"](state, x=data["x_test"])["logits"]
        accuracy = np.mean(np.argmax(logits, axis=-1) == data["y_test"])
        print(f"test accuracy {accuracy:.4f}")


if __name__ == "__main__":
    main()
