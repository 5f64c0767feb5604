"""One form of the transformer in its own process; the parent is `benchmarks.depth`.

`compile FORM BLOCKS`: builds and compiles without a cache and prints the seconds of each stage.
Each line of the standard input is a number of steps; it then runs them and prints their seconds.
`start FORM BLOCKS FOLDER`: prints the seconds from the first import to the end of the first step,
with compiled programs kept in FOLDER. The form `imports` is the minimum that any form needs.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

START = time.perf_counter()
Step = Callable[[Any], Any]  # takes tokens and returns the loss


def main(what: str, form: str = "", blocks: str = "0", folder: str = "") -> None:
    if what == "imports":
        import jax  # noqa: F401
        import optax  # noqa: F401

        print(json.dumps({"seconds": time.perf_counter() - START}), flush=True)
        return
    from benchmarks import transformer

    size = transformer.Size(blocks=int(blocks))
    make = {"graphc": graphc_step, "imported": graphc_step, "jit": jit_step, "keyed": jit_step}.get(
        form, jax_step
    )
    data = transformer.batches(size, 8)
    if what == "start":
        step, _ = make(form, size, folder)
        step(data[0]).block_until_ready()
        print(json.dumps({"seconds": time.perf_counter() - START}), flush=True)
        return
    step, seconds = make(form, size, None)
    print(json.dumps(seconds), flush=True)
    for line in sys.stdin:
        begin = time.perf_counter()
        for i in range(int(line)):
            step(data[i % len(data)]).block_until_ready()
        print(json.dumps({"seconds": time.perf_counter() - begin}), flush=True)


def graphc_step(form: str, size: Any, folder: str | None) -> tuple[Step, dict[str, float]]:
    """The step of "graphc" or "imported" with initial values, and the seconds of each stage."""
    import graphc as gc
    from benchmarks import transformer

    begin = time.perf_counter()
    make = transformer.graphc_model if form == "graphc" else transformer.imported_model
    model = make(size)
    built = time.perf_counter()
    executable = gc.compile(
        model.graph,
        [model.train, model.loss],
        {"text": (size.batch, size.sequence + 1)},
        options=gc.CompileOptions(cache=folder),
    )
    seconds = dict(executable.seconds)
    passes = executable.pass_report().milliseconds / 1e3
    rest = time.perf_counter() - built - sum(seconds.values()) - passes
    seconds |= {"build": built - begin, "passes": passes, "key and the rest": rest}
    state = executable.init()

    def step(tokens: Any) -> Any:
        nonlocal state
        (_, value), state = executable(state, {"text": tokens})
        return value

    return step, seconds


def jax_step(form: str, size: Any, folder: str | None) -> tuple[Step, dict[str, float]]:
    """The same for the step of "unrolled" or "scan" in plain JAX."""
    import jax

    from benchmarks import transformer

    if folder:
        jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    scan = form == "scan"
    arrange = transformer.stacked if scan else transformer.nested
    params = jax.device_put(arrange(transformer.initial(size), size))
    opt_state = transformer.optimizer().init(params)
    tokens = transformer.batches(size, 1)[0]
    jitted = jax.jit(transformer.jax_step(size, scan=scan), donate_argnums=(0, 1))
    begin = time.perf_counter()
    lowered = jitted.lower(params, opt_state, tokens)
    middle = time.perf_counter()
    compiled = lowered.compile()
    seconds = {"lower": middle - begin, "compile": time.perf_counter() - middle}

    def step(tokens: Any) -> Any:
        nonlocal params, opt_state
        params, opt_state, loss = compiled(params, opt_state, tokens)
        return loss

    return step, seconds


def jit_step(form: str, size: Any, folder: str | None) -> tuple[Step, dict[str, float]]:
    """The step of "unrolled" by `gc.jit`. The form "keyed" has a cache key, so that a second start
    does not trace the step."""
    import jax

    import graphc as gc
    from benchmarks import transformer

    params = jax.device_put(transformer.nested(transformer.initial(size), size))
    opt_state = transformer.optimizer().init(params)
    tokens = transformer.batches(size, 1)[0]
    jitted = gc.jit(
        transformer.jax_step(size, scan=False),
        donate_argnums=(0, 1),
        options=gc.CompileOptions(cache=folder),
        cache_key=f"transformer {size}" if form == "keyed" else None,
    )
    begin = time.perf_counter()
    jitted.compile(params, opt_state, tokens)
    seconds = {"compile": time.perf_counter() - begin}

    def step(tokens: Any) -> Any:
        nonlocal params, opt_state
        params, opt_state, loss = jitted(params, opt_state, tokens)
        return loss

    return step, seconds


if __name__ == "__main__":
    main(*sys.argv[1:])
