"""An LSTM with a conditional random field tags each character of Python lines as part of a name, a
keyword, a number, a string, an operator, a comment or nothing: over 90 % of the characters of a
new module, and better than each character's most frequent tag."""

import collections
import dataclasses
import fractions
import inspect
import io
import keyword
import textwrap
import tokenize

import numpy as np
import optax
import pytest

import graphc as gc

SEED, RATE = 0, 1e-2
TIME, BATCH = 24, 64
NOTHING, NAME, KEYWORD, NUMBER, STRING, OPERATOR, COMMENT = range(7)
TAGS = {
    tokenize.NUMBER: NUMBER,
    tokenize.STRING: STRING,
    tokenize.OP: OPERATOR,
    tokenize.COMMENT: COMMENT,
}


def tagged_lines(modules):
    """Characters [lines, TIME], tags [lines, TIME] and lengths [lines]."""
    lines = []
    for module in modules:
        source = inspect.getsource(module)
        rows = source.splitlines()
        tags = [[NOTHING] * len(row) for row in rows]
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            (first, left), (last, right) = token.start, token.end
            if token.type == tokenize.NAME:
                tag = KEYWORD if keyword.iskeyword(token.string) else NAME
            else:
                tag = TAGS.get(token.type, NOTHING)
            if first == last and tag:
                tags[first - 1][left:right] = [tag] * (right - left)
            elif tag:  # one line does not show that it is inside a multi-line string
                for row in range(first - 1, last):
                    rows[row] = ""
        for row, kinds in zip(rows, tags, strict=True):
            indent = len(row) - len(row.lstrip())
            lines.append((row[indent:][:TIME], kinds[indent:][:TIME]))
    lines = [(row, kinds) for row, kinds in lines if len(row) > 3]
    characters = np.zeros((len(lines), TIME), np.int32)
    tags = np.zeros((len(lines), TIME), np.int32)
    lengths = np.array([len(row) for row, _ in lines], np.int32)
    for n, (row, kinds) in enumerate(lines):
        characters[n, : len(row)] = [min(ord(c), 127) for c in row]
        tags[n, : len(row)] = kinds
    return characters, tags, lengths


@pytest.mark.slow
@pytest.mark.one_jax
def test_tags_python():
    x_train, y_train, n_train = tagged_lines([collections, textwrap, fractions])
    x_test, y_test, n_test = tagged_lines([dataclasses])

    with gc.Graph(seed=SEED) as graph:
        characters = gc.placeholder((None, TIME), "int32", name="characters")
        tags = gc.placeholder((None, TIME), "int32", name="tags")
        lengths = gc.placeholder((None,), "int32", name="lengths")
        h = gc.nn.Embedding(128, 16)(characters)
        h = gc.nn.Bidirectional(gc.nn.LSTM(16))(h, lengths=lengths)
        scores = gc.nn.Dense(7)(h)
        transitions = gc.variable(gc.zeros((7, 7)), name="transitions")
        likelihood = gc.nn.crf_log_likelihood(scores, tags, transitions, lengths)
        loss = gc.reduce_mean(-likelihood)
        train = gc.minimize(loss, optax.adam(RATE))
        decoded, _ = gc.nn.viterbi_decode(scores, transitions, lengths)

    session = gc.Session(graph)
    rng = np.random.default_rng(SEED)
    for _ in range(4):
        order = rng.permutation(len(x_train))
        for chosen in order[: len(order) // BATCH * BATCH].reshape(-1, BATCH):
            feeds = {characters: x_train[chosen], tags: y_train[chosen], lengths: n_train[chosen]}
            session.run(train, feeds)

    guess = session.run(decoded, {characters: x_test, lengths: n_test})
    assert ((guess == -1) == (np.arange(TIME) >= n_test[:, None])).all()
    valid = guess >= 0
    counts = np.zeros((128, 7))
    seen = np.arange(TIME) < n_train[:, None]
    np.add.at(counts, (x_train[seen], y_train[seen]), 1)
    right = (guess == y_test)[valid].mean()
    baseline = (counts.argmax(1)[x_test] == y_test)[valid].mean()
    print(len(x_train), len(x_test), right, baseline)
    assert right > 0.9
    assert right > baseline + 0.05
