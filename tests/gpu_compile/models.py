"""Training steps that tests compile for GPUs."""

from typing import Any

import optax

import graphc as gc


def mlp(layers: int = 2, units: int = 512, tx: Any = None) -> tuple[gc.Graph, list[Any]]:
    """A multi-layer perceptron on x f32[batch, 784], y i32[batch]."""
    g = gc.Graph(seed=0, name="mlp")
    with g:
        x = gc.placeholder((None, 784), name="x")
        y = gc.placeholder((None,), "int32", name="y")
        h = x
        for i in range(layers):
            h = gc.nn.Dense(units, activation=gc.nn.relu, name=f"hidden{i}")(h)
        logits = gc.nn.Dense(10, name="out")(h)
        losses = gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=y)
        loss = gc.reduce_mean(losses, name="loss")
        train = gc.minimize(loss, tx or optax.adam(1e-3), name="train")
    return g, [train, loss]


def bytes_of_state(graph: gc.Graph) -> int:
    """The bytes of all variables, in their declared dtypes."""
    session = gc.Session(graph)
    return sum(session.get(name).nbytes for name in graph.variables)
