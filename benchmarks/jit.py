"""`gc.jit` compared with `jax.jit`: the cost of a call, and the time of a second start."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator

import jax
from jax import numpy as jnp

import graphc as gc
from benchmarks.children import answer_of
from benchmarks.timing import compare

Row = tuple[str, str, str]
BLOCKS = 24


def rows() -> Iterator[Row]:
    """All rows."""
    for leaves in (1, 20, 100):
        yield _call(leaves)
    yield from _starts()


def _call(leaves: int) -> Row:
    """A call of a function that adds one to each of `leaves` small arrays."""

    def more(xs: list[jax.Array]) -> list[jax.Array]:
        return [x + 1 for x in xs]

    xs = [jnp.ones(3) for _ in range(leaves)]
    ours, theirs = gc.jit(more), jax.jit(more)
    timed = compare(
        lambda: jax.block_until_ready(ours(xs)),
        lambda: jax.block_until_ready(theirs(xs)),
        calls=50,
        rounds=200,
    )
    extra = 1e6 * timed.difference
    label = f"gc.jit, a call with {leaves} small arrays"
    text = f"{1e6 * timed.ours:.1f} against {1e6 * timed.theirs:.1f} us by jax.jit: {extra:+.1f} us"
    return label, text, "at most +5 us"


def _starts() -> Iterator[Row]:
    """The time from the first import to the end of the first training step of a transformer, in a
    second start. Each figure is the median of three processes, which run in turn."""
    seconds: dict[str, list[float]] = {"unrolled": [], "jit": [], "keyed": []}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(4):
            for form, found in seconds.items():
                took = _start(form, f"{folder}/{form}")
                if number:  # the first process compiles
                    found.append(took)
    ours, keyed, theirs = (
        statistics.median(seconds[form]) for form in ("jit", "keyed", "unrolled")
    )
    what = f"second start, {BLOCKS} blocks written in Python"
    by_jax = f"over jax.jit with its cache warm ({theirs:.2f} s)"
    yield f"{what}: gc.jit ({ours:.2f} s), {by_jax}", f"{ours / theirs:.3f}x", "at most 0.5x"
    yield (
        f"{what}: gc.jit(cache_key=) ({keyed:.2f} s), {by_jax}",
        f"{keyed / theirs:.3f}x",
        "at most 0.25x",
    )


def _start(form: str, folder: str) -> float:
    return float(answer_of("benchmarks.depth_child", "start", form, str(BLOCKS), folder)["seconds"])
