"""Optimizer updates in the backward loop: states equal those without the pass; memory is lower."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import numpy as np
import optax
import pytest
from jax import numpy as jnp

import graphc as gc
from graphc.ir.node import Node
from tests.near import assert_near

LAYERS, WIDTH, BATCH = 8, 320, 8
WITHOUT = ("update-in-loop",)

Fetches = list[gc.Node | gc.Tensor]


def deep(
    optimizer: Any,
    *,
    penalty: float = 0.0,
    norms: bool = False,
    layers: int = LAYERS,
    width: int = WIDTH,
    dtype: str = "float32",
    **kept: Any,
) -> tuple[gc.Graph, Fetches]:
    """Equal layers, and the fetches of a training step."""
    graph = gc.Graph(seed=0, name="deep")
    with graph:
        x = gc.placeholder(("batch", width), dtype, name="x")
        h = x
        for i in range(layers):
            h = h + gc.nn.Dense(width, activation=gc.tanh, dtype=dtype, name=f"layer{i}")(h)
        loss = gc.reduce_mean(gc.square(h - 0.1), name="loss")
        for variable in list(graph.variables.values()) if penalty else ():
            loss = loss + penalty * gc.reduce_sum(gc.square(variable.read()))
        kernels = [v.read() for n, v in graph.variables.items() if norms and n.endswith("kernel")]
        old = [gc.stack([gc.reduce_sum(gc.square(kernel)) for kernel in kernels])] if norms else []
        train = gc.minimize(loss, optimizer, name="train", **kept)
    return graph, [train, loss, *old]


def batches(number: int, width: int = WIDTH, dtype: str = "float32") -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((number, BATCH, width)).astype(dtype)


def in_loops(session: gc.Session) -> list[Node]:
    """The loops that update stacks in place."""
    local = session.executables[-1].stages.local
    return [
        node
        for node in local.walk()
        if node.op.name == "Scan"
        and any(inner.op.name == "DynamicUpdateSlice" for inner in node.regions[0].nodes)
    ]


def trained(
    graph: gc.Graph, fetches: Fetches, steps: int = 3, strategy: Any = None, **options: Any
) -> tuple[dict[str, Any], list[Node]]:
    """Returns all variables after some steps, and the loops that update stacks in place."""
    made = gc.CompileOptions(cache=None, **options)
    dtype = str(fetches[1].dtype)  # type: ignore[union-attr]
    with gc.Session(graph, options=made, strategy=strategy) as session:
        for x in batches(steps, dtype=dtype):
            session.run(fetches, {"x": x})
        values = {name: np.asarray(value) for name, value in session.values().items()}
        return values, in_loops(session)


def same(got: dict[str, Any], want: dict[str, Any], rtol: float = 1e-6) -> None:
    assert got.keys() == want.keys()
    for name, value in want.items():
        if value.dtype.kind == "f":
            assert_near(got[name], value, rtol=rtol, atol=rtol)
        else:
            assert np.array_equal(got[name], value)


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: optax.sgd(0.1),
    "momentum": lambda: optax.sgd(0.1, momentum=0.9),
    "nesterov": lambda: optax.sgd(0.1, momentum=0.9, nesterov=True),
    "adam": lambda: optax.adam(1e-3),
    "adamw": lambda: optax.adamw(1e-3, weight_decay=1e-2),
    "rmsprop": lambda: optax.rmsprop(1e-3),
    "rmsprop, momentum": lambda: optax.rmsprop(1e-3, momentum=0.9),
    "lion": lambda: optax.lion(1e-4),
    "a schedule": lambda: optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 1e-3, 2, 10)),
    "clipped element by element": lambda: optax.chain(optax.clip(1e-3), optax.adam(1e-3)),
}


@cache
def without_the_pass(name: str) -> dict[str, Any]:
    """The variables that this optimizer trains on one device, without the pass."""
    graph, fetches = deep(OPTIMIZERS[name](), dtype="float64")
    values, none = trained(graph, fetches, without_passes=WITHOUT)
    assert not none
    return values


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name: str) -> None:
    graph, fetches = deep(OPTIMIZERS[name](), dtype="float64")
    got, loops = trained(graph, fetches)
    assert len(loops) == 1
    same(got, without_the_pass(name), rtol=1e-12)


CASES: dict[str, dict[str, Any]] = {
    "float32": {},
    "bf16": {"precision": "bf16"},
    "O3": {"pipeline": "O3"},
    "a penalty": {"penalty": 1e-3},
}


@pytest.mark.parametrize("name", CASES)
def test_programs(name: str) -> None:
    options = dict(CASES[name])
    graph, fetches = deep(optax.adam(1e-3), penalty=options.pop("penalty", 0.0))
    got, loops = trained(graph, fetches, **options)
    want, _ = trained(graph, fetches, **options, without_passes=WITHOUT)
    assert len(loops) == 1
    same(got, want, rtol=1e-4 if name == "bf16" else 1e-6)


def note_of(session: gc.Session) -> str:
    return str(session.executables[-1].pass_report()).partition("update-in-loop: ")[2]


STAYS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "clipping by the norm of all": (
        {"optimizer": optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3))},
        {},
        "known only after the loop",
    ),
    "a loss scale": ({}, {"precision": "f16"}, "known only after the loop"),
    "small layers of replicas": (
        {"width": 208, "layers": 12},
        {"strategy": gc.devices.DataParallel(2)},
        "replicas exchange the gradients after the loop",
    ),
    "clipping on replicas": (
        {"optimizer": optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3))},
        {"strategy": gc.devices.DataParallel(2)},
        "known only after the loop",
    ),
    "pieces of slots": (
        {},
        {"strategy": gc.devices.DataParallel(2, shard_optimizer=True)},
        "each replica updates a piece of it",
    ),
}


@pytest.mark.parametrize("name", STAYS)
def test_what_stays_and_why(name: str) -> None:
    kept, options, why = STAYS[name]
    graph, fetches = deep(**{"optimizer": optax.adam(1e-3), **kept})
    options = dict(options)
    strategy = options.pop("strategy", None)
    made = gc.CompileOptions(cache=None, **options)
    with gc.Session(graph, options=made, strategy=strategy) as session:
        session.run(fetches, {"x": batches(1, kept.get("width", WIDTH))[0]})
        assert not in_loops(session)
        assert why in note_of(session), str(session.executables[-1].pass_report())


# -- replicas -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, replicas", [("momentum", 2), ("adam", 2), ("adam", 4), ("lion", 2), ("a schedule", 2)]
)
def test_replicas(name: str, replicas: int) -> None:
    """The loop exchanges the gradient of a layer and updates the layer in the same iteration."""
    graph, fetches = deep(OPTIMIZERS[name](), dtype="float64")
    strategy = gc.devices.DataParallel(replicas)
    got, loops = trained(graph, fetches, strategy=strategy)
    (loop,) = loops
    assert "AllReduce" in [node.op.name for node in loop.regions[0].nodes]
    plain, none = trained(graph, fetches, strategy=strategy, without_passes=WITHOUT)
    assert not none
    same(got, plain, rtol=1e-12)
    same(got, without_the_pass(name), rtol=1e-9)


REPLICATED: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {
    "float32": ({}, {}, 1),
    "bf16": ({}, {"precision": "bf16"}, 1),
    "O3": ({}, {"pipeline": "O3"}, 1),
    "a penalty": ({"penalty": 1e-3}, {}, 1),
    "norms of the old kernels": ({"norms": True}, {}, 0),  # one device has no such loop either
    "micro-batches": ({"accumulate": 2}, {}, 1),  # the loop updates the gradient sums in place
    "no loops of exchanges": ({}, {"without_passes": ("exchange-in-loops",)}, 0),
    "clipping": (
        {"optimizer": optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3))},
        {},
        0,
    ),
}


@pytest.mark.parametrize(
    "name, replicas",
    [*[(name, 2) for name in REPLICATED], ("float32", 4), ("micro-batches", 4)],
)
def test_programs_of_replicas(name: str, replicas: int) -> None:
    kept, options, count = REPLICATED[name]
    graph, fetches = deep(**{"optimizer": optax.adam(1e-3), **kept})
    strategy = gc.devices.DataParallel(replicas)
    got, loops = trained(graph, fetches, strategy=strategy, **options)
    assert len(loops) == count
    without = {**options, "without_passes": (*options.get("without_passes", ()), *WITHOUT)}
    want, _ = trained(graph, fetches, strategy=strategy, **without)
    same(got, want, rtol=1e-4 if name == "bf16" else 1e-6)


def test_several_steps_of_replicas_in_a_call() -> None:
    graph, fetches = deep(optax.adam(1e-3), dtype="float64")
    strategy = gc.devices.DataParallel(2)
    found, taken = [], []
    for without in ((), WITHOUT):
        options = gc.CompileOptions(cache=None, without_passes=without)
        with gc.Session(graph, options=options, strategy=strategy) as session:
            session.run_steps(fetches, {"x": batches(4, dtype="float64")}, 4)
            assert bool(in_loops(session)) is (not without)
            found.append({name: np.asarray(v) for name, v in session.values().items()})
            taken.append(session.executables[-1].memory())
    same(*found, rtol=1e-12)
    assert taken[0]["aliased"] == taken[1]["aliased"]
    assert taken[0]["temporaries"] < taken[1]["temporaries"]
    want, _ = trained(graph, fetches, steps=4)
    same(found[0], want, rtol=1e-9)


def test_uneven_batches_of_replicas() -> None:
    """Three replicas take 8 rows: 3, 3 and 2."""
    graph, fetches = deep(optax.adam(1e-3), dtype="float64")
    got, loops = trained(graph, fetches, strategy=gc.devices.DataParallel(3))
    assert len(loops) == 1
    want, _ = trained(graph, fetches, without_passes=WITHOUT)
    same(got, want, rtol=1e-9)


@pytest.mark.parametrize("replicas", [2, 4])
def test_stacks_of_replicas_are_written_in_place(replicas: int) -> None:
    layers, width = 12, 512
    graph, fetches = deep(optax.adam(1e-3), layers=layers, width=width)
    parameters = layers * width * width * 4
    strategy = gc.devices.DataParallel(replicas)

    def step(*without: str) -> gc.Executable:
        options = gc.CompileOptions(cache=None, without_passes=without)
        shapes = {"x": (BATCH, width)}
        return gc.compile(graph, fetches, shapes, options=options, strategy=strategy)

    moved, plain = step(), step(*WITHOUT)
    taken, before = moved.memory(), plain.memory()
    assert taken["aliased"] == before["aliased"] >= 3 * parameters
    assert before["temporaries"] > 0.5 * parameters
    assert taken["temporaries"] < 0.25 * parameters, (taken, before)
    assert not re.findall(rf"f32\[\d+,{width},{width}\]\S* copy\(", moved.hlo())


@pytest.mark.slow
def test_a_memory_limit_of_replicas() -> None:
    """The recomputation pass knows that the gradients of all layers are not kept together."""
    graph, fetches = deep(optax.adam(1e-3), layers=12)
    shape, strategy = {"x": (512, WIDTH)}, gc.devices.DataParallel(2)

    def step(limit: int | None, *without: str) -> gc.Executable:
        options = gc.CompileOptions(cache=None, memory_limit=limit, without_passes=without)
        return gc.compile(graph, fetches, shape, options=options, strategy=strategy).wait()

    def taken(step: gc.Executable) -> int:
        found = step.memory()
        return found["arguments"] + found["outputs"] - found["aliased"] + found["temporaries"]

    def rows(step: gc.Executable) -> dict[str, int]:
        return {row.name: row.changed for row in step.pass_report().rows}

    free, plain = step(None), step(None, *WITHOUT)
    assert taken(free) < taken(plain)
    between = step((taken(free) + taken(plain)) // 2)
    assert rows(between)["recompute"] == 0 and rows(between)["update-in-loop"] == 1
    tight = step(taken(free) - free.memory()["temporaries"] // 3)
    assert rows(tight)["recompute"] > 0 and rows(tight)["update-in-loop"] == 1
    x = np.random.default_rng(0).standard_normal((512, WIDTH)).astype(np.float32)
    states = []
    for each in (free, tight):
        state = each.init()
        for _ in range(2):
            _, state = each(state, {"x": x})
        states.append({name: np.asarray(state[name]) for name in graph.variables})
    same(states[1], states[0], rtol=1e-5)


def decaying() -> optax.GradientTransformation:
    """An optimizer with a slot whose new value does not depend on the gradient."""

    def update(gradients: Any, slots: Any, params: Any = None) -> tuple[Any, Any]:
        new = jax.tree.map(lambda slot: 0.9 * slot, slots)
        return jax.tree.map(lambda g, slot: -0.05 * (g + slot), gradients, new), new

    return optax.GradientTransformation(lambda params: jax.tree.map(jnp.ones_like, params), update)


def with_two_steps() -> tuple[gc.Graph, Fetches]:
    graph, (train, loss) = deep(optax.adam(1e-3))
    with graph:
        again = gc.minimize(gc.abs(loss), optax.sgd(1e-3), name="again")
    return graph, [train, loss, again]


SHARED: dict[str, Callable[[], tuple[gc.Graph, Fetches]]] = {
    "norms of the old kernels": lambda: deep(optax.adam(1e-3), norms=True),
    "two steps": with_two_steps,
    "a slot that decays": lambda: deep(decaying()),
    "scaled by the norm of the parameters": lambda: deep(
        optax.chain(optax.scale_by_trust_ratio(), optax.sgd(0.1))
    ),
}


@pytest.mark.parametrize("name", SHARED)
def test_maps_that_compute_what_the_loop_needs_too(name: str) -> None:
    """One result of a map is needed by the loop, and another result of it needs the loop. The pass
    must split such a map, because programs have no cycles."""
    got, _ = trained(*SHARED[name]())
    want, _ = trained(*SHARED[name](), without_passes=WITHOUT)
    same(got, want, rtol=1e-5)


def test_a_fetched_gradient_stays() -> None:
    graph, fetches = deep(optax.adam(1e-3))
    with graph:
        kernel = graph.variables["layer3/kernel"]
        (gradient,) = gc.gradients(fetches[1], [kernel])
    with gc.Session(graph, options=gc.CompileOptions(cache=None)) as session:
        session.run([*fetches, gradient], {"x": batches(1)[0]})
        assert not in_loops(session)


def test_micro_batches() -> None:
    """Gradients are summed over micro-batches. The loop updates the sums in place, and the
    optimizer runs after the last micro-batch."""
    graph, fetches = deep(optax.adam(1e-3), accumulate=2)
    got, loops = trained(graph, fetches)
    want, _ = trained(graph, fetches, without_passes=WITHOUT)
    (loop,) = loops
    writes = [node for node in loop.regions[0].nodes if node.op.name == "DynamicUpdateSlice"]
    assert len(writes) == 1
    same(got, want)


def test_several_steps_in_a_call() -> None:
    """The step itself is in a loop, whose carries are overwritten."""
    graph, fetches = deep(optax.adam(1e-3))
    found, taken = [], []
    for without in ((), WITHOUT):
        options = gc.CompileOptions(cache=None, without_passes=without)
        with gc.Session(graph, options=options) as session:
            session.run_steps(fetches, {"x": batches(4)}, 4)
            assert bool(in_loops(session)) is (not without)
            found.append({name: np.asarray(v) for name, v in session.values().items()})
            taken.append(session.executables[-1].memory())
    same(*found)
    assert taken[0]["aliased"] == taken[1]["aliased"]
    assert taken[0]["temporaries"] < taken[1]["temporaries"]
    want, _ = trained(graph, fetches, steps=4)
    same(found[0], want)


def test_the_state_goes_on_without_the_pass() -> None:
    """A session with the pass and one without it can exchange states: the layouts are equal."""
    graph, fetches = deep(optax.adam(1e-3))
    values: dict[str, Any] = {}
    data = batches(4)
    for part, without in ((data[:2], ()), (data[2:3], WITHOUT), (data[3:], ())):
        options = gc.CompileOptions(cache=None, without_passes=without)
        with gc.Session(graph, options=options) as session:
            session.set_all(values)
            for x in part:
                session.run(fetches, {"x": x})
            values = {name: np.asarray(value) for name, value in session.values().items()}
    want, _ = trained(graph, fetches, steps=4)
    same(values, want)


def test_a_saved_step_trains_as_the_session(tmp_path: Any) -> None:
    graph, fetches = deep(optax.adam(1e-3))
    x = batches(2)
    with gc.Session(graph, options=gc.CompileOptions(cache=None)) as session:
        session.run(fetches, {"x": x[0]})
        signature = gc.Signature(
            inputs={"x": graph.tensor("x")}, outputs={"loss": fetches[1]}, updates=[fetches[0]]
        )
        gc.save(session, tmp_path / "step", signatures={"train": signature}, platforms=["cpu"])
        session.run(fetches, {"x": x[1]})
        want = {name: np.asarray(value) for name, value in session.values().items()}
    loaded = gc.load(tmp_path / "step")
    entry = loaded.signatures["train"]
    _, state = entry(loaded.state(), x=x[1])
    same({name: np.asarray(state[name]) for name in want if name in state}, want)


@pytest.mark.parametrize("optimizer", [optax.sgd(0.1), optax.adam(1e-3), optax.lion(1e-4)])
def test_stacks_are_written_in_place(optimizer: Any) -> None:
    """The program keeps no gradients of all layers and no copies of stacks."""
    layers, width = 12, 512
    graph, fetches = deep(optimizer, layers=layers, width=width)
    parameters = layers * width * width * 4

    def memory(*without: str) -> dict[str, int]:
        options = gc.CompileOptions(cache=None, without_passes=without)
        step = gc.compile(graph, fetches, {"x": (BATCH, width)}, options=options)
        return dict(step.memory())

    moved, plain = memory(), memory(*WITHOUT)
    assert moved["aliased"] == plain["aliased"] >= parameters
    assert plain["temporaries"] > 0.9 * parameters
    assert moved["temporaries"] < 0.4 * parameters, (moved, plain)


def test_a_memory_limit() -> None:
    """The recomputation pass takes the memory that the updates save into account."""
    graph, fetches = deep(optax.adam(1e-3), layers=12)
    shape = {"x": (512, WIDTH)}
    free = gc.compile(graph, fetches, shape, options=gc.CompileOptions(cache=None))
    found = free.memory()
    taken = found["arguments"] + found["outputs"] - found["aliased"] + found["temporaries"]
    limit = taken - found["temporaries"] // 3
    options = gc.CompileOptions(cache=None, memory_limit=limit)
    tight = gc.compile(graph, fetches, shape, options=options)
    rows = {row.name: row.changed for row in tight.pass_report().rows}
    assert rows["recompute"] > 0 and rows["update-in-loop"] > 0
    states, results = [], []
    x = np.random.default_rng(0).standard_normal((512, WIDTH)).astype(np.float32)
    for step in (free, tight):
        state = step.init()
        for _ in range(2):
            result, state = step(state, {"x": x})
        results.append(float(result[1]))
        states.append({name: np.asarray(state[name]) for name in graph.variables})
    assert_near(*results, rtol=1e-6)
    same(states[1], states[0], rtol=1e-5)
