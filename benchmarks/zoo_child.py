"""One model of the zoo in its own process; the parent is `benchmarks.zoo`.

`MODEL PAIRS` prints as JSON: the CPU seconds from a call to its first result (PAIRS times, graphc
and JAX in turn), the seconds per step of both with the median of their ratios, and the bytes of
temporaries of both. The tiny form of the model runs first, so that modules and rules that load at
their first use are already loaded. JAX's caches are cleared before each first call.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import jax

import graphc as gc
from benchmarks.zoo_models import MODELS, Model

ROUNDS = 31
SIDES = ("graphc", "jax")
Step = Callable[[], None]


def main(name: str, pairs: str) -> None:
    tiny, model = (MODELS[name](tiny=tiny) for tiny in (True, False))
    for side in SIDES:
        first(tiny, side)
    firsts, last = [], {}
    for number in range(int(pairs)):
        taken = {}
        for side in sorted(SIDES, reverse=bool(number % 2)):
            taken[side], *last[side] = first(model, side)
        firsts.append([taken[side] for side in SIDES])
    found = steps({side: _advance(*last[side]) for side in SIDES})
    ours, theirs = (last[side][0] for side in SIDES)
    if ours.notes:
        raise RuntimeError(f"graphc did not compile it: {ours.notes}")
    analysis = theirs.lower(*model.args).compile().memory_analysis()
    temporaries = ours.memory()["temporaries"], analysis.temp_size_in_bytes
    print(json.dumps({"firsts": firsts, "steps": found, "temporaries": temporaries}), flush=True)


def first(model: Model, side: str) -> tuple[float, Any, Any]:
    """The CPU seconds until the first result, the compiled function, and its next arguments."""
    donated = model.donate_argnums
    if side == "jax":
        function = jax.jit(model.step, donate_argnums=donated)
    else:
        options = gc.CompileOptions(cache=None)
        function = gc.jit(model.step, donate_argnums=donated, options=options)
    args = jax.block_until_ready(jax.tree.map(lambda x: x.copy(), model.args))
    jax.clear_caches()
    begin = time.process_time()
    result = jax.block_until_ready(function(*args))
    return time.process_time() - begin, function, (*result[:2], *args[2:])


def steps(advance: dict[str, Step]) -> tuple[float, float, float]:
    """The seconds of both, timed in turn, and the median of their ratios."""
    for side in SIDES:
        _time(advance[side], 3)
    calls = max(1, min(200, int(0.01 / _time(advance["jax"], 3))))
    pairs = []
    for number in range(ROUNDS):
        order = sorted(SIDES, reverse=bool(number % 2))
        taken = {side: _time(advance[side], calls) for side in order}
        pairs.append([taken[side] for side in SIDES])
    ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    return ours, theirs, statistics.median(a / b for a, b in pairs)


def _time(step: Step, calls: int) -> float:
    begin = time.perf_counter()
    for _ in range(calls):
        step()
    return (time.perf_counter() - begin) / calls


def _advance(function: Callable[..., Any], args: tuple[Any, ...]) -> Step:
    """A function that runs one more step in each call."""

    def advance() -> None:
        nonlocal args
        result = function(*args)
        args = (*result[:2], *args[2:])
        jax.block_until_ready(result[-1])

    return advance


if __name__ == "__main__":
    main(*sys.argv[1:])
