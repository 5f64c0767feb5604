"""Folders of images: classes, sizes, damaged files, and which files are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.errors import AttributeValueError, DataError


def every_position(pipeline: gc.data.Pipeline) -> list[Any]:
    """The items, after a check that iteration can continue at every position."""
    want = list(pipeline)
    for taken in range(len(want) + 1):
        items = iter(pipeline)
        for _ in range(taken):
            next(items)
        state = json.loads(json.dumps(items.state()))
        again = iter(pipeline)
        again.restore(state)
        assert repr(list(again)) == repr(want[taken:]), taken
        items.close()
    return want


@pytest.fixture
def images(tmp_path: Path) -> Path:
    pillow = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / name / "more").mkdir(parents=True)
        for i in range(3):
            pixels = rng.integers(0, 256, (6, 5, 3), dtype=np.uint8)
            place = tmp_path / name / ("more" if i == 2 else "") / f"{i}.png"
            pillow.fromarray(pixels).save(place)
    (tmp_path / "cat" / "notes.txt").touch()
    return tmp_path


@pytest.mark.parametrize("workers", [0, 2])
def test_images_in_folders(images: Path, workers: int) -> None:
    pipeline = gc.data.from_images(images, workers=workers)
    assert pipeline.classes == ("cat", "dog") and pipeline.count == 6
    (batch,) = pipeline.batch(6)
    assert batch["image"].shape == (6, 6, 5, 3) and batch["image"].dtype == np.uint8
    assert batch["label"].tolist() == [0, 0, 0, 1, 1, 1]
    assert pipeline.shuffle(seed=1).classes == ("cat", "dog")
    every_position(pipeline.shuffle(seed=1).repeat(2).shard(0, 2))
    grey = gc.data.from_images(images, classes=["dog"], size=(3, 4), mode="L", workers=workers)
    assert next(iter(grey))["image"].shape == (3, 4, 1) and grey.count == 3


def test_shuffling_images_reads_only_what_is_returned(images: Path, monkeypatch) -> None:
    from graphc.data.sources.images import Images

    read: list[int] = []
    record = Images.record
    monkeypatch.setattr(Images, "record", lambda self, i: read.append(i) or record(self, i))
    items = iter(gc.data.from_images(images).shuffle(seed=3).skip(1))
    next(items)
    assert len(read) == 1


@pytest.mark.parametrize("workers", [0, 2])
def test_a_damaged_image_is_named(images: Path, workers: int) -> None:
    (images / "dog" / "0.png").write_bytes(b"\x89PNG but not really")
    with pytest.raises(DataError, match=r"dog/0\.png: cannot identify image file"):
        list(gc.data.from_images(images, workers=workers).batch(2))
    whole = (images / "dog" / "1.png").read_bytes()
    (images / "dog" / "1.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"dog/1\.png"):
        list(gc.data.from_images(images, workers=workers).skip(4))


def test_arguments_of_images_that_are_refused(images: Path) -> None:
    with pytest.raises(DataError, match="no folder"):
        gc.data.from_images(images / "bird")
    with pytest.raises(DataError, match="no images"):
        gc.data.from_images(images / "cat", classes=["more/nothing"])
    with pytest.raises(AttributeValueError, match="height, width"):
        gc.data.from_images(images, size=3)
    with pytest.raises(AttributeValueError, match="no mode 'rgb'"):
        gc.data.from_images(images, mode="rgb")
