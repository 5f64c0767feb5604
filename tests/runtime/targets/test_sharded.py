"""Runs on a mesh of four devices against runs on one device. Annotations shard an MLP and a
transformer as Megatron does (Shoeybi et al. 2019)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest

import graphc as gc
from graphc.errors import (
    AttributeValueError,
    GraphFinalizedError,
    LayoutError,
)
from graphc.runtime.buffers.layout import FLAT, STACKED
from graphc.runtime.targets.interface import Interface
from tests.near import assert_near

MESH = gc.devices.Mesh({"data": 2, "model": 2})
STEPS = 20
NEAR = {"float32": 1e-4, "float64": 1e-9}

Losses = np.ndarray[Any, Any]


# -- networks ----------------------------------------------------------------------------------


def trained(graph: gc.Graph, logits: Any, classes: Any) -> gc.Graph:
    losses = gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=classes)
    gc.minimize(gc.reduce_mean(losses, name="loss"), optax.adam(1e-2), name="train")
    return graph


def mlp(dtype: str = "float32", *, annotated: bool = True) -> gc.Graph:
    """An MLP: the hidden units are sharded over "model", the batch over "data"."""
    with gc.Graph(seed=1) as graph:
        x = gc.placeholder((None, 12), dtype, name="x")
        classes = gc.placeholder((None,), "int32", name="y")
        hidden = gc.nn.Dense(16, "relu", name="hidden", dtype=dtype)(x)
        logits = gc.nn.Dense(4, name="out", dtype=dtype)(hidden)
        trained(graph, logits, classes)
        if annotated:
            gc.shard(graph.variable("hidden/kernel"), (None, "model"))
            gc.shard(graph.variable("hidden/bias"), ("model",))
            gc.shard(graph.variable("out/kernel"), ("model", None))
    return graph


def block(dtype: str = "float64") -> gc.Graph:
    """A transformer block: heads and hidden units are sharded over "model", the batch on "data"."""
    with gc.Graph(seed=1) as graph:
        x = gc.placeholder((None, 4, 8), dtype, name="x")
        classes = gc.placeholder((None, 4), "int32", name="y")
        layer = gc.nn.TransformerBlock(8, 2, 16, dropout=0.1, name="b", dtype=dtype)
        hidden = gc.shard(layer(x, training=True), ("data",))
        logits = gc.nn.Dense(4, name="out", dtype=dtype)(hidden)
        for name in ("attention/query", "attention/key", "attention/value", "expand"):
            gc.shard(graph.variable(f"b/{name}/kernel"), (None, "model"))
            gc.shard(graph.variable(f"b/{name}/bias"), ("model",))
        for name in ("attention/out", "contract"):
            gc.shard(graph.variable(f"b/{name}/kernel"), ("model",))
        return trained(graph, logits, classes)


def feeds(graph: gc.Graph, step: int, batch: int = 8) -> dict[str, Any]:
    rng = np.random.default_rng(step)
    x, y = (graph.find_node(name).outputs[0].type for name in "xy")  # type: ignore[union-attr]
    return {
        "x": rng.normal(size=(batch, *x.shape[1:])).astype(x.dtype),
        "y": rng.integers(0, 4, (batch, *y.shape[1:])).astype(np.int32),
    }


def run(session: gc.Session, steps: int = STEPS, batch: int = 8) -> Losses:
    fetches = ["train", "loss:0"]
    batches = [feeds(session.graph, step, batch) for step in range(steps)]
    return np.array([float(session.run(fetches, fed)[1]) for fed in batches])


def parts(value: jax.Array) -> set[tuple[int, ...]]:
    """The shapes of the pieces of an array; each device of the mesh has one piece."""
    assert len(value.addressable_shards) == MESH.size
    return {piece.data.shape for piece in value.addressable_shards}


def agree(one: gc.Session, other: gc.Session, near: float) -> None:
    values, others = one.values(), other.values()
    assert values.keys() == others.keys()
    for name, value in values.items():
        assert_near(others[name], value, rtol=near, atol=near, err_msg=name)


# -- training ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_mlp_trains_as_on_one_device(dtype: str) -> None:
    one, mesh = gc.Session(mlp(dtype)), gc.Session(mlp(dtype), strategy=MESH)
    losses = run(one)
    assert losses[-1] < losses[0]
    assert_near(run(mesh), losses, rtol=NEAR[dtype])
    agree(one, mesh, NEAR[dtype])
    wanted = {"hidden/kernel": (12, 8), "hidden/bias": (8,), "out/kernel": (8, 4), "out/bias": (4,)}
    for name, shape in wanted.items():
        for kept in (name, f"{name}/train/0/mu", f"{name}/train/0/nu"):
            assert parts(mesh.get(kept)) == {shape}, kept
    (step,) = mesh.executables
    assert "all-reduce(" in step.hlo()
    assert "all-gather(" not in step.hlo()  # no sharded array is gathered
    assert [feed.spec for feed in step.interface.feeds] == [("data",), ("data",)]


@cache
def transformers() -> tuple[gc.Session, gc.Session, Losses, Losses]:
    one, mesh = gc.Session(block()), gc.Session(block(), strategy=MESH)
    return one, mesh, run(one), run(mesh)


@pytest.mark.slow
def test_a_transformer_trains_as_on_one_device_dropout_included() -> None:
    """JAX's threefry makes the same random numbers for every sharding."""
    one, mesh, losses, found = transformers()
    assert losses[-1] < losses[0]
    assert_near(found, losses, rtol=NEAR["float64"])
    agree(one, mesh, NEAR["float64"])
    assert parts(mesh.get("b/attention/query/kernel")) == {(8, 4)}
    assert parts(mesh.get("b/attention/out/kernel/train/0/mu")) == {(4, 8)}
    assert parts(mesh.get("b/contract/kernel")) == {(8, 8)}


@pytest.mark.slow
def test_what_is_cut_is_in_no_flat_buffer() -> None:
    _, mesh, _, _ = transformers()
    layout = mesh._state.layout
    flat = {name for b in layout.buffers if b.kind == FLAT for name in b.members}
    assert "b/attention_norm/scale" in flat
    assert not [name for name in flat if mesh.graph.variable(name).shard is not None]
    homes = {b: home.spec for b, home in mesh._state._homes.items()}
    assert {homes[b] for b in homes if b.kind == FLAT} == {jax.sharding.PartitionSpec()}


def test_run_steps_makes_the_steps_of_run() -> None:
    session, looped = (gc.Session(mlp("float64"), strategy=MESH) for _ in range(2))
    losses = run(session, steps=3)
    batches = [feeds(looped.graph, step) for step in range(3)]
    _, found = looped.run_steps(["train", "loss:0"], batches, 3)
    assert_near(found, losses, rtol=1e-12)
    assert [f.spec for f in looped.executables[0].interface.feeds] == [(None, "data")] * 2


COUNT = 14  # layers; enough for the compiler to make a loop


def blocks(count: int, odd: int | None = None) -> tuple[gc.Graph, Any]:
    """A stack of equal layers; the layer with index `odd` is sharded over the other axis."""
    with gc.Graph(seed=2) as graph:
        x = gc.placeholder((None, 8), "float64", name="x")
        y = x
        for i in range(count):
            y = gc.shard(gc.tanh(gc.nn.Dense(8, name=f"l{i}", dtype="float64")(y)), ("data",))
            spec = ("model", None) if i == odd else (None, "model")
            gc.shard(graph.variable(f"l{i}/kernel"), spec)
        return graph, gc.reduce_sum(gc.square(y))


def test_stacks_are_cut_as_their_members_are() -> None:
    feed = np.random.default_rng(0).normal(size=(4, 8))
    for odd, kinds in ((None, {STACKED}), (3, {"own"})):
        graph, y = blocks(COUNT, odd)
        options = gc.CompileOptions(unroll=1)  # a loop, although it does little work
        step = gc.compile(graph, y, {"x": (4, 8)}, strategy=MESH, options=options)
        assert [n.op.name for n in step.program.nodes if n.regions] == ["Scan"]
        kernels = [b for b in step.interface.buffers if "l0/kernel" in b.members]
        assert {b.kind for b in kernels} == kinds
        found, state = step(step.init(), {"x": feed})
        wanted = gc.Session(blocks(COUNT, odd)[0]).run(y.name, {"x": feed})
        assert_near(found, wanted, rtol=1e-12)
        number = step.layout.number(kernels[0])
        assert number is not None
        shape = (COUNT, 8, 4) if kinds == {STACKED} else (8, 4)
        assert parts(state.buffers[number]) == {shape}


def test_micro_batches_mean_what_they_mean_on_one_device() -> None:
    def build() -> gc.Graph:
        with gc.Graph(seed=1) as graph:
            x = gc.placeholder((None, 12), "float64", name="x")
            classes = gc.placeholder((None,), "int32", name="y")
            logits = gc.nn.Dense(4, name="out", dtype="float64")(gc.shard(x, ("data",)))
            gc.shard(graph.variable("out/kernel"), ("model",))
            losses = gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=classes)
            loss = gc.reduce_mean(losses, name="loss")
            gc.minimize(loss, optax.sgd(0.1), name="train", accumulate=2)
        return graph

    one, mesh = gc.Session(build()), gc.Session(build(), strategy=MESH)
    assert_near(run(mesh, 3), run(one, 3), rtol=1e-12)
    agree(one, mesh, 1e-12)


def test_checks_of_numerics_see_the_whole_program() -> None:
    with gc.Graph(seed=1) as graph:
        x = gc.placeholder((None, 12), name="x")
        classes = gc.placeholder((None,), "int32", name="y")
        logits = gc.nn.Dense(4, name="out")(gc.shard(gc.sqrt(x, name="root"), ("data", "model")))
        trained(graph, logits, classes)
    session = gc.Session(graph, strategy=MESH, options=gc.CompileOptions(check_numerics=True))
    fed = feeds(graph, 0)
    fed["x"] = abs(fed["x"])
    session.run("train", fed)
    before = session.values()
    fed["x"][5, 7] = -1  # the row is on one device of four
    with pytest.raises(gc.errors.NumericsError, match="Sqrt 'root' made a NaN"):
        session.run("train", fed)
    for name, value in session.values().items():
        np.testing.assert_array_equal(value, before[name])


@pytest.mark.slow
def test_checks_of_numerics_blame_no_sum_over_devices_for_a_nan_that_was_fed() -> None:
    """XLA's maximum of parts loses a NaN. The sum over all devices then seems to produce it."""
    session = gc.Session(mlp(), strategy=MESH, options=gc.CompileOptions(check_numerics=True))
    fed = feeds(session.graph, 0)
    fed["x"][5, 3] = np.nan
    session.run("train", fed)
    assert np.isnan(session.get("out/bias")).all()


# -- cache keys, and where arrays reside --------------------------------------------------------


def test_a_second_session_finds_the_program() -> None:
    first = gc.Session(mlp(), strategy=MESH)
    losses = run(first, 2)
    second = gc.Session(mlp(), strategy=MESH)
    np.testing.assert_array_equal(run(second, 2), losses)
    assert [step.cached for step in second.executables] == [True]
    assert parts(second.get("hidden/kernel")) == {(12, 8)}
    (step,) = second.executables
    assert step.interface == first.executables[0].interface
    assert Interface.from_json(step.interface.to_json()) == step.interface


def test_the_key_tells_meshes_and_annotations_apart() -> None:
    sizes = {"x": (8, 12), "y": (8,)}
    meshes = [{"data": 2, "model": 2}, {"data": 4, "model": 1}, {"model": 2, "data": 2}]
    steps = [
        gc.compile_async(mlp(), "loss:0", sizes, strategy=gc.devices.Mesh(axes)) for axes in meshes
    ]
    steps.append(gc.compile_async(mlp(annotated=False), "loss:0", sizes, strategy=MESH))
    keys = {step.result().cache_key for step in steps}
    assert len(keys) == 4
    assert None not in keys


def test_gc_compile_trains_too() -> None:
    graph = mlp("float64")
    step = gc.compile(graph, ["train", "loss:0"], {"x": (8, 12), "y": (8,)}, strategy=MESH)
    state, losses = step.init(), []
    for number in range(3):
        (_, loss), state = step(state, feeds(graph, number))
        losses.append(float(loss))
    assert_near(losses, run(gc.Session(mlp("float64")), 3), rtol=1e-9)
    assert parts(state.buffers[0]) == {(12, 8)}
    assert step.memory()["arguments"] > 0
    assert "physical" in str(step.pass_history())


def test_values_are_set_and_read_whole(tmp_path: Path) -> None:
    session = gc.Session(mlp(), strategy=MESH)
    run(session, 2)
    value = np.arange(12 * 16, dtype=np.float32).reshape(12, 16)
    session.set("hidden/kernel", value)
    np.testing.assert_array_equal(session.get("hidden/kernel"), value)
    assert parts(session.get("hidden/kernel")) == {(12, 8)}
    put = session.put({"x": feeds(session.graph, 0)["x"]})
    assert parts(put["x"]) == {(4, 12)}
    logits = session.graph.find_node("out/Add")
    assert logits is not None
    wanted = np.asarray(session.run(logits.outputs[0], put))
    signature = gc.Signature({"x": "x:0"}, {"logits": logits.outputs[0]})
    gc.save(session, tmp_path / "m.gcx", signatures={"predict": signature})
    loaded = gc.load(tmp_path / "m.gcx").signatures["predict"]
    assert_near(loaded(x=put["x"])["logits"], wanted, rtol=1e-5)
    replicated = gc.Signature({"x": "x:0"}, {"logits": logits.outputs[0]}, replicated=True)
    with pytest.raises(AttributeValueError, match="the session has another strategy: Mesh"):
        gc.save(session, tmp_path / "r.gcx", signatures={"predict": replicated})


def test_without_a_mesh_annotations_mean_nothing() -> None:
    plain = run(gc.Session(mlp("float64", annotated=False)), 3)
    for strategy in (None, gc.devices.DataParallel(4)):
        session = gc.Session(mlp("float64"), strategy=strategy)
        assert_near(run(session, 3), plain, rtol=1e-9)
        pieces = session.get("hidden/kernel").addressable_shards
        assert {piece.data.shape for piece in pieces} == {(12, 16)}


# -- feeds -------------------------------------------------------------------------------------


def feed_of(annotate: Any, axes: dict[str, int], batch: int, **options: Any) -> gc.Executable:
    with gc.Graph() as graph:
        x = gc.placeholder((None, 6), name="x")
        y = gc.reduce_sum(x if annotate is None else gc.shard(x, annotate), axis=0)
    strategy = gc.devices.Mesh(axes, **options)
    return gc.compile(graph, y, {x: (batch, 6)}, strategy=strategy)


def test_how_feeds_lie() -> None:
    def spec(*args: Any, **options: Any) -> Any:
        return feed_of(*args, **options).interface.feeds[0].spec

    assert spec(None, {"data": 2, "model": 2}, 4) == ("data",)
    assert spec(None, {"rows": 2, "model": 2}, 4) == ()
    assert spec(None, {"rows": 2, "model": 2}, 4, batch_axis="rows") == ("rows",)
    assert spec((None, "model"), {"data": 2, "model": 2}, 4) == (None, "model")
    assert spec((("data", "model"),), {"data": 2, "model": 2}, 4) == (("data", "model"),)
    assert spec((), {"data": 2}, 4) == ()


def test_feeds_that_are_put_are_where_the_step_takes_them() -> None:
    with gc.Graph() as graph:
        x = gc.placeholder((None, 6), name="x")
        w = gc.placeholder((6, 4), name="w")
        y = gc.reduce_sum(x @ gc.shard(w, (None, "model")))
    session = gc.Session(graph, strategy=MESH)
    fed = {"x": np.ones((4, 6), np.float32), "w": np.ones((6, 4), np.float32)}
    many = {name: np.stack([value] * 3) for name, value in fed.items()}
    for stacked in (None, 3):
        put = session.put(many if stacked else fed, steps=stacked)
        found = session.run_steps(y, put, 3) if stacked else session.run(y, put)
        np.testing.assert_array_equal(found, np.full(np.shape(found), 96))
        wanted = [session.executables[-1].feed_homes[i] for i in range(2)]
        assert [put[name].sharding for name in ("x", "w")] == wanted
    assert [feed.spec for feed in session.executables[-1].interface.feeds] == [
        (None, "data"),
        (None, None, "model"),
    ]


def test_a_batch_that_does_not_divide_is_whole_and_said_to_be() -> None:
    step = feed_of(None, {"data": 2}, 5)
    assert step.interface.feeds[0].spec == ()
    (note,) = step.notes
    assert "feed 'x' is whole on each device: its batch of 5 does not divide" in note
    found, _ = step(step.init(), {"x": np.ones((5, 6), np.float32)})
    np.testing.assert_array_equal(found, np.full(6, 5, np.float32))


def test_tensors_lie_as_annotated() -> None:
    with gc.Graph() as graph:
        x = gc.placeholder((4, 6), name="x")
        square = gc.square(x)
        fetches = [gc.shard(square, spec) for spec in ((None, "model"), ("model",), ())]
        (slope,) = gc.gradients(gc.reduce_sum(gc.shard(square, (None, "data")) * 3.0), [square])
    session = gc.Session(
        graph, strategy=gc.devices.Mesh({"model": 2, "data": 2}, batch_axis="data")
    )
    values = session.run([*fetches, slope], {x: np.ones((4, 6), np.float32)})
    assert [parts(value) for value in values] == [{(4, 3)}, {(2, 6)}, {(4, 6)}, {(4, 3)}]
    for value, wanted in zip(values, (1, 1, 1, 3), strict=True):
        np.testing.assert_array_equal(value, np.full((4, 6), wanted, np.float32))


# -- errors ------------------------------------------------------------------------------------


def error_of(build: Callable[[Any, Any], Any], kind: type[Exception], **options: Any) -> str:
    with gc.Graph() as graph:
        x = gc.placeholder((None, 6), name="x")
        w = gc.variable(gc.nn.initializers.Ones(), shape=(6, 8), name="w")
        y = build(x, w)
    with pytest.raises(kind) as caught:
        given = gc.CompileOptions(**options)
        gc.compile(graph, y, {x: (6, 6)}, strategy=MESH, options=given)
    return str(caught.value)


def test_what_the_mesh_has_not_names_the_line() -> None:
    text = error_of(lambda x, w: gc.shard(x @ w, ("data", "modle")), LayoutError)
    assert "shard 'Shard': the mesh has no axis 'modle'" in text
    assert 'error_of(lambda x, w: gc.shard(x @ w, ("data", "modle"))' in text
    text = error_of(lambda x, w: x @ gc.shard(w, ("modle",)), LayoutError)
    assert "variable 'w': the mesh has no axis 'modle'" in text
    assert 'x @ gc.shard(w, ("modle",))' in text


def test_sizes_that_do_not_divide_name_both() -> None:
    text = error_of(lambda x, w: gc.shard(x @ w, (("data", "model"),)), LayoutError)
    assert (
        "axis 0 of f32[6, 8] has 6 elements, which do not divide by the mesh's data=2 x model=2"
        in text
    )
    text = error_of(lambda x, w: x @ gc.shard(w, (("data", "model"),)), LayoutError)
    assert "variable 'w': axis 0 of f32[6, 8] has 6 elements" in text


def test_what_cannot_be_spread_is_refused() -> None:
    def printed(x: Any, w: Any) -> Any:
        with gc.control_dependencies([gc.print("{}", x)]):
            return x @ w

    assert "Print 'Print' calls back into Python" in error_of(printed, LayoutError)
    text = error_of(lambda x, w: x @ w, AttributeValueError, memory_limit=1 << 30)
    assert "memory_limit applies to the program of one device" in text


def test_variables_are_annotated_once_and_before_the_first_run() -> None:
    graph = mlp()
    bias = graph.variable("out/bias")
    with pytest.raises(AttributeValueError, match=r"'hidden/bias' has .*'model',.* already"):
        gc.shard(graph.variable("hidden/bias"), (None,))
    assert gc.shard(graph.variable("hidden/bias"), ("model",)) is graph.variable("hidden/bias")
    gc.compile(graph, "loss:0", {"x": (8, 12), "y": (8,)})
    with pytest.raises(GraphFinalizedError, match="variable 'out/bias' already has a layout"):
        gc.shard(bias, ("model",))
