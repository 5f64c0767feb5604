"""A graph convolution network knows the groups of twelve of 150 people, and their acquaintances. It
finds the group of over 90 % of the others, far more than the same network without the graph."""

import numpy as np
import optax

import graphc as gc

SEED, RATE = 0, 2e-2
PEOPLE, GROUPS, FEATURES = 150, 3, 8


def community(rng):
    """Features [PEOPLE, FEATURES], groups [PEOPLE], and the edges, each in both directions."""
    group = np.arange(PEOPLE, dtype="int32") % GROUPS
    chance = np.where(group[:, None] == group, 0.2, 0.02)
    known = np.triu(rng.random((PEOPLE, PEOPLE)) < chance, 1)
    first, second = np.nonzero(known | known.T)
    x = 0.7 * np.eye(GROUPS, FEATURES)[group] + rng.normal(size=(PEOPLE, FEATURES))
    return x.astype("float32"), group, first.astype("int32"), second.astype("int32")


def test_finds_groups_from_a_few_labels():
    rng = np.random.default_rng(SEED)
    x, group, first, second = community(rng)
    known = np.zeros(PEOPLE, bool)
    known[:12] = True  # four in each group

    with gc.Graph(seed=SEED) as graph:
        people = gc.placeholder((PEOPLE, FEATURES), name="people")
        source = gc.placeholder(("edges",), "int32", name="source")
        target = gc.placeholder(("edges",), "int32", name="target")
        training = gc.placeholder((), "bool", name="training")
        ones = gc.ones_like(gc.cast(source, "float32"))
        degree = 1 + gc.segment_sum(ones, target, num_segments=PEOPLE)  # including oneself

        def spread(h):
            """Computes D^-1/2 (A + I) D^-1/2 h (Kipf and Welling, 2017)."""
            h = h / gc.sqrt(degree)[:, None]
            sums = h + gc.segment_sum(gc.take(h, source, axis=0), target, num_segments=PEOPLE)
            return sums / gc.sqrt(degree)[:, None]

        h = gc.nn.relu(spread(gc.nn.Dense(16, use_bias=False)(people)))
        h = gc.nn.Dropout(0.3)(h, training=training)
        logits = spread(gc.nn.Dense(GROUPS, use_bias=False)(h))
        losses = gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=group)
        train = gc.minimize(gc.nn.masked_mean(losses, known), optax.adam(RATE))
        right = gc.argmax(logits, axis=-1) == group

    def accuracy(source_values, target_values):
        session = gc.Session(graph)
        feeds = {people: x, source: source_values, target: target_values}
        for _ in range(100):
            session.run(train, feeds | {training: True})
        return np.mean(np.asarray(session.run(right, feeds | {training: False}))[~known])

    with_edges, without = accuracy(first, second), accuracy(first[:0], second[:0])
    assert with_edges > 0.9
    assert with_edges > without + 0.2
