"""Gradients over micro-batches: the step equals a step with the whole batch. Unsupported steps."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import optax
import pytest

import graphc as gc
from graphc.devices.accumulate import Accumulate, is_accumulated
from graphc.errors import AttributeValueError, GraphcError, LayoutError
from tests.near import assert_near
from tests.passes.check import check, check_stays

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 6, 4))
Y = (X.sum((1, 2)) > 0).astype("i4")
STEPS = 3
KINDS = ("dense", "lstm", "conv", "jax", "deep", "lookups in a loop")


def body(kind: str, x: Any) -> Any:
    if kind == "lstm":
        return gc.nn.LSTM(5, name="rnn", dtype="float64")(x)[:, -1]
    if kind == "conv":
        h = gc.nn.Conv1D(5, 3, name="conv", dtype="float64", padding="same")(x)
        return gc.reduce_mean(gc.nn.max_pool(gc.nn.relu(h)[:, :, None], (2, 1)), axis=(1, 2))
    if kind == "lookups in a loop":
        table = gc.variable(np.sin(np.arange(35.0)).reshape(7, 5), name="table")
        places = gc.cast(gc.abs(3 * x[:, :, 0]), "int32")

        def turn(h: Any, now: Any) -> tuple[Any, None]:
            return gc.tanh(h + gc.take(table, now, axis=0) + table[1:2]), None

        return gc.scan(turn, 0 * gc.take(table, places[:, 0], axis=0), gc.transpose(places))[0]
    if kind == "jax":
        import jax

        k = gc.variable(np.cos(np.arange(20.0)).reshape(4, 5), name="k")
        return gc.from_jax(lambda x, k: jax.nn.softmax(jax.numpy.tanh(x @ k)).mean(1))(x, k)
    h = gc.nn.Dense(8, name="in", dtype="float64")(gc.reshape(x, (-1, 24)))
    for i in range(6 if kind == "deep" else 0):
        rows = gc.nn.LayerNorm(name=f"norm{i}", dtype="float64")(h)
        rows = gc.nn.Dense(16, activation=gc.nn.gelu, name=f"a{i}", dtype="float64")(rows)
        h = h + gc.nn.Dense(8, name=f"b{i}", dtype="float64")(rows)
    return h


def network(kind: str, accumulate: int) -> tuple[gc.Graph, Any, Any, list[Any]]:
    """A step with all that programs compute from a batch: sums, means, extremes, rows, and further
    values from these."""
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((None, 6, 4), "float64", name="x")
        y = gc.placeholder((None,), "int32", name="y")
        logits = gc.nn.Dense(2, name="out", dtype="float64")(body(kind, x))
        losses = gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=y)
        weights = [v for v in graph.variables.values() if v.trainable]
        penalty = sum((gc.reduce_sum(gc.square(v)) for v in weights), start=0.0)
        loss = gc.reduce_mean(losses) + 1e-4 * penalty
        right = gc.equal(gc.argmax(logits, axis=-1), y)
        fetches = [
            loss, losses, gc.reduce_max(losses), gc.reduce_min(losses), gc.reduce_any(right),
            gc.reduce_all(right), gc.reduce_mean(gc.cast(right, "float64")),
            gc.sqrt(gc.reduce_mean(gc.square(losses))), penalty,
        ]  # fmt: skip
        tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-2))
        train = gc.minimize(loss, tx, name="train", accumulate=accumulate)
    return graph, x, y, [train, *fetches]


def trained(kind: str, accumulate: int, *, steps: bool = False, **session: Any) -> list[Any]:
    """The fetches of the last step, and the variables after it."""
    graph, x, y, fetches = network(kind, accumulate)
    options = gc.CompileOptions(cache=None, pipeline=session.pop("pipeline", "O2"))
    running = gc.Session(graph, options=options, **session)
    if steps:
        feeds = {x: np.stack([X] * STEPS), y: np.stack([Y] * STEPS)}
        values = [v if v is None else v[-1] for v in running.run_steps(fetches, feeds, n=STEPS)]
    else:
        for _ in range(STEPS):
            values = running.run(fetches, {x: X, y: Y})
    return [*map(np.asarray, values[1:]), *(np.asarray(running.get(n)) for n in graph.variables)]


def assert_same(got: list[Any], want: list[Any]) -> None:
    for a, b in zip(got, want, strict=True):
        assert_near(a, b, rtol=1e-9, atol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_it_equals_the_large_batch(kind: str) -> None:
    assert_same(trained(kind, 4), trained(kind, 1))


@pytest.mark.slow
def test_it_does_on_several_devices_in_a_loop_and_without_other_passes() -> None:
    want = trained("deep", 1)
    assert_same(trained("deep", 3, strategy=gc.devices.DataParallel(2)), want)
    assert_same(trained("deep", 4, steps=True), want)
    assert_same(trained("deep", 2, pipeline="O0"), want)


def test_the_program_is_a_loop_in_the_memory_of_a_micro_batch() -> None:
    def memory(accumulate: int, batch: int) -> int:
        graph = gc.Graph()
        with graph:
            x = gc.placeholder((None, 16), "float32", name="x")
            h = x
            for i in range(6):
                h = gc.tanh(gc.nn.Dense(64, name=f"d{i}")(h)) * (i + 1.5)
            train = gc.minimize(gc.reduce_mean(gc.square(h)), optax.sgd(0.1), accumulate=accumulate)
        options = gc.CompileOptions(cache=None)
        step = gc.compile(graph, [train], {x: (batch, 16)}, options=options)
        assert ("micro_batches" in {n.name for n in step.program.nodes}) == (accumulate > 1)
        return step.memory()["temporaries"]

    whole, small, cut = memory(1, 4096), memory(1, 512), memory(8, 4096)
    assert cut < 0.35 * whole
    assert cut < 2 * small + 4096 * 16 * 4


def test_dropout_differs_from_micro_batch_to_micro_batch() -> None:
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((None, 50), "float32", name="x")
        w = gc.variable(np.ones(50, "f4"), name="w")
        kept = gc.nn.dropout(x * w, 0.5)
        train = gc.minimize(gc.reduce_mean(kept), optax.sgd(0.1), accumulate=4)
    session = gc.Session(graph)
    _, rows = session.run([train, kept], {x: np.ones((8, 50), "f4")})
    assert len(np.unique(np.asarray(rows), axis=0)) == 8
    assert 0.35 < np.mean(np.asarray(rows) > 0) < 0.65


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("batch", [8, 4])  # 4: one row for each micro-batch and device
def test_examples_and_their_steps_on_one_axis_stay_together(devices: int, batch: int) -> None:
    """A value reshaped to [batch * time], with a feed and a constant of that shape."""

    def trained(accumulate: int) -> list[Any]:
        with gc.Graph() as graph:
            x = gc.placeholder((batch, 3), "float64", name="x", batch_axis=0)
            y = gc.placeholder((batch * 3,), "float64", name="y", batch_axis=0)
            w = gc.variable(np.ones(3), name="w")
            flat = gc.tanh(gc.reshape(x * w, (batch * 3,)))
            pairs = gc.reshape(flat, (batch // 2, 2, 3))
            loss = gc.reduce_sum(gc.square(flat - y) * np.arange(batch * 3.0))
            train = gc.minimize(loss, optax.sgd(0.01), accumulate=accumulate)
        strategy = gc.devices.DataParallel(devices) if devices > 1 else None
        session = gc.Session(graph, strategy=strategy)
        feeds = {x: np.arange(batch * 3.0).reshape(batch, 3) / 20, y: np.arange(batch * 3.0) / 9}
        values = session.run([train, flat, pairs], feeds)
        return [*map(np.asarray, values[1:]), np.asarray(session.get("w"))]

    assert_same(trained(2), trained(1))


def test_as_text() -> None:
    check(
        Accumulate(),
        """
        program p(x: f32[6, 2], w: state f32[2]) {
          batch_axis x=0
          %0 = Square(w) : f32[2]
          %1 = Multiply(x, %0) : f32[6, 2]
          %2 = ReduceSum(%1) {axes=[0]} : f32[2]
          %3 = Gradients(%2) {step="train", accumulate=3} : f32[2]
          %4 = Subtract(w, %3) : f32[2]
          return rows = %1, state w = %4
        }
        """,
        """
        program p(x: f32[6, 2], w: state f32[2]) {
          batch_axis x=0
          %0 = Square(w) : f32[2]
          %1 = Reshape(x) {shape=[3, 2, 2]} : f32[3, 2, 2]
          %2 = Constant() {value=f32[] 0} : f32[]
          %3 = BroadcastTo(%2) {shape=[2]} : f32[2]
          %4, %5 = Scan(%0, %3, %1) {consts=1, carries=1, length=3} : f32[2], f32[3, 2, 2] with
              micro_batch(a0: f32[2], a1: f32[2], a2: f32[2, 2]) {
            %0 = Multiply(a2, a0) : f32[2, 2]
            %1 = ReduceSum(%0) {axes=[0]} : f32[2]
            %2 = Add(a1, %1) : f32[2]
            return r0 = %2, r1 = %0
          }
          %6 = Reshape(%5) {shape=[6, 2]} : f32[6, 2]
          %7 = Subtract(w, %4) : f32[2]
          return rows = %6, state w = %7
        }
        """,
    )


def test_without_such_a_mark_nothing_happens() -> None:
    text = "program p(x: f32[2]) {\n  batch_axis x=0\n  %0 = Tanh(x) : f32[2]\n  return out = %0\n}"
    check_stays(Accumulate(), text)


def compiled(rows: int, accumulate: int, *, norm: bool = False, shape: tuple = (None, 3)) -> None:
    graph = gc.Graph()
    with graph:
        x = gc.placeholder(shape, "float32", name="x")
        h = gc.nn.Dense(2, name="d")(x)
        if norm:
            h = gc.nn.BatchNorm(name="norm")(h, training=True)
        train = gc.minimize(gc.reduce_mean(gc.square(h)), optax.sgd(0.1), accumulate=accumulate)
    options = gc.CompileOptions(cache=None)
    gc.compile(graph, [train], {x: (rows, 3)}, options=options).stablehlo()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: compiled(10, 4), "10 along its batch axis 0 cannot be cut into 4 equal micro-"),
        (lambda: compiled(8, 4, norm=True), r"needs a value of the whole batch(.|\n)*local=True"),
        (lambda: compiled(8, 4, shape=(8, 3)), "no feed has a batch axis"),
    ],
    ids=["size", "batch norm", "no batch"],
)
def test_errors_when_compiled(call: Any, text: str) -> None:
    with pytest.raises(GraphcError, match=text) as caught:
        call()
    if "no feed" not in text:
        assert "test_accumulate.py" in str(caught.value)


def test_lazy_updates_are_refused_not_made_whole() -> None:
    for others in ((), (gc.variable,)):
        with gc.Graph() as graph:
            ids = gc.placeholder((None,), "int32", name="ids")
            table = gc.variable(np.ones((200, 4), "f"), name="table")
            h = gc.take(table, ids, axis=0)
            for make in others:
                h = h + make(np.zeros(4, "f"), name="bias")
            train = gc.minimize(gc.reduce_mean(gc.square(h)), optax.adam(0.1), accumulate=2)
        session = gc.Session(graph, options=gc.CompileOptions(sparse_updates="lazy", cache=None))
        with pytest.raises(LayoutError, match=r"(?s)lazy.*accumulate=2\).*its own rows"):
            session.run(train, {ids: [1, 2]})


def test_exact_updates_of_one_table_are_made_whole() -> None:
    after = []
    for accumulate in (1, 2):
        with gc.Graph() as graph:
            ids = gc.placeholder((None,), "int32", name="ids")
            table = gc.variable(np.ones((20_000, 4), "f"), name="table")
            loss = gc.reduce_mean(gc.square(gc.take(table, ids, axis=0)))
            train = gc.minimize(loss, optax.adagrad(0.1), accumulate=accumulate)
        session = gc.Session(graph, options=gc.CompileOptions(cache=None))
        for feed in ([1, 2, 3, 2], [2, 5, 9, 9]):
            session.run(train, {ids: feed})
        after.append(session.get("table"))
    assert_near(*after, rtol=1e-6)
    assert np.unique(np.nonzero(after[0] != 1)[0]).tolist() == [1, 2, 3, 5, 9]


@pytest.mark.parametrize("accumulate", [0, -1, 2.0, True])
def test_no_number_of_micro_batches(accumulate: Any) -> None:
    with pytest.raises(AttributeValueError, match="accumulate must be an int of at least 1"):
        compiled(8, accumulate)


def test_two_steps_of_one_run_must_agree() -> None:
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((None, 3), "float32", name="x")
        w = gc.variable(np.ones(3, "f4"), name="w")
        loss = gc.reduce_mean(x * w)
        steps = [gc.minimize(loss, optax.sgd(0.1), name=f"s{k}", accumulate=k) for k in (2, 4)]
    session = gc.Session(graph)
    with pytest.raises(GraphcError, match="the same number of micro-batches"):
        session.run(steps, {x: np.ones((8, 3), "f4")})
    session.run(steps[0], {x: np.ones((8, 3), "f4")})
    assert not is_accumulated(gc.compile(graph, [loss], {x: (8, 3)}).program)


def test_devices_exchange_what_they_do_for_the_whole_batch() -> None:
    """Each device cuts its own part: no array of the batch's size moves between devices, and sums
    are exchanged once, after the loop."""

    def moved(accumulate: int) -> list[str]:
        graph = gc.Graph()
        with graph:
            x = gc.placeholder((None, 3), "float32", name="x")
            loss = gc.reduce_mean(gc.square(gc.nn.Dense(2, name="d")(x)))
            train = gc.minimize(loss, optax.sgd(0.1), accumulate=accumulate)
        options = gc.CompileOptions(cache=None)
        strategy = gc.devices.DataParallel(2, bucket_bytes=None)
        step = gc.compile(graph, [train, loss], {x: (8, 3)}, strategy=strategy, options=options)
        names = r"stablehlo\.(all_\w+|collective_\w+|reduce_scatter)"
        return re.findall(names, step.stablehlo())

    assert moved(2) == moved(1) == ["all_reduce"] * 2
