"""A stacked LSTM that learns lines of Python, character by character, from the standard library.

Lines have many lengths. Each batch contains lines of similar length, and `gc.Bucketing` pads them
to one of a few lengths. There is one compilation for each of these, and the losses equal those of
unpadded lines.

python examples/char_lstm.py --steps 400
graphc train examples/char_lstm.py
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import optax
import sources

import graphc as gc

VOCABULARY = len(sources.CHARACTERS)
NEWLINE = sources.CHARACTERS.index("\n")  # ends a line, and also precedes it
STEPS = 400
LENGTHS = (16, 32, 48, 64)  # lines are padded to these lengths


class CharLSTM(gc.nn.Layer):
    """Logits `[batch, time, characters]` of the character after each of `tokens` [batch, time]."""

    def __init__(self, units: int, layers: int) -> None:
        super().__init__("lstm")
        self.embedding = gc.nn.Embedding(VOCABULARY, units, name="embedding")
        self.stack = gc.nn.StackedRNN([gc.nn.LSTM(units, name=f"layer{i}") for i in range(layers)])
        self.head = gc.nn.Dense(VOCABULARY, name="head")

    def __call__(self, tokens: gc.Tensor) -> gc.Tensor:
        return self.with_state(tokens, None)[0]

    def with_state(
        self, tokens: gc.Tensor, state: Any, lengths: gc.Tensor | None = None
    ) -> tuple[gc.Tensor, Any]:
        """The logits, and the state from which the next call can continue.

        Args:
            state: None at the start of a line.
            lengths: int32 [batch]: how many of the tokens count. The returned state is the one
                after the last of these.
        """
        with self.scope(tokens):
            outputs, state = self.stack.with_state(self.embedding(tokens), state, lengths)
            return self.head(outputs), state


class Language(NamedTuple):
    """The result of `make_language`: the training job, the model in its graph, and its buckets."""

    job: gc.train.Job
    model: CharLSTM
    buckets: gc.Bucketing


def batches(lines: Sequence[np.ndarray], size: int, seed: int = 0) -> Iterator[list[np.ndarray]]:
    """Endless batches of lines; the lines of a batch have similar lengths."""
    rng = np.random.default_rng(seed)
    while True:
        # Lines of 64 batches are sorted by length and cut into batches, which come in random order.
        chosen = rng.permutation(len(lines))[: 64 * size]
        pool = sorted((lines[i] for i in chosen), key=len)
        starts = np.arange(0, len(pool) - size + 1, size)
        for start in rng.permutation(starts):
            yield pool[start : start + size]


def line_losses(model: CharLSTM, lines: gc.Tensor) -> gc.Tensor:
    """`[batch, time]`: the loss of each character, predicted from the previous ones of its line."""
    before = gc.pad(lines[:, :-1], ((0, 0), (1, 0)), constant_values=NEWLINE)
    return gc.nn.sparse_softmax_cross_entropy(logits=model(before), labels=lines)


def optimizer(steps: int) -> optax.GradientTransformation:
    rate = optax.warmup_cosine_decay_schedule(0.0, 1e-2, max(1, steps // 10), steps)
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))


def make_language(
    *,
    units: int = 128,
    layers: int = 2,
    batch: int = 32,
    steps: int = STEPS,
    lengths: Sequence[int] = LENGTHS,
    tx: optax.GradientTransformation | None = None,
) -> Language:
    """The graph with its training step, and its data."""
    buckets = gc.Bucketing({"batch": [batch], "time": list(lengths)})
    graph = gc.Graph(seed=0, name="char_lstm")
    with graph:
        lines = gc.placeholder(("batch", "time"), "int32", name="lines")
        mask = buckets.mask("batch", "time")
        model = CharLSTM(units, layers)
        loss = gc.nn.masked_mean(line_losses(model, lines), mask, name="loss")
        train = gc.minimize(loss, tx or optimizer(steps), name="train")
    training, test = (
        sources.lines(sources.read(names), max(lengths))
        for names in (sources.TRAINING, sources.TEST)
    )

    def evaluate(session: gc.Session) -> dict[str, float]:
        total = 0.0
        for i in range(0, len(test), batch):
            rows = test[i : i + batch]  # in the original order; the last batch is smaller
            total += float(buckets.run(session, loss, {lines: rows})) * sum(map(len, rows))
        return {"test bits a character": float(total / sum(map(len, test)) / np.log(2))}

    padded = (buckets.pad(graph, loss, {lines: rows}) for rows in batches(training, batch, seed=1))
    job = gc.train.Job(graph, train, padded, steps=steps, metrics={"loss": loss}, evaluate=evaluate)
    return Language(job, model, buckets)


def build(**options: Any) -> gc.train.Job:
    """The function that `graphc train` calls; `options` are those of `make_language`."""
    return make_language(**options).job


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--units", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, help="to pad to")
    options = parser.parse_args(argv)
    job, _, buckets = make_language(**vars(options))
    session = gc.Session(job.graph)
    history = gc.train.fit(session, job)
    print(f"{session.compile_count} compiles for {buckets.count} buckets")
    losses = history.metrics["loss"] / np.log(2)
    print(f"bits a character {losses[0]:.2f} at first, {np.mean(losses[-20:]):.2f} at last")
    for name, value in job.evaluate(session).items():
        print(f"{name} {value:.2f}")


if __name__ == "__main__":
    main()
