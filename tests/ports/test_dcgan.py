"""A DCGAN is trained on handwritten digits. Its images are closer to unseen real digits than the
test's bound, far closer than noise, and resemble at least six of the ten digits."""

import numpy as np
import optax
import pytest
from sklearn.datasets import load_digits

import graphc as gc
from tests.compiling import optimised

SEED, RATE = 0, 2e-3
BATCH, NOISE = 64, 16


def nearest(images, real):
    """The squared distance of each image to the nearest real one, and the index of that one."""
    images, real = images.reshape(len(images), 64), real.reshape(len(real), 64)
    distances = ((images[:, None] - real[None]) ** 2).sum(-1)
    return distances.min(1), distances.argmin(1)


@pytest.mark.slow
@pytest.mark.one_jax
@optimised()  # its convolutions take ten times as long otherwise
def test_draws_digits():
    digits = load_digits()
    images = (digits.images / 8.0 - 1.0).astype("float32")[..., None]  # -1 to 1
    train_images, test_images, test_labels = images[:1400], images[1400:], digits.target[1400:]

    with gc.Graph(seed=SEED) as graph:
        real = gc.placeholder((BATCH, 8, 8, 1), name="real")
        generator = gc.nn.Sequential(
            [
                gc.nn.Dense(2 * 2 * 32, activation="relu"),
                gc.nn.Reshape((2, 2, 32)),
                gc.nn.Conv2DTranspose(16, 4, strides=2, padding="same", use_bias=False),
                gc.nn.BatchNorm(),
                gc.nn.relu,
                gc.nn.Conv2DTranspose(1, 4, strides=2, padding="same", activation="tanh"),
            ],
            name="generator",
        )
        discriminator = gc.nn.Sequential(
            [
                gc.nn.Conv2D(16, 4, strides=2, padding="same"),
                lambda x: gc.nn.leaky_relu(x, 0.2),
                gc.nn.Conv2D(32, 4, strides=2, padding="same"),
                lambda x: gc.nn.leaky_relu(x, 0.2),
                gc.nn.Flatten(),
                gc.nn.Dropout(0.3),
                gc.nn.Dense(1),
            ],
            name="discriminator",
        )
        z = gc.random.normal((BATCH, NOISE), name="z")
        fake = generator(z, training=True)
        real_logits = discriminator(real, training=True)
        fake_logits = discriminator(fake, training=True)

        def loss_as(logits, value):
            labels = gc.full_like(logits, value)
            return gc.reduce_mean(gc.nn.sigmoid_cross_entropy(logits=logits, labels=labels))

        loss_d = loss_as(real_logits, 0.9) + loss_as(fake_logits, 0.0)
        loss_g = loss_as(fake_logits, 1.0)
        adam = optax.adam(RATE, b1=0.5)
        d_variables, g_variables = discriminator.trainable_variables, generator.trainable_variables
        train_d = gc.minimize(loss_d, adam, variables=d_variables, name="train_d")
        train_g = gc.minimize(loss_g, adam, variables=g_variables, name="train_g")
        drawn = generator(gc.random.normal((400, NOISE)), training=False)

    session = gc.Session(graph)
    before, _ = nearest(session.run(drawn), test_images)
    rng = np.random.default_rng(SEED)
    for _ in range(15):
        order = rng.permutation(len(train_images))
        for chosen in order[: len(order) // BATCH * BATCH].reshape(-1, BATCH):
            session.run(train_d, {real: train_images[chosen]})
            session.run(train_g)

    after, numbers = nearest(session.run(drawn), test_images)
    kinds = np.bincount(test_labels[numbers], minlength=10)
    print(before.mean(), after.mean(), kinds)
    assert after.mean() < 0.5 * before.mean()
    assert (kinds >= 4).sum() >= 6
