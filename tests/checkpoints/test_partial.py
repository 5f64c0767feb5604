"""`gc.train.restore`: a part of a checkpoint, under other names, into another graph."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.errors import AttributeValueError, CheckpointError
from graphc.runtime.state.initial import hidden_types
from tests.checkpoints.jobs import LAYERS, batches, network, same


def graph_of(**values: Any) -> gc.Graph:
    """A graph with variables of these names (`__` for `/`) and values."""
    graph = gc.Graph()
    with graph:
        for name, value in values.items():
            gc.variable(np.asarray(value), name=name.replace("__", "/"), trainable=False)
    return graph


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    graph = graph_of(
        enc__w=np.float32([1, 2]), enc__b=np.float32(3), head__w=np.float32([4]), n=np.int32(5)
    )
    gc.save(gc.Session(graph), tmp_path)
    return tmp_path


def fresh(**values: Any) -> gc.Session:
    return gc.Session(graph_of(**values))


Z, Z2 = np.float32(0), np.float32([0, 0])


@pytest.mark.parametrize("path", [None, 3, b"folder"], ids=repr)
def test_what_is_no_path(path: Any) -> None:
    with pytest.raises(AttributeValueError, match="path must be the path of a folder, got"):
        gc.train.restore(fresh(n=0), path)
    with pytest.raises(AttributeValueError, match="path must be the path of a folder, got"):
        gc.train.restore_orbax(fresh(n=0), path)


@pytest.mark.parametrize(
    ("include", "taken"),
    [
        ("enc/w", ["enc/w"]),
        ("enc/*", ["enc/w", "enc/b"]),
        (["enc/b", "n"], ["enc/b", "n"]),
        (re.compile(r"/w$"), ["enc/w", "head/w"]),
        ([re.compile("head"), "n"], ["head/w", "n"]),
    ],
    ids=["name", "pattern", "names", "expression", "both"],
)
def test_what_is_included(saved: Path, include: Any, taken: list[str]) -> None:
    session = fresh(enc__w=Z2, enc__b=Z, head__w=Z[None], n=np.int32(0))
    report = gc.train.restore(session, saved, include=include)
    assert list(report.taken) == taken
    assert {n for n, v in session.values().items() if np.any(v)} == set(taken)
    assert set(report.unselected) | set(taken) == set(session.graph.variables)
    assert set(report.extra) == {"enc/w", "enc/b", "head/w", "n"} - set(taken)


def test_a_variable_is_a_pattern(saved: Path) -> None:
    graph = gc.Graph()
    with graph:
        w = gc.variable(Z2, name="enc/w")
        gc.variable(Z, name="enc/b")
    session = gc.Session(graph)
    assert list(gc.train.restore(session, saved, include=w).taken) == ["enc/w"]
    assert list(gc.train.restore(session, saved, exclude=[w]).taken) == ["enc/b"]


def test_renaming(saved: Path) -> None:
    session = fresh(body__w=Z2, body__b=Z, count=np.int32(0))
    report = gc.train.restore(session, saved, rename={"enc/*": "body/*", "n": "count"})
    assert report.taken == {"body/w": "enc/w", "body/b": "enc/b", "count": "n"}
    assert report.extra == ("head/w",)
    assert session.values()["body/w"].tolist() == [1, 2]
    other = fresh(W=Z2)
    gc.train.restore(other, saved, rename=lambda name: "W" if name == "enc/w" else name)
    assert other.values()["W"].tolist() == [1, 2]


def test_the_report_of_what_does_not_fit(saved: Path) -> None:
    session = fresh(enc__w=np.zeros(3, np.float32), enc__b=np.int32(9), n=np.int64(7), new=Z)
    before = session.values()
    with pytest.raises(CheckpointError) as error:
        gc.train.restore(session, saved)
    text = str(error.value)
    assert "'new' is not in the checkpoint" in text
    assert "'enc/w': expected shape (3,), the checkpoint has (2,)" in text
    assert "'enc/b': expected i32, the checkpoint has f32" in text
    assert "test_partial.py" in text
    assert all(np.array_equal(before[n], v) for n, v in session.values().items())

    report = gc.train.restore(session, saved, strict=False)
    assert list(report.taken) == ["n"] and report.cast == ("n",)
    assert set(report.mismatched) == {"enc/w", "enc/b"} and report.missing == ("new",)
    assert report.extra == ("head/w",)
    lines = str(report).splitlines()
    assert lines[0] == "took 1 of 4 variables" and len(lines) == 5
    assert session.values()["n"] == 5


def test_what_has_another_shape_is_not_called_extra(tmp_path: Path) -> None:
    with gc.train.Checkpointer(tmp_path) as saver:
        saver.save(fresh(w=Z, gone=Z), 1)
        with pytest.raises(CheckpointError) as error:
            saver.restore(fresh(w=Z2))
    text = str(error.value)
    assert "'w': expected shape" in text and "'w' is only in the checkpoint" not in text
    assert "'gone' is only in the checkpoint" in text


def test_values_are_cast_within_a_kind(saved: Path) -> None:
    session = fresh(enc__w=np.zeros(2, np.float16))
    assert gc.train.restore(session, saved).cast == ("enc/w",)
    assert session.values()["enc/w"].dtype == np.float16


def test_nearest_names_are_shown(saved: Path) -> None:
    with pytest.raises(CheckpointError, match=r"'enc/ww' is not in the checkpoint; did you mean"):
        gc.train.restore(fresh(enc__ww=Z2), saved)


@pytest.mark.parametrize("rename", [{"*/average": "*"}, lambda name: name.removesuffix("/average")])
def test_a_name_that_is_given_wins_over_one_that_stays(tmp_path: Path, rename: Any) -> None:
    with gc.Graph() as graph:
        a, b = (gc.variable(v, name=n) for n, v in (("a", 1.0), ("b", 2.0)))
        averages = gc.train.moving_averages([a, b], decay=0.5)
        changed = gc.group(a.assign(3.0), b.assign(4.0))
    session = gc.Session(graph)
    session.run(changed)
    session.run(averages.update)
    gc.save(session, tmp_path)
    served = fresh(a=Z, b=Z)
    report = gc.train.restore(served, tmp_path, rename=rename)
    assert served.values() == {"a": 2.0, "b": 3.0}
    assert set(report.extra) >= {"a", "b"}


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"include": "nothing*"}, "matches no variable"),
        ({"include": 3}, "include must be"),
        ({"exclude": [3]}, "exclude must be"),
        ({"rename": {"nothing": "a"}}, "matches no name in the checkpoint"),
        ({"rename": {"enc/*": "body"}}, "one \\* each"),
        ({"rename": {"a": 3}}, "no pair of names"),
        ({"rename": {"enc/w": "c", "enc/b": "c"}}, "'enc/w' and 'enc/b' the same name 'c'"),
        ({"rename": 3}, "a dict or a function"),
        ({"rename": lambda name: 3 if name == "n" else name}, "must return a name, got 3 for 'n'"),
    ],
    ids=["include", "int", "exclude", "rename", "star", "value", "twice", "kind", "result"],
)
def test_wrong_selections(saved: Path, arguments: Any, what: str) -> None:
    with pytest.raises(AttributeValueError, match=what):
        gc.train.restore(fresh(enc__w=Z2, n=np.int32(0)), saved, **arguments)


def test_paths(saved: Path, tmp_path: Path) -> None:
    session = fresh(n=np.int32(0))
    (one,) = saved.glob("step-*")
    gc.train.restore(session, one)
    assert session.values()["n"] == 5
    gc.train.restore(session, str(saved))
    with pytest.raises(CheckpointError, match="does not exist"):
        gc.train.restore(session, tmp_path / "no")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match="has no checkpoint"):
        gc.train.restore(session, tmp_path / "empty")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(CheckpointError, match="is a file"):
        gc.train.restore(session, tmp_path / "file")


def test_random_state_is_taken_only_with_everything(tmp_path: Path) -> None:
    graph, train, _ = network()
    session, stream = gc.Session(graph), iter(batches())
    session.run(train, next(stream))
    gc.save(session, tmp_path)
    hidden = session.values(list(hidden_types()))
    whole, part = gc.Session(graph), gc.Session(graph)
    gc.train.restore(whole, tmp_path)
    gc.train.restore(part, tmp_path, include="layer_0/*")
    assert hidden["__random__/counter"] == 1
    assert same(whole.values(list(hidden_types())), hidden)
    assert part.values(["__random__/counter"])["__random__/counter"] == 0


def test_a_model_without_its_optimizer(tmp_path: Path) -> None:
    graph, train, _ = network()
    session = gc.Session(graph)
    session.run(train, next(iter(batches())))
    gc.save(session, tmp_path)
    model = gc.Graph()
    with model:
        for i in range(LAYERS):
            gc.variable(np.zeros((8, 8), np.float32), name=f"layer_{i}/w")
    report = gc.train.restore(gc.Session(model), tmp_path)
    assert len(report.taken) == LAYERS and len(report.extra) > 12
