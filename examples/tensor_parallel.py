"""A transformer on handwritten digits, sharded over a mesh of devices (Megatron style).

Each image is a sequence of 8 rows. The batch is sharded over the mesh's axis "data". Attention
heads and the units of the wide layers are sharded over "model": the first of two products by
columns, the second by rows. So a block exchanges two sums forward and two backward. Shoeybi et al.,
"Megatron-LM", 2019. XLA derives all other layouts: Xu et al., "GSPMD", 2021.

python examples/tensor_parallel.py --data 2 --model 2
"""

from __future__ import annotations

import argparse

import digits
import optax
import several_devices

import graphc as gc

COLUMNS = (None, "model")
ROWS = ("model", None)


def build(
    *, blocks: int = 2, width: int = 32, heads: int = 4, batch: int = 96, dtype: str = "float32"
) -> gc.train.Job:
    """The graph with its annotations, its training step and its data."""
    data = digits.load(dtype)
    for part in ("x_train", "x_test"):
        data[part] = data[part].reshape(-1, 8, 8)
    graph = gc.Graph(seed=0, name="tensor_parallel")
    with graph:
        x = gc.placeholder((None, 8, 8), dtype, name="x")
        y = gc.placeholder((None,), "int32", name="y")
        place = gc.variable(
            gc.nn.initializers.Normal(0.1), shape=(8, width), dtype=dtype, name="place"
        )
        h = gc.nn.Dense(width, name="embed", dtype=dtype)(x) + place
        layers = [
            gc.nn.TransformerBlock(width, heads, name=f"block{i}", dtype=dtype)
            for i in range(blocks)
        ]
        for layer in layers:
            h = gc.shard(layer(h), ("data",))  # exchanged values are replicated over "model"
            annotate(layer)
        logits = gc.nn.Dense(10, name="out", dtype=dtype)(gc.reduce_mean(h, axis=1))
        losses = gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=y)
        loss = gc.reduce_mean(losses, name="loss")
        train = gc.minimize(loss, optax.adam(optax.cosine_decay_schedule(3e-3, 300)), name="train")
        accuracy = digits.accuracy(logits, y)

    signatures = {"predict": gc.Signature({"x": x}, {"logits": logits})}
    return digits.job(graph, train, loss, accuracy, data, batch, steps=300, signatures=signatures)


def annotate(block: gc.nn.TransformerBlock) -> None:
    """Annotates the variables of a block that has been called; the optimizer's slots get the same
    layout."""
    attention = block.attention
    for first in (attention.query, attention.key, attention.value, block.expand):
        kernel, bias = first.variables
        gc.shard(kernel, COLUMNS)
        gc.shard(bias, ("model",))
    for second in (attention.out, block.contract):
        kernel, _ = second.variables  # the bias is added to the whole sum
        gc.shard(kernel, ROWS)


def places(session: gc.Session) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    """The shape of each parameter, and the shape of its piece on each device."""
    found = {}
    for name, variable in session.graph.variables.items():
        if variable.trainable:
            value = session.get(name)
            found[name] = value.shape, value.addressable_shards[0].data.shape
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=int, default=2, help="devices along the batch")
    parser.add_argument("--model", type=int, default=2, help="devices along heads and units")
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    devices = several_devices.names(options.data * options.model)
    mesh = gc.devices.Mesh({"data": options.data, "model": options.model}, devices=devices)
    job = build()
    session = gc.Session(job.graph, strategy=mesh)
    gc.train.fit(session, job, steps=options.steps)
    print(f"{'parameter':32} {'shape':>10} {'on each device':>15}")
    for name, (whole, piece) in places(session).items():
        print(f"{name:32} {whole!s:>10} {piece!s:>15}")
    step = session.executables[0]
    print(f"all-reduces a step {step.hlo().count(' all-reduce(')}")
    for name, value in job.evaluate(session).items():
        print(f"{name} {value:.4f}")


if __name__ == "__main__":
    main()
