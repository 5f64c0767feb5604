"""Embeddings and biases of users and items are trained on a third of generated ratings (rank 4,
noise 0.2). Hidden ratings are predicted within 0.35, twice as well as from biases alone."""

import numpy as np
import optax

import graphc as gc

SEED, RATE = 0, 0.02
USERS, ITEMS, RANK, NOISE = 120, 90, 4, 0.2


def ratings(rng):
    """Users, items and ratings, in random order."""
    users = rng.normal(size=(USERS, RANK))
    items = rng.normal(size=(ITEMS, RANK)) / np.sqrt(RANK)
    table = 3 + 0.5 * rng.normal(size=(USERS, 1)) + 0.5 * rng.normal(size=ITEMS) + users @ items.T
    table += NOISE * rng.normal(size=table.shape)
    user, item = np.divmod(rng.permutation(USERS * ITEMS), ITEMS)
    return user.astype("int32"), item.astype("int32"), table[user, item].astype("float32")


def error_of_biases(train, test):
    """The error of `test` if each rating is a mean plus a user's bias and an item's bias."""
    columns = np.zeros((len(train[0]), USERS + ITEMS))
    columns[np.arange(len(columns)), train[0]] = 1
    columns[np.arange(len(columns)), USERS + train[1]] = 1
    mean = train[2].mean()
    bias = np.linalg.lstsq(columns, train[2] - mean, rcond=None)[0]
    return np.sqrt(np.mean((test[2] - mean - bias[test[0]] - bias[USERS + test[1]]) ** 2))


def test_predicts_hidden_ratings():
    rng = np.random.default_rng(SEED)
    data = ratings(rng)
    count = len(data[0]) // 3
    train_data, test_data = [a[:count] for a in data], [a[count:] for a in data]

    with gc.Graph(seed=SEED) as graph:
        user = gc.placeholder((None,), "int32", name="user")
        item = gc.placeholder((None,), "int32", name="item")
        rating = gc.placeholder((None,), name="rating")
        of_user = gc.nn.Embedding(USERS, RANK, "normal", name="users")(user)
        of_item = gc.nn.Embedding(ITEMS, RANK, "normal", name="items")(item)
        bias = (
            gc.nn.Embedding(USERS, 1, "zeros", name="user_bias")(user)
            + gc.nn.Embedding(ITEMS, 1, "zeros", name="item_bias")(item)
        )[:, 0]
        mean = gc.variable(train_data[2].mean(), name="mean", trainable=False)
        predicted = mean + bias + gc.reduce_sum(of_user * of_item, axis=1)
        error = gc.sqrt(gc.reduce_mean((predicted - rating) ** 2))
        small = gc.reduce_mean(of_user**2) + gc.reduce_mean(of_item**2)
        train = gc.minimize(error**2 + 0.02 * small, optax.adam(RATE))

    session = gc.Session(graph)
    for _ in range(40):
        order = rng.permutation(count)[: count // 128 * 128].reshape(-1, 128)
        epoch = {name: a[order] for name, a in zip((user, item, rating), train_data, strict=True)}
        session.run_steps(train, epoch, len(order))

    test_error = float(session.run(error, dict(zip((user, item, rating), test_data, strict=True))))
    assert test_error < 0.35
    assert test_error < 0.5 * error_of_biases(train_data, test_data)
