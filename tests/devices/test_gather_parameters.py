"""Sharded parameters: results are equal, and each device stores only its share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import optax
import pytest

import graphc as gc
from graphc.devices import DataParallel
from graphc.devices.gather_parameters import GatherParameters
from graphc.errors import AttributeValueError
from graphc.ir.layouts import Sharded
from graphc.ir.program import Program
from graphc.ir.verify import verify
from tests.near import assert_near
from tests.passes.check import program

REPLICAS = 4
PIECES = DataParallel(REPLICAS, shard_parameters=True)
UNCACHED = gc.CompileOptions(cache=None)

Job = tuple[gc.Graph, list[Any], dict[str, tuple[int, ...]]]
F64: Any = "float64"


# -- the pass ----------------------------------------------------------------------------------


def gathered(text: str, **cut: int) -> list[str]:
    """The operators and operands of the program with gathers, by name."""
    before = program(text)
    after = GatherParameters({name: Sharded(axis) for name, axis in cut.items()}).run(before)
    verify(after.program, "bound")
    return [f"{n.op.name}({', '.join(t.name for t in n.inputs)})" for n in after.program.nodes]


def test_uses_gather_and_updates_take_pieces() -> None:
    nodes = gathered(
        """
        program p(x: f32[8, 4], w: state f32[4, 4], m: state f32[4, 4]) {
          batch_axis x=0
          %h = MatMul(x, w) : f32[8, 4]
          %g = MatMul(x, %h) {transpose_a=true} : f32[4, 4]
          %m = Add(m, %g) : f32[4, 4]
          %w = Subtract(w, %m) : f32[4, 4]
          return state m = %m, state w = %w
        }
        """,
        w=0,
        m=0,
    )
    assert [node.partition("(")[0] for node in nodes] == [
        *("Whole", "MatMul", "MatMul", "Add", "Subtract")
    ]


def test_the_backward_pass_gathers_again_after_its_first_values() -> None:
    layers = "\n".join(
        f"%h{i + 1} = MatMul({'x' if i == 0 else f'%h{i}'}, w{i}) : f32[8, 4]" for i in range(4)
    )
    back = "\n".join(
        f"%d{i} = MatMul(%{'h4' if i == 3 else f'd{i + 1}'}, w{i}) {{transpose_b=true}} : f32[8, 4]"
        for i in (3, 2, 1, 0)
    )
    state = ", ".join(f"w{i}: state f32[4, 4]" for i in range(4))
    body = f"batch_axis x=0\n{layers}\n{back}\nreturn d = %d0"
    nodes = gathered(
        f"program p(x: f32[8, 4], {state}) {{\n{body}\n}}",
        **{f"w{i}": 0 for i in range(4)},
    )
    kinds = Counter(node.partition("(")[0] for node in nodes)
    assert kinds["Whole"] == 6  # four forward, two backward: w3 and w2 are still gathered
    assert kinds["After"] == 4


def test_what_is_no_choice() -> None:
    with pytest.raises(AttributeValueError, match="shard_parameters must be a bool"):
        DataParallel(4, shard_parameters=1)  # type: ignore[arg-type]


# -- whole training steps ----------------------------------------------------------------------


def perceptron(tx: optax.GradientTransformation, accumulate: int = 1) -> Job:
    """Kernels of several shapes, and small variables that share a buffer."""
    with gc.Graph(seed=0) as graph:
        x = gc.placeholder((None, 68), F64, name="x")
        h = x
        for number, width in enumerate((66, 64, 72, 80, 62)):
            h = gc.nn.Dense(width, activation=gc.tanh, name=f"l{number}", dtype=F64)(h)
        loss = gc.reduce_mean(gc.square(h - 1.0), name="loss")
        loss = loss + 1e-3 * gc.reduce_sum(gc.square(graph.variable("l1/kernel")))
        train = gc.minimize(loss, tx, name="train", accumulate=accumulate)
    return graph, [train, loss], {"x": (8, 68)}


def repeated(tx: optax.GradientTransformation) -> Job:
    """Layers that are rolled into a loop."""
    with gc.Graph(seed=0) as graph:
        x = gc.placeholder((None, 256), F64, name="x")
        h = x
        for number in range(12):
            h = gc.nn.Dense(256, activation=gc.tanh, name=f"l{number}", dtype=F64)(h)
        loss = gc.reduce_mean(gc.square(h - 1.0), name="loss")
        train = gc.minimize(loss, tx, name="train")
    return graph, [train, loss], {"x": (8, 256)}


def images(tx: optax.GradientTransformation) -> Job:
    """Convolutions, batch statistics, and an embedding that is used twice."""
    with gc.Graph(seed=0) as graph:
        x = gc.placeholder((None, 6, 6, 4), F64, name="x")
        h = gc.nn.Conv2D(8, 3, name="conv", dtype=F64, use_bias=False)(x)
        h = gc.nn.relu(gc.nn.BatchNorm(name="norm", dtype=F64)(h, training=True))
        h = gc.reduce_mean(h, axis=(1, 2))
        table = gc.variable(np.linspace(-1, 1, 128).reshape(16, 8), name="table")
        rows = gc.take(table, gc.argmax(h, axis=-1), axis=0)
        logits = gc.matmul(h + rows, table, transpose_b=True)
        loss = gc.reduce_mean(gc.logsumexp(logits, axis=-1) - logits[:, 0], name="loss")
        train = gc.minimize(loss, tx, name="train")
    return graph, [train, loss], {"x": (8, 6, 6, 4)}


def feed(shapes: dict[str, tuple[int, ...]], number: int) -> dict[str, Any]:
    rng = np.random.default_rng(number)
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


JOBS: dict[str, Callable[[], Job]] = {
    "adam": lambda: perceptron(optax.adam(1e-2)),
    "sgd": lambda: perceptron(optax.sgd(0.1)),
    "clipped lamb": lambda: perceptron(
        optax.chain(optax.clip_by_global_norm(0.1), optax.lamb(1e-2))
    ),
    "decayed": lambda: perceptron(optax.adamw(1e-2)),
    "accumulated": lambda: perceptron(optax.adam(1e-2), accumulate=2),
    # With a smaller eps, twelve layers amplify rounding, with plain DataParallel as well.
    "rolled": lambda: repeated(optax.adam(1e-4, eps=1e-3)),
    "images": lambda: images(optax.sgd(0.1, momentum=0.9)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adam", "rolled", "images"])
def test_training_equals_one_device(name: str) -> None:
    compare(JOBS[name](), 5)


@pytest.mark.slow
@pytest.mark.parametrize("name", JOBS)
def test_200_steps_equal_one_device(name: str) -> None:
    compare(JOBS[name](), 200)


@pytest.mark.slow
def test_an_uneven_batch() -> None:
    graph, fetches, shapes = JOBS["adam"]()
    compare((graph, fetches, {"x": (10, *shapes["x"][1:])}), 4)


def compare(job: Job, steps: int) -> None:
    """The losses and the final variables equal those of one device."""
    graph, fetches, shapes = job
    one = gc.compile(graph, fetches, shapes, options=UNCACHED)
    four = gc.compile(graph, fetches, shapes, strategy=PIECES, options=UNCACHED)
    assert exchanges(four.stages.local)["AllGather"]
    a, b = one.init(), four.init()
    for i in range(steps):
        (_, loss), a = one(a, feed(shapes, i))
        (_, loss4), b = four(b, feed(shapes, i))
        assert_near(float(loss4), float(loss), rtol=1e-9)
    for variable in a:
        assert_near(b[variable], a[variable], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["adam", "rolled"])
def test_state_takes_its_share_of_memory(name: str) -> None:
    graph, fetches, shapes = JOBS[name]()
    step = gc.compile(graph, fetches, shapes, strategy=PIECES, options=UNCACHED)
    whole = gc.compile(graph, fetches, shapes, strategy=DataParallel(REPLICAS), options=UNCACHED)
    _, state = step(step.init(), feed(shapes, 0))
    uncut = [a for a in state.buffers if a.sharding.is_fully_replicated]
    assert sum(a.nbytes for a in uncut) < 2000  # counters, and a bias of uneven length
    held = sum(a.nbytes for a in state.buffers) - sum(a.nbytes for a in uncut)
    saved = whole.memory()["arguments"] - step.memory()["arguments"]
    assert saved == pytest.approx(held * (REPLICAS - 1) / REPLICAS, rel=0.02)


def wide(layers: list[int]) -> Job:
    with gc.Graph(seed=0) as graph:
        x = gc.placeholder((None, layers[0]), name="x")
        h = x
        for number, width in enumerate(layers[1:]):
            h = gc.nn.Dense(width, activation=gc.tanh, name=f"l{number}")(h)
        loss = gc.reduce_mean(gc.square(h - 1.0), name="loss")
        train = gc.minimize(loss, optax.adam(1e-3), name="train")
    return graph, [train, loss], {"x": (8, layers[0])}


@pytest.mark.slow
@pytest.mark.parametrize("layers", [[256 + 32 * i for i in range(9)], [512] * 13])
def test_few_layers_are_whole_at_once(layers: list[int]) -> None:
    graph, fetches, shapes = wide(layers)
    step = gc.compile(graph, fetches, shapes, strategy=PIECES, options=UNCACHED)
    kernels = [4 * a * b for a, b in pairwise(layers)]
    pieces = sum(kernels) / REPLICAS
    # Two layers are gathered at a time, and pieces of all gradients wait for the update.
    assert step.memory()["temporaries"] < pieces + 2 * max(kernels) + 1e5
    assert step.memory()["arguments"] < 1.05 * 3 * pieces + 1e5
    plain = gc.compile(graph, fetches, shapes, strategy=DataParallel(REPLICAS), options=UNCACHED)
    ours, theirs = (sum(s.memory()[k] for k in ("arguments", "temporaries")) for s in (step, plain))
    assert ours < 0.45 * theirs
    assert not step.notes


def test_layers_are_gathered_in_both_passes_and_gradients_scattered() -> None:
    graph, fetches, shapes = wide([256 + 32 * i for i in range(9)])
    step = gc.compile(graph, fetches, shapes, strategy=PIECES, options=UNCACHED)
    found = exchanges(step.stages.local)
    # Eight forward and five backward: the last two are still gathered, and the first does not need
    # the gradient of its input. The biases are in one buffer.
    assert found["AllGather"] == 8 + 5 + 1
    assert found["ReduceScatter"] == 8 + 1
    assert found["AllReduce"] == 1  # the loss


def exchanges(local: Program) -> Counter[str]:
    kinds = ("AllReduce", "ReduceScatter", "AllGather")
    return Counter(node.op.name for node in local.walk() if node.op.name in kinds)


def test_repeated_layers_gather_and_scatter_in_loops() -> None:
    graph, fetches, shapes = wide([512] * 13)
    local = gc.compile(graph, fetches, shapes, strategy=PIECES, options=UNCACHED).stages.local
    forward, backward = (n.regions[0] for n in local.nodes if n.op.name == "Scan")
    assert exchanges(forward) == {"AllGather": 2}  # a kernel and a bias
    assert exchanges(backward) == {"AllGather": 1, "ReduceScatter": 1}  # a kernel and its gradient
    graph, fetches, shapes = JOBS["rolled"]()
    local = gc.compile(graph, fetches, shapes, strategy=PIECES, options=UNCACHED).stages.local
    assert sum(node.op.name == "Scan" for node in local.nodes) == 2  # so the tests above test loops


@pytest.mark.slow
def test_several_steps_in_one_call() -> None:
    graph, fetches, shapes = JOBS["rolled"]()
    one = gc.compile(graph, fetches, shapes, options=UNCACHED)
    loop = gc.compile(graph, fetches, shapes, strategy=PIECES, options=UNCACHED, steps=3)
    a, b = one.init(), loop.init()
    feeds = [feed(shapes, i)["x"] for i in range(3)]
    for x in feeds:
        (_, loss), a = one(a, {"x": x})
    (_, losses), b = loop(b, {"x": np.stack(feeds)})
    assert_near(float(losses[-1]), float(loss), rtol=1e-9)
    assert_near(b["l3/kernel"], a["l3/kernel"], rtol=1e-9)
    large = [array for array in b.buffers if array.size > 1000]
    assert large
    assert not any(array.sharding.is_fully_replicated for array in large)


@pytest.mark.slow
def test_a_session_trains_evaluates_and_sees_whole_values(tmp_path: Path) -> None:
    results = []
    for strategy in (None, PIECES):
        graph, (train, loss), shapes = JOBS["adam"]()
        session = gc.Session(graph, strategy=strategy, options=gc.CompileOptions(cache=tmp_path))
        session.run(train, feed(shapes, 0))
        session.set("l0/kernel", np.full((68, 66), 0.01))
        session.run(train, feed(shapes, 1))
        found = float(session.run(loss, feed(shapes, 2)))
        results.append((found, {n: np.asarray(v) for n, v in session.values().items()}))
    (one, ours), (four, theirs) = results
    assert_near(four, one, rtol=1e-9)
    for name, value in ours.items():
        assert_near(theirs[name], value, rtol=1e-9, atol=1e-12)
    kernel = session.state()["l0/kernel"]
    assert kernel.shape == (68, 66)
    assert kernel.addressable_shards[0].data.shape == (17, 66)


def test_a_second_start_reads_the_cache(tmp_path: Path) -> None:
    graph, fetches, shapes = JOBS["rolled"]()
    options = gc.CompileOptions(cache=tmp_path)
    losses = []
    for _ in range(2):
        step = gc.compile(graph, fetches, shapes, strategy=PIECES, options=options)
        (_, loss), _ = step(step.init(), feed(shapes, 0))
        losses.append(float(loss))
    assert step.cached
    assert losses[0] == losses[1]
