"""Sharded optimizer state: results are equal, and each device stores only its share."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

import jax
import numpy as np
import optax
import pytest

import graphc as gc
from graphc.devices import DataParallel
from graphc.devices.replicate import Replicate
from graphc.errors import AttributeValueError
from graphc.ir.compare import difference
from graphc.ir.dtypes import FLOAT32
from graphc.ir.layouts import Sharded
from graphc.ir.program import Program
from graphc.ir.text import print_program
from graphc.ir.types import TensorType
from graphc.ir.verify import verify
from graphc.runtime.buffers.layout import StateLayout
from graphc.runtime.targets.slot_pieces import is_slot, slot_pieces
from tests.near import assert_near
from tests.passes.check import program

REPLICAS = 4
PIECES = DataParallel(REPLICAS, shard_optimizer=True)


# -- the pass ----------------------------------------------------------------------------------


def becomes(before: str, after: str, **cut: int) -> tuple[str, ...]:
    """Checks that the global program becomes the local one if these variables are sharded."""
    layouts = {name: Sharded(axis) for name, axis in cut.items()}
    local = Replicate(REPLICAS, state_layouts=layouts).replicate(program(before))
    verify(local.program, "local")
    found = difference(local.program, program(after))
    assert found is None, f"{found}\n\ngot\n{print_program(local.program, sources=False)}"
    return local.notes


def test_a_gradient_is_scattered_and_the_parameter_gathered() -> None:
    """A square needs the whole sum, and its rule does not accept pieces."""
    notes = becomes(
        """
        program p(x: f32[8, 4], d: f32[8, 5], m: state f32[4, 5], v: state f32[4, 5], w: state f32[4, 5]) {
          batch_axis x=0, d=0
          %g = MatMul(x, d) {transpose_a=true} : f32[4, 5]
          %0 = Square(%g) : f32[4, 5]
          %v = Add(v, %0) : f32[4, 5]
          %m = Add(m, %g) : f32[4, 5]
          %1 = Divide(%m, %v) : f32[4, 5]
          %w = Subtract(w, %1) : f32[4, 5]
          return state m = %m, state v = %v, state w = %w
        }
        """,  # noqa: E501
        """
        program p(x: f32[2, 4], d: f32[2, 5], m: state f32[1, 5], v: state f32[1, 5], w: state f32[4, 5]) {
          batch_axis x=0, d=0
          %p = MatMul(x, d) {transpose_a=true} : f32[4, 5]
          %g = ReduceScatter(%p) {axis=0, replicas=4} : f32[1, 5]
          %0 = Square(%g) : f32[1, 5]
          %v = Add(v, %0) : f32[1, 5]
          %m = Add(m, %g) : f32[1, 5]
          %1 = Divide(%m, %v) : f32[1, 5]
          %2 = ShardSlice(w) {axis=0, replicas=4} : f32[1, 5]
          %w = Subtract(%2, %1) : f32[1, 5]
          %3 = AllGather(%w) {axis=0, replicas=4} : f32[4, 5]
          return state m = %m, state v = %v, state w = %3
        }
        """,  # noqa: E501
        m=0,
        v=0,
    )
    assert not notes


def test_what_else_needs_the_gradient_gathers_it() -> None:
    """A norm of the gradient is a sum of the pieces' norms instead."""
    becomes(
        """
        program p(x: f32[8, 4], m: state f32[4]) {
          batch_axis x=0
          %g = ReduceSum(x) {axes=[0], keepdims=false} : f32[4]
          %m = Add(m, %g) : f32[4]
          %0 = Square(%g) : f32[4]
          %n = ReduceSum(%0) {axes=[0], keepdims=false} : f32[]
          %s = CumSum(%g) {axis=0} : f32[4]
          return state m = %m, norm = %n, sums = %s
        }
        """,
        """
        program p(x: f32[2, 4], m: state f32[1]) {
          batch_axis x=0
          %p = ReduceSum(x) {axes=[0], keepdims=false} : f32[4]
          %g = ReduceScatter(%p) {axis=0, replicas=4} : f32[1]
          %m = Add(m, %g) : f32[1]
          %0 = Square(%g) : f32[1]
          %n = ReduceSum(%0) {axes=[0], keepdims=false} : f32[]
          %t = AllReduce(%n) {op="sum"} : f32[]
          %w = AllGather(%g) {axis=0, replicas=4} : f32[4]
          %s = CumSum(%w) {axis=0} : f32[4]
          return state m = %m, norm = %t, sums = %s
        }
        """,
        m=0,
    )


# -- which state is sharded --------------------------------------------------------------------


def test_slots_stand_under_the_name_of_a_variable() -> None:
    names = {"a", "a/kernel", "a/kernel/train/0/mu", "b/mean", "train/0/count"}
    assert [name for name in sorted(names) if is_slot(name, names)] == [
        "a/kernel",
        "a/kernel/train/0/mu",
    ]


def test_the_first_axis_that_divides_is_cut_and_a_note_tells_what_is_not() -> None:
    slots = {"v/a": (3, 8), "v/b": (8, 4), "v/c": (3, 5), "v/d": (), "v/e": (7,)}
    shapes = {**slots, "v": (8,), "w": (8,)}
    types = {name: TensorType(FLOAT32, shape) for name, shape in shapes.items()}
    cut, notes = slot_pieces(StateLayout(types), types, REPLICAS)
    assert cut == {"v/a": Sharded(1), "v/b": Sharded(0)}
    why = "slots whole on each replica, since no size divides by 4"
    assert notes == [f"{why}: v/c and 1 more (f32[3, 5], f32[7])"]
    assert slot_pieces(StateLayout(types), ["v/b"], REPLICAS) == ({"v/b": Sharded(0)}, [])


@pytest.mark.parametrize("given", [1, None, "yes"])
def test_what_is_no_choice(given: object) -> None:
    with pytest.raises(AttributeValueError, match="shard_optimizer must be a bool"):
        DataParallel(4, shard_optimizer=given)  # type: ignore[arg-type]


# -- whole training steps ----------------------------------------------------------------------

Job = tuple[gc.Graph, list[gc.Tensor], dict[str, tuple[int, ...]]]


def perceptron(tx: optax.GradientTransformation, accumulate: int = 1) -> Job:
    """Kernels in separate buffers, and smaller variables that share a buffer of 260 elements."""
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((None, 68), "float64", name="x")
        h = gc.nn.Dense(66, activation=gc.tanh, name="a", dtype="float64")(x)
        h = gc.nn.Dense(64, activation=gc.tanh, name="b", dtype="float64")(h)
        out = gc.nn.Dense(2, name="c", dtype="float64")(h)
        loss = gc.reduce_mean(gc.square(out - 1.0), name="loss")
        train = gc.minimize(loss, tx, name="train", accumulate=accumulate)
    return graph, [train, loss], {"x": (8, 68)}


def feed(number: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(number).normal(size=(8, 68))}


ADAM = partial(perceptron, optax.adam(1e-2))
CLIPPED = partial(perceptron, optax.chain(optax.clip_by_global_norm(0.1), optax.lamb(1e-2)))


def exchanges(local: Program) -> Counter[str]:
    kinds = ("AllReduce", "ReduceScatter", "AllGather")
    return Counter(node.op.name for node in local.walk() if node.op.name in kinds)


@pytest.mark.slow
@pytest.mark.parametrize("build", [ADAM, CLIPPED, partial(ADAM, accumulate=2)])
def test_training_equals_one_device(build: object) -> None:
    job: Job = build()  # type: ignore[operator]
    graph, fetches, shapes = job
    options = gc.CompileOptions(cache=None)
    one = gc.compile(graph, fetches, shapes, options=options)
    four = gc.compile(graph, fetches, shapes, strategy=PIECES, options=options)
    a, b = one.init(), four.init()
    for i in range(4):
        (_, loss), a = one(a, feed(i))
        (_, loss4), b = four(b, feed(i))
        assert_near(float(loss4), float(loss), rtol=1e-9)
    for variable in a:
        assert_near(b[variable], a[variable], rtol=1e-9, atol=1e-12)


def test_each_device_has_a_quarter_of_the_slots_and_exchanges_pieces() -> None:
    graph, fetches, shapes = ADAM()
    options = gc.CompileOptions(cache=None)
    step = gc.compile(graph, fetches, shapes, strategy=PIECES, options=options)
    # Both kernels and the flat buffer share one bucket; the loss is separate.
    assert exchanges(step.stages.local) == {"ReduceScatter": 1, "AllGather": 1, "AllReduce": 1}
    assert not step.notes
    start = step.init()
    _, state = step(start, feed(0))
    rows = list(zip(state.layout.buffers, state.buffers, strict=True))
    slots = [array for buffer, array in rows if "/train/" in buffer.name]
    rest = [array for buffer, array in rows if "/train/" not in buffer.name]
    assert len(slots) == 6 and len(rest) > 3
    for array in slots:
        pieces = [shard.data.nbytes for shard in array.addressable_shards]
        assert pieces == [array.nbytes // REPLICAS] * REPLICAS
    assert all(array.sharding.is_fully_replicated for array in rest)
    whole = gc.compile(graph, fetches, shapes, strategy=DataParallel(REPLICAS), options=options)
    saved = sum(array.nbytes for array in slots) * (REPLICAS - 1) // REPLICAS
    assert whole.memory()["arguments"] - step.memory()["arguments"] == saved
    assert whole.cache_key != step.cache_key


@pytest.mark.slow
def test_sessions_see_whole_values_by_name(tmp_path: Path) -> None:
    """Values are read, set and saved, both in separate and in shared buffers."""
    job, alike = ADAM(), ADAM()
    session, one = gc.Session(job[0], strategy=PIECES), gc.Session(alike[0])
    for s, (_, fetches, _) in ((session, job), (one, alike)):
        s.run(fetches, feed(0))
        for name, shape in (("a/kernel/train/0/mu", (68, 66)), ("a/bias/train/0/nu", (66,))):
            assert s.get(name).shape == shape
            s.set(name, np.full(shape, 0.5))
            np.testing.assert_array_equal(s.get(name), np.full(shape, 0.5))
        s.run(fetches, feed(1))
    expected = one.values()
    graph, (train, loss), _ = job
    signature = gc.Signature(
        {"x": graph.tensor("x:0")}, {"loss": loss}, updates=[train], replicated=True,
        sizes={"x_0": 8},
    )  # fmt: skip
    gc.save(session, tmp_path / "m.gcx", signatures={"train": signature})
    saved = gc.load(tmp_path / "m.gcx", strategy=DataParallel(REPLICAS)).state()
    for name, value in session.values().items():
        assert_near(value, expected[name], rtol=1e-9, atol=1e-12)
        np.testing.assert_array_equal(saved[name], value)
    kernel = session.state()["a/kernel/train/0/mu"]
    assert kernel.addressable_shards[0].data.size * REPLICAS == kernel.size


def test_several_steps_in_one_call_keep_the_pieces_inside() -> None:
    graph, fetches, shapes = ADAM()
    options = gc.CompileOptions(cache=None)
    one = gc.compile(graph, fetches, shapes, options=options)
    loop = gc.compile(graph, fetches, shapes, strategy=PIECES, options=options, steps=3)
    # Parameters are also sharded between steps: gathered at the start of a step and at the end.
    assert exchanges(loop.stages.local) == {"ReduceScatter": 1, "AllGather": 2, "AllReduce": 1}
    a, b = one.init(), loop.init()
    for i in range(3):
        (_, loss), a = one(a, feed(i))
    (_, losses), b = loop(b, {"x": np.stack([feed(i)["x"] for i in range(3)])})
    assert_near(float(losses[-1]), float(loss), rtol=1e-9)
    assert len(b["a/kernel/train/0/mu"].sharding.device_set) == REPLICAS
    assert not b["a/kernel/train/0/mu"].sharding.is_fully_replicated
    assert_near(b["a/kernel"], a["a/kernel"], rtol=1e-9)


def test_without_passes_and_from_the_cache(tmp_path: Path) -> None:
    graph, fetches, shapes = ADAM()
    losses = []
    for options in (
        gc.CompileOptions(cache=None, pipeline="O0"),
        gc.CompileOptions(cache=tmp_path),
        gc.CompileOptions(cache=tmp_path),
    ):
        step = gc.compile(graph, fetches, shapes, strategy=PIECES, options=options)
        (_, loss), state = step(step.init(), feed(0))
        losses.append(float(loss))
        slot = state["b/kernel/train/0/nu"]
        assert isinstance(slot, jax.Array) and not slot.sharding.is_fully_replicated
    assert step.cached
    assert_near(losses, losses[0], rtol=1e-12)
