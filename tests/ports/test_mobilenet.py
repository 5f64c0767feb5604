"""A small MobileNet (depthwise separable convolutions, batch norm, a placeholder for the training
mode) learns handwritten digits: over 90 % of unseen digits are right."""

import numpy as np
import optax
import pytest
from sklearn.datasets import load_digits

import graphc as gc

SEED, RATE = 0, 5e-3
BATCH = 64


def norm_relu6(x, training):
    return gc.nn.relu6(gc.nn.BatchNorm()(x, training=training))


def separable(x, filters, strides, training):
    x = gc.nn.DepthwiseConv2D(3, strides=strides, padding="same", use_bias=False)(x)
    x = norm_relu6(x, training)
    x = gc.nn.Conv2D(filters, 1, use_bias=False)(x)
    return norm_relu6(x, training)


def mobilenet(x, training):
    x = gc.nn.Conv2D(8, 3, padding="same", use_bias=False)(x)
    x = norm_relu6(x, training)
    x = separable(x, 16, 1, training)
    x = separable(x, 24, 2, training)
    x = separable(x, 24, 1, training)
    x = gc.nn.GlobalAveragePool()(x)
    x = gc.nn.Dropout(0.1)(x, training=training)
    return gc.nn.Dense(10)(x)


@pytest.mark.slow
@pytest.mark.one_jax
def test_recognises_digits():
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    images, labels = images[order].reshape(-1, 8, 8, 1) / 16.0, labels[order]

    with gc.Graph(seed=SEED) as graph:
        image = gc.placeholder((None, 8, 8, 1), name="image")
        label = gc.placeholder((None,), "int32", name="label")
        training = gc.placeholder((), "bool", name="training")
        logits = mobilenet(image, training)
        losses = gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=label)
        train = gc.minimize(gc.reduce_mean(losses), optax.adam(RATE))
        right = gc.cast(gc.argmax(logits, axis=-1) == label, "float32")
        accuracy = gc.reduce_mean(right)

    session = gc.Session(graph)
    rng = np.random.default_rng(SEED)
    for _ in range(10):
        order = rng.permutation(1400)
        for chosen in order[: 1400 // BATCH * BATCH].reshape(-1, BATCH):
            session.run(train, {image: images[chosen], label: labels[chosen], training: True})

    score = session.run(accuracy, {image: images[1400:], label: labels[1400:], training: False})
    print(score)
    assert score > 0.9
