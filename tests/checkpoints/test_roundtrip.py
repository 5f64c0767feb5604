"""The contents of a checkpoint: every dtype, hidden state, the user's tree and names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import optax
import pytest
from safetensors.numpy import load_file

import graphc as gc
from graphc.checkpoints import tree
from graphc.errors import AttributeValueError, StateError
from graphc.ir.dtypes import BY_SHORT
from tests.checkpoints.jobs import batches, everything, network, same

VALUES = np.array([0, 1, 2, 3, 1, 0])


@pytest.mark.parametrize("short", sorted(BY_SHORT))
@pytest.mark.parametrize("shape", [(), (6,), (2, 3), (0, 4)], ids=str)
def test_every_dtype_and_shape(short: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    dtype = BY_SHORT[short]
    if dtype == np.bool_ or not shape:
        value = VALUES[: int(np.prod(shape))].reshape(shape).astype(dtype)
    else:
        value = VALUES[: int(np.prod(shape))].astype(np.float32).reshape(shape).astype(dtype)
    graph = gc.Graph()
    with graph:
        gc.variable(np.zeros(shape, dtype), name="v", trainable=False)
    session, other = gc.Session(graph), gc.Session(graph)
    session.set("v", value)
    with gc.train.Checkpointer(tmp_path) as saver:
        saver.save(session, 1)
        restored = saver.restore(other)
    assert restored is not None and restored.step == 1
    got = other.values()["v"]
    assert (got.dtype, got.shape, got.tobytes()) == (dtype, shape, value.tobytes())


def test_bits_that_are_no_numbers(tmp_path: Path) -> None:
    """NaNs with a payload, negative zero, denormals, infinities."""
    bits = np.array([0x7FC01234, 0x80000000, 1, 0x7F800000, 0xFF800000, 0xFFC00001], np.uint32)
    graph = gc.Graph()
    with graph:
        gc.variable(bits.view(np.float32), name="v")
    session = gc.Session(graph)
    gc.save(session, tmp_path)
    session.set("v", np.zeros(6, np.float32))
    gc.train.restore(session, tmp_path)
    assert session.values()["v"].view(np.uint32).tolist() == bits.tolist()


@pytest.mark.parametrize("name", ["a/b/c", "täg/ñ", "x.y", '"quoted"'])
def test_odd_names(name: str, tmp_path: Path) -> None:
    graph = gc.Graph()
    with graph:
        gc.variable(3.0, name=name)
    session = gc.Session(graph)
    gc.save(session, tmp_path)
    session.set(name, 0.0)
    assert list(gc.train.restore(session, tmp_path).taken) == [name]
    assert session.get(name) == 3.0


def test_a_typed_key_is_continued(tmp_path: Path) -> None:
    graph = gc.Graph()
    with graph:
        gc.variable(jax.random.key(9), name="key")
    session, other = gc.Session(graph), gc.Session(graph)
    before = session.values()["key"]
    gc.save(session, tmp_path)
    other.set("key", np.zeros_like(before))
    gc.train.restore(other, tmp_path)
    assert same(other.values(), session.values())


def test_training_continues_bitwise(tmp_path: Path) -> None:
    """The random state of dropout continues, and so does the position of the data."""
    graph, train, loss = network()
    straight, stream = gc.Session(graph), iter(batches())
    losses = [straight.run([train, loss], next(stream))[1] for _ in range(9)]

    first, stream = gc.Session(graph), iter(batches())
    for _ in range(4):
        first.run([train, loss], next(stream))
    with gc.train.Checkpointer(tmp_path) as saver:
        saver.save(first, 4, extra={"data": stream.state()})
    second, stream = gc.Session(graph), iter(batches())
    restored = gc.train.Checkpointer(tmp_path).restore(second)
    assert restored is not None
    stream.restore(restored.extra["data"])
    again = [second.run([train, loss], next(stream))[1] for _ in range(5)]
    assert np.array_equal(np.array(losses[4:]), np.array(again))
    assert same(everything(straight), everything(second))


def test_the_scale_of_the_loss_is_continued(tmp_path: Path) -> None:
    graph = gc.Graph()
    with graph:
        w = gc.variable(np.ones(4, np.float32), name="w")
        train = gc.minimize(gc.reduce_sum(w * np.float32(np.inf)), optax.sgd(0.1))
    options = gc.CompileOptions(precision="f16")
    session, other = gc.Session(graph, options=options), gc.Session(graph, options=options)
    fresh = everything(session)
    session.run(train)
    assert not same(everything(session), fresh)  # the step was skipped and the scale halved
    gc.save(session, tmp_path)
    gc.train.restore(other, tmp_path)
    assert same(everything(session), everything(other))


def test_the_files_are_safetensors_with_the_users_names(tmp_path: Path) -> None:
    graph = gc.Graph()
    with graph:
        gc.variable(np.arange(6, dtype=np.float32).reshape(2, 3), name="block/w")
        gc.variable(np.ones(2, ml_dtypes.float8_e4m3fnuz), name="odd", trainable=False)
    gc.save(gc.Session(graph), tmp_path)
    (folder,) = tmp_path.glob("step-*")
    stored = load_file(folder / "values-00000.safetensors")
    assert stored["block/w"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert stored["odd"].dtype == np.uint8
    manifest = json.loads((folder / "manifest.json").read_text())["checkpoint"]
    assert [row["name"] for row in manifest["variables"]] == ["block/w", "odd"]
    assert manifest["variables"][1]["dtype"] == "f8e4m3fnuz"


def test_a_later_step_does_not_change_what_is_being_written(tmp_path: Path) -> None:
    graph = gc.Graph()
    with graph:
        count = gc.variable(np.zeros(1 << 20, np.float32), name="count")
        add = count.assign_add(np.ones(1, np.float32))
    session = gc.Session(graph)
    with gc.train.Checkpointer(tmp_path, keep=10) as saver:
        for step in range(1, 6):
            session.run(add)
            saver.save(session, step)
            session.run_steps(add, None, 3)
        for step in saver.steps():
            saver.restore(session, step)
            assert set(session.values()["count"].tolist()) == {1 + (step - 1) * 4}


# -- the user's tree ----------------------------------------------------------------------------

TREE = {
    "epoch": 3,
    "big": 1 << 127,
    "rate": 0.1,
    "odd": [float("inf"), float("-inf"), -0.0, 1e-310],
    "none": None,
    "flags": [True, False],
    "text": "ü\n\u2028\"'\ud800",
    "$array": 7,
    "$$": {"$array": 0},
    "": {},
    "empty": [],
    "array": np.arange(6, dtype=np.int64).reshape(2, 3),
    "scalar": np.float16(1.5),
    "nest": [{"a": np.zeros((0, 3), np.uint8)}, [np.array([True, False])]],
}


def test_the_users_tree_comes_back(tmp_path: Path) -> None:
    session = gc.Session(gc.Graph())
    with gc.train.Checkpointer(tmp_path) as saver:
        saver.save(session, 1, extra=TREE, metrics={"loss": np.float32(0.5)})
        restored = saver.restore(session)
    assert restored is not None
    assert restored.metrics == {"loss": 0.5}
    assert repr(restored.extra).replace("array(1.5, dtype=float16)", "np.float16(1.5)") == repr(
        TREE
    )


def test_an_array_of_the_tree_may_change_at_once(tmp_path: Path) -> None:
    session, array = gc.Session(gc.Graph()), np.zeros(1 << 22)
    with gc.train.Checkpointer(tmp_path) as saver:
        saver.save(session, 1, extra=[array])
        array[:] = 1
        restored = saver.restore(session)
    assert restored is not None and not restored.extra[0].any()


@pytest.mark.parametrize(
    ("bad", "what"),
    [
        (object(), r"extra is of type object"),
        ({"a": [1, {2}]}, r"extra\['a'\]\[1\] is of type set"),
        ({1: 2}, "the key 1 is not a str"),
        (np.array(["a"]), "array of <U1"),
        (np.array([None]), "array of object"),
        (jax.random.key(0), "key_data"),
        (b"bytes", "of type bytes"),
    ],
    ids=["object", "set", "key", "str array", "object array", "typed key", "bytes"],
)
def test_what_cannot_be_stored_is_refused_at_once(bad: Any, what: str, tmp_path: Path) -> None:
    session = gc.Session(gc.Graph())
    with gc.train.Checkpointer(tmp_path / "f") as saver:
        with pytest.raises(AttributeValueError, match=what):
            saver.save(session, 1, extra=bad)
        assert not (tmp_path / "f").exists()


def test_a_tree_that_holds_itself_is_refused() -> None:
    nest: list[Any] = []
    nest.append(nest)
    with pytest.raises(AttributeValueError, match="levels deep"):
        tree.encode(nest, "extra")


def test_a_closed_session_is_refused(tmp_path: Path) -> None:
    session = gc.Session(gc.Graph())
    session.close()
    with gc.train.Checkpointer(tmp_path) as saver, pytest.raises(StateError, match="closed"):
        saver.save(session, 1)
