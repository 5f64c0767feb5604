"""ResNet-20 on handwritten digits, enlarged to its original input size of 32x32 pixels.

He, Zhang, Ren and Sun, "Deep residual learning for image recognition", 2015, section 4.2: a
convolution, three stages of three blocks, and a linear layer.

python examples/resnet20.py --steps 60
graphc train examples/resnet20.py
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import digits
import numpy as np
import optax

import graphc as gc

STEPS = 60


def conv(filters: int, size: int, stride: int = 1, name: str | None = None) -> gc.nn.Conv2D:
    """A convolution without a bias, since batch norm has one."""
    start = gc.nn.initializers.HeNormal()
    return gc.nn.Conv2D(
        filters,
        size,
        strides=stride,
        use_bias=False,
        kernel_initializer=start,
        name=name,
        padding="same",
    )


class Block(gc.nn.Layer):
    """Two convolutions whose result is added to the input; a smaller result needs a projection."""

    def __init__(self, filters: int, stride: int, name: str) -> None:
        super().__init__(name)
        self.conv1, self.norm1 = conv(filters, 3, stride, "conv1"), gc.nn.BatchNorm(name="norm1")
        self.conv2, self.norm2 = conv(filters, 3, name="conv2"), gc.nn.BatchNorm(name="norm2")
        self.shortcut = conv(filters, 1, stride, "shortcut") if stride > 1 else None

    def __call__(self, x: gc.Tensor, training: bool) -> gc.Tensor:
        with self.scope(x):
            h = gc.nn.relu(self.norm1(self.conv1(x), training=training))
            h = self.norm2(self.conv2(h), training=training)
            return gc.nn.relu(h + (self.shortcut(x) if self.shortcut else x))


class ResNet(gc.nn.Layer):
    """Logits of images `[batch, height, width, channels]`.

    Args:
        blocks: the number of blocks in each of the three stages; the depth is 6 * blocks + 2.
        width: the filters of the first stage, doubled in each later stage.
    """

    def __init__(self, blocks: int = 3, width: int = 16, classes: int = 10) -> None:
        super().__init__("resnet")
        self.conv, self.norm = conv(width, 3, name="conv"), gc.nn.BatchNorm(name="norm")
        self.blocks = [
            Block(width * 2**stage, 2 if stage and not i else 1, f"stage{stage}_block{i}")
            for stage in range(3)
            for i in range(blocks)
        ]
        self.out = gc.nn.Dense(classes, name="out")

    def __call__(self, x: gc.Tensor, training: bool) -> gc.Tensor:
        with self.scope(x):
            h = gc.nn.relu(self.norm(self.conv(x), training=training))
            for block in self.blocks:
                h = block(h, training)
            return self.out(gc.reduce_mean(h, axis=(1, 2)))


def optimizer(steps: int, highest: float = 0.1) -> optax.GradientTransformation:
    """Momentum as in the paper; the learning rate first rises and then decreases to zero."""
    rate = optax.warmup_cosine_decay_schedule(0.0, highest, max(1, steps // 5), steps)
    return optax.chain(optax.add_decayed_weights(1e-4), optax.sgd(rate, momentum=0.9))


def enlarged(images: np.ndarray, size: int) -> np.ndarray:
    """Images `[n, 8, 8, 1]` as `[n, size, size, 1]`, each pixel repeated."""
    return images.repeat(size // 8, axis=1).repeat(size // 8, axis=2)


def build(
    *,
    blocks: int = 3,
    width: int = 16,
    size: int = 32,
    batch: int = 32,
    steps: int = STEPS,
    tx: optax.GradientTransformation | None = None,
) -> gc.train.Job:
    """The graph, its training step and its data."""
    data = digits.load()
    x_train, x_test = (enlarged(data[name], size) for name in ("x_train", "x_test"))
    graph = gc.Graph(seed=0, name=f"resnet{6 * blocks + 2}")
    with graph:
        x = gc.placeholder(("batch", size, size, 1), name="x")
        y = gc.placeholder(("batch",), "int32", name="y")
        model = ResNet(blocks, width)
        losses = gc.nn.sparse_softmax_cross_entropy(logits=model(x, training=True), labels=y)
        loss = gc.reduce_mean(losses, name="loss")
        train = gc.minimize(loss, tx or optimizer(steps), name="train")
        logits = gc.identity(model(x, training=False), name="logits")
        right = gc.reduce_sum(gc.cast(gc.equal(gc.argmax(logits, axis=-1), y), "int32"))

    def evaluate(session: gc.Session) -> dict[str, float]:
        pieces = zip(np.split(x_test, 4), np.split(data["y_test"], 4), strict=True)
        count = sum(int(session.run(right, {x: images, y: labels})) for images, labels in pieces)
        return {"test accuracy": count / len(x_test)}

    return gc.train.Job(
        graph,
        train,
        gc.data.Batches({"x": x_train, "y": data["y_train"]}, batch, seed=1),
        steps=steps,
        metrics={"loss": loss},
        evaluate=evaluate,
        signatures={"predict": gc.Signature({"x": x}, {"logits": logits})},
    )


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--blocks", type=int, default=3, help="a stage: 3 make ResNet-20")
    parser.add_argument("--width", type=int, default=16, help="filters of the first stage")
    parser.add_argument("--size", type=int, default=32, help="of the images: 8, 16, 24 or 32")
    parser.add_argument("--devices", type=int, default=1)
    options = parser.parse_args(argv)
    job = build(blocks=options.blocks, width=options.width, size=options.size, steps=options.steps)
    strategy = gc.devices.DataParallel(options.devices) if options.devices > 1 else None
    session = gc.Session(job.graph, strategy=strategy)
    weights = sum(np.size(session.get(v.name)) for v in job.graph.variables.values() if v.trainable)
    print(f"{job.graph.name}: {weights:,} weights")
    history = gc.train.fit(session, job, prefetch=2)
    print(f"loss {np.mean(history.metrics['loss'][-10:]):.4f}")
    for name, value in job.evaluate(session).items():
        print(f"{name} {value:.4f}")


if __name__ == "__main__":
    main()
