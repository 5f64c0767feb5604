"""From records to a trained network; augmented batches can be repeated and resumed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("google_crc32c")
pytest.importorskip("google.protobuf")
import tfrecord_resnet


@pytest.mark.slow
def test_it_learns_on_four_devices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = f"--records {tmp_path} --steps 200 --blocks 1 --width 8 --size 16 --devices 4"
    tfrecord_resnet.main(arguments.split(), progress=False)
    output = capsys.readouterr().out
    assert float(output.split("test accuracy ")[1].split()[0]) > 0.9
    assert len(list(tmp_path.glob("*.tfrecord"))) == 5
    assert len(list(tmp_path.glob("*.index"))) == 4
    assert len(list(tmp_path.iterdir())) == 9  # no unfinished file


def test_its_batches_are_exact(tmp_path: Path) -> None:
    tfrecord_resnet.write(tmp_path, 8)
    pipeline = tfrecord_resnet.training(tmp_path, 8, batch=100)
    items = iter(pipeline)
    want = [next(items) for _ in range(20)]  # more than an epoch
    assert sum(len(each["y"]) for each in want[:14]) == 1400
    again = iter(pipeline)
    for _ in range(15):
        next(again)
    resumed = iter(tfrecord_resnet.training(tmp_path, 8, batch=100))
    resumed.restore(json.loads(json.dumps(again.state())))
    for batch in want[15:]:
        got = next(resumed)
        assert np.array_equal(got["x"], batch["x"]) and np.array_equal(got["y"], batch["y"])
    for each in (items, again, resumed):
        each.close()
    tests = list(tfrecord_resnet.testing(tmp_path, 8))
    assert sum(len(each["y"]) for each in tests) == 360
    data = tfrecord_resnet.digits.load()
    got = np.concatenate([each["x"] for each in tests])
    assert np.abs(got - data["x_test"]).max() < 0.003  # rounded to bytes
    assert np.array_equal(np.concatenate([each["y"] for each in tests]), data["y_test"])


def test_crops_are_windows_of_the_image() -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(1, 255, (50, 8, 8, 1), dtype=np.uint8)
    got = tfrecord_resnet.augment({"image": images, "label": np.zeros(50)}, rng)["x"]
    margin = tfrecord_resnet.MARGIN
    padded = np.pad(images, ((0, 0), (margin, margin), (margin, margin), (0, 0)))
    places = set()
    for crop, image in zip(got, padded, strict=True):
        found = [
            (top, left)
            for top in range(2 * margin + 1)
            for left in range(2 * margin + 1)
            if np.array_equal(crop, image[top : top + 8, left : left + 8].astype("float32") / 255)
        ]
        assert found
        places.update(found)
    assert len(places) > 20
