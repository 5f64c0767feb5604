"""Freezing: a graph whose variables became constants gives the results of the session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax import numpy as jnp

import graphc as gc
from graphc.errors import (
    AttributeValueError,
    FeedError,
    FetchError,
    GraphcError,
    ShapeError,
    UnknownNameError,
)
from graphc.ir.parse import parse_graph
from graphc.ir.text import print_graph
from graphc.ops.catalogue import CATALOGUE
from tests.near import assert_near

OFF = gc.CompileOptions(cache=None)
IMAGES = np.random.default_rng(0).standard_normal((4, 6, 6, 4)).astype("f")


def kinds(graph: gc.Graph) -> list[str]:
    """The operator types of a graph, without inputs and outputs."""
    ends = ("Placeholder", "ReadVariable", "Constant", "Identity")
    return [node.op.name for node in graph.nodes if node.op.name not in ends]


def shuffled(session: gc.Session) -> gc.Session:
    """A session whose variables have random values; variances stay positive."""
    rng = np.random.default_rng(1)
    for name, value in session.values().items():
        new = rng.standard_normal(value.shape)
        session.set(name, new**2 + 0.5 if name.endswith("variance") else new)
    return session


LAYERS: dict[str, tuple[Callable[[], Any], str]] = {
    "conv": (lambda: gc.nn.Conv2D(5, 3, name="layer", padding="same"), "Conv"),
    "conv, same, strided": (
        lambda: gc.nn.Conv2D(5, 3, strides=2, padding="same", name="layer"),
        "Conv",
    ),
    "grouped": (lambda: gc.nn.Conv2D(6, 3, groups=2, name="layer", padding="same"), "Conv"),
    "depthwise": (lambda: gc.nn.DepthwiseConv2D(3, 2, name="layer", padding="same"), "Conv"),
    "transposed": (
        lambda: gc.nn.Conv2DTranspose(5, 3, name="layer", padding="same"),
        "ConvInputGradient",
    ),
    "dense": (lambda: gc.nn.Dense(5, name="layer"), "MatMul"),
    "without a bias": (lambda: gc.nn.Dense(5, use_bias=False, name="layer"), "MatMul"),
}


CALLS = {"serving": (False, False), "training": (True, False), "local": (True, True)}


@pytest.mark.parametrize(("training", "local"), CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("layer", LAYERS)
def test_batch_norm_goes_into_the_layer_before_it(layer: str, training: bool, local: bool) -> None:
    make, operator = LAYERS[layer]
    with gc.Graph() as g:
        x = gc.placeholder((None, 6, 6, 4), name="x")
        first, norm = make(), gc.nn.BatchNorm(name="norm", local=local)
        y = norm(first(x), training=training)
        served = norm(first(x), training=False)
    session = shuffled(gc.Session(g, options=OFF))
    frozen = gc.freeze(session, [x], {"y": y})
    assert kinds(frozen) == [operator, "Add"]
    want = session.run(served, {x: IMAGES})
    got = gc.Session(frozen, options=OFF).run("y", {"x": IMAGES})
    assert_near(got, want, rtol=1e-4, atol=1e-5)


def test_norms_of_models_with_the_channels_first_are_folded_too() -> None:
    """Graphs from PyTorch and ONNX: two convolutions, each with a batch norm of basic operators."""
    rng = np.random.default_rng(2)
    with gc.Graph() as g:
        x = y = gc.placeholder((None, 4, 6, 6), name="x")
        for i in range(2):
            kernel = gc.variable(rng.normal(size=(4, 4, 3, 3)).astype("f"), name=f"kernel{i}")
            names = [f"{name}{i}" for name in ("mean", "variance", "scale", "offset")]
            vectors = [gc.variable(rng.uniform(0.5, 2, 4).astype("f"), name=n) for n in names]
            last = gc.transpose(y, (0, 2, 3, 1))
            y = gc.nn.conv2d(last, gc.transpose(kernel, (2, 3, 1, 0)), padding="SAME")
            y = gc.transpose(y, (0, 3, 1, 2))
            mean, variance, scale, offset = (gc.reshape(v, (4, 1, 1)) for v in vectors)
            y = gc.nn.relu((y - mean) * gc.rsqrt(variance + 1e-5) * scale + offset)
        y = gc.reduce_mean(y, axis=(2, 3))
    session = gc.Session(g, options=OFF)
    frozen = gc.freeze(session, [x], {"y": y})
    found = kinds(frozen)
    assert sorted(found) == sorted(["Conv", "Add", "Relu"] * 2 + ["Transpose", "ReduceMean"])
    value = rng.normal(size=(2, 4, 6, 6)).astype("f")
    got = gc.Session(frozen, options=OFF).run("y", {"x": value})
    assert_near(got, session.run(y, {x: value}), rtol=1e-4)


def test_nodes_in_between_prevent_folding() -> None:
    with gc.Graph() as g:
        x = gc.placeholder((None, 4), name="x")
        norm = gc.nn.BatchNorm(name="norm")
        y = norm(gc.nn.Dense(5, activation=gc.nn.relu, name="layer")(x), training=True)
    session = shuffled(gc.Session(g, options=OFF))
    assert kinds(gc.freeze(session, [x], [y])) == ["MatMul", "Add", "Relu", "BatchNorm"]


def test_dropout_and_branches_of_training_go() -> None:
    with gc.Graph() as g:
        x = gc.placeholder((None, 4), name="x")
        training = gc.placeholder((), "bool", name="training")
        count = gc.variable(0, name="count", trainable=False)
        h = gc.nn.Dropout(0.5)(gc.nn.relu(x), training=True)

        def learning(h: Any) -> Any:
            return gc.nn.dropout(h, 0.3) * gc.cast(count.assign_add(1), "float32")

        y = gc.cond(training, learning, lambda h: h * 2, h, name="y")
    session = gc.Session(g, options=OFF)
    frozen = gc.freeze(session, {"x": x}, {"y": y}, given={training: False})
    assert kinds(frozen) == ["Relu", "Multiply"]
    assert not frozen.variables
    np.testing.assert_array_equal(
        gc.Session(frozen, options=OFF).run("y", {"x": IMAGES[0, 0]}),
        np.maximum(IMAGES[0, 0], 0) * 2,
    )
    with pytest.raises(FetchError, match="assign the variable 'count'"):
        gc.freeze(session, {"x": x}, {"y": y}, given={"training": True})


def test_what_depends_on_variables_alone_is_computed_once() -> None:
    with gc.Graph() as g:
        x = gc.placeholder((None, 8), name="x")
        w = gc.variable(gc.nn.initializers.GlorotUniform(), shape=(8, 9), name="w")
        unused = gc.variable(np.ones(100), name="unused", dtype="float32")
        norms = w / gc.sqrt(gc.reduce_sum(gc.square(w), axis=0))
        positions = gc.sin(gc.cast(gc.arange(9), "float32") * 0.1)
        y = gc.add(gc.matmul(x, norms), positions, name="y")
    session = gc.Session(g, options=OFF)
    frozen = gc.freeze(session, [x], [y])
    assert kinds(frozen) == ["MatMul", "Add"]
    assert len(frozen.variables) == 1  # the positions became a literal
    assert unused.name not in frozen.variables
    fresh = gc.Session(frozen, options=OFF)
    want = session.run(y, {x: IMAGES[0, 0, :2].reshape(1, 8)})
    session.set(w, np.zeros((8, 9)))  # the frozen graph keeps the old value
    got = fresh.run("y", {"x": IMAGES[0, 0, :2].reshape(1, 8)})
    assert_near(got, want, rtol=1e-6)
    constants = gc.freeze(gc.Session(g, options=OFF), [x], [y], literals=2**40)
    assert not constants.variables
    assert_near(
        gc.Session(constants, options=OFF).run("y", {"x": IMAGES[0, 0, :2].reshape(1, 8)}),
        want,
        rtol=1e-6,
    )


def test_repetition_is_not_stored() -> None:
    with gc.Graph() as g:
        x = gc.placeholder((1000,), name="x")
        b = gc.variable(np.ones(1), name="b", dtype="float32")
        y = gc.add(x, gc.broadcast_to(gc.exp(b) * 3, (1000,)), name="y")
    frozen = gc.freeze(gc.Session(g, options=OFF), [x], [y], literals=0)
    assert [v.type.shape for v in frozen.variables.values()] == [(1,)]


def test_large_constants_of_jax_functions_become_arguments() -> None:
    w = np.random.default_rng(0).standard_normal((64, 64)).astype("f")
    with gc.Graph() as g:
        x = gc.placeholder((None, 64), name="x")
        y = gc.from_jax(lambda x: jnp.tanh(x @ jnp.exp(w)), gc.TensorSpec((None, 64)))(x)
        y = gc.identity(y, name="y")
    frozen = gc.freeze(gc.Session(g, options=OFF), [x], [y])
    assert [v.type.shape for v in frozen.variables.values()] == [(64, 64)]
    assert all(n.attrs["value"].nbytes <= 256 for n in frozen.nodes if n.op.name == "Constant")
    xs = IMAGES.reshape(-1, 64)[:2]
    got = gc.Session(frozen, options=OFF).run("y", {"x": xs})
    assert_near(got, jnp.tanh(xs @ jnp.exp(w)), rtol=1e-7, atol=1e-5)


def test_a_model_that_samples_still_draws() -> None:
    with gc.Graph(seed=3) as g:
        x = gc.placeholder((None, 4), name="x")
        h = gc.nn.dropout(x, 0.5)
        y = gc.add(h, gc.random.normal((4,)), name="y")
        steps, _ = gc.scan(lambda c, _: (c + gc.random.normal(()), c), 0.0, length=3)
        z = gc.multiply(steps, 1.0, name="z")
    frozen = gc.freeze(gc.Session(g, options=OFF), [x], [y, z])
    xs = np.zeros((2, 4), "f")
    runs = []
    for _ in range(2):
        session = gc.Session(frozen, options=OFF)
        runs.append([session.run(["y", "z"], {"x": xs}) for _ in range(2)])
    first, second = runs[0]
    assert not np.array_equal(first[0], second[0])
    assert not np.array_equal(first[1], second[1])
    for a, b in zip(jax.tree.leaves(runs[0]), jax.tree.leaves(runs[1]), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(first[0][0], first[0][1])  # both rows are equal: no dropout


def test_names_sizes_and_lines_stay() -> None:
    with gc.Graph(name="net") as g:
        x = gc.placeholder(("batch", "time"), name="x")
        m = gc.placeholder(("batch", "time"), name="m")
        w = gc.placeholder(("time",), name="w")
        with gc.name_scope("head"):
            y = gc.add(x * m, w, name="y")
        total = gc.reduce_sum(y, name="total")
    session = gc.Session(g, options=OFF)
    frozen = gc.freeze(session, {"first": x, "m": m}, [y, total], given={w: [1, 2, 3]})
    assert frozen.name == "net"
    assert [str(t.type) for t in frozen.collection("inputs")] == ["f32[batch, 3]"] * 2
    assert [t.name for t in frozen.collection("inputs")] == ["first:0", "m:0"]
    assert [t.name for t in frozen.collection("outputs")] == ["head/y:0", "total:0"]
    assert frozen.tensor("head/y").node.source == y.node.source
    assert frozen.tensor("first").node.source == x.node.source
    ones = np.ones((2, 3), "f")
    got = gc.Session(frozen, options=OFF).run("head/y", {"first": ones, "m": ones})
    np.testing.assert_array_equal(got, [[2, 3, 4]] * 2)
    with pytest.raises(FeedError):
        gc.Session(frozen, options=OFF).run("head/y", {"first": ones, "m": ones[:1]})


def test_outputs_may_be_inputs_variables_and_twice_the_same() -> None:
    with gc.Graph() as g:
        x = gc.placeholder((None,), name="x")
        v = gc.variable(np.arange(100), name="v", dtype="float32")
        y = gc.exp(x, name="y")
    outputs = {"a": y, "b": y, "v": v, "same": x, "x2": x}
    frozen = gc.freeze(gc.Session(g, options=OFF), [x], outputs)
    got = gc.Session(frozen, options=OFF).run(
        [t.name for t in frozen.collection("outputs")], {"x": [0.0]}
    )
    for value, want in zip(got, ([1], [1], np.arange(100), [0], [0]), strict=True):
        np.testing.assert_array_equal(value, want)


def test_under_a_strategy_and_in_many_steps() -> None:
    with gc.Graph() as g:
        x = gc.placeholder((None, 6, 6, 4), name="x")
        norm = gc.nn.BatchNorm(name="norm")
        y = gc.nn.relu(
            norm(gc.nn.Conv2D(5, 3, name="layer", padding="same")(x), training=True), name="y"
        )
    frozen = gc.freeze(shuffled(gc.Session(g, options=OFF)), [x], [y])
    want = gc.Session(frozen, options=OFF).run("y", {"x": IMAGES})
    strategy = gc.devices.DataParallel(2)
    got = gc.Session(frozen, strategy=strategy, options=OFF).run("y", {"x": IMAGES})
    assert_near(got, want, rtol=1e-5, atol=1e-6)
    both = gc.Session(frozen, options=OFF).run_steps("y", {"x": np.stack([IMAGES, IMAGES])}, 2)
    assert_near(both[1], want, rtol=1e-5, atol=1e-6)


def test_a_signature_is_frozen_where_it_is_saved(tmp_path: Path) -> None:
    with gc.Graph() as g:
        x = gc.placeholder((None, 4), name="x")
        training = gc.placeholder((), "bool", name="training")
        norm = gc.nn.BatchNorm(name="norm")
        h = norm(gc.nn.Dense(70, name="layer")(x), training=True)
        y = gc.cond(training, lambda h: gc.nn.dropout(h, 0.5), lambda h: h, h, name="y")
        plain = gc.multiply(gc.nn.Dense(1, name="plain")(x), 1.0, name="z")
    session = shuffled(gc.Session(g, options=OFF))
    frozen = gc.Signature({"x": x}, {"y": y}, freeze=True, given={training: False})
    gc.save(
        session,
        tmp_path / "model.gcx",
        signatures={"serve": frozen, "plain": gc.Signature({"x": x}, {"z": plain})},
        platforms=("cpu",),
    )
    model = gc.load(tmp_path / "model.gcx")
    graph = gc.freeze(session, [x], [y], given={training: False})
    want = gc.Session(graph, options=OFF).run("y", {"x": IMAGES[0, 0]})
    assert_near(model.signatures["serve"](x=IMAGES[0, 0])["y"], want, rtol=1e-5, atol=1e-6)
    assert_near(
        model.signatures["plain"](x=IMAGES[0, 0])["z"],
        session.run(plain, {x: IMAGES[0, 0]}),
        rtol=1e-5,
    )
    gc.save(
        gc.Session(graph, options=OFF),
        tmp_path / "graph.gcx",
        signatures={"serve": gc.Signature({"x": "x"}, {"y": "y"})},
        platforms=("cpu",),
    )
    again = gc.load(tmp_path / "graph.gcx").signatures["serve"](x=IMAGES[0, 0])["y"]
    assert_near(again, want, rtol=1e-5, atol=1e-6)


def _graph() -> tuple[gc.Session, dict[str, Any]]:
    with gc.Graph() as g:
        x = gc.placeholder((None, 2), name="x")
        t = gc.placeholder((3,), "int32", name="t")
        v = gc.variable(np.ones(2), name="v", dtype="float32")
        y = gc.add(x, v, name="y")
        s = gc.reduce_sum(t, name="s")
        bump = v.assign_add(1)
        step = gc.group(bump, name="step")
    session = gc.Session(g, options=OFF)
    return session, {"x": x, "t": t, "v": v, "y": y, "s": s, "bump": bump, "step": step}


BAD: dict[str, tuple[Callable[..., Any], type[GraphcError], str]] = {
    "no session": (
        lambda s, t: gc.freeze(s.graph, [t["x"]], [t["y"]]), AttributeValueError, "session",
    ),
    "a step": (lambda s, t: gc.freeze(s, [], {"a": t["step"]}), FetchError, "without a value"),
    "an assignment": (lambda s, t: gc.freeze(s, [], [t["bump"]]), FetchError, "assign"),
    "nothing": (lambda s, t: gc.freeze(s, [t["x"]], []), FetchError, "no outputs"),
    "not fed": (lambda s, t: gc.freeze(s, [], [t["y"]]), FeedError, "'x'"),
    "fed and given": (
        lambda s, t: gc.freeze(s, [t["x"]], [t["y"]], given={"x": 1.0}), FeedError, "and given",
    ),
    "given of another kind": (
        lambda s, t: gc.freeze(s, [], [t["s"]], given={"t": [0.5, 1, 2]}), FeedError, "int32",
    ),
    "given of another shape": (
        lambda s, t: gc.freeze(s, [], [t["s"]], given={"t": [1, 2]}), ShapeError, "got shape",
    ),
    "two names for one": (
        lambda s, t: gc.freeze(s, {"a": "x", "b": t["x"]}, [t["y"]]), FeedError, "are one tensor",
    ),
    "an unknown name": (lambda s, t: gc.freeze(s, ["xx"], [t["y"]]), UnknownNameError, "xx"),
    "a variable fed": (lambda s, t: gc.freeze(s, ["v"], [t["y"]]), FeedError, "cannot be fed"),
    "literals": (
        lambda s, t: gc.freeze(s, ["x"], ["y"], literals=-1), AttributeValueError, "literals",
    ),
    "given": (lambda s, t: gc.freeze(s, ["x"], ["y"], given=False), FeedError, "mapping, got bool"),
    "updates": (
        lambda s, t: gc.Signature({}, {}, updates=[t["step"]], freeze=True),
        AttributeValueError, "no updates",
    ),
    "given without freeze": (
        lambda s, t: gc.Signature({}, {"y": t["y"]}, given={"x": 1}), AttributeValueError, "frozen",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("do", "error", "text"), BAD.values(), ids=BAD)
def test_what_cannot_be_frozen(do: Any, error: type[GraphcError], text: str) -> None:
    session, tensors = _graph()
    with pytest.raises(error, match=text):
        do(session, tensors)


def _in_bodies(x: Any, flag: Any, w: Any) -> dict[str, Any]:
    """x times a function of w inside several bodies; more operators if the flag is true."""

    def step(h: Any) -> Any:
        scale = gc.exp(w) / gc.sqrt(gc.reduce_sum(gc.square(w)))
        return gc.cond(flag, lambda h: gc.nn.dropout(h, 0.5) * scale, lambda h: h * scale, h)

    twice = gc.function(step)
    return {
        "scan": gc.scan(lambda h, _: (step(h), None), x, length=3)[0],
        "map": gc.map_fn(step, x),
        "while": gc.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, step(s[1])), (0, x))[1],
        "branch": gc.cond(gc.sum(x) > 0, step, lambda h: h - gc.exp(w), x),
        "function": twice(twice(x)),
        "nested": gc.scan(
            lambda h, _: (gc.scan(lambda k, _: (step(k), None), h, length=2)[0], None), x, length=2
        )[0],
    }


@pytest.mark.parametrize("what", ["scan", "map", "while", "branch", "function", "nested"])
@pytest.mark.parametrize("flagged", [False, True])
def test_bodies_hold_what_depends_on_inputs_alone(what: str, flagged: bool) -> None:
    with gc.Graph() as g:
        x = gc.placeholder((2, 100), name="x")
        flag = gc.placeholder((), "bool", name="flag")
        w = gc.variable(gc.nn.initializers.Uniform(), shape=(100,), name="w")
        y = _in_bodies(x, flag, w)[what]
        served = _in_bodies(x, gc.constant(False), w)[what]
    session = gc.Session(g, options=OFF)
    frozen = gc.freeze(session, [x], {"y": y}, given={flag: flagged})
    inside = {n.op.name for top in frozen.nodes for body in top.regions for n in body.walk()}
    assert not inside & {"Exp", "Sqrt", "ReduceSum", "Square", "Divide", "Dropout", "FoldIn"}
    if what != "branch":
        assert "Switch" not in {*inside, *kinds(frozen)}
    xs = np.random.default_rng(0).standard_normal((2, 100)).astype("f")
    got = gc.Session(frozen, options=OFF).run("y", {"x": xs})
    assert_near(got, session.run(served, {x: xs}), rtol=1e-5, atol=1e-6)


def test_narrow_layers_and_mixed_precision() -> None:
    for dtype, precision in (("bfloat16", None), ("float32", "bf16")):
        with gc.Graph() as g:
            x = gc.placeholder((None, 16), dtype, name="x")
            norm = gc.nn.BatchNorm(name="norm", dtype=dtype)
            first, last = (gc.nn.Dense(16, name=name, dtype=dtype) for name in ("a", "b"))
            y = last(gc.nn.relu(norm(first(x), training=True)))
            served = last(gc.nn.relu(norm(first(x), training=False)))
        options = gc.CompileOptions(cache=None, precision=precision)
        session = shuffled(gc.Session(g, options=options))
        frozen = gc.freeze(session, [x], {"y": y}, literals=0)
        rest = [kind for kind in kinds(frozen) if kind != "Cast"]
        assert rest == ["MatMul", "Add", "Relu", "MatMul", "Add"]
        kernels = [v.type.dtype for v in frozen.variables.values() if len(v.type.shape) == 2]
        assert [d.name for d in kernels] == ["bfloat16"] * 2  # cast once, not in every run
        xs = np.ones((2, 16), x.dtype)
        got = gc.Session(frozen, options=options).run("y", {"x": xs})
        want = session.run(served, {x: xs}).astype("f")
        assert_near(got.astype("f"), want, rtol=1e-7, atol=0.05 * np.abs(want).max())


def test_a_users_own_average_takes_nothings_place() -> None:
    """Only the statistics of batch norm are replaced by their moving averages."""
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((None, 3), name="x")
        average = gc.variable(np.zeros(3, np.float32), trainable=False, name="average")
        mean = gc.reduce_mean(x, axis=0)
        gc.add_to_collection("updates", average.assign(average * 0.9 + mean * 0.1))
        y = 2 * mean
    frozen = gc.freeze(gc.Session(graph, options=OFF), {"x": x}, {"y": y})
    value = gc.Session(frozen, options=OFF).run("y", {"x": np.ones((4, 3))})
    np.testing.assert_array_equal(value, np.full(3, 2.0))


def test_named_sizes_are_known_only_in_a_run() -> None:
    """A size as a number has no operands, and in a body of a loop neither."""
    with gc.Graph() as graph:
        x = gc.placeholder(("batch", 4), name="x")
        w = gc.variable(np.arange(4.0, dtype=np.float32), name="w")
        rows = gc.cast(gc.size(x, 0), "float32")
        grown = gc.fori_loop(0, 3, lambda i, v: v * gc.cast(gc.size(x, 0), "float32"), w)
        y = x + gc.exp(w) / rows + grown
    session = gc.Session(graph, options=OFF)
    frozen = gc.freeze(session, {"x": x}, {"y": y})
    (given,), (wanted,) = frozen.collection("inputs"), frozen.collection("outputs")
    for count in (2, 3):
        value = np.ones((count, 4), np.float32)
        got = gc.Session(frozen, options=OFF).run(wanted, {given: value})
        assert_near(got, session.run(y, {x: value}), rtol=1e-6)


def test_names_from_files_of_other_frameworks() -> None:
    with gc.Graph() as g:
        x, y = gc.placeholder((2,), name="x"), gc.placeholder((2,), name="y")
        inputs = {"serving_default_x:0": x, "serving_default_x_0": y}
        outputs = {"Call:0": x - y, "Call:1": y, "Call_0": x * y, "a (b)/c": x + y}
        frozen = gc.freeze(gc.Session(g), inputs, outputs)
    names = [t.node.name for t in (*frozen.collection("inputs"), *frozen.collection("outputs"))]
    assert len(set(names)) == len(names) == 6
    assert {"serving_default_x_0", "Call_1", "a_b_/c"} < set(names)
    again = parse_graph(print_graph(frozen), CATALOGUE)
    assert [node.name for node in again.nodes] == [node.name for node in frozen.nodes]
    feeds = dict(zip(frozen.collection("inputs"), ([5.0, 7.0], [2.0, 3.0]), strict=True))
    found = gc.Session(frozen).run(frozen.collection("outputs"), feeds)
    assert np.array_equal(found, [[3, 4], [2, 3], [10, 21], [7, 10]])
    for name in ("", "/", 3):
        with pytest.raises(AttributeValueError, match="is not a name"):
            gc.freeze(gc.Session(g), {name: x, "y": y}, {"z": x + y})
