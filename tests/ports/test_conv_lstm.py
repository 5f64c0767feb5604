"""A convolutional LSTM sees a moving blob and predicts the next frame: its error on new films is
less than a fifth of the error of repeating the last frame."""

import numpy as np
import optax
import pytest

import graphc as gc

SEED, RATE = 0, 2e-2
SIZE, FRAMES = 10, 6


def films(rng, count):
    """[count, FRAMES, SIZE, SIZE, 1]: a blob that moves with a constant speed."""
    middle = (SIZE - 1) / 2 + rng.uniform(-2, 2, (count, 1, 2))
    speed = rng.integers(-1, 2, (count, 1, 2))
    centre = middle + speed * (np.arange(FRAMES)[:, None] - FRAMES / 2)  # [count, FRAMES, 2]
    far = np.arange(SIZE) - centre[..., None]
    rows, columns = np.moveaxis(np.exp(-(far**2) / 2), 2, 0)
    return (rows[..., :, None] * columns[..., None, :])[..., None].astype("float32")


@pytest.mark.slow
def test_predicts_the_next_frame():
    rng = np.random.default_rng(SEED)
    with gc.Graph(seed=SEED) as graph:
        film = gc.placeholder((None, FRAMES, SIZE, SIZE, 1), name="film")
        seen, following = film[:, :-1], film[:, 1:]
        h = gc.nn.ConvLSTM2D(6, 3, padding="same")(seen)
        predicted = gc.nn.TimeDistributed(gc.nn.Conv2D(1, 3, padding="same"))(h)
        train = gc.minimize(gc.reduce_mean((predicted - following) ** 2), optax.adam(RATE))
        last = predicted[:, -1]

    session = gc.Session(graph)
    for _ in range(150):
        session.run(train, {film: films(rng, 16)})

    test = films(rng, 200)
    moved = abs(test[:, -1] - test[:, -2]).max(axis=(1, 2, 3)) > 0.1  # one in nine does not move
    error = np.mean((session.run(last, {film: test}) - test[:, -1])[moved] ** 2)
    of_last = np.mean((test[:, -2] - test[:, -1])[moved] ** 2)
    assert error < 0.2 * of_last
