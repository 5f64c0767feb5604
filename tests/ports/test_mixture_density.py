"""A mixture density network is trained on the inverse sinusoid, which has up to three values at one
point. Its likelihood is far above that of a network with one Gaussian, and its samples are close
to the curve."""

import numpy as np
import optax
import pytest

import graphc as gc

SEED, RATE = 0, 5e-3
NOISE = 0.05


def curve(t):
    return t + 0.3 * np.sin(2 * np.pi * t)


def points(rng, count):
    """x [count, 1], and the t [count, 1] from which x was computed."""
    t = rng.uniform(0, 1, (count, 1))
    return curve(t) + NOISE * rng.normal(size=t.shape), t


def build(parts):
    with gc.Graph(seed=SEED) as graph:
        x = gc.placeholder((None, 1), name="x")
        t = gc.placeholder((None, 1), name="t")
        h = gc.nn.Dense(24, activation="tanh")(10 * x - 5)
        h = gc.nn.Dense(24, activation="tanh")(h)
        weights, means, spreads = gc.split(gc.nn.Dense(3 * parts)(h), 3, axis=-1)
        spreads = gc.softplus(spreads) + 0.005
        logs = gc.log_softmax(weights) - gc.log(spreads) - 0.5 * ((t - means) / spreads) ** 2
        losses = 0.5 * np.log(2 * np.pi) - gc.logsumexp(logs, axis=-1)
        loss = gc.reduce_mean(losses, name="loss")
        gc.minimize(loss, optax.adam(optax.cosine_decay_schedule(RATE, 3000)), name="train")

        part = gc.random.categorical(weights)[:, None]
        mean = gc.take_along_axis(means, part, axis=-1)
        spread = gc.take_along_axis(spreads, part, axis=-1)
        gc.add(mean, spread * gc.random.normal((x.shape[0], 1)), name="drawn")
    return graph


def train(graph):
    rng = np.random.default_rng(SEED)
    session = gc.Session(graph)
    for _ in range(15):
        batches = [points(rng, 128) for _ in range(200)]
        session.run_steps("train", [{"x": x, "t": t} for x, t in batches], 200)
    return session


@pytest.mark.slow
def test_finds_all_branches_of_the_inverse():
    x, t = points(np.random.default_rng(SEED + 1), 2000)
    mixture, single = train(build(8)), train(build(1))
    losses = [float(session.run("loss", {"x": x, "t": t})) for session in (mixture, single)]
    drawn = np.asarray(mixture.run("drawn", {"x": x}))
    near = np.mean(abs(curve(drawn) - x) < 0.15)
    middle = np.asarray(mixture.run("drawn", {"x": np.full((1000, 1), 0.5)}))
    branches = [np.mean(abs(middle - place) < 0.1) for place in (0.15, 0.5, 0.85)]
    assert losses[0] < losses[1] - 0.5
    assert near > 0.9
    assert min(branches) > 0.08
