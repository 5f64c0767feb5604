"""A transformer in pipeline stages with micro-batches, and how long its stages wait.

GPipe (Huang et al. 2019): the blocks are divided into stages, each on a device. A batch is cut into
micro-batches, which pass through the stages one after the other. With m micro-batches and s equally
fast stages, each stage waits for (s - 1) / (m + s - 1) of the time: the bubble. With 1F1B
(Narayanan et al. 2019) the stages wait as long, but the first one holds the activations of s
micro-batches instead of m.

python examples/pipeline_transformer.py --stages 4 --micro-batches 1 2 4 8
python examples/pipeline_transformer.py --schedule gpipe
python examples/pipeline_transformer.py --recompute
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import optax
import several_devices
import sources
from transformer_lm import VOCABULARY, Block, Size, dense

import graphc as gc


def build(
    size: Size, places: Sequence[str], micro_batches: int
) -> tuple[gc.Graph, gc.Tensor, gc.Tensor, gc.Node]:
    """The graph, its text int32 [batch, length + 1], its loss and its training step."""
    graph = gc.Graph(seed=0, name="pipeline_transformer")
    normal = gc.nn.initializers.Normal(stddev=0.02)
    with graph:
        text = gc.placeholder(("batch", size.length + 1), "int32", name="text")
        with gc.device(places[0]):
            tokens = gc.nn.Embedding(VOCABULARY, size.width, normal, name="tokens")
            positions = gc.nn.Embedding(size.length, size.width, normal, name="places")
            x = tokens(text[:, :-1]) + positions(gc.arange(size.length))
        for i in range(size.blocks):
            with gc.device(places[i * len(places) // size.blocks]):
                x = Block(size.width, size.heads, f"block{i}")(x)
        with gc.device(places[-1]):
            logits = dense(VOCABULARY, "head")(gc.nn.LayerNorm(name="norm")(x))
            losses = gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=text[:, 1:])
            loss = gc.reduce_mean(losses, name="loss")
        train = gc.minimize(loss, optax.adam(1e-3), accumulate=micro_batches, name="train")
    return graph, text, loss, train


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--stages", type=int, default=4)
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--micro-batches", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--schedule", choices=["1f1b", "gpipe"], default="1f1b")
    parser.add_argument("--recompute", action="store_true", help="keep only inputs of stages")
    options = parser.parse_args(argv)
    strategy = gc.devices.PipelineParallel(options.schedule, options.recompute)
    size = Size(options.blocks, options.width, 4, options.length, options.batch)
    places = several_devices.names(options.stages)
    pieces = sources.windows(
        sources.encode(sources.read(sources.TRAINING)), size.length + 1, size.batch, seed=1
    )
    data = [piece for _, piece in zip(range(options.steps), pieces, strict=False)]

    print("micro-batches  loss at last  clusters  compiled  bubble  of theory  kept by a stage")
    for count in options.micro_batches:
        graph, text, loss, train = build(size, places, count)
        step = gc.compile(graph, [train, loss], {text: data[0].shape}, strategy=strategy)
        state = step.init()
        for piece in data:
            (_, value), state = step(state, {text: piece})
        clusters = step.partition.clusters
        spans = step.timeline(state, {text: data[0]})
        # Work before and after the pipeline (initial gradient sums, updates) does not count.
        pipeline = [span for span in spans if clusters[span.cluster].micro_batch is not None]
        measured = gc.devices.idle_part(pipeline if count > 1 else spans)
        theory = gc.devices.bubble(options.stages, count)
        compiled = step.hlo().count("HloModule")
        kept = max(gc.devices.kept_bytes(step.partition).values()) / 1e6
        print(
            f"{count:13}  {float(value):12.6f}  {len(clusters):8}  {compiled:8}  "
            f"{measured:6.1%}  {theory:9.1%}  {kept:12.1f} MB"
        )


if __name__ == "__main__":
    main()
