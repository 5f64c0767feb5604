"""One model of the zoo in a process of its own; the parent is `benchmarks.zoo`.

`first MODEL SIDE` (`graphc` or `jax`): prints the CPU seconds from the call to its result, with all
imports done before. `steps MODEL`: prints both seconds a step, the median of their ratios taken
step by step, and the bytes of temporaries of both.
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


def main(what: str, name: str, side: str = "") -> None:
    model = MODELS[name](tiny=False)
    jax.block_until_ready(model.args)
    print(json.dumps(first(model, side) if what == "first" else steps(model)), flush=True)


def compiled(model: Model, side: str) -> Any:
    if side == "jax":
        return jax.jit(model.step, donate_argnums=model.donate_argnums)
    options = gc.CompileOptions(cache=None)
    return gc.jit(model.step, donate_argnums=model.donate_argnums, options=options)


def first(model: Model, side: str) -> float:
    begin = time.process_time()
    jax.block_until_ready(compiled(model, side)(*model.args))
    return time.process_time() - begin


def steps(model: Model) -> dict[str, float]:
    """Seconds of both, timed in turns, and the bytes of their temporaries."""
    functions = {side: compiled(model, side) for side in ("graphc", "jax")}
    lowered = functions["jax"].lower(*model.args).compile()
    bytes_of_jax = lowered.memory_analysis().temp_size_in_bytes
    own = {side: jax.tree.map(lambda x: x.copy(), model.args) for side in functions}
    advance = {side: _advance(functions[side], own[side]) for side in functions}
    for side in functions:
        for _ in range(3):
            advance[side]()
    if functions["graphc"].notes:
        raise RuntimeError(f"graphc did not compile it: {functions['graphc'].notes}")
    begin = time.perf_counter()
    advance["jax"]()
    calls = max(1, min(200, int(0.01 / (time.perf_counter() - begin))))
    pairs = []
    for number in range(ROUNDS):
        taken = {}
        for side in sorted(functions, reverse=bool(number % 2)):
            begin = time.perf_counter()
            for _ in range(calls):
                advance[side]()
            taken[side] = (time.perf_counter() - begin) / calls
        pairs.append((taken["graphc"], taken["jax"]))
    return {
        "ours": statistics.median(a for a, _ in pairs),
        "theirs": statistics.median(b for _, b in pairs),
        "ratio": statistics.median(a / b for a, b in pairs),
        "temporaries": functions["graphc"].memory()["temporaries"],
        "temporaries of jax": bytes_of_jax,
    }


def _advance(function: Callable[..., Any], args: tuple[Any, ...]) -> Callable[[], None]:
    """Runs one more step each time."""

    def advance() -> None:
        nonlocal args
        result = function(*args)
        args = (*result[:2], *args[2:])
        jax.block_until_ready(result[-1])

    return advance


if __name__ == "__main__":
    main(*sys.argv[1:])
