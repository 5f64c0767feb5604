"""A small transformer is trained on source text of the standard library. On an unseen module, it is
better than the frequencies of character pairs. It writes the same text with a cache of keys and
values, one step per run, as without a cache."""

import textwrap
import threading
import typing
from pathlib import Path

import numpy as np
import optax
import pytest

import graphc as gc
from tests.near import assert_near

SEED, RATE = 0, 3e-3
LENGTH, WIDTH, HEADS = 32, 48, 4
CHARACTERS = 128  # ASCII


def read(module):
    text = Path(module.__file__).read_text(encoding="utf-8")
    return np.array([ord(c) for c in text if ord(c) < CHARACTERS], np.int32)


def windows(text, count, rng):
    starts = rng.integers(0, len(text) - LENGTH, (count, 1))
    return text[starts + np.arange(LENGTH + 1)]


def pair_loss(training, test):
    """The cross entropy of `test` if each character is predicted from the previous one."""
    counts = np.full((CHARACTERS, CHARACTERS), 0.1)
    np.add.at(counts, (training[:-1], training[1:]), 1)
    chances = counts / counts.sum(1, keepdims=True)
    return -np.log(chances[test[:-1], test[1:]]).mean()


class Model:
    def __init__(self):
        self.embedding = gc.nn.Embedding(CHARACTERS, WIDTH, name="embedding")
        self.blocks = [
            gc.nn.TransformerBlock(WIDTH, HEADS, causal=True, rotary=True, name=f"block{i}")
            for i in range(2)
        ]
        self.norm = gc.nn.LayerNorm(name="norm")
        self.head = gc.nn.Dense(CHARACTERS, name="head")

    def __call__(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    def empty_caches(self, batch, room):
        return [block.empty_cache(batch, room) for block in self.blocks]

    def step(self, tokens, caches):
        """The logits of the next token after `tokens` [batch, 1], and the updated caches."""
        x, after = self.embedding(tokens), []
        for block, cache in zip(self.blocks, caches, strict=True):
            x, cache = block.with_cache(x, cache)
            after.append(cache)
        return self.head(self.norm(x)), after


@pytest.mark.slow
@pytest.mark.one_jax
def test_learns_and_writes_the_same_text_with_and_without_a_cache():
    training = np.concatenate([read(typing), read(threading)])
    test = read(textwrap)
    rng = np.random.default_rng(SEED)

    with gc.Graph(seed=SEED) as graph:
        model = Model()
        text = gc.placeholder((None, LENGTH + 1), "int32", name="text")
        logits = model(text[:, :-1])
        losses = gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=text[:, 1:])
        loss = gc.reduce_mean(losses)
        optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(RATE))
        train = gc.minimize(loss, optimizer)

        # Writing: with the whole previous text, or with one character and the caches.
        so_far = gc.placeholder((3, LENGTH), "int32", name="so_far")
        all_logits = model(so_far)
        character = gc.placeholder((3, 1), "int32", name="character")
        empty = model.empty_caches(3, LENGTH)
        next_logits, caches = model.step(character, empty)

    session = gc.Session(graph)
    for _ in range(25):
        batches = np.stack([windows(training, 16, rng) for _ in range(10)])
        session.run_steps(train, {text: batches}, 10)

    test_loss = float(session.run(loss, {text: windows(test, 400, rng)}))
    assert test_loss < pair_loss(training, test)

    # With the same Gumbel noise, both methods draw the same characters.
    noise = rng.gumbel(size=(LENGTH, 3, CHARACTERS))
    begin = windows(test, 3, rng)[:, :8]

    plain = np.zeros((3, LENGTH), np.int32)
    plain[:, :8] = begin
    for i in range(8, LENGTH):
        found = session.run(all_logits, {so_far: plain})[:, i - 1]
        plain[:, i] = np.argmax(found / 0.7 + noise[i], axis=-1)

    cached = np.zeros((3, LENGTH), np.int32)
    cached[:, :8] = begin
    values = session.run(empty)
    for i in range(LENGTH - 1):
        feeds = {character: cached[:, i : i + 1]}
        for cache, value in zip(empty, values, strict=True):
            feeds |= dict(zip(cache, value, strict=True))
        found, values = session.run([next_logits, caches], feeds)
        if i + 1 >= 8:
            cached[:, i + 1] = np.argmax(found[:, 0] / 0.7 + noise[i + 1], axis=-1)
    assert_near(cached, plain, 0)
    assert len(np.unique(cached[:, 8:])) > 10
