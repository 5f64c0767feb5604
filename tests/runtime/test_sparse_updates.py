"""Training with embeddings: sparse updates against dense ones, on one and several devices."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
import optax
import pytest
from jax import numpy as jnp

import graphc as gc
from graphc.errors import AttributeValueError
from graphc.ir.program import Program
from graphc.runtime.step.executable import Executable
from tests.near import assert_near

ROWS, WIDTH, STEPS, BATCH = 3000, 24, 5, 8
TABLE = (ROWS, WIDTH)

Built = tuple[gc.Graph, list[Any], Any, Any]


def build(optimizer: Any, lookups: int = 1, dtype: str = "float64") -> Built:
    """A graph that trains: the mean of some rows of a table goes through a dense layer."""
    graph = gc.Graph(seed=0)
    with graph:
        ids = gc.placeholder((None, 4), "int32", name="ids")
        y = gc.placeholder((None,), dtype, name="y")
        table = gc.nn.Embedding(ROWS, WIDTH, name="emb", dtype=dtype)
        bag = gc.reduce_mean(table(ids), axis=1)
        for number in range(1, lookups):
            bag = bag + gc.reduce_sum(table(gc.abs(ids) // (number + 1)), axis=1)
        out = gc.nn.Dense(1, name="out", dtype=dtype)(gc.tanh(bag))
        loss = gc.reduce_mean(gc.square(out[:, 0] - y), name="loss")
        train = gc.minimize(loss, optimizer, name="train")
    return graph, [train, loss], ids, y


def batches(steps: int = STEPS) -> tuple[Any, Any]:
    """Batches of indices (below 0, out of range and repeated) and targets."""
    rng = np.random.default_rng(1)
    ids = rng.integers(-ROWS - 9, ROWS + 9, (steps, BATCH, 4)).astype(np.int32)
    ids[:, 0] = ids[:, 1]
    return ids, rng.normal(size=(steps, BATCH))


class Trained(NamedTuple):
    """The losses, every variable after the steps, and the program."""

    losses: Any
    values: dict[str, Any]
    program: Program


def trained(built: Built, mode: str, *, strategy: Any = None, at_once: bool = False) -> Trained:
    graph, fetches, ids, y = built
    options = gc.CompileOptions(sparse_updates=mode, cache=None)
    session = gc.Session(graph, options=options, strategy=strategy)
    indices, targets = batches()
    if at_once:
        losses = session.run_steps(fetches, {ids: indices, y: targets}, STEPS)[1]
    else:
        fed = zip(indices, targets, strict=True)
        losses = [session.run(fetches, {ids: i, y: t})[1] for i, t in fed]
    values = {name: np.asarray(session.get(name)) for name in graph.variables}
    return Trained(np.asarray(losses), values, session.executables[-1].program)


def same(one: Trained, other: Trained, tolerance: float = 1e-12) -> None:
    assert_near(one.losses, other.losses, rtol=tolerance)
    for name, value in one.values.items():
        assert_near(value, other.values[name], rtol=tolerance, atol=tolerance, err_msg=name)


def compiled(built: Built, mode: str) -> Executable:
    graph, fetches, ids, y = built
    options = gc.CompileOptions(sparse_updates=mode, cache=None)
    return gc.compile(graph, fetches, {ids: (BATCH, 4), y: (BATCH,)}, options=options)


def of_tables(program: Program) -> list[str]:
    """The operators whose result is as large as the table."""
    nodes = [node for node in program.walk() if not node.regions]
    return [n.op.name for n in nodes for t in n.outputs if t.type.shape == TABLE]


EXACT = {
    "sgd": optax.sgd(0.1),
    "sgd, clipped by value": optax.chain(optax.clip(0.01), optax.sgd(0.1)),
    "adagrad": optax.adagrad(0.1),
    "adagrad, with a schedule": optax.adagrad(optax.cosine_decay_schedule(0.1, 100)),
    "adagrad, clipped by the global norm": optax.chain(
        optax.clip_by_global_norm(0.01), optax.adagrad(0.1)
    ),
    "sgd, without NaN": optax.chain(optax.zero_nans(), optax.sgd(0.1)),
    "sgd, clipped by the root of the mean square": optax.chain(
        optax.clip_by_block_rms(1e-4), optax.sgd(0.1)
    ),
}


@pytest.mark.parametrize("name", EXACT)
def test_exact(name: str) -> None:
    built = build(EXACT[name])
    exact, dense = trained(built, "exact"), trained(built, "off")
    assert set(of_tables(exact.program)) == {"ScatterNd"}
    assert "ScatterNd" not in of_tables(dense.program)
    same(exact, dense)


def test_several_lookups_of_one_table() -> None:
    built = build(optax.adagrad(0.1), lookups=3)
    exact = trained(built, "exact")
    assert of_tables(exact.program) == ["ScatterNd", "ScatterNd"]
    same(exact, trained(built, "off"))


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [False, True])
def test_on_several_devices_only_rows_travel(at_once: bool) -> None:
    built = build(EXACT["adagrad, clipped by the global norm"])
    strategy = gc.devices.DataParallel(4, bucket_bytes=None)  # shows each exchange separately
    same(trained(built, "exact", strategy=strategy, at_once=at_once), trained(built, "off"))
    graph, fetches, ids, y = built
    feeds = {ids: (BATCH, 4), y: (BATCH,)}
    step = gc.compile(
        graph, fetches, feeds, strategy=strategy, options=gc.CompileOptions(cache=None)
    )
    text = step.stablehlo()
    moved = [line for line in text.splitlines() if "all_reduce" in line or "all_gather" in line]
    assert moved
    assert f"{BATCH * 4}x{WIDTH}xf64" in text
    reduced = [line for line in text.splitlines() if line.strip().startswith("}) : (tensor<")]
    assert not any(f"tensor<{ROWS}x{WIDTH}xf64>)" in line for line in reduced)


def test_lazy_on_several_devices() -> None:
    built = build(optax.adam(0.1))
    strategy = gc.devices.DataParallel(4)
    same(trained(built, "lazy", strategy=strategy), trained(built, "lazy"))


def test_in_one_call_of_many_steps() -> None:
    built = build(optax.adagrad(0.1))
    same(trained(built, "exact", at_once=True), trained(built, "off"))


def test_nothing_as_large_as_the_table_is_made_besides_it() -> None:
    built = build(optax.adagrad(0.1), dtype="float32")
    size = ROWS * WIDTH * 4
    sparse, dense = compiled(built, "exact").memory(), compiled(built, "off").memory()
    assert sparse["temporaries"] < size / 4 < size < dense["temporaries"]
    assert sparse["aliased"] >= 2 * size  # the table and its slot are updated in place


@pytest.mark.parametrize("steps", [None, 3])
@pytest.mark.parametrize("replicas", [1, 4])
def test_nor_in_loops_or_on_replicas(steps: int | None, replicas: int) -> None:
    graph, fetches, ids, y = build(optax.adagrad(0.1), dtype="float32")
    strategy = gc.devices.DataParallel(replicas) if replicas > 1 else None
    options = gc.CompileOptions(cache=None)
    feeds = {ids: (BATCH, 4), y: (BATCH,)}
    step = gc.compile(graph, fetches, feeds, strategy=strategy, steps=steps, options=options)
    assert step.memory()["temporaries"] < ROWS * WIDTH * 4 / 4


@pytest.mark.parametrize("optimizer", [optax.sgd(0.1, momentum=0.9), optax.adam(0.1)])
def test_momentum_and_adam_stay_dense_by_default(optimizer: Any) -> None:
    built = build(optimizer)
    exact = trained(built, "exact")
    assert "ScatterNd" not in of_tables(exact.program)
    same(exact, trained(built, "off"), 0.0)


LAZY = {
    "momentum": (optax.sgd(0.1, momentum=0.9), 1),
    "nesterov": (optax.sgd(0.1, momentum=0.9, nesterov=True), 1),
    "adam": (optax.adam(0.1), 2),
    "adamw": (optax.adamw(0.1, weight_decay=0.3), 2),
    "rmsprop": (optax.rmsprop(0.1), 1),
}


@pytest.mark.slow
@pytest.mark.one_jax
@pytest.mark.parametrize("name", LAZY)
def test_lazy(name: str) -> None:
    """Used rows are updated as optax updates them; the other rows do not change."""
    optimizer, slots = LAZY[name]
    built = build(optimizer)
    got = trained(built, "lazy")
    assert of_tables(got.program) == ["ScatterNd"] * (1 + slots)
    want = by_hand(built, optimizer)
    assert_near(got.losses, want[0], rtol=1e-9)
    assert_near(got.values["emb/table"], want[1], rtol=1e-9, atol=1e-12)
    if name == "adam":
        same(trained(built, "lazy", at_once=True), got)


def by_hand(built: Built, optimizer: Any) -> tuple[list[float], Any]:
    """Dense updates by optax; afterwards the rows that were not used are restored."""
    session = gc.Session(built[0])
    names = ("emb/table", "out/kernel", "out/bias")
    with jax.enable_x64(True):
        params = {name: jnp.asarray(np.asarray(session.get(name))) for name in names}
        state = optimizer.init(params)

        def loss_of(params: Any, ids: Any, y: Any) -> Any:
            bag = jnp.tanh(params["emb/table"][ids].mean(1))
            return jnp.square((bag @ params["out/kernel"] + params["out/bias"])[:, 0] - y).mean()

        losses = []
        for ids, y in zip(*batches(), strict=True):
            places = np.clip(np.where(ids < 0, ids + ROWS, ids), 0, ROWS - 1)
            used = np.zeros((ROWS, 1), bool)
            used[places.ravel()] = True
            loss, gradient = jax.value_and_grad(loss_of)(params, places, y)
            updates, new = optimizer.update(gradient, state, params)
            changed = optax.apply_updates(params, updates)

            def kept(after: Any, before: Any, used: Any = used) -> Any:
                return jnp.where(used, after, before) if jnp.shape(after) == TABLE else after

            params, state = jax.tree.map(kept, (changed, new), (params, state))
            losses.append(float(loss))
        return losses, np.asarray(params["emb/table"])


def test_tied_weights_and_averages() -> None:
    """A tied table is also the last layer's kernel, so its gradient is dense. An average of a table
    that is not tied is computed as a whole."""
    ids, targets = batches(1)[0][0] % ROWS, np.arange(BATCH, dtype=np.int32)
    results = {}
    for tied in (True, False):
        graph = gc.Graph(seed=0)
        with graph:
            x = gc.placeholder((BATCH, 4), "int32", name="ids")
            table = gc.variable(np.full(TABLE, 0.1), name="t")
            average = gc.variable(np.zeros(TABLE), trainable=False, name="average")
            h = gc.reduce_mean(gc.take(table, x), axis=1)
            logits = gc.matmul(h, gc.transpose(table)) if tied else h
            losses = gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=targets)
            loss = gc.reduce_mean(losses)
            train = gc.minimize(loss, optax.adagrad(0.1), name="train")
            kept = average.assign(average.read() * 0.9 + table.read() * 0.1)
        for mode in ("exact", "off"):
            options = gc.CompileOptions(sparse_updates=mode, cache=None)
            session = gc.Session(graph, options=options)
            session.run([train, kept, loss], {x: ids})
            session.run([train, kept, loss], {x: ids // 2})
            results[mode] = [np.asarray(session.get(name)) for name in ("t", "average")]
            sparse = "ScatterNd" in of_tables(session.executables[-1].program)
            assert sparse == (mode == "exact" and not tied)
        for one, other in zip(results["exact"], results["off"], strict=True):
            assert_near(one, other, rtol=1e-12)


def test_a_fetched_gradient_is_there_and_the_update_the_same() -> None:
    graph = gc.Graph(seed=0)
    with graph:
        ids = gc.placeholder((BATCH, 4), "int32", name="ids")
        table = gc.variable(np.ones(TABLE, np.float32), name="t")
        loss = gc.reduce_mean(gc.square(gc.take(table, ids)))
        (gradient,) = gc.gradients(loss, [table])
        train = table.assign_add(gradient * -0.5)
    fed = {ids: batches()[0][0]}
    got, want = (
        gc.Session(graph, options=gc.CompileOptions(sparse_updates=mode, cache=None)).run(
            [gradient, train, table], fed
        )
        for mode in ("exact", "off")
    )
    for one, other in zip(got, want, strict=True):
        assert_near(one, other, rtol=1e-6, atol=1e-8)


# -- programs imported from JAX, and loops -----------------------------------------------------


def loss_in_jax(params: Any, ids: Any, y: Any) -> Any:
    return ((jnp.tanh(params["t"][ids].mean(1)) @ params["w"] - y) ** 2).mean()


def steps_in_jax(params: Any, state: Any, ids: Any, y: Any) -> Any:
    """A training loop as users write it in JAX."""

    def step(carry: Any, batch: Any) -> Any:
        params, state = carry
        loss, gradient = jax.value_and_grad(loss_in_jax)(params, *batch)
        updates, state = optax.adagrad(0.1).update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), loss

    return jax.lax.scan(step, (params, state), (ids, y))


def initial() -> dict[str, Any]:
    rng = np.random.default_rng(2)
    return {"t": rng.normal(size=TABLE).astype("f4"), "w": rng.normal(size=WIDTH).astype("f4")}


def test_a_loss_from_jax() -> None:
    graph = gc.Graph()
    with graph:
        params = {name: gc.variable(value, name=name) for name, value in initial().items()}
        ids = gc.placeholder((BATCH, 4), "int32", name="ids")
        y = gc.placeholder((BATCH,), name="y")
        loss = gc.from_jax(loss_in_jax)(params, ids, y)
        train = gc.minimize(loss, optax.adagrad(0.1), name="train")
    built = graph, [train, loss], ids, y
    exact = trained(built, "exact")
    assert of_tables(exact.program) == ["ScatterNd", "ScatterNd"]
    same(exact, trained(built, "off"), 1e-5)


def test_a_loop_of_steps_from_jax_carries_the_table() -> None:
    values = initial()
    slots = jax.tree.map(np.asarray, optax.adagrad(0.1).init(values))
    leaves, tree = jax.tree.flatten((values, slots))
    graph = gc.Graph()
    with graph:
        variables = [gc.variable(leaf, name=f"v{i}") for i, leaf in enumerate(leaves)]
        ids = gc.placeholder((STEPS, BATCH, 4), "int32", name="ids")
        y = gc.placeholder((STEPS, BATCH), name="y")
        params, state = jax.tree.unflatten(tree, variables)
        new, losses = gc.from_jax(steps_in_jax)(params, state, ids, y)
        train = gc.group(
            *(v.assign(t) for v, t in zip(variables, jax.tree.leaves(new), strict=True))
        )
    step = gc.compile(graph, [train, losses], {ids: ids.shape, y: y.shape},
                      options=gc.CompileOptions(cache=None))  # fmt: skip
    assert of_tables(step.program) == ["ScatterNd", "ScatterNd"]
    assert step.memory()["temporaries"] < ROWS * WIDTH * 4 / 4
    indices, targets = batches()
    (_, got), _ = step(step.init(), {ids: indices, y: targets})
    _, want = jax.jit(steps_in_jax)(values, slots, indices, targets.astype("f4"))
    assert_near(got, want, rtol=1e-5)


def recurrent(optimizer: Any) -> Built:
    """A recurrent network that looks up its inputs in each iteration."""
    graph = gc.Graph(seed=0)
    with graph:
        ids = gc.placeholder((None, 4), "int32", name="ids")
        y = gc.placeholder((None,), "float64", name="y")
        values = initial()
        table = gc.variable(values["t"].astype("f8"), name="t")

        def turn(h: Any, now: Any) -> Any:
            return gc.tanh(h * 0.5 + gc.take(table, now)), ()

        h, _ = gc.scan(turn, gc.zeros((BATCH, WIDTH), "float64"), gc.transpose(ids))
        loss = gc.reduce_mean(gc.square(gc.reduce_sum(h, axis=1) - y))
        train = gc.minimize(loss, optimizer, name="train")
    return graph, [train, loss], ids, y


def test_lookups_in_a_loop() -> None:
    built = recurrent(optax.adagrad(0.1))
    exact = trained(built, "exact")
    assert of_tables(exact.program) == ["ScatterNd", "ScatterNd"]
    same(exact, trained(built, "off"))


# -- options -----------------------------------------------------------------------------------


def test_options_are_checked() -> None:
    with pytest.raises(AttributeValueError, match="sparse_updates must be 'exact', 'lazy' or"):
        gc.CompileOptions(sparse_updates="some")
    with pytest.raises(AttributeValueError, match="not be 'lazy' with pipeline O1"):
        gc.CompileOptions(sparse_updates="lazy", pipeline="O1")


def test_modes_are_other_programs_in_the_cache() -> None:
    meanings = [gc.CompileOptions(sparse_updates=m).meaning() for m in ("exact", "lazy", "off")]
    assert len({tuple(sorted(meaning.items())) for meaning in meanings}) == 3


def test_the_report_names_the_pass() -> None:
    report = str(compiled(build(optax.adagrad(0.1)), "exact").pass_report())
    assert "sparse-gradients" in report


@pytest.mark.slow
def test_lazy_updates_are_saved_with_sizes_open(tmp_path: Any) -> None:
    built = build(optax.adam(0.1), dtype="float32")
    graph, (train, loss), ids, y = built
    options = gc.CompileOptions(sparse_updates="lazy", cache=None)
    session = gc.Session(graph, options=options)
    signature = gc.Signature({"ids": ids, "y": y}, {"loss": loss}, updates=[train])
    gc.save(session, str(tmp_path / "m.gcx"), signatures={"train": signature})
    model = gc.load(str(tmp_path / "m.gcx"))
    state = model.state()
    for indices, targets in zip(*batches(3), strict=True):
        fed = {"ids": indices, "y": targets.astype("f4")}
        out, state = model.signatures["train"](state, **fed)
        _, want = session.run([train, loss], fed)
        assert_near(out["loss"], want, rtol=1e-6)
    assert_near(state["emb/table"], session.get("emb/table"), rtol=1e-6)
