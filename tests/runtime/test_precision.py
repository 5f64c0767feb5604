"""Training in mixed precision: results, loops, devices, imported models and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest

import graphc as gc
from graphc.errors import AttributeValueError
from graphc.passes.precision.scale_loss import FIRST_SCALE, LOSS_SCALE
from tests.near import assert_near

RNG = np.random.default_rng(0)
X = RNG.normal(size=(32, 12, 8)).astype("f4")
Y = (X.sum((1, 2)) > 0).astype("i4")
STEPS = 10
KINDS = ("deep", "lstm", "scan", "conv", "jax")


def body(kind: str, x: Any) -> Any:
    if kind == "lstm":
        return gc.nn.LSTM(16, name="rnn")(x)[:, -1]
    if kind == "scan":
        w = gc.variable(0.5 * np.eye(8, dtype="f4"), name="w")
        steps = gc.transpose(x, (1, 0, 2))
        return gc.scan(lambda c, row: (gc.tanh(gc.matmul(c, w) + row), c), steps[0], steps)[0]
    if kind == "conv":
        h = gc.nn.BatchNorm(name="norm")(
            gc.nn.Conv1D(16, 3, name="conv", padding="same")(x), training=True
        )
        return gc.reduce_mean(gc.nn.relu(h), axis=1)
    if kind == "jax":
        k = gc.variable(np.cos(np.arange(128, dtype="f4")).reshape(8, 16), name="k")
        return gc.from_jax(lambda x, k: jax.nn.softmax(jax.numpy.tanh(x @ k)).mean(1))(x, k)
    h = gc.nn.Dense(16, name="in")(gc.reshape(x, (-1, 96)))
    for i in range(8):
        rows = gc.nn.Dense(32, activation=gc.nn.gelu, name=f"a{i}")(
            gc.nn.LayerNorm(name=f"n{i}")(h)
        )
        h = h + gc.nn.Dense(16, name=f"b{i}")(rows)
    return h


def network(kind: str) -> tuple[gc.Graph, Any, Any, list[Any]]:
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((None, 12, 8), "float32", name="x")
        y = gc.placeholder((None,), "int32", name="y")
        logits = gc.nn.Dense(2, name="out")(body(kind, x))
        losses = gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=y)
        loss = gc.reduce_mean(losses, name="loss")
        return graph, x, y, [gc.minimize(loss, optax.adam(1e-2), name="train"), loss]


def losses(kind: str, precision: str | None, *, steps: bool = False, **session: Any) -> np.ndarray:
    graph, x, y, fetches = network(kind)
    options = gc.CompileOptions(precision=precision, cache=None)
    running = gc.Session(graph, options=options, **session)
    if steps:
        feeds = {x: np.stack([X] * STEPS), y: np.stack([Y] * STEPS)}
        return np.asarray(running.run_steps(fetches, feeds, n=STEPS)[1])
    return np.array([float(running.run(fetches, {x: X, y: Y})[1]) for _ in range(STEPS)])


@pytest.mark.slow
@pytest.mark.one_jax
@pytest.mark.parametrize("kind", KINDS)
def test_it_learns_as_float32_does(kind: str) -> None:
    want = losses(kind, None)
    for precision, tolerance in (("bf16", 0.02), ("f16", 0.004)):
        got = losses(kind, precision)
        assert not np.array_equal(got, want)
        assert_near(got, want, rtol=1e-7, atol=tolerance * want.max())


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "precision"), [("deep", "bf16"), ("scan", "f16")])
def test_on_two_devices_and_in_a_loop_of_steps(kind: str, precision: str) -> None:
    want = losses(kind, precision)
    strategy = gc.devices.DataParallel(2)
    assert_near(losses(kind, precision, strategy=strategy), want, rtol=0.1, atol=5e-3)
    assert_near(losses(kind, precision, steps=True), want, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_blocks_stay_alike_and_loops_stack_narrow_values() -> None:
    graph, x, y, fetches = network("deep")
    loops = {}
    for precision in (None, "bf16"):
        options = gc.CompileOptions(precision=precision, cache=None)
        step = gc.compile(graph, fetches, {x: (32, 12, 8), y: (32,)}, options=options)
        loops[precision] = [n for n in step.program.nodes if n.op.name == "Scan"]
    assert [len(found) for found in loops.values()] == [2, 2]
    forward, _ = loops["bf16"]
    assert {t.type.dtype.itemsize for t in forward.outputs} == {2}  # CPU stacks are integers
    assert [t.type.shape for t in forward.outputs] == [t.type.shape for t in loops[None][0].outputs]


@pytest.mark.slow
def test_f16_goes_on_from_a_file(tmp_path: Path) -> None:
    graph, x, y, (train, loss) = network("scan")
    session = gc.Session(graph, options=gc.CompileOptions(precision="f16", cache=None))
    session.run(train, {x: X, y: Y})
    step = gc.Signature({"x": x, "y": y}, {"loss": loss}, updates=[train])
    gc.save(session, tmp_path / "m.gcx", signatures={"train": step}, platforms=("cpu",))
    model = gc.load(tmp_path / "m.gcx")
    state = model.state()
    for _ in range(3):
        got, state = model.signatures["train"](state, x=X, y=Y)
        want = session.run([train, loss], {x: X, y: Y})[1]
        assert_near(got["loss"], want, rtol=1e-3)
    assert float(session.get(LOSS_SCALE)) <= FIRST_SCALE


@pytest.mark.slow
def test_which_precision_is_part_of_the_cache_key() -> None:
    graph, x, y, fetches = network("scan")
    keys = {
        gc.compile(
            graph, fetches, {x: (32, 12, 8), y: (32,)},
            options=gc.CompileOptions(precision=precision, cache=None),
        ).cache_key
        for precision in (None, "bf16", "f16")
    }  # fmt: skip
    assert len(keys) == 3


def test_another_precision_is_refused() -> None:
    with pytest.raises(AttributeValueError, match="precision must be 'bf16', 'f16' or None"):
        gc.CompileOptions(precision="float16")
