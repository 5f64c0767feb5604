"""An image is changed until the Gram matrices of its features (after fixed random convolutions)
match those of another photograph, while its own features stay close (neural style). The style
distance falls below a fiftieth, and the image stays closer to the first photograph."""

from itertools import pairwise

import numpy as np
import optax
from sklearn.datasets import load_sample_image

import graphc as gc

SEED, RATE = 0, 0.02
SIZE = 32


def photograph(name):
    """A part of one of scikit-learn's two photographs, [1, SIZE, SIZE, 3] from 0 to 1."""
    pixels = load_sample_image(name)[100:420:10, 100:420:10]
    return pixels[None].astype("float32") / 255


def features(image, kernels):
    found = []
    for kernel in kernels:
        image = gc.nn.relu(gc.nn.conv2d(image, kernel, padding="same"))
        found.append(image)
        image = gc.nn.avg_pool(image, 2)
    return found


def gram(x):
    rows = x.reshape(-1, x.shape[-1])
    return rows.T @ rows / rows.shape[0]


def test_takes_the_style_of_one_picture_and_the_content_of_another():
    rng = np.random.default_rng(SEED)
    sizes = [3, 16, 32]
    kernels = [
        rng.normal(size=(3, 3, n, m)).astype("float32") / np.sqrt(np.float32(9 * n))
        for n, m in pairwise(sizes)
    ]
    content, style = photograph("flower.jpg"), photograph("china.jpg")

    with gc.Graph(seed=SEED) as graph:
        image = gc.variable(content, name="image")
        mine = features(image, kernels)
        wanted = [gram(x) for x in features(gc.constant(style), kernels)]
        of_content = features(gc.constant(content), kernels)
        style_loss = gc.add_n(
            [
                gc.reduce_sum((gram(x) - g) ** 2) / gc.reduce_sum(g**2)
                for x, g in zip(mine, wanted, strict=True)
            ]
        )
        content_loss = gc.reduce_mean((mine[-1] - of_content[-1]) ** 2)
        train = gc.minimize(style_loss + 0.02 * content_loss, optax.adam(RATE), variables=[image])
        with gc.control_dependencies([train]):
            clip = image.assign(gc.clip(image, 0, 1))

    session = gc.Session(graph)
    before = float(session.run(style_loss))
    for _ in range(100):
        session.run([train, clip])
    after, picture = session.run([style_loss, image])

    def near(other):
        return np.corrcoef(np.ravel(picture), np.ravel(other))[0, 1]

    assert after < before / 50
    assert near(content) > near(style) + 0.3
    assert np.min(picture) >= 0 and np.max(picture) <= 1
