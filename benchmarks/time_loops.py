"""A two-layer LSTM that Python unrolls over time: the whole training step, imported and in JAX.

Every compilation is in a fresh process. Its time is the processor time of that process, from the
function to the executable. The processes then stay alive, and their steps are timed in turn.
`python -m benchmarks.time_loops FORM STEPS` is such a process.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.depth import Child, Row

LENGTHS = (20, 60, 120)
BATCH, FEATURES, HIDDEN, CLASSES = 32, 32, 64, 10
ROUNDS = 15


def rows() -> Iterator[Row]:
    """Rows: compilation, step and temporaries by length, relative to JAX; and their growth."""
    seconds: dict[int, float] = {}
    for length in LENGTHS:
        children = {
            form: Child(form, length, module="benchmarks.time_loops", command=())
            for form in ("graphc", "jax")
        }
        ours, theirs = (child.seconds for child in children.values())
        seconds[length] = ours["compile"]
        label = f"LSTM unrolled over {length} steps"
        yield (
            f"{label}: import, passes and compile ({ours['compile']:.1f} s of CPU), over JAX "
            f"({theirs['compile']:.1f} s)",
            f"{ours['compile'] / theirs['compile']:.3f}x",
            "at most 0.08x",
        )
        pairs = [[child.steps(10) for child in children.values()] for _ in range(ROUNDS + 1)][1:]
        a, b = (1e3 * statistics.median(each) for each in zip(*pairs, strict=True))
        ratio = statistics.median(x / y for x, y in pairs)
        yield f"{label}: step ({a:.1f} ms), over JAX ({b:.1f} ms)", f"{ratio:.3f}x", "at most 1.02x"
        a, b = (each["temporaries"] / 1e6 for each in (ours, theirs))
        yield (
            f"{label}: temporaries ({a:.1f} MB), over JAX ({b:.1f} MB)",
            f"{a / b:.2f}x",
            "at most 1.05x",
        )
        for child in children.values():
            child.close()
    first, last = LENGTHS[0], LENGTHS[-1]
    ratio = seconds[last] / seconds[first]
    yield f"compiling {last} steps over {first}", f"{ratio:.2f}x", "at most 1.25x"


def training_step(length: int) -> tuple[Callable[..., Any], list[Any]]:
    """The step in JAX, and its arguments: parameters, state of adam, a batch, classes."""
    import jax
    import jax.numpy as jnp
    import optax

    from benchmarks.steps import training

    adam = optax.adam(1e-3)

    def cell(p: Any, x: Any, h: Any, c: Any) -> tuple[Any, Any]:
        gates = jnp.split(x @ p["input"] + h @ p["hidden"] + p["bias"], 4, axis=-1)
        i, f, o = (jax.nn.sigmoid(gate) for gate in (gates[0], gates[1] + 1.0, gates[3]))
        c = f * c + i * jnp.tanh(gates[2])
        return o * jnp.tanh(c), c

    def loss_of(params: Any, x: Any, y: Any) -> Any:
        x = jnp.tanh(x @ params["project"])
        h1 = c1 = h2 = c2 = jnp.zeros((x.shape[0], HIDDEN))
        for t in range(length):
            h1, c1 = cell(params["first"], x[:, t], h1, c1)
            h2, c2 = cell(params["second"], h1, h2, c2)
        logits = h2 @ params["out"]
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

    rng = np.random.default_rng(0)

    def normal(*shape: int) -> Any:
        return (0.1 * rng.normal(size=shape)).astype(np.float32)

    def layer(width: int) -> dict[str, Any]:
        shapes = {"input": (width, 4 * HIDDEN), "hidden": (HIDDEN, 4 * HIDDEN)}
        return {name: normal(*s) for name, s in shapes.items()} | {"bias": normal(4 * HIDDEN)}

    params = {
        "project": normal(FEATURES, FEATURES),
        "first": layer(FEATURES),
        "second": layer(HIDDEN),
        "out": normal(HIDDEN, CLASSES),
    }
    y = rng.integers(0, CLASSES, BATCH).astype(np.int32)
    x = normal(BATCH, length, FEATURES)
    return training(loss_of, adam), [params, adam.init(params), x, y]


def graphc_step(length: int) -> tuple[Callable[[], Any], dict[str, float]]:
    """The imported step with its initial values, and the cost of its compilation."""
    import jax

    import graphc as gc
    from benchmarks.steps import advancing

    step, (params, opt_state, features, classes) = training_step(length)
    begin = time.process_time()
    graph = gc.Graph()
    with graph:
        x = gc.placeholder(features.shape, name="x")
        y = gc.placeholder(classes.shape, "int32", name="y")
        state = jax.tree.map(gc.variable, (params, opt_state))
        *new, loss = gc.from_jax(step)(*state, x, y)
        assigned = jax.tree.map(lambda variable, value: variable.assign(value), state, tuple(new))
        train = gc.group(*jax.tree.leaves(assigned))
    feeds = {"x": features, "y": classes}
    executable = gc.compile(graph, [train, loss], feeds, options=gc.CompileOptions(cache=None))
    seconds = time.process_time() - begin
    memory = executable.memory()
    run = advancing(executable, jax.device_put(feeds))
    return run, {"compile": seconds, "temporaries": memory["temporaries"]}


def jax_step(length: int) -> tuple[Callable[[], Any], dict[str, float]]:
    """The same step with `jax.jit`."""
    import jax

    from benchmarks.steps import advancing_by_hand

    step, arguments = training_step(length)
    begin = time.process_time()
    compiled = jax.jit(step, donate_argnums=(0, 1)).lower(*arguments).compile()
    seconds = time.process_time() - begin
    run = advancing_by_hand(compiled, *jax.device_put(arguments))
    temporaries = compiled.memory_analysis().temp_size_in_bytes
    return run, {"compile": seconds, "temporaries": temporaries}


def main(form: str, length: str) -> None:
    run, found = (graphc_step if form == "graphc" else jax_step)(int(length))
    print(json.dumps(found), flush=True)
    for line in sys.stdin:
        begin = time.perf_counter()
        for _ in range(int(line)):
            run().block_until_ready()
        print(json.dumps({"seconds": time.perf_counter() - begin}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
