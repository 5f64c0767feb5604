"""word2vec (skip-gram with noise-contrastive estimation) is trained on the help texts of Python.
For unseen pairs of words, the neighbor is among its ten best guesses at least 1.5 times as often
as among the ten most frequent words."""

import re
from collections import Counter
from pydoc_data.topics import topics

import numpy as np
import optax
import pytest

import graphc as gc

SEED, RATE = 0, 1e-2
WORDS, FEATURES, BATCH = 1000, 32, 512


def skip_grams(words, window=2):
    """Pairs (word, neighbor)."""
    pairs = []
    for step in range(1, window + 1):
        pairs += [(words[:-step], words[step:]), (words[step:], words[:-step])]
    return np.concatenate([a for a, _ in pairs]), np.concatenate([b for _, b in pairs])


@pytest.mark.slow
def test_guesses_neighbours():
    text = " ".join(topics[name] for name in sorted(topics)).lower()
    words = re.findall(r"[a-z_]{2,}", text)[:80_000]
    # Without the most frequent words, as in the paper, and without rare words.
    common = [word for word, _ in Counter(words).most_common(WORDS + 20)[20:]]
    number = {word: n for n, word in enumerate(common)}
    number_of = np.array([number[word] for word in words if word in number], np.int32)
    cut = len(number_of) * 9 // 10
    centres, contexts = skip_grams(number_of[:cut])
    test_centres, test_contexts = skip_grams(number_of[cut:])

    with gc.Graph(seed=SEED) as graph:
        centre = gc.placeholder((None,), "int32", name="centre")
        context = gc.placeholder((None,), "int32", name="context")
        table = gc.variable(
            gc.nn.initializers.Uniform(-0.5, 0.5), shape=(WORDS, FEATURES), name="table"
        )
        weights = gc.variable(
            gc.nn.initializers.TruncatedNormal(stddev=FEATURES**-0.5),
            shape=(WORDS, FEATURES),
            name="weights",
        )
        # The estimates are log probabilities, which are about 1 / WORDS at first.
        biases = gc.variable(gc.full((WORDS,), -np.log(WORDS)), name="biases")
        embedded = gc.nn.embedding_lookup(table, centre)
        losses = gc.nn.nce_loss(
            weights=weights, biases=biases, inputs=embedded, labels=context, samples=32
        )
        loss = gc.reduce_mean(losses, name="loss")
        train = gc.minimize(loss, optax.adam(RATE))
        logits = gc.matmul(embedded, weights.T) + biases
        found = gc.nn.in_top_k(context, logits, 10)
        hits = gc.reduce_mean(gc.cast(found, "float32"))

    session = gc.Session(graph)
    rng = np.random.default_rng(SEED)
    for _ in range(6):
        order = rng.permutation(len(centres))
        for chosen in order[: len(order) // BATCH * BATCH].reshape(-1, BATCH):
            session.run(train, {centre: centres[chosen], context: contexts[chosen]})

    guessed = session.run(hits, {centre: test_centres, context: test_contexts})
    frequent = np.bincount(contexts, minlength=WORDS).argsort()[-10:]
    baseline = np.isin(test_contexts, frequent).mean()
    print(guessed, baseline)
    assert guessed > 1.5 * baseline
