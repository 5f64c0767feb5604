"""A denoising autoencoder with tied weights learns codes of three numbers. k-means (Lloyd's steps
as assignments) on these codes separates the four classes: each cluster contains one class."""

import numpy as np
import optax
import pytest

import graphc as gc

CLASSES, FEATURES, CODE = 4, 16, 3


@pytest.mark.slow
def test_clusters_are_classes():
    rng = np.random.default_rng(0)
    centres = 2 * rng.normal(size=(CLASSES, FEATURES))
    classes = rng.integers(0, CLASSES, 512)
    data = (centres[classes] + 0.3 * rng.normal(size=(512, FEATURES))).astype("float32")

    with gc.Graph(seed=0) as graph:
        x = gc.placeholder((None, FEATURES), name="x")
        w = gc.variable("glorot_uniform", shape=(FEATURES, CODE), name="w")
        b = gc.variable("zeros", shape=(CODE,), name="b")
        c = gc.variable("zeros", shape=(FEATURES,), name="c")

        def encode(v):
            return gc.tanh(v @ w + b)

        noisy = x + gc.random.normal(x.shape, stddev=0.2)
        loss = gc.mean((encode(noisy) @ w.T + c - x) ** 2)
        train = gc.minimize(loss, optax.adam(1e-2))
        code = encode(x)

        means = gc.variable("zeros", shape=(CLASSES, CODE), name="means", trainable=False)
        points = gc.placeholder((None, CODE), name="points")
        nearest = gc.argmin(((points[:, None] - means[None]) ** 2).sum(-1), 1)
        members = gc.one_hot(nearest, CLASSES)
        count = members.sum(0)[:, None]
        step = means.assign(gc.where(count > 0, members.T @ points / gc.maximum(count, 1), means))

    session = gc.Session(graph)
    first = session.run(loss, {x: data})
    for feeds, _ in zip(gc.data.Batches({"x": data}, 64), range(400), strict=False):
        session.run(train, feeds)
    assert session.run(loss, {x: data}) < first / 10

    codes = session.run(code, {x: data})
    start = [int(np.argmax(classes == k)) for k in range(CLASSES)]  # an example of each class
    session.set("means", np.asarray(codes)[start])
    for _ in range(20):
        session.run(step, {points: codes})
    found = np.asarray(session.run(nearest, {points: codes}))
    assert all(len(set(classes[found == k])) == 1 for k in range(CLASSES))
