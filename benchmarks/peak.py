"""Resident memory from the start: dense layers with adam, each form in a separate process.

`python -m benchmarks.peak FORM` is such a process. It prints, in GB: the memory of the process with
JAX, the state, the temporaries of a step, the resident memory after three steps, and its peak.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import optax
from jax import numpy as jnp

import graphc as gc
from benchmarks.children import answer_of
from benchmarks.steps import advancing, advancing_by_hand, training

Row = tuple[str, str, str]
LAYERS, WIDTH, BATCH = 12, 4096, 256
LEARNING_RATE = 1e-3
FEED = np.random.default_rng(0).standard_normal((BATCH, WIDTH)).astype(np.float32)

Measured = dict[str, float]
Step = Callable[[], Any]  # returns the loss


def rows() -> Iterator[Row]:
    """Rows: the ratio of each form's memory to its long-run need, and of graphc's to JAX's."""
    found: dict[str, Measured] = {form: answer_of("benchmarks.peak", form) for form in FORMS}
    what = f"{LAYERS} dense layers of {WIDTH}, batch {BATCH}, adam, float32"
    jax_form = found["JAX"]
    for form, memory in found.items():
        needed = memory["steady"] + memory["temporaries"]
        ratios = [f"peak {memory['peak'] / needed:.2f}x of steady and temporaries"]
        if form != "JAX":
            for key in ("peak", "steady", "temporaries"):
                ratios.append(f"{key} {memory[key] / jax_form[key]:.2f}x of JAX")
        values = ", ".join(f"{key} {value:.2f} GB" for key, value in memory.items())
        yield f"{what}: {form} ({values})", ", ".join(ratios), "peak at most 1.05x, of JAX 1.00x"


def measure(form: str) -> Measured:
    """The figures of one form, in this process."""
    jnp.zeros(3).block_until_ready()  # JAX's own first allocations
    base = _resident("VmRSS")
    step, state, temporaries = FORMS[form]()
    for _ in range(3):
        jax.block_until_ready(step())
    return {
        "base": base,
        "state": state / 1e9,
        "temporaries": temporaries / 1e9,
        "steady": _resident("VmRSS"),
        "peak": _resident("VmHWM"),
    }


def _resident(what: str) -> float:
    """The memory in GB, as Linux reports it."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(what)) * 1024 / 1e9


def _graph() -> tuple[gc.Graph, Any, list[Any]]:
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((BATCH, WIDTH), "float32", name="x")
        h = x
        for number in range(LAYERS):
            h = gc.nn.Dense(WIDTH, activation=gc.tanh, name=f"dense{number}")(h)
        loss = gc.reduce_mean(h * h)
        train = gc.minimize(loss, optax.adam(LEARNING_RATE))
    return graph, x, [train, loss]


def _of_session() -> tuple[Step, int, int]:
    graph, x, fetches = _graph()
    session = gc.Session(graph, options=gc.CompileOptions(cache=None))
    step = lambda: session.run(fetches, {x: FEED})[1]  # noqa: E731
    step()
    (executable,) = session.executables
    memory = executable.memory()
    return step, memory["arguments"], memory["temporaries"]


def _of_executable() -> tuple[Step, int, int]:
    graph, x, fetches = _graph()
    shapes = {x: FEED.shape}
    executable = gc.compile(graph, fetches, shapes, options=gc.CompileOptions(cache=None))
    memory = executable.memory()
    return advancing(executable, {x: FEED}), memory["arguments"], memory["temporaries"]


def _of_jax() -> tuple[Step, int, int]:
    """The same in hand-written JAX. One jitted program computes the initial values."""
    optimizer = optax.adam(LEARNING_RATE)
    bound = (3 / WIDTH) ** 0.5

    def initial(key: Any) -> Any:
        keys = jax.random.split(key, LAYERS)
        layers = [
            (jax.random.uniform(k, (WIDTH, WIDTH), minval=-bound, maxval=bound), jnp.zeros(WIDTH))
            for k in keys
        ]
        return layers, optimizer.init(layers)

    def loss_of(layers: Any, x: Any) -> Any:
        for kernel, bias in layers:
            x = jnp.tanh(x @ kernel + bias)
        return jnp.mean(x * x)

    train = jax.jit(training(loss_of, optimizer), donate_argnums=(0, 1))
    layers, slots = jax.jit(initial)(jax.random.key(0))
    compiled = train.lower(layers, slots, FEED).compile()
    memory = compiled.memory_analysis()
    step = advancing_by_hand(compiled, layers, slots, FEED)
    return step, memory.argument_size_in_bytes, memory.temp_size_in_bytes


FORMS: dict[str, Callable[[], tuple[Step, int, int]]] = {
    "Session": _of_session,
    "gc.compile": _of_executable,
    "JAX": _of_jax,
}

if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
