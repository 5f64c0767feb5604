"""Features of digits are learned without labels, by a contrastive loss on two shifted and noisy
views of each image (SimCLR). With five labels per digit, nearest neighbors in these features
classify many more shifted test digits than in random features or in pixels."""

import numpy as np
import optax
import pytest
from sklearn.datasets import load_digits

import graphc as gc

SEED, RATE = 0, 3e-3
TEMPERATURE, BATCH = 0.3, 128


def view(rng, images):
    """Each image [8, 8] with a border of two, shifted by up to a pixel, noisy: [count, 144]."""
    moved = np.zeros((len(images), 12, 12), "float32")
    places = rng.integers(1, 4, (len(images), 2))
    for image, wide, (i, j) in zip(images, moved, places, strict=True):
        wide[i : i + 8, j : j + 8] = image
    return (moved + 0.1 * rng.normal(size=moved.shape)).reshape(-1, 144).astype("float32")


def nearest(features, labels, known, known_labels):
    """How many labels equal those of the most similar known features."""

    def unit(x):
        return x / np.linalg.norm(x, axis=1, keepdims=True)

    similar = unit(features) @ unit(known).T
    return np.mean(known_labels[similar.argmax(1)] == labels)


@pytest.mark.slow
def test_contrast_gives_better_features():
    digits = load_digits()
    rng = np.random.default_rng(SEED)
    order = rng.permutation(len(digits.images))
    images, labels = digits.images[order] / 16, digits.target[order]
    images, test, labels, test_labels = images[:1300], images[1300:], labels[:1300], labels[1300:]

    with gc.Graph(seed=SEED) as graph:
        first = gc.placeholder((None, 144), name="first")
        second = gc.placeholder((None, 144), name="second")
        encoder = gc.nn.Sequential(
            [gc.nn.Dense(256, activation="relu"), gc.nn.Dense(64, activation="relu")]
        )
        head = gc.nn.Dense(32)
        features = encoder(first)
        views = gc.concatenate([head(features), head(encoder(second))], axis=0)
        views = gc.nn.l2_normalize(views)
        similar = views @ views.T / TEMPERATURE
        count = first.shape[0]
        similar = gc.where(gc.eye(2 * count, dtype="bool"), -1e9, similar)  # not similar to itself
        partner = gc.concatenate([gc.arange(count) + count, gc.arange(count)], axis=0)
        losses = gc.nn.sparse_softmax_cross_entropy(logits=similar, labels=partner)
        train = gc.minimize(gc.reduce_mean(losses), optax.adam(RATE))

    chosen = np.concatenate([np.flatnonzero(labels == digit)[:5] for digit in range(10)])
    known, shown = view(rng, images[chosen]), view(rng, test)
    session = gc.Session(graph)
    scores = [nearest(shown, test_labels, known, labels[chosen])]
    for step in range(401):
        if step in (0, 400):
            found = [session.run(features, {first: x}) for x in (shown, known)]
            scores.append(nearest(found[0], test_labels, found[1], labels[chosen]))
        batch = images[rng.integers(0, len(images), BATCH)]
        session.run(train, {first: view(rng, batch), second: view(rng, batch)})

    of_pixels, of_random, of_learned = scores
    assert of_learned > of_random + 0.15
    assert of_learned > of_pixels + 0.15
