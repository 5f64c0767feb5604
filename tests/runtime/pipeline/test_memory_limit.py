"""`CompileOptions(memory_limit=...)`: values are recomputed, results stay equal; errors."""

from __future__ import annotations

import functools
import re
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
import pytest
from jax import numpy as jnp

import graphc as gc
from graphc.devices import DataParallel
from graphc.errors import AttributeValueError, ExecutionError, NumericsError
from graphc.runtime.core.counters import COUNTERS
from tests.near import assert_near

ROWS, WIDTH, BLOCKS, TURNS = 64, 16, 8, 96
# Disabled, so that the loops stack all values: `stack-less` alone would meet the limits.
STACKED: dict[str, Any] = {"cache": None, "without_passes": ("stack-less",)}


class Model(NamedTuple):
    graph: gc.Graph
    train: gc.Node
    loss: gc.Tensor
    shape: tuple[int, ...]


def blocks(dtype: str = "float32", drop: float = 0.0) -> Model:
    """Residual blocks, which O2 rolls. Their activations are larger than their parameters."""
    graph = gc.Graph(seed=0)
    with graph:
        x = h = gc.placeholder((None, WIDTH), dtype, name="x")
        for i in range(BLOCKS):
            with gc.name_scope(f"block{i}"):
                wide = gc.tanh(gc.nn.Dense(4 * WIDTH, dtype=dtype, name="up")(h))
                wide = gc.random.dropout(wide, drop) if drop else wide
                h = h + gc.tanh(gc.nn.Dense(WIDTH, dtype=dtype, name="down")(gc.sin(wide)))
        loss = gc.reduce_mean(gc.square(h - 1), name="loss")
        train = gc.minimize(loss, optax.adam(0.01), name="train")
    return Model(graph, train, loss, (ROWS, *x.shape[1:]))


def attending(dtype: str = "float32") -> Model:
    """Transformer blocks that draw random numbers in the middle and at the end of each block."""
    graph = gc.Graph(seed=0)
    with graph:
        x = h = gc.placeholder((None, 12, WIDTH), dtype, name="x")
        for i in range(12):
            with gc.name_scope(f"block{i}"):
                q, k, v = [gc.nn.Dense(WIDTH, dtype=dtype, name=name)(h) for name in "qkv"]
                weights = gc.random.dropout(gc.softmax(gc.matmul(q, k, transpose_b=True)), 0.1)
                h = h + gc.nn.Dense(WIDTH, dtype=dtype, name="out")(gc.matmul(weights, v))
                wide = gc.nn.gelu(gc.nn.Dense(4 * WIDTH, dtype=dtype, name="up")(h))
                h = h + gc.random.dropout(gc.nn.Dense(WIDTH, dtype=dtype, name="down")(wide), 0.1)
        loss = gc.reduce_mean(gc.square(h - 1), name="loss")
        train = gc.minimize(loss, optax.sgd(0.1), name="train")
    return Model(graph, train, loss, (16, *x.shape[1:]))


def recurrent(dtype: str = "float32", said: str = "") -> Model:
    """A user's loop with many iterations and shared weights."""
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((TURNS, None, WIDTH), dtype, name="x", batch_axis=1)
        w = gc.variable(np.eye(WIDTH, dtype=dtype), name="w")
        start = gc.zeros_like(x[0])

        def step(h: Any, row: Any) -> Any:
            if said:
                gc.print(said, h[0, 0])
            gate = gc.nn.sigmoid(gc.matmul(h, w) + row)
            new = gc.tanh(gc.matmul(h * gate, w) + row)
            return gate * h + (1 - gate) * new, None

        last, _ = gc.scan(step, start, x)
        loss = gc.reduce_mean(gc.square(last - 1), name="loss")
        train = gc.minimize(loss, optax.sgd(0.1), name="train")
    return Model(graph, train, loss, (TURNS, ROWS, WIDTH))


def imported(dtype: str = "float32") -> Model:
    """A `jax.lax.scan` and its `jax.grad`, imported from JAX."""

    def loss_of(w: Any, x: Any) -> Any:
        def body(h: Any, v: Any) -> Any:
            return h + jnp.tanh(jax.nn.gelu(jnp.tanh(h @ v)) @ v.T), None

        return jnp.square(jax.lax.scan(body, x, w)[0] - 1).mean()

    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((ROWS, WIDTH), dtype, name="x")
        rng = np.random.default_rng(0)
        w = gc.variable((0.1 * rng.normal(size=(BLOCKS, WIDTH, 64))).astype(dtype), name="w")
        loss, slope = gc.from_jax(jax.value_and_grad(loss_of))(w, x)
        loss = gc.identity(loss, name="loss")
        train = gc.group(w.assign(w - 0.1 * slope), name="train")
    return Model(graph, train, loss, (ROWS, WIDTH))


def feed(model: Model) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(1).normal(size=model.shape).astype("float32")}


def compiled(model: Model, limit: Any = None, **more: Any) -> gc.Executable:
    how = {name: more.pop(name) for name in ("strategy", "steps") if name in more}
    options = gc.CompileOptions(**{**STACKED, "memory_limit": limit, **more})
    feeds = {"x": model.shape}
    return gc.compile(model.graph, [model.train, model.loss], feeds, options=options, **how)


@functools.cache
def unlimited(build: Any, dtype: str = "float32", **more: Any) -> tuple[Model, gc.Executable]:
    """A model and its step without a limit; all tests share it."""
    model = build(dtype, **more)
    return model, compiled(model)


def taken(step: gc.Executable) -> int:
    found = step.memory()
    return found["arguments"] + found["outputs"] - found["aliased"] + found["temporaries"]


def limit_of(step: gc.Executable, share: float) -> int:
    """Returns a limit that leaves this share of the temporaries."""
    temporaries = step.memory()["temporaries"]
    return taken(step) - temporaries + int(share * temporaries)


def losses(step: gc.Executable, model: Model, runs: int = 3) -> list[float]:
    state = step.init()
    found = []
    for _ in range(runs):
        (_, loss), state = step(state, feed(model))
        found.append(float(loss))
    return found


# -- limits that can be met ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "share"),
    [(blocks, 0.55), (attending, 0.6), (recurrent, 0.5), (recurrent, 0.15), (imported, 0.5)],
)
def test_it_fits_and_gives_the_same_numbers(build: Any, share: float) -> None:
    model, free = unlimited(build, "float64")
    limit = limit_of(free, share)
    tight = compiled(model, limit)
    assert taken(tight) <= limit < taken(free)
    assert_near(losses(tight, model), losses(free, model), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("build", "share"), [(attending, 0.8), (recurrent, 0.5)])
def test_it_fits_after_loops_stack_less(build: Any, share: float) -> None:
    model = build("float64")
    free = compiled(model, without_passes=())
    limit = limit_of(free, share)
    tight = compiled(model, limit, without_passes=())
    assert taken(tight) <= limit < taken(free)
    assert_near(losses(tight, model), losses(free, model), rtol=1e-12)


def test_the_report_says_what_was_computed_again() -> None:
    model, free = unlimited(blocks)
    tight = compiled(model, limit_of(free, 0.55))
    (row,) = (row for row in tight.pass_report().rows if row.name == "recompute")
    assert row.changed == 1
    body = next(
        node.regions[0]
        for node in tight.stages.local.nodes
        if node.op.name == "Scan" and node.attrs["reverse"]
    )
    assert any(node.outputs[0].name.endswith("/again") for node in body.nodes)


def test_a_long_loop_is_cut_into_segments() -> None:
    model, free = unlimited(recurrent, "float64")
    tight = compiled(model, limit_of(free, 0.15))
    lengths = {n.attrs["length"] for n in tight.stages.local.walk() if n.op.name == "Scan"}
    assert len(lengths) == 2
    assert np.prod(list(lengths)) == TURNS


def test_draws_are_the_same() -> None:
    model, free = unlimited(blocks, drop=0.5)
    tight = compiled(model, limit_of(free, 0.5))
    assert taken(tight) < taken(free)
    again = [n for n in tight.stages.local.walk() if n.outputs[0].name.endswith("/again")]
    assert any(node.op.name == "Dropout" for node in again)
    assert_near(losses(tight, model), losses(free, model), rtol=1e-6)


def test_where_all_fits_nothing_changes() -> None:
    model, free = unlimited(blocks)
    before = COUNTERS.snapshot()
    wide = compiled(model, "1GiB")
    assert COUNTERS.compiles == before.compiles + 1
    assert wide.memory() == free.memory()
    assert wide.stablehlo() == free.stablehlo()


@pytest.mark.slow
@pytest.mark.one_jax
def test_numerics_are_checked_of_what_runs() -> None:
    """The check covers the program that runs: recomputed nodes are checked again."""
    model = blocks()
    free = compiled(model, check_numerics=True)
    tight = compiled(model, limit_of(free, 0.75), check_numerics=True)
    assert taken(tight) < taken(free)
    assert_near(losses(tight, model), losses(free, model), rtol=1e-6)
    for step in (tight, free):
        with pytest.raises(NumericsError, match="Square"):
            step(step.init(), {"x": np.full(model.shape, 1e30, np.float32)})


@pytest.mark.parametrize("share", [0.6, 0.15])
def test_what_has_effects_runs_once(share: float, capfd: Any) -> None:
    """A print in the body is not repeated by recomputation of single iterations or of segments."""
    model = recurrent(said="turn")
    free = compiled(model)
    tight = compiled(model, limit_of(free, share))
    assert taken(tight) < taken(free)
    capfd.readouterr()
    losses(tight, model, runs=1)
    jax.effects_barrier()
    assert capfd.readouterr().out.count("turn") == TURNS


def test_several_steps_in_one_call() -> None:
    model = recurrent("float64")
    free = compiled(model, steps=3)
    tight = compiled(model, limit_of(free, 0.7), steps=3)
    assert taken(tight) < taken(free)
    many = {"x": np.stack([feed(model)["x"]] * 3)}
    results = [step(step.init(), many)[0][1] for step in (tight, free)]
    assert_near(results[0], results[1], rtol=1e-12)


@pytest.mark.parametrize("build", [blocks, recurrent])
def test_the_limit_is_of_each_device(build: Any) -> None:
    model, alone = unlimited(build, "float64")
    strategy = DataParallel(2)
    free = compiled(model, strategy=strategy)
    limit = limit_of(free, 0.65)
    tight = compiled(model, limit, strategy=strategy)
    assert taken(tight) <= limit < taken(free) < taken(alone)
    assert_near(losses(tight, model), losses(alone, model), rtol=1e-12)


@pytest.mark.slow
def test_draws_of_replicas_are_the_same() -> None:
    model = blocks("float64", drop=0.5)
    free = compiled(model, strategy=DataParallel(2))
    tight = compiled(model, limit_of(free, 0.5), strategy=DataParallel(2))
    assert_near(losses(tight, model), losses(free, model), rtol=1e-12)


def test_a_session_obeys_it() -> None:
    model, free = unlimited(blocks)
    limit = limit_of(free, 0.55)
    session, other = (
        gc.Session(model.graph, options=gc.CompileOptions(**STACKED, memory_limit=each))
        for each in (limit, None)
    )
    before = COUNTERS.snapshot()
    for _ in range(2):
        values = [float(s.run([model.train, model.loss], feed(model))[1]) for s in (session, other)]
        assert_near(values[0], values[1], rtol=1e-5)
    assert COUNTERS.compiles >= before.compiles + 2


# -- a second compilation --------------------------------------------------------------------


def test_a_second_start_searches_nothing(tmp_path: Any) -> None:
    model, free = unlimited(blocks)
    limit = limit_of(free, 0.55)
    first = compiled(model, limit, cache=tmp_path)
    before = COUNTERS.snapshot()
    second = compiled(blocks(), limit, cache=tmp_path)
    assert second.cached
    assert (COUNTERS.compiles, COUNTERS.passes) == (before.compiles, before.passes)
    assert taken(second) == taken(first) <= limit
    assert second.pass_report().to_json() == first.pass_report().to_json()
    assert second.stablehlo() == first.stablehlo()  # it uses the stored plan
    assert COUNTERS.compiles == before.compiles
    assert not compiled(blocks(), limit + 1, cache=tmp_path).cached


# -- limits that cannot be met ---------------------------------------------------------------


def test_the_least_limit_is_reported_and_is_enough() -> None:
    model, free = unlimited(blocks)
    with pytest.raises(ExecutionError, match="it takes at least") as caught:
        compiled(model, "100KiB")
    least = int(re.search(r"at least (\d+)", str(caught.value))[1])
    assert f"memory_limit={least} or more" in str(caught.value)
    assert taken(compiled(model, least)) == least
    assert least < taken(free)


def test_without_loops_nothing_can_be_computed_again() -> None:
    model = blocks()
    flat = compiled(model, pipeline="O1")
    with pytest.raises(ExecutionError, match=f"at least {taken(flat)}\n"):
        compiled(model, taken(flat) - 1, pipeline="O1")


def test_a_session_that_does_not_fit_keeps_its_state() -> None:
    model = blocks()
    session = gc.Session(model.graph, options=gc.CompileOptions(memory_limit="100KiB"))
    with pytest.raises(ExecutionError, match="does not fit into memory_limit=102400 bytes"):
        session.run([model.train, model.loss], feed(model))
    assert np.isfinite(session.get("block0/up/kernel")).all()


# -- the option ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "count"),
    [
        (4096, 4096), ("4GiB", 4 * 2**30), ("1.5 GiB", 3 * 2**29), ("800 MB", 800 * 10**6),
        ("512kib", 512 * 2**10), ("64 B", 64), (" 7 ", 7), (None, None),
        ("9007199254740993", 2**53 + 1), ("1" * 400, int("1" * 400)),
    ],
)  # fmt: skip
def test_it_is_read(given: Any, count: int | None) -> None:
    options = gc.CompileOptions(memory_limit=given)
    assert options.memory_limit == count
    assert options.meaning()["memory_limit"] == repr(count)


@pytest.mark.parametrize(
    "given",
    [0, -1, 1.5, True, "", "4 apples", "GiB", "-1MiB", "0MB", "0.5", "0.0001KB", [4], np.ones(2)],
)
def test_what_is_no_number_of_bytes_is_refused(given: Any) -> None:
    with pytest.raises(AttributeValueError, match="memory_limit must be a number of bytes"):
        gc.CompileOptions(memory_limit=given)


@pytest.mark.slow
def test_few_small_blocks_are_loops_forward_too() -> None:
    """If only the backward pass were a loop, nothing could be recomputed."""
    rows, time, width = 16, 16, 32
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((None, time, width), name="x")
        h = x + gc.variable(np.zeros((time, width), np.float32), name="places")
        for i in range(3):
            with gc.name_scope(f"block{i}"):
                normal = gc.nn.LayerNorm(name="norm1")(h)
                qkv = gc.nn.Dense(3 * width, use_bias=False, name="qkv")(normal)
                q, k, v = (
                    gc.reshape(part, (-1, time, 2, width // 2)) for part in gc.split(qkv, 3, -1)
                )
                mixed = gc.reshape(gc.nn.attention(q, k, v, causal=True), (-1, time, width))
                h = h + gc.nn.Dense(width, use_bias=False, name="out")(mixed)
                normal = gc.nn.LayerNorm(name="norm2")(h)
                wide = gc.nn.gelu(gc.nn.Dense(4 * width, use_bias=False, name="up")(normal))
                h = h + gc.nn.Dense(width, use_bias=False, name="down")(wide)
        loss = gc.reduce_mean(gc.square(h - 1), name="loss")
        train = gc.minimize(loss, optax.sgd(0.1), name="train")

    def step(limit: int | None) -> gc.Executable:
        options = gc.CompileOptions(**STACKED, memory_limit=limit)
        return gc.compile(graph, [train, loss], {x: (rows, time, width)}, options=options)

    free, loops = step(None), step(2**30)
    assert not [node for node in free.program.nodes if node.op.name == "Scan"]
    assert len([node for node in loops.program.nodes if node.op.name == "Scan"]) == 2
    memory = loops.memory()
    kept = memory["arguments"] + memory["outputs"] - memory["aliased"]
    limit = kept + int(0.7 * memory["temporaries"])
    fitted = step(limit)
    assert fitted.memory()["temporaries"] + kept <= limit
    feed = np.random.default_rng(0).standard_normal((rows, time, width)).astype(np.float32)
    losses = [float(each(each.init(), {x: feed})[0][1]) for each in (free, fitted)]
    assert_near(losses[1], losses[0], rtol=1e-5)
