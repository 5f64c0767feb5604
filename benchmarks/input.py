"""Input pipelines: the cost of a batch compared with Grain, tf.data and PyTorch's DataLoader, if
they are installed; and the decoding of images during steps of 5 ms.

All sources have the same arrays in memory, shuffle them, and return batches of 128 as NumPy arrays
(or as tensors of their library, without a conversion). graphc uses one process and one thread.
"""

from __future__ import annotations

import gc as garbage
import importlib.util
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import graphc as gc

Row = tuple[str, str, str]
BATCH = 128
ROUNDS = 7
SHAPES = {
    "28x28x1 float32": ((28, 28, 1), np.float32, 4096),
    "32x32x3 uint8": ((32, 32, 3), np.uint8, 4096),
    "32x32x3 float32": ((32, 32, 3), np.float32, 4096),
    "224x224x3 uint8": ((224, 224, 3), np.uint8, 640),
}
STEP = 5e-3


def rows() -> Iterator[Row]:
    """Rows: batches of arrays, compared with each peer; then the decoding of images."""
    for name in PEERS:
        if importlib.util.find_spec(name) is None:
            print(f"{name} is not installed: no rows", file=sys.stderr)
    for name, (shape, dtype, count) in SHAPES.items():
        yield from batch_rows(name, shape, dtype, count)
    yield from decoding_rows()


# -- batches of arrays ----------------------------------------------------------------------------


def batch_rows(name: str, shape: tuple[int, ...], dtype: Any, count: int) -> Iterator[Row]:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 200, (count, *shape)).astype(dtype)
    y = np.arange(count)
    pipeline = gc.data.from_arrays({"x": x, "y": y}).shuffle(seed=1)
    forms: dict[str, Callable[[], Any]] = {
        "graphc": reader(pipeline.batch(BATCH, drop_remainder=True).repeat()),
        "take": taker(x),
        "memcpy": copier(x),
    }
    for module, make in PEERS.items():
        if importlib.util.find_spec(module):
            forms[module] = reader(make(x, y))
    calls = 5 if x.nbytes > 50e6 else 30
    found: dict[str, list[float]] = {form: [] for form in forms}
    for _ in range(ROUNDS):
        for form, function in forms.items():
            found[form].append(seconds(function, calls))
    best = {form: statistics.median(times) for form, times in found.items()}
    own = best["graphc"]
    yield (
        f"batch of {BATCH} of {name}, shuffled",
        f"{1e3 * own:.3f} ms; a NumPy gather {1e3 * best['take']:.3f} ms, "
        f"memcpy {1e3 * best['memcpy']:.3f} ms",
        "at most 0.2 ms beside memcpy",
    )
    for module in PEERS:
        if module in best:
            yield (
                f"the same by {module}",
                f"{1e3 * best[module]:.2f} ms, {best[module] / own:.1f}x",
                "",
            )


def seconds(function: Callable[[], object], calls: int) -> float:
    garbage.collect()
    start = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - start) / calls


def reader(batches: Any) -> Callable[[], Any]:
    items = iter(batches)
    for _ in range(3):
        next(items)
    return lambda: next(items)


def taker(x: np.ndarray[Any, Any]) -> Callable[[], Any]:
    order = np.random.default_rng(1).permutation(len(x))[:BATCH]
    return lambda: x.take(order, 0)


def copier(x: np.ndarray[Any, Any]) -> Callable[[], Any]:
    return lambda: x[:BATCH].copy()


def from_grain(x: Any, y: Any) -> Any:
    import grain.python as grain

    rows = [{"x": a, "y": b} for a, b in zip(x, y, strict=True)]
    data = grain.MapDataset.source(rows).seed(1).shuffle().repeat().batch(BATCH)
    # Without its threads, which would slow down the other forms.
    return data.to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0))


def from_tensorflow(x: Any, y: Any) -> Any:
    import tensorflow as tf

    data = tf.data.Dataset.from_tensor_slices({"x": x, "y": y})
    data = data.shuffle(len(x)).batch(BATCH, drop_remainder=True).repeat()
    options = tf.data.Options()  # as for Grain, no thread reads ahead between the calls
    options.autotune.enabled = False
    options.experimental_optimization.inject_prefetch = False
    return data.with_options(options).as_numpy_iterator()


def from_torch(x: Any, y: Any) -> Iterator[Any]:
    import torch

    data = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    loader = torch.utils.data.DataLoader(data, BATCH, shuffle=True, drop_last=True)
    while True:
        yield from loader


PEERS = {"grain": from_grain, "tensorflow": from_tensorflow, "torch": from_torch}


# -- decoding of images ---------------------------------------------------------------------------


def decoding_rows() -> Iterator[Row]:
    for ending, options in (("jpg", {"quality": 90}), ("png", {})):
        with tempfile.TemporaryDirectory() as folder:
            write_images(Path(folder), ending, options)
            yield decoding_row(folder, ending)


def write_images(folder: Path, ending: str, options: dict[str, Any]) -> None:
    """Writes smooth 224x224 pictures with some noise. Their files are as large as photographs."""
    from PIL import Image

    rng = np.random.default_rng(0)
    (folder / "all").mkdir()
    for i in range(128):
        small = Image.fromarray(rng.integers(0, 256, (14, 14, 3), dtype=np.uint8))
        smooth = np.asarray(small.resize((224, 224), Image.Resampling.BICUBIC), np.float32)
        pixels = np.clip(smooth + rng.normal(0, 6, smooth.shape), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / "all" / f"{i}.{ending}", **options)


def decoding_row(folder: str, ending: str) -> Row:
    alone = gc.data.from_images(folder)
    one = decode_seconds(alone)
    size = max(1, int(STEP / one))  # the number of images that one core decodes in a step
    pipeline = gc.data.from_images(folder, workers=2).shuffle(seed=1).repeat()
    with iter(pipeline.batch(size).prefetch("/cpu:0", size=4)) as items:
        next(items)
        time.sleep(0.2)
        waited = []
        for _ in range(400):
            start = time.perf_counter()
            batch = next(items)
            waited.append(time.perf_counter() - start)
            time.sleep(STEP)
            del batch
    busy = STEP * len(waited) / (STEP * len(waited) + sum(waited))
    with iter(pipeline) as items:
        both = seconds(lambda: next(items), 400)
    return (
        f"224x224 {ending}, {size} a step of 5 ms, 2 threads decode ({1e3 * one:.2f} ms each)",
        f"the step is busy {100 * busy:.1f} %, median wait {1e3 * statistics.median(waited):.2f} "
        f"ms; 2 threads {one / both:.2f}x of one",
        f"keeps the step busy ({os.cpu_count()} cores)",
    )


def decode_seconds(pipeline: gc.data.Pipeline) -> float:
    with iter(pipeline.repeat()) as items:
        next(items)
        return min(seconds(lambda: next(items), 100) for _ in range(3))
