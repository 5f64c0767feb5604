"""A Wasserstein GAN with a gradient penalty learns a ring of eight Gaussians. Its samples cover all
eight, and most points are close to one of them."""

import numpy as np
import optax
import pytest

import graphc as gc

SEED, RATE = 0, 1e-3
BATCH, NOISE, CRITIC_STEPS = 128, 2, 3
ANGLES = np.arange(8) * np.pi / 4
CENTRES = 2.0 * np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1)


def points(count, rng):
    return CENTRES[rng.integers(8, size=count)] + 0.1 * rng.normal(size=(count, 2))


def near(drawn):
    """The share of points close to a center, and the share of all points close to each center."""
    distances = np.linalg.norm(drawn[:, None] - CENTRES, axis=-1)
    close = distances.min(1) < 0.5
    return close.mean(), np.bincount(distances.argmin(1)[close], minlength=8) / len(drawn)


def mlp(units, name):
    return gc.nn.Sequential(
        [
            gc.nn.Dense(64, activation="relu"),
            gc.nn.Dense(64, activation="relu"),
            gc.nn.Dense(units),
        ],
        name=name,
    )


@pytest.mark.slow
def test_visits_every_mode():
    with gc.Graph(seed=SEED) as graph:
        real = gc.placeholder((BATCH, 2), name="real")
        generator, critic = mlp(2, "generator"), mlp(1, "critic")
        fake = generator(gc.random.normal((BATCH, NOISE)))

        mix = gc.random.uniform((BATCH, 1))
        between = mix * real + (1.0 - mix) * fake
        slopes = gc.gradients(critic(between), [between])[0]
        norm = gc.sqrt(gc.reduce_sum(gc.square(slopes), axis=1) + 1e-12)
        penalty = gc.reduce_mean((norm - 1.0) ** 2)

        distance = gc.reduce_mean(critic(real)) - gc.reduce_mean(critic(fake))
        loss_c = -distance + penalty
        loss_g = -gc.reduce_mean(critic(fake))
        adam = optax.adam(RATE, b1=0.5, b2=0.9)
        train_c = gc.minimize(loss_c, adam, variables=critic.variables, name="train_c")
        train_g = gc.minimize(loss_g, adam, variables=generator.variables, name="train_g")
        drawn = generator(gc.random.normal((2000, NOISE)))

    session = gc.Session(graph)
    rng = np.random.default_rng(SEED)
    for _ in range(800):
        batches = points(CRITIC_STEPS * BATCH, rng).reshape(CRITIC_STEPS, BATCH, 2)
        session.run_steps(train_c, {real: batches}, CRITIC_STEPS)
        session.run(train_g)

    close, shares = near(session.run(drawn))
    print(close, shares)
    assert close > 0.7
    assert shares.min() > 0.02
