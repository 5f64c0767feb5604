"""Gaussian process regression fits length scale, amplitude and noise by the marginal likelihood of
40 noisy points of a sine. It finds the noise within 50 %, and the predicted mean differs from
the sine by less than the noise."""

import numpy as np
import optax

import graphc as gc

NOISE = 0.1


def test_fits_a_sine():
    rng = np.random.default_rng(0)
    places = rng.uniform(-3, 3, 40).astype("float32")
    values = (np.sin(2 * places) + NOISE * rng.normal(size=40)).astype("float32")

    with gc.Graph(seed=0) as graph:
        x = gc.placeholder((None,), name="x")
        y = gc.placeholder((None,), name="y")
        new = gc.placeholder((None,), name="new")
        logs = gc.variable("zeros", shape=(3,), name="logs")
        length, amplitude, noise = gc.exp(logs)

        def kernel(a, b):
            return amplitude**2 * gc.exp(-0.5 * ((a[:, None] - b[None, :]) / length) ** 2)

        n = x.shape[0]
        root = gc.linalg.cholesky(kernel(x, x) + noise**2 * gc.eye(n))
        weights = gc.linalg.cholesky_solve(root, y)
        loss = 0.5 * gc.dot(y, weights) + gc.log(gc.diag(root)).sum() + 0.5 * n * np.log(2 * np.pi)
        train = gc.minimize(loss, optax.adam(0.05))
        mean = kernel(new, x) @ weights

    session = gc.Session(graph)
    feeds = {x: places, y: values}
    first = session.run(loss, feeds)
    for _ in range(300):
        session.run(train, feeds)
    assert session.run(loss, feeds) < 0 < first
    assert abs(np.exp(session.get("logs"))[2] / NOISE - 1) < 0.5
    grid = np.linspace(-2.5, 2.5, 50, dtype="float32")
    error = session.run(mean, {**feeds, new: grid}) - np.sin(2 * grid)
    assert np.sqrt(np.mean(error**2)) < NOISE
