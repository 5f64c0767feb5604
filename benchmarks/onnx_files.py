"""ONNX files in graphc and in onnxruntime, on a CPU.

    python -m benchmarks.onnx_files FILE ... [NAME=SIZE ...]

Each file is imported, frozen, and run on random inputs, in turn with onnxruntime. Open sizes are 1
for the first axis, 320 for the others of images, 2048 for those of signals, or what NAME=SIZE says.
Needs onnx and onnxruntime. For example, the packages magika, nudenet, rapidocr and ddddocr contain
such files.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

import graphc as gc
from benchmarks.cpu import ratios

Row = tuple[str, str, str]
CALLS, ROUNDS = 3, 9
REST = 0.2  # seconds
OPEN = {4: 320, 2: 2048}  # by the number of axes
DTYPES = {"float": np.float32, "double": np.float64, "float16": np.float16, "bool": np.bool_}


def rows(files: list[str], sizes: dict[str, int]) -> Iterator[Row]:
    import onnxruntime

    for file in files:
        theirs = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
        rng = np.random.default_rng(0)
        feeds = {x.name: example(x, sizes, rng) for x in theirs.get_inputs()}
        begin = time.perf_counter()
        call = in_graphc(file, feeds)
        got = [np.asarray(y) for y in call()]
        first = time.perf_counter() - begin
        wanted = theirs.run(None, feeds)
        error = max(_error(a, b) for a, b in zip(got, wanted, strict=True))
        steps = {
            "graphc": lambda call=call: [jax.block_until_ready(call()) for _ in range(CALLS)],
            "onnxruntime": lambda run=theirs, x=feeds: [run.run(None, x) for _ in range(CALLS)],
        }
        found = ratios(steps, ROUNDS, base="onnxruntime", rest=REST)
        milliseconds = 1e3 * found["seconds"] / CALLS
        what = f"{Path(file).name}, over onnxruntime ({milliseconds:.2f} ms), error {error:.0e}"
        yield f"{what}, import to first result {first:.1f} s", f"{found['graphc']:.2f}x", "1.00x"


def example(given: Any, sizes: dict[str, int], rng: np.random.Generator) -> np.ndarray:
    """A random value of an input of onnxruntime."""
    axes = len(given.shape)
    shape = [
        dim if isinstance(dim, int) else sizes.get(str(dim), 1 if axis == 0 else OPEN.get(axes, 16))
        for axis, dim in enumerate(given.shape)
    ]
    kind = given.type.removeprefix("tensor(").removesuffix(")")
    if kind in ("int64", "int32", "uint8"):
        return rng.integers(0, 200, shape).astype(kind)
    return (rng.standard_normal(shape) * 0.5).astype(DTYPES[kind])


def in_graphc(file: str, feeds: dict[str, np.ndarray]) -> Any:
    """A call of the frozen model, compiled for the sizes of `feeds`, with its inputs in place."""
    options = gc.CompileOptions(cache=None)
    made = gc.from_onnx(file).to_graph()
    frozen = gc.freeze(gc.Session(made.graph, options=options), made.inputs, made.outputs)
    names = dict(zip(made.inputs, frozen.collection("inputs"), strict=True))
    given = {names[name]: value for name, value in feeds.items()}
    shapes = {tensor: value.shape for tensor, value in given.items()}
    executable = gc.compile(frozen, frozen.collection("outputs"), shapes, options=options)
    state = executable.init()
    placed = {tensor: jax.device_put(value) for tensor, value in given.items()}
    return lambda: jax.tree.leaves(executable(state, placed)[0])


def _error(a: np.ndarray, b: np.ndarray) -> float:
    """The largest difference over the largest element."""
    wide = b.astype(np.float64)
    return float(np.max(np.abs(a - wide)) / (np.max(np.abs(wide)) + 1e-12)) if b.size else 0.0


def main() -> None:
    sizes = {name: int(size) for name, size in (a.split("=") for a in sys.argv[1:] if "=" in a)}
    print("| what | measured | target |\n|---|---|---|")
    for row in rows([a for a in sys.argv[1:] if "=" not in a], sizes):
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
