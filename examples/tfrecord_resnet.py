"""From TFRecord files to a trained ResNet-20: handwritten digits are written as Examples, read,
cropped at random and fed to a step that runs on several devices.

python examples/tfrecord_resnet.py --devices 4 --steps 60
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import digits
import numpy as np
import resnet20
import several_devices

import graphc as gc

STEPS = 60
SIZE = 32
SHARDS = 4
MARGIN = 4  # pixels by which a crop may be shifted


def write(folder: Path, size: int = SIZE) -> None:
    """The training images in several files, the test images in one.

    Each file gets its name once it is complete, so a second start never finds an incomplete one.
    """
    data = digits.load()
    parts = {f"train-{n}": (n, SHARDS, "train") for n in range(SHARDS)} | {"test": (0, 1, "test")}
    folder.mkdir(parents=True, exist_ok=True)
    for name, (first, step, split) in parts.items():
        path = folder / f"{name}-{size}.tfrecord"
        if path.exists():
            continue
        images = resnet20.enlarged(data[f"x_{split}"][first::step], size)
        aside = path.with_suffix(f".{os.getpid()}")
        with gc.data.TFRecordWriter(aside) as file:
            for image, label in zip(images, data[f"y_{split}"][first::step], strict=True):
                pixels = np.round(image * 255).astype(np.uint8)
                file.write(gc.data.example({"image": pixels.tobytes(), "label": label}))
        aside.replace(path)


def augment(batch: dict[str, np.ndarray], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Crops the images with a margin at random positions. Photographs would also be mirrored, but
    digits must not be."""
    images = batch["image"]
    count, size = images.shape[:2]
    sides = ((0, 0), (MARGIN, MARGIN), (MARGIN, MARGIN), (0, 0))
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(images, sides), (size, size), axis=(1, 2)
    )
    top, left = rng.integers(0, 2 * MARGIN + 1, (2, count))
    crops = windows[np.arange(count), top, left]  # [batch, channels, height, width]
    return scale({**batch, "image": crops.transpose(0, 2, 3, 1)})


def scale(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Converts images to the form that the placeholders take."""
    return {"x": batch["image"].astype(np.float32) / 255, "y": batch["label"]}


class Parse:
    """Examples to arrays: a class, not a lambda, so that worker processes can unpickle it."""

    def __init__(self, size: int) -> None:
        self.features = {
            "image": gc.data.Raw((size, size, 1), np.uint8),
            "label": gc.data.FixedLen((), np.int32),
        }

    def __call__(self, records: np.ndarray) -> Any:
        return gc.data.parse_examples(records, self.features)


def training(folder: Path, size: int = SIZE, batch: int = 32, seed: int = 1) -> gc.data.Pipeline:
    """Endless batches. The same seed gives the same crops in the same order, resumed or not."""
    paths = sorted(folder.glob(f"train-*-{size}.tfrecord"))
    records = gc.data.from_records(gc.data.IndexedRecords(paths, store=True))
    shuffled = records.shuffle(seed=seed).repeat()
    return shuffled.batch(batch).map(Parse(size)).map(augment, seed=seed)


def testing(folder: Path, size: int = SIZE, batch: int = 90) -> gc.data.Pipeline:
    """The test images in order, without augmentation."""
    records = gc.data.from_records(folder / f"test-{size}.tfrecord")
    return records.batch(batch).map(Parse(size)).map(scale)


def build(
    folder: Path,
    *,
    blocks: int = 3,
    width: int = 16,
    size: int = SIZE,
    batch: int = 32,
    steps: int = STEPS,
) -> gc.train.Job:
    """The graph, its training step and its pipelines."""
    write(folder, size)
    job = resnet20.build(blocks=blocks, width=width, size=size, batch=batch, steps=steps)

    def evaluate(session: gc.Session) -> dict[str, float]:
        right = []
        for feeds in testing(folder, size):
            logits = np.asarray(session.run("logits", {"x": feeds["x"]}))
            right.extend(logits.argmax(-1) == feeds["y"])
        return {"test accuracy": float(np.mean(right))}

    return replace(job, batches=training(folder, size, batch), evaluate=evaluate)


def main(argv: Sequence[str] | None = None, **options: Any) -> None:
    """Trains. `options` are passed to `gc.train.fit`: checkpoints, callbacks, ..."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=Path, help="a folder; by default one that is deleted")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--blocks", type=int, default=3, help="a stage: 3 make ResNet-20")
    parser.add_argument("--width", type=int, default=16, help="filters of the first stage")
    parser.add_argument("--size", type=int, default=SIZE, help="of the images: 8, 16, 24 or 32")
    parser.add_argument("--devices", type=int, default=4)
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as temporary:
        job = build(
            given.records or Path(temporary),
            blocks=given.blocks,
            width=given.width,
            size=given.size,
            steps=given.steps,
        )
        devices = several_devices.most(given.devices)
        strategy = gc.devices.DataParallel(devices) if devices > 1 else None
        session = gc.Session(job.graph, strategy=strategy)
        history = gc.train.fit(session, job, prefetch=2, **options)
        print(f"loss {np.mean(history.metrics['loss'][-10:]):.4f}")
        for name, value in job.evaluate(session).items():
            print(f"{name} {value:.4f}")


if __name__ == "__main__":
    main()
