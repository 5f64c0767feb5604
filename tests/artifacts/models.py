"""Small graphs that the tests of artifacts save."""

import numpy as np
import optax

import graphc as gc


def classifier(*, dtype: str = "float32") -> tuple[gc.Graph, dict[str, gc.Signature]]:
    """A model with all kinds of state: adam's slots, a random stream, averages of batch norm."""
    graph = gc.Graph(seed=3, name="classifier")
    with graph:
        x = gc.placeholder(("batch", 6), dtype, name="x")
        y = gc.placeholder(("batch",), "int32", name="y")
        hidden = gc.nn.Dense(8, name="hidden", dtype=dtype)
        norm = gc.nn.BatchNorm(name="norm", dtype=dtype)
        out = gc.nn.Dense(3, name="out", dtype=dtype)
        h = gc.nn.dropout(gc.nn.relu(norm(hidden(x), training=True)), 0.25)
        losses = gc.nn.sparse_softmax_cross_entropy(logits=out(h), labels=y)
        loss = gc.reduce_mean(losses, name="loss")
        train = gc.minimize(loss, optax.adam(1e-2), name="train")
        logits = gc.identity(out(gc.nn.relu(norm(hidden(x), training=False))), name="logits")
    return graph, {
        "predict": gc.Signature({"x": x}, {"logits": logits}),
        "train": gc.Signature({"x": x, "y": y}, {"loss": loss}, updates=[train]),
    }


def batch(size: int, step: int = 0, dtype: str = "float32") -> dict[str, np.ndarray]:
    """Feeds of `classifier`, always the same for the same arguments."""
    rng = np.random.default_rng([size, step])
    return {"x": rng.normal(size=(size, 6)).astype(dtype), "y": rng.integers(0, 3, size)}


def linear() -> tuple[gc.Graph, dict[str, gc.Signature]]:
    """The smallest graph with a weight and a step, which is quick to save."""
    graph = gc.Graph(seed=0, name="linear")
    with graph:
        x = gc.placeholder(("batch", 2), name="x")
        w = gc.variable(np.array([[1.0], [2.0]], np.float32), name="w")
        y = gc.matmul(x, w)
        step = w.assign_sub(0.5 * gc.matmul(gc.transpose(x), y))
    return graph, {
        "predict": gc.Signature({"x": x}, {"y": y}),
        "train": gc.Signature({"x": x}, {}, updates=[step]),
    }
