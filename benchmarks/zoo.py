"""The zoo: whole training steps that nobody tuned for graphc, `gc.jit` against `jax.jit`.

For each model: the time of a step, the time of everything until the first result (tracing, import,
passes, lowering, XLA; nothing from a cache), and the bytes of temporaries. First results are CPU
time of fresh processes (`benchmarks.zoo_child`), graphc and JAX in turns; steps are timed in turns
within one process. Ratios are medians of the ratios of neighbours.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.zoo_models import MODELS

Row = tuple[str, ...]
HEADER: Row = ("model", "step", "until the first result", "temporaries")
COMMAND = (sys.executable, "-m", "benchmarks.zoo_child")
PAIRS = 3


def rows(names: Sequence[str] = tuple(MODELS), pairs: int = PAIRS) -> Iterator[Row]:
    """A row for each model, and a last one with the targets."""
    for name in names:
        firsts = [
            (_child("first", name, "graphc"), _child("first", name, "jax")) for _ in range(pairs)
        ]
        ours, theirs = (statistics.median(side) for side in zip(*firsts, strict=True))
        ratio = statistics.median(a / b for a, b in firsts)
        found = _child("steps", name)
        bytes_of = found["temporaries"], found["temporaries of jax"]
        yield (
            name,
            f"{found['ratio']:.2f} ({found['ours'] * 1e3:.2f} / {found['theirs'] * 1e3:.2f} ms)",
            f"{ratio:.2f} ({ours:.2f} / {theirs:.2f} s)",
            f"{_ratio(*bytes_of)} ({bytes_of[0] / 2**20:.2f} / {bytes_of[1] / 2**20:.2f} MiB)",
        )
    yield "target", "at most 1.02", "at most 1.00", "at most 1.05"


def _ratio(ours: float, theirs: float) -> str:
    return f"{ours / theirs:.2f}" if theirs else "1.00" if not ours else "more than none"


def _child(*what: str) -> Any:
    done = subprocess.run([*COMMAND, *what], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)
