"""Pickle, `copy.copy` and `copy.deepcopy` work, or an error says what to do instead."""

import copy
import inspect
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc import errors
from graphc.errors import CopyError, GraphcError, MemoryLimitError
from graphc.ir.source import Source

WAYS: list[Callable[[Any], Any]] = [
    lambda value: pickle.loads(pickle.dumps(value)),
    lambda value: pickle.loads(pickle.dumps(value, protocol=0)),
    copy.copy,
    copy.deepcopy,
]


def model() -> tuple[gc.Graph, gc.Tensor, gc.Tensor]:
    graph = gc.Graph(seed=3, name="model")
    with graph:
        x = gc.placeholder((None, 3), "float32", name="x")
        y = gc.nn.Dense(4, name="dense")(x)
        z = gc.cond(gc.reduce_sum(y) > 0, lambda: y * 2.0, lambda: y) + gc.random.normal(())
        gc.add_to_collection("results", z)
    return graph, x, z


@pytest.mark.parametrize("way", WAYS)
def test_graphs_are_copied_whole(way: Callable[[Any], Any]) -> None:
    graph, x, z = model()
    session = gc.Session(graph)
    value = np.ones((2, 3), np.float32)
    expected = session.run(z, {x: value})
    other = way(graph)
    assert other is not graph
    assert not other.finalized
    (result,) = other.collection("results")
    got = gc.Session(other).run(result, {"x": value})
    np.testing.assert_array_equal(got, expected)
    assert str(other.tensor("x").type) == str(x.type)
    assert other.variables.keys() == graph.variables.keys()


def test_a_graph_that_cannot_be_written_says_why() -> None:
    graph = gc.Graph()
    with graph:
        gc.variable(lambda rng, shape, dtype: np.zeros(shape, dtype), shape=(2,), name="v")
    for way in WAYS:
        with pytest.raises(CopyError, match=r"(?s)graph 'graph' cannot be pickled or copied.*'v'"):
            way(graph)


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    graph, x, z = model()
    session = gc.Session(graph)
    path: Path = tmp_path_factory.mktemp("copies") / "m.gcx"
    gc.save(session, path, signatures={"f": gc.Signature({"x": x}, {"z": z})})
    loaded = gc.load(path)
    step = gc.compile(graph, z, {x: (2, 3)})
    layer = gc.nn.Dense(2)
    with graph.extend():
        layer(x)
    return {
        "Tensor": x,
        "Node": z.node,
        "Variable": graph.variables["dense/kernel"],
        "Program": step.program,
        "Session": session,
        "Executable": step,
        "State": step.init(),
        "LiveState": session._state,
        "Model": loaded,
        "EntryPoint": loaded.signatures["f"],
        "ModelState": loaded.state(),
        "Prefetch": gc.data.prefetch([{x: np.ones((1, 3))}]),
        "Signature": gc.Signature({"x": x}, {"z": z}),
        "Dense": layer,
    }


NAMES = [
    "Tensor",
    "Node",
    "Variable",
    "Program",
    "Session",
    "Executable",
    "State",
    "LiveState",
    "Model",
    "EntryPoint",
    "ModelState",
    "Prefetch",
]


@pytest.mark.parametrize("name", NAMES)
def test_what_cannot_be_copied_says_what_to_do(name: str, objects: dict[str, Any]) -> None:
    for way in WAYS:
        for value in (objects[name], [objects[name]]):
            if way is copy.copy and type(value) is list:
                continue  # shares its items, as it should
            with pytest.raises(
                CopyError, match=rf"^{name} .*cannot be pickled or copied"
            ) as caught:
                way(value)
            assert caught.value.hint
            assert isinstance(caught.value, TypeError)  # as pickle itself raises


def test_what_holds_such_things_says_so_too(objects: dict[str, Any]) -> None:
    for name in ("Signature", "Dense"):
        for way in (pickle.dumps, copy.deepcopy):
            with pytest.raises(CopyError, match="send the graph"):
                way(objects[name])
    # A layer without a call has no variables yet, so its copy makes separate ones.
    fresh = copy.deepcopy(gc.nn.Dense(2))
    assert not fresh.built


@pytest.mark.parametrize("way", WAYS)
def test_records_are_copied(way: Callable[[Any], Any]) -> None:
    for value in (
        gc.CompileOptions(),
        gc.CompileOptions(
            pipeline="O1",
            xla_options={"xla_cpu_enable_fast_math": True},
            cache=None,
            without_passes=("roll-repeats",),
            memory_limit="1GiB",
            precision="bf16",
        ),
        gc.devices.DataParallel(2),
        gc.devices.Mesh({"data": 2}),
        gc.devices.AsyncDataParallel(2, staleness=1),
        gc.TensorSpec((None, 3), "float32", "x"),
        gc.nn.initializers.GlorotUniform(gain=2.0),
    ):
        assert way(value) == value
        assert repr(way(value)) == repr(value)


# -- errors ----------------------------------------------------------------------------------

CLASSES = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, GraphcError) and kind.__module__ == errors.__name__
]


def example(kind: type[GraphcError]) -> GraphcError:
    """An error with all arguments of its class."""
    given: dict[str, Any] = {
        "details": ["first", "second"],
        "source": Source("train.py", 3, "x = f()"),
        "hint": "do it right",
    }
    if kind is MemoryLimitError:
        del given["source"]
        given["least"] = 123
    error = kind("what went wrong", **given)
    error.add_note("a note")
    return error


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_survives_pickling(kind: type[GraphcError]) -> None:
    error = example(kind)
    for way in WAYS:
        got = way(error)
        assert type(got) is kind
        assert str(got) == str(error)
        assert got.args == error.args
        assert vars(got) == vars(error)
        assert "details" in vars(got)
