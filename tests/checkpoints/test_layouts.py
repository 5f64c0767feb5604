"""A checkpoint opens on any number of devices, with any strategy and options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import graphc as gc
from graphc.devices import AsyncDataParallel, DataParallel, Mesh
from graphc.runtime.buffers.layout import STACKED
from tests.checkpoints.jobs import batches, everything, network, same

FORMS: dict[str, dict[str, Any]] = {
    "one device": {},
    "as written": {"options": gc.CompileOptions(pipeline="O0")},
    "four devices": {"strategy": DataParallel(4)},
    "optimizer in pieces": {"strategy": DataParallel(4, shard_optimizer=True)},
    "parameters in pieces": {"strategy": DataParallel(4, shard_parameters=True)},
    "mesh": {"strategy": Mesh({"data": 2, "model": 2})},
    "server": {"strategy": AsyncDataParallel(2)},
}


def trained(form: str, steps: int = 2) -> gc.Session:
    graph, train, _ = network()
    session, stream = gc.Session(graph, **FORMS[form]), iter(batches())
    for _ in range(steps):
        session.run(train, next(stream))
    return session


@pytest.mark.slow
def test_pieces_on_four_devices_open_on_one(tmp_path: Path) -> None:
    session, other = trained("optimizer in pieces", 1), trained("one device", 1)
    gc.save(session, tmp_path)
    gc.train.restore(other, tmp_path)
    assert same(everything(other), everything(session))


@pytest.mark.slow
@pytest.mark.parametrize("writer", FORMS)
def test_every_form_opens_it(writer: str, tmp_path: Path) -> None:
    session = trained(writer)
    with gc.train.Checkpointer(tmp_path) as saver:
        saver.save(session, 2)
    expected = everything(session)
    for reader in FORMS:
        other = trained(reader, steps=1)  # its state has the layout of its steps
        gc.train.Checkpointer(tmp_path).restore(other)
        assert same(everything(other), expected), reader


def test_the_plain_form_stacks_layers_in_one_buffer() -> None:
    """Otherwise these tests could not check that packed state is stored by name."""
    layout = trained("one device")._live().layout
    assert any(b.kind == STACKED and len(b.members) >= 5 for b in layout.buffers)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_each_form_continues_bitwise(form: str, tmp_path: Path) -> None:
    graph, train, _ = network()
    straight, stream = gc.Session(graph, **FORMS[form]), iter(batches())
    for _ in range(5):
        straight.run(train, next(stream))

    first, stream = gc.Session(graph, **FORMS[form]), iter(batches())
    for _ in range(2):
        first.run(train, next(stream))
    with gc.train.Checkpointer(tmp_path) as saver:
        saver.save(first, 2, extra=stream.state())
    second, stream = gc.Session(graph, **FORMS[form]), iter(batches())
    restored = gc.train.Checkpointer(tmp_path).restore(second)
    assert restored is not None
    stream.restore(restored.extra)
    for _ in range(3):
        second.run(train, next(stream))
    assert same(everything(straight), everything(second))


def test_a_graph_that_is_still_being_built(tmp_path: Path) -> None:
    graph = gc.Graph()
    with graph:
        gc.variable(1.0, name="a")
    session = gc.Session(graph)
    session.set("a", 5.0)
    gc.save(session, tmp_path)
    with graph:
        gc.variable(2.0, name="b")
    report = gc.train.restore(session, tmp_path, strict=False)
    assert report.missing == ("b",)
    assert session.values() == {"a": 5.0, "b": 2.0}
