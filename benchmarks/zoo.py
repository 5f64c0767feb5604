"""The zoo: training steps, and forward passes, that are not tuned for graphc: `gc.jit` compared
with `jax.jit`.

Each model has the time of a step, the CPU time of everything until the first result (tracing,
import, passes, lowering, XLA; nothing from a cache), and the bytes of temporaries, with the
absolute values of graphc and JAX. Each model has its own process, `benchmarks.zoo_child`, which
runs the two in turn. Ratios are medians of the ratios of consecutive measurements.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from benchmarks.children import answer_of
from benchmarks.zoo_models import MODELS

Row = tuple[str, ...]
HEADER: Row = ("model", "step", "until the first result", "temporaries")
PAIRS = 3


def rows(names: Sequence[str] = tuple(MODELS), pairs: int = PAIRS) -> Iterator[Row]:
    """A row for each model, and a last row with the targets."""
    for name in names:
        found = answer_of("benchmarks.zoo_child", name, str(pairs))
        ours, theirs, ratio = found["steps"]
        firsts = [statistics.median(side) for side in zip(*found["firsts"], strict=True)]
        first = statistics.median(a / b for a, b in found["firsts"])
        mine, other = found["temporaries"]
        yield (
            name,
            f"{ratio:.2f} ({ours * 1e3:.2f} / {theirs * 1e3:.2f} ms)",
            f"{first:.2f} ({firsts[0]:.2f} / {firsts[1]:.2f} s)",
            f"{_ratio(mine, other)} ({mine / 2**20:.2f} / {other / 2**20:.2f} MiB)",
        )
    yield "target", "at most 1.02", "at most 1.00", "at most 1.05"


def _ratio(ours: float, theirs: float) -> str:
    if not theirs:
        return "more than none" if ours else "1.00"
    return f"{ours / theirs:.2f}"
