"""A bidirectional LSTM learns whether the first and the last symbol of a sequence are equal: over
95 % of new sequences. Noise follows the last symbol, so only the lengths show which symbol is
the last."""

import numpy as np
import optax
import pytest

import graphc as gc

SEED, RATE = 0, 1e-2
SYMBOLS, TIME = 4, 12


def sequences(count, rng):
    """Sequences of 2 to TIME symbols, padded with noise; half of them have equal ends."""
    lengths = rng.integers(2, TIME + 1, count)
    words = rng.integers(0, SYMBOLS, (count, TIME))
    same = rng.integers(0, 2, count)
    other = (words[:, 0] + rng.integers(1, SYMBOLS, count)) % SYMBOLS
    words[np.arange(count), lengths - 1] = np.where(same, words[:, 0], other)
    return words, lengths, same.astype("float32")


@pytest.mark.slow
@pytest.mark.one_jax
def test_compares_first_and_last():
    with gc.Graph(seed=SEED) as graph:
        words = gc.placeholder((None, TIME), "int32", name="words")
        lengths = gc.placeholder((None,), "int32", name="lengths")
        same = gc.placeholder((None,), "float32", name="same")
        embedded = gc.one_hot(words, SYMBOLS)
        layer = gc.nn.Bidirectional(gc.nn.LSTM(16))
        outputs = layer(embedded, lengths=lengths)  # zeros after the last symbol
        h = gc.reduce_max(outputs, axis=1)
        h = gc.nn.Dense(32, activation="relu")(h)
        logits = gc.squeeze(gc.nn.Dense(1)(h), axis=1)
        loss = gc.reduce_mean(gc.nn.sigmoid_cross_entropy(logits=logits, labels=same))
        train = gc.minimize(loss, optax.adam(RATE))
        accuracy = gc.reduce_mean(gc.cast((logits > 0) == (same > 0.5), "float32"))

    session = gc.Session(graph)
    rng = np.random.default_rng(SEED)

    def feeds():
        while True:
            w, n, s = sequences(128, rng)
            yield {words: w, lengths: n, same: s}

    stream = feeds()
    for _ in range(10):
        session.run_steps(train, stream, 50)

    w, n, s = sequences(1000, np.random.default_rng(SEED + 1))
    right = session.run(accuracy, {words: w, lengths: n, same: s})
    blind = session.run(accuracy, {words: w, lengths: np.full(1000, TIME), same: s})
    print(right, blind)
    assert right > 0.95
    assert blind < 0.75
