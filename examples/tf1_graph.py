"""A TensorFlow 1 graph is imported, trained further and saved as an artifact.

python examples/tf1_graph.py

`examples/tf1_digits/` contains the files of a training job in the style of 2017: a MetaGraph with a
queue, reference variables, `tf.cond` and Adam, and a checkpoint after one epoch. TensorFlow is not
needed. The queue is removed: batches are fed in its place. Training continues with another
optimizer, and the network is saved with a signature that a server can load.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import digits
import numpy as np
import optax

import graphc as gc

FOLDER = Path(__file__).parent / "tf1_digits"
BATCH = 32


def accuracy(probabilities: Any, labels: np.ndarray[Any, Any]) -> float:
    """The share of images whose most likely class is the label."""
    return float(np.mean(np.argmax(probabilities, 1) == labels))


def load() -> gc.ImportedModel:
    """The old graph, from the outputs of its queue to its loss and probabilities."""
    return gc.from_meta_graph(
        FOLDER / "model.ckpt.meta",
        outputs=["loss", "probabilities"],
        inputs={
            "input/batch:0": gc.TensorSpec(("batch", 8, 8, 1)),
            "input/batch:1": gc.TensorSpec(("batch",), "int32"),
            "training": gc.TensorSpec((), "bool"),
        },
    )


def main() -> dict[str, float]:
    """Prints the accuracy before and after, and the accuracy of the loaded artifact."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--to", help="the folder of the artifact; by default a temporary one")
    args = parser.parse_args()
    data = digits.load()
    model = load()
    with gc.Graph(seed=0) as graph:
        images = gc.placeholder(("batch", 8, 8, 1), name="images")
        labels = gc.placeholder(("batch",), "int32", name="labels")
        probabilities = model(images, gc.zeros(labels.shape, "int32"), gc.constant(False))
        train = gc.minimize(
            model(images, labels, gc.constant(True))["loss"], optax.adamw(1e-2, weight_decay=1e-3)
        )
    print("variables of the old graph:", ", ".join(v.name for v in model.variables))
    session = gc.Session(graph)
    rng = np.random.default_rng(0)
    seen = {images: data["x_test"]}
    results = {
        "before": accuracy(session.run(probabilities["probabilities"], seen), data["y_test"])
    }
    for _ in range(args.epochs):
        order = rng.permutation(len(data["x_train"]))
        for batch in order[: len(order) // BATCH * BATCH].reshape(-1, BATCH):
            session.run(train, {images: data["x_train"][batch], labels: data["y_train"][batch]})
    results["after"] = accuracy(session.run(probabilities["probabilities"], seen), data["y_test"])
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(args.to or temporary) / "digits"
        signature = gc.Signature({"images": images}, {"p": probabilities["probabilities"]})
        gc.save(session, path, signatures={"predict": signature}, platforms=("cpu",))
        predict = gc.load(path).signatures["predict"]
        results["artifact"] = accuracy(predict(images=data["x_test"])["p"], data["y_test"])
    for name, value in results.items():
        print(f"accuracy {name:>8}: {value:.3f}")
    return results


if __name__ == "__main__":
    main()
