"""A U-Net is trained to find discs and squares in noisy images. On new images, the mean
intersection over union of both shapes is over 80 %."""

import numpy as np
import optax
import pytest

import graphc as gc

SEED, RATE = 0, 5e-3
SIZE, BATCH = 16, 32
BACKGROUND, DISC, SQUARE = range(3)


def scenes(count, rng):
    """Noisy images [count, SIZE, SIZE, 1] of a disc and a square, and the kind of each pixel."""
    rows, columns = np.mgrid[:SIZE, :SIZE]
    masks = np.full((count, SIZE, SIZE), BACKGROUND)
    for mask in masks:
        for kind in rng.permutation([DISC, SQUARE]):
            r, c = rng.uniform(3, SIZE - 4, 2)
            radius = rng.uniform(2.5, 4)
            across, down = abs(columns - c), abs(rows - r)
            inside = np.hypot(across, down) if kind == DISC else np.maximum(across, down)
            mask[inside <= radius] = kind
    images = (masks != BACKGROUND) + 0.2 * rng.normal(size=masks.shape)
    images -= 0.5 * (masks == SQUARE) * ((rows + columns) % 2)  # squares are checkered
    return images[..., None].astype("float32"), masks.astype("int32")


def block(filters):
    return gc.nn.Sequential(
        [
            gc.nn.Conv2D(filters, 3, padding="same", activation="relu"),
            gc.nn.Conv2D(filters, 3, padding="same", activation="relu"),
        ]
    )


def unet(x):
    first = block(8)(x)
    second = block(16)(gc.nn.max_pool(first, 2))
    h = block(16)(gc.nn.max_pool(second, 2))
    h = gc.nn.Conv2DTranspose(16, 2, strides=2, padding="same")(h)
    h = block(16)(gc.concatenate([h, second], axis=-1))
    h = gc.nn.Conv2DTranspose(8, 2, strides=2, padding="same")(h)
    h = block(8)(gc.concatenate([h, first], axis=-1))
    return gc.nn.Conv2D(3, 1)(h)


@pytest.mark.slow
@pytest.mark.one_jax
def test_segments_shapes():
    with gc.Graph(seed=SEED) as graph:
        image = gc.placeholder((None, SIZE, SIZE, 1), name="image")
        mask = gc.placeholder((None, SIZE, SIZE), "int32", name="mask")
        logits = unet(image)
        losses = gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=mask)
        loss = gc.reduce_mean(losses)
        train = gc.minimize(loss, optax.adam(RATE))
        found = gc.argmax(logits, axis=-1)
        confusion = gc.confusion_matrix(mask.flatten(), found.flatten(), 3)

    session = gc.Session(graph)
    rng = np.random.default_rng(SEED)
    images, masks = scenes(512, rng)
    for _ in range(16):
        for chosen in rng.permutation(512).reshape(-1, BATCH):
            session.run(train, {image: images[chosen], mask: masks[chosen]})

    images, masks = scenes(200, rng)
    counts = np.asarray(session.run(confusion, {image: images, mask: masks}))
    union = counts.sum(0) + counts.sum(1) - counts.diagonal()
    overlap = counts.diagonal() / union
    print(overlap)
    assert overlap[DISC] > 0.8
    assert overlap[SQUARE] > 0.8
