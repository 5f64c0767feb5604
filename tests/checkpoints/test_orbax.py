"""Orbax's format: round trips of a tree, and trees of other programs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import graphc as gc
from graphc.errors import AttributeValueError, CheckpointError, MissingExtraError
from tests.checkpoints.jobs import batches, everything, network, same

orbax: Any = pytest.importorskip("orbax.checkpoint")
pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # about sharding files and the future
    pytest.mark.slow,
]


def test_there_and_back(tmp_path: Path) -> None:
    graph, train, _ = network()
    session = gc.Session(graph)
    session.run(train, next(iter(batches())))
    gc.train.save_orbax(session, tmp_path / "a")
    gc.train.save_orbax(session, tmp_path / "a")  # replaces the old one
    other = gc.Session(graph)
    report = gc.train.restore_orbax(other, tmp_path / "a")
    assert len(report.taken) == len(graph.variables) and not report.extra
    assert same(everything(session), everything(other))


def test_dtypes(tmp_path: Path) -> None:
    graph = gc.Graph()
    with graph:
        for i, dtype in enumerate((bool, np.uint8, np.int64, ml_dtypes.bfloat16, np.complex64)):
            gc.variable(np.ones((2, 3), dtype), name=f"v{i}", trainable=False)
        gc.variable(np.int32(3), name="scalar", trainable=False)
    session, other = gc.Session(graph), gc.Session(graph)
    gc.train.save_orbax(session, tmp_path / "a")
    for name, value in other.values().items():
        other.set(name, np.zeros_like(value))
    gc.train.restore_orbax(other, tmp_path / "a")
    assert same(session.values(), other.values())


def test_a_tree_of_another_program(tmp_path: Path) -> None:
    tree = {"params": {"Dense_0": {"kernel": np.ones((3, 2), np.float32)}}, "list": [np.zeros(1)]}
    checkpointer = orbax.PyTreeCheckpointer()
    checkpointer.save(tmp_path / "flax", tree)
    checkpointer.close()
    graph = gc.Graph()
    with graph:
        gc.variable(np.zeros((3, 2), np.float32), name="dense/kernel")
    session = gc.Session(graph)
    report = gc.train.restore_orbax(
        session, tmp_path / "flax", rename={"params/Dense_0/*": "dense/*"}
    )
    assert report.taken == {"dense/kernel": "params/Dense_0/kernel"}
    assert report.extra == ("list/0",)
    assert session.values()["dense/kernel"].all()


def test_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = gc.Graph()
    with graph:
        gc.variable(np.zeros((0, 2), np.float32), name="empty")
    session = gc.Session(graph)
    with pytest.raises(CheckpointError, match="'empty', which has no elements"):
        gc.train.save_orbax(session, tmp_path / "a")
    with pytest.raises(CheckpointError, match="does not exist"):
        gc.train.restore_orbax(session, tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x").write_bytes(b"y")
    with pytest.raises(CheckpointError, match="not an Orbax checkpoint"):
        gc.train.restore_orbax(session, tmp_path / "b")
    not_a_session: Any = graph
    with pytest.raises(AttributeValueError, match="must be a session"):
        gc.train.save_orbax(not_a_session, tmp_path / "a")
    monkeypatch.setitem(sys.modules, "orbax.checkpoint", None)
    with pytest.raises(MissingExtraError, match=r"graphc\[orbax\]"):
        gc.train.save_orbax(session, tmp_path / "a")
