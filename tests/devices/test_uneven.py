"""Batches that do not divide by the number of replicas give the same values as on one device."""

from __future__ import annotations

from textwrap import dedent

import numpy as np
import optax
import pytest
from jax import numpy as jnp

import graphc as gc
from graphc.devices import DataParallel
from graphc.devices.replicate import Replicate
from graphc.devices.uneven import batch_layout
from graphc.ir.compare import difference
from graphc.ir.layouts import REPLICATED, LayoutPlan, Partial, Sharded
from graphc.ir.parse import parse_program
from graphc.ir.text import print_program
from graphc.ir.verify import verify
from graphc.ops.catalogue import CATALOGUE
from tests.near import assert_near
from tests.passes.check import program

REPLICAS = 4


def becomes(before: str, after: str) -> tuple[str, ...]:
    """Checks that the global program becomes the local one of four replicas; returns the notes."""
    local = Replicate(REPLICAS).replicate(program(before))
    verify(local.program, "local")
    found = difference(local.program, parse_program(dedent(after).strip(), CATALOGUE))
    assert found is None, f"{found}\n\ngot\n{print_program(local.program, sources=False)}"
    return local.notes


def agree(graph, fetches, feeds_of, sizes, *, near=1e-9, **options):
    """Runs batches of `sizes` rows, one after the other, on one device and on four."""
    how = gc.CompileOptions(xla_options={"xla_backend_optimization_level": 0}, **options)
    alone = gc.Session(graph, options=how)  # it compiles faster this way
    together = gc.Session(graph, strategy=DataParallel(REPLICAS), options=how)
    for rows in sizes:
        wanted = alone.run(fetches, feeds_of(rows))
        found = together.run(fetches, feeds_of(rows))
        for i, (a, b) in enumerate(zip(wanted, found, strict=True)):
            if a is not None:
                a, b = np.asarray(a), np.asarray(b)
                assert a.shape == b.shape and a.dtype == b.dtype
                assert_near(b, a, rtol=near, atol=near, err_msg=f"{rows}: {i}")
    after = together.values()
    for name, value in alone.values().items():
        assert_near(after[name], value, rtol=near, atol=near, err_msg=name)
    return together


# -- programs ----------------------------------------------------------------------------------


def test_a_mean_counts_the_real_rows_and_padding_adds_nothing() -> None:
    becomes(
        """
        program p(x: f32[10, 3]) {
          batch_axis x=0
          %0 = Exp(x) : f32[10, 3]
          %1 = ReduceMean(%0) {axes=[0, 1], keepdims=false, count=none} : f32[]
          return mean = %1
        }
        """,
        """
        program p(x: f32[10, 3]) {
          batch_axis x=0
          %x = PaddedPiece(x) {axis=0, replicas=4, piece=3} : f32[3, 3]
          %0 = Exp(%x) : f32[3, 3]
          %c = Constant() {value=f32[] 0.0} : f32[]
          %r = FillPadding(%0, %c) {axis=0, size=10} : f32[3, 3]
          %1 = ReduceMean(%r) {axes=[0, 1], keepdims=false, count=30} : f32[]
          %2 = AllReduce(%1) {op="sum"} : f32[]
          return mean = %2
        }
        """,
    )


def test_what_is_fetched_by_row_comes_back_without_padding() -> None:
    notes = becomes(
        """
        program p(x: f32[6, 3], table: state f32[6, 3]) {
          batch_axis x=0
          %0 = Add(x, table) : f32[6, 3]
          return y = %0
        }
        """,
        """
        program p(x: f32[6, 3], table: state f32[6, 3]) {
          batch_axis x=0
          %x = PaddedPiece(x) {axis=0, replicas=4, piece=2} : f32[2, 3]
          %t = PaddedPiece(table) {axis=0, replicas=4, piece=2} : f32[2, 3]
          %0 = Add(%x, %t) : f32[2, 3]
          %g = AllGather(%0) {axis=0, replicas=4} : f32[8, 3]
          %y = Slice(%g) {starts=[0, 0], limits=[6, 3], strides=[1, 1]} : f32[6, 3]
          return y = %y
        }
        """,
    )
    assert notes == ("gathered %0 for output 'y': its rows do not divide by the replicas",)


def test_an_axis_whose_rows_are_several_elements_is_cut_between_rows() -> None:
    """12 elements would divide by 4, but they are 6 rows of 2."""
    becomes(
        """
        program p(x: f32[6, 2]) {
          batch_axis x=0
          %0 = Reshape(x) {shape=[12]} : f32[12]
          %1 = Reshape(%0) {shape=[3, 4]} : f32[3, 4]
          %2 = ReduceMax(%1) {axes=[0], keepdims=false} : f32[4]
          return y = %2
        }
        """,
        """
        program p(x: f32[6, 2]) {
          batch_axis x=0
          %x = PaddedPiece(x) {axis=0, replicas=4, piece=2} : f32[2, 2]
          %0 = Reshape(%x) {shape=[4]} : f32[4]
          %1 = Reshape(%0) {shape=[1, 4]} : f32[1, 4]
          %c = Constant() {value=f32[] -inf} : f32[]
          %r = FillPadding(%1, %c) {axis=0, size=3} : f32[1, 4]
          %2 = ReduceMax(%r) {axes=[0], keepdims=false} : f32[4]
          %3 = AllReduce(%2) {op="max"} : f32[4]
          return y = %3
        }
        """,
    )


def test_layouts_of_batches() -> None:
    assert batch_layout(1, 8, 4) == Sharded(1)
    assert batch_layout(1, 2, 4) == Sharded(1, rows=2)
    assert batch_layout(0, 1, 4) == REPLICATED  # the other replicas would be idle
    assert str(Sharded(1, rows=2)) == "sharded(1) of 2 rows"


# -- values ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_training_of_a_perceptron_and_all_that_looks_over_the_batch() -> None:
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((None, 6), "float64", name="x")
        y = gc.placeholder((None,), "int32", name="y")
        h = gc.nn.Dense(8, activation=gc.nn.relu, dtype="float64", name="hidden")(x)
        logits = gc.nn.Dense(3, dtype="float64", name="out")(h)
        by_row = gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=y)
        loss = gc.reduce_mean(by_row) + gc.reduce_sum(gc.square(h)) * 1e-3
        score = gc.reduce_sum(logits, 1)
        looks = [
            gc.reduce_max(logits, 0), gc.reduce_min(score), gc.reduce_sum(h), gc.any(score > 1),
            gc.reduce_variance(h, 0), gc.argsort(score), gc.logsumexp(score), gc.cumsum(score),
            gc.matmul(h, h, transpose_a=True), gc.flip(logits, 0), x,
        ]  # fmt: skip
        rows = gc.cast(gc.size(y), "float64") * gc.ones((2,), "float64")
        inverse = gc.reduce_sum(1.0 / x)  # padding with zeros would make it infinite
        (slope,) = gc.gradients(gc.reduce_max(gc.log(gc.abs(logits))) + inverse, [x])
        train = gc.minimize(loss, optax.adam(1e-2))

    def feeds_of(n):
        rng = np.random.default_rng(n)
        return {x: rng.normal(size=(n, 6)), y: rng.integers(0, 3, n).astype(np.int32)}

    fetches = [train, loss, by_row, logits, *looks, rows, inverse, slope]
    agree(graph, fetches, feeds_of, [5, 2])


@pytest.mark.slow
def test_a_network_with_batch_norm_in_a_loop_of_steps() -> None:
    """Statistics, moving averages and gradients use only the real rows."""
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((None, 4, 4, 2), "float64", name="x")
        y = gc.placeholder((None,), "int32", name="y")
        h = gc.nn.Conv2D(3, 3, padding="same", dtype="float64")(x)
        h = gc.nn.relu(gc.nn.BatchNorm(dtype="float64")(h, training=True))
        h = gc.reshape(gc.nn.max_pool(h, 2), (-1, 12))
        logits = gc.nn.Dense(3, dtype="float64")(h)
        loss = gc.reduce_mean(gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=y))
        train = gc.minimize(loss, optax.sgd(0.1))

    def feeds_of(n):
        rng = np.random.default_rng(n)
        return {x: rng.normal(size=(n, 4, 4, 2)), y: rng.integers(0, 3, n).astype(np.int32)}

    together = agree(graph, [train, loss], feeds_of, [5])
    assert not any("needs the whole" in note for note in together.executables[0].notes)
    alone = gc.Session(graph)
    together = gc.Session(graph, strategy=DataParallel(REPLICAS))
    batches = [feeds_of(6) for _ in range(3)]
    for session in (alone, together):
        session.run_steps([train, loss], iter(batches), 3)
    after = together.values()
    for name, value in alone.values().items():
        assert_near(after[name], value, rtol=1e-7, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("how", ["exact", "off"])
def test_rows_of_a_table_are_updated_as_on_one_device(how: str) -> None:
    graph = gc.Graph(seed=0)
    with graph:
        ids = gc.placeholder((None, 2), "int32", name="ids")
        table = gc.variable(np.random.default_rng(0).normal(size=(400, 3)), name="table")
        loss = gc.reduce_mean(gc.square(gc.reduce_sum(gc.take(table, ids, 0), 1) - 1.0))
        train = gc.minimize(loss, optax.adagrad(0.1))

    def feeds_of(n):
        return {ids: np.random.default_rng(n).integers(0, 400, (n, 2)).astype(np.int32)}

    together = agree(graph, [train, loss], feeds_of, [7, 7], sparse_updates=how)
    assert together.compile_count == 1


def test_loops_over_time_cut_between_rows() -> None:
    """The batch is the second axis of the scanned values. A branch and a map also use rows."""
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((3, None, 2), "float64", name="x", batch_axis=1)
        w = gc.variable(np.random.default_rng(0).normal(size=(2, 2)), name="w")

        def step(carry, x_t):
            h, total = carry
            h = gc.tanh(gc.matmul(x_t, w) + h)
            return (h, total + gc.reduce_sum(h)), gc.reduce_max(h)

        first = (gc.zeros((x.shape[1], 2), "float64"), gc.zeros((), "float64"))
        (h, total), tops = gc.scan(step, first, x)
        chosen = gc.cond(total > 0, lambda a: gc.reduce_sum(a * 2, 0), lambda a: gc.sum(a, 0), h)
        loss = gc.reduce_mean(gc.square(h)) + total * 0.1 + gc.reduce_sum(gc.exp(chosen))
        train = gc.minimize(loss, optax.sgd(0.1))
    agree(
        graph, [train, loss, h, tops, chosen],
        lambda n: {x: np.random.default_rng(n).normal(size=(3, n, 2))}, [6],
    )  # fmt: skip


def test_feeds_of_several_batch_sizes() -> None:
    """Pieces of two uneven batches and of an even one meet: one of them is gathered."""
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((5, 2), "float64", name="x", batch_axis=0)
        twice = gc.placeholder((10,), "float64", name="twice", batch_axis=0)
        even = gc.placeholder((8, 2), "float64", name="even", batch_axis=0)
        pairs = gc.reshape(x, (10,)) * twice
        product = gc.matmul(x, even, transpose_b=True)
        taken = gc.take(even, gc.cast(x > 0, "int32"), 0)
        fetches = [pairs, gc.reduce_sum(pairs), product, gc.reshape(twice, (5, 2)) + x, taken]
    rng = np.random.default_rng(0)
    feeds = {t: rng.normal(size=t.shape) for t in (x, twice, even)}
    agree(graph, fetches, lambda _: feeds, [5])


def test_operators_that_do_not_say_what_padding_may_hold_are_given_the_whole(monkeypatch) -> None:
    """Exponentials of padding zeros would count, and this rule does not handle padding."""

    def rule(ctx, node, x):
        return LayoutPlan([x], [Partial("sum") if isinstance(x, Sharded) else REPLICATED])

    monkeypatch.setattr(CATALOGUE, "_ops", dict(CATALOGUE._ops))  # for this test only
    total = gc.register_op("SumOfExp", lambda x: jnp.sum(jnp.exp(x)), layout=rule)
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((None,), "float64", name="x")
        y = total(gc.tanh(x))
    session = agree(graph, [y], lambda n: {x: np.arange(n) / n}, [8, 6])
    even, uneven = (executable.notes for executable in session.executables)
    assert not even
    assert "gathered Tanh for SumOfExp" in uneven[0] and "its rows to divide" in uneven[0]


@pytest.mark.slow
def test_what_is_no_number_in_padding_alone_reaches_no_sum() -> None:
    """The gradient of padding is 0. Divided by its length, it is 0 / 0, and becomes an input."""
    after = []
    for strategy, options in (
        (None, None),
        (DataParallel(4), None),
        (DataParallel(4), gc.CompileOptions(check_numerics=True)),
    ):
        with gc.Graph(seed=0) as g:
            x = gc.placeholder((None, 4), "float64", name="x")
            norm = gc.nn.LayerNorm(name="norm", dtype="float64")
            out = gc.nn.Dense(1, name="out", dtype="float64")
            (slope,) = gc.gradients(gc.reduce_mean(gc.square(out(norm(x)) - 1.0)), [x])
            length = gc.sqrt(gc.reduce_sum(slope * slope, 1, keepdims=True))
            worse = gc.stop_gradient(x + 0.1 * slope / length)
            loss = gc.reduce_mean(gc.square(out(norm(worse)) - 1.0))
            train = gc.minimize(loss, optax.sgd(0.1), name="train")
        session = gc.Session(g, strategy=strategy, options=options)
        session.run(train, {x: np.random.default_rng(0).normal(size=(5, 4))})
        after.append(session.values())
    for name, value in after[0].items():
        for other in after[1:]:
            assert_near(other[name], value, rtol=1e-9, atol=1e-12, err_msg=name)


def test_a_loop_of_steps_over_uneven_batches_with_a_sharded_optimizer() -> None:
    with gc.Graph(seed=0) as g:
        x = gc.placeholder((None, 12), "float64", name="x")
        y = gc.nn.Dense(12, name="dense", dtype="float64")(x)
        train = gc.minimize(gc.reduce_mean(gc.square(y - 1.0)), optax.adam(0.1), name="train")
    after = []
    for strategy in (None, DataParallel(4, shard_optimizer=True)):
        session = gc.Session(g, strategy=strategy)
        session.run_steps(train, iter([{x: np.ones((6, 12))}] * 3), 3)
        after.append(session.values())
    for name, value in after[0].items():
        assert_near(after[1][name], value, rtol=1e-9, atol=1e-12, err_msg=name)
