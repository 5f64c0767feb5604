"""A transformer that learns to write Python, character by character, from the standard library.

Training, evaluation and writing are parts of one graph. Writing is a scan whose body runs the model
on the previous text.

python examples/transformer_lm.py --steps 300
graphc train examples/transformer_lm.py --devices 2
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
import optax
import sources

import graphc as gc

VOCABULARY = len(sources.CHARACTERS)
STEPS = 400


class Size(NamedTuple):
    """The size of the model and of the batches."""

    blocks: int = 3
    width: int = 96
    heads: int = 4
    length: int = 64
    batch: int = 16


def dense(units: int, name: str) -> gc.nn.Dense:
    start = gc.nn.initializers.Normal(stddev=0.02)
    return gc.nn.Dense(units, use_bias=False, kernel_initializer=start, name=name)


class Block(gc.nn.Layer):
    """Attention to earlier tokens, then two dense layers; each adds to `x` [batch, time, width].

    Both parts normalize their input: Xiong et al., "On layer normalization in the transformer
    architecture", 2020.
    """

    def __init__(self, width: int, heads: int, name: str) -> None:
        super().__init__(name)
        self.heads = heads
        self.norm1, self.norm2 = gc.nn.LayerNorm(name="norm1"), gc.nn.LayerNorm(name="norm2")
        self.qkv, self.out = dense(3 * width, "qkv"), dense(width, "out")
        self.up, self.down = dense(4 * width, "up"), dense(width, "down")

    def __call__(self, x: gc.Tensor) -> gc.Tensor:
        with self.scope(x):
            batch, time, width = x.shape
            parts = gc.split(self.qkv(self.norm1(x)), 3, axis=-1)
            heads = (batch, time, self.heads, width // self.heads)
            query, key, value = (gc.reshape(part, heads) for part in parts)
            mixed = gc.nn.attention(query, key, value, causal=True)
            x = x + self.out(gc.reshape(mixed, (batch, time, width)))
            return x + self.down(gc.nn.gelu(self.up(self.norm2(x))))


class Transformer(gc.nn.Layer):
    """Logits `[batch, time, characters]` of the character after each of `tokens` [batch, time]."""

    def __init__(self, size: Size) -> None:
        super().__init__("transformer")
        normal = gc.nn.initializers.Normal(stddev=0.02)
        self.tokens = gc.nn.Embedding(VOCABULARY, size.width, normal, name="tokens")
        self.places = gc.nn.Embedding(size.length, size.width, normal, name="places")
        self.blocks = [Block(size.width, size.heads, f"block{i}") for i in range(size.blocks)]
        self.norm, self.head = gc.nn.LayerNorm(name="norm"), dense(VOCABULARY, "head")

    def __call__(self, tokens: gc.Tensor) -> gc.Tensor:
        with self.scope(tokens):
            x = self.tokens(tokens) + self.places(gc.arange(tokens.shape[1]))
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))


def write(model: Transformer, prompt: gc.Tensor, count: int, warmth: float) -> gc.Tensor:
    """`[batch, count]` characters after `prompt` [batch, time], each drawn from the model.

    Args:
        warmth: the temperature: 1 keeps the model's probabilities, less favors likely ones.
    """

    def turn(seen: gc.Tensor, _: None) -> tuple:
        drawn = gc.random.categorical(model(seen)[:, -1] / warmth)
        return gc.concatenate([seen[:, 1:], drawn[:, None]], axis=1), drawn

    _, drawn = gc.scan(turn, prompt, length=count, name="write")
    return gc.transpose(drawn)


def optimizer(steps: int) -> optax.GradientTransformation:
    rate = optax.warmup_cosine_decay_schedule(0.0, 3e-3, max(1, steps // 10), steps)
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(rate, weight_decay=0.01))


def build(
    size: Size = Size(),  # noqa: B008  (immutable)
    *,
    steps: int = STEPS,
    written: int = 200,
    tx: optax.GradientTransformation | None = None,
) -> gc.train.Job:
    """The graph with its training step, and its data."""
    graph = gc.Graph(seed=0, name="transformer_lm")
    with graph:
        text = gc.placeholder(("batch", size.length + 1), "int32", name="text")
        model = Transformer(size)
        losses = gc.nn.sparse_softmax_cross_entropy(logits=model(text[:, :-1]), labels=text[:, 1:])
        loss = gc.reduce_mean(losses, name="loss")
        train = gc.minimize(loss, tx or optimizer(steps), name="train")
        prompt = gc.placeholder(("prompts", size.length), "int32", name="prompt")
        gc.identity(write(model, prompt, written, 0.7), name="written")
    test = sources.encode(sources.read(sources.TEST))

    def evaluate(session: gc.Session) -> dict[str, float]:
        pieces = islice(sources.windows(test, size.length + 1, size.batch), 8)
        found = [float(session.run(loss, {text: piece})) for piece in pieces]
        return {"test bits a character": float(np.mean(found) / np.log(2))}

    training = sources.encode(sources.read(sources.TRAINING))
    pieces = sources.windows(training, size.length + 1, size.batch, seed=1)
    return gc.train.Job(
        graph,
        train,
        ({"text": piece} for piece in pieces),
        steps=steps,
        metrics={"loss": loss},
        evaluate=evaluate,
        signatures={"loss": gc.Signature({"text": text}, {"loss": loss})},
    )


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--blocks", type=int, default=Size().blocks)
    parser.add_argument("--width", type=int, default=Size().width)
    options = parser.parse_args(argv)

    size = Size(blocks=options.blocks, width=options.width)
    job = build(size, steps=options.steps)
    session = gc.Session(job.graph)
    history = gc.train.fit(session, job)
    losses = history.metrics["loss"] / np.log(2)
    print(f"bits a character {losses[0]:.2f} at first, {np.mean(losses[-20:]):.2f} at last")
    for name, value in job.evaluate(session).items():
        print(f"{name} {value:.2f}")
    test = sources.read(sources.TEST)
    middle = test.index("    def ") + len("    def ")
    prompt = test[middle - size.length : middle]
    written = session.run("written:0", {"prompt": sources.encode(prompt)[None]})[0]
    print(f"it goes on from {prompt[-8:]!r}:")
    print(sources.decode(np.asarray(written)))


if __name__ == "__main__":
    main()
