"""Wrong uses of `gc.report`: one clear error, and no file or the old file remains."""

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc
from tests.reports.models import mlp
from tests.reports.page_data import numbers, read


@pytest.mark.parametrize("target", [None, 3, "graph", []], ids=["none", "int", "str", "list"])
def test_wrong_targets(target: Any, tmp_path: Path) -> None:
    with pytest.raises(gc.errors.AttributeValueError, match="a graph, a session or an executable"):
        gc.report(target, tmp_path / "r.html")
    assert not list(tmp_path.iterdir())


def test_arguments_that_do_not_apply(tmp_path: Path) -> None:
    model, path = mlp(16, 8), tmp_path / "r.html"
    step = gc.compile(model.graph, model.fetches, {"x": (8, 16)})
    error = gc.errors.AttributeValueError
    with pytest.raises(error, match="feeds were given without fetches"):
        gc.report(model.graph, path, feeds={"x": (8, 16)})
    with pytest.raises(error, match="strategy was given without fetches"):
        gc.report(model.graph, path, strategy=gc.devices.DataParallel(2))
    with pytest.raises(error, match="options was given without fetches"):
        gc.report(model.graph, path, options=gc.CompileOptions())
    with pytest.raises(error, match="has its fetches already"):
        gc.report(step, path, model.fetches)
    with pytest.raises(error, match="are for a graph"):
        gc.report(step, path, options=gc.CompileOptions())
    with pytest.raises(gc.errors.FeedError, match="'x'"):
        gc.report(model.graph, path, model.fetches)
    with pytest.raises(gc.errors.UnknownNameError):
        gc.report(model.graph, path, "no such name", {"x": (8, 16)})
    assert not list(tmp_path.iterdir())


def test_wrong_paths(tmp_path: Path) -> None:
    graph = mlp(16, 8).graph
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "none" / "r.html", tmp_path, tmp_path / "file" / "r.html", "a\0b"):
        with pytest.raises(gc.errors.GraphcError, match="cannot write"):
            gc.report(graph, path)
    with pytest.raises(gc.errors.AttributeValueError, match="got int"):
        gc.report(graph, 3)  # type: ignore[arg-type]
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_link_stays_and_a_pipe_is_refused(tmp_path: Path) -> None:
    graph = mlp(16, 8).graph
    (tmp_path / "link.html").symlink_to(tmp_path / "real.html")
    gc.report(graph, tmp_path / "link.html")
    gc.report(graph, tmp_path / "link.html")  # over the first one
    assert (tmp_path / "link.html").is_symlink() and read(tmp_path / "real.html")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(gc.errors.GraphcError, match="not a regular file"):
        gc.report(graph, tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.html", "pipe", "real.html"]


def test_full_disk_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.html"
    path.write_text("old")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for name in ("replace", "chmod", "fdopen"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, full)
            with pytest.raises(gc.errors.GraphcError, match="No space left"):
                gc.report(mlp(16, 8).graph, path)
        assert path.read_text() == "old" and len(list(tmp_path.iterdir())) == 1


def test_function_of_jit_and_artifact(tmp_path: Path) -> None:
    function = gc.jit(lambda x: x @ x.T)
    with pytest.raises(gc.errors.AttributeValueError, match="give its executable"):
        gc.report(function, tmp_path / "r.html")  # type: ignore[arg-type]
    function(np.ones((4, 3), "float32"))
    gc.report(function.executable, tmp_path / "r.html")
    data = read(tmp_path / "r.html")
    assert len(numbers(data["programs"][0])) >= 1
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((2,), name="x")
        y = gc.exp(x)
    signatures = {"f": gc.Signature({"x": x}, {"y": y})}
    gc.save(gc.Session(graph), tmp_path / "m.gcx", signatures=signatures)
    model = gc.load(tmp_path / "m.gcx")
    for artifact in (model, model.signatures["f"]):
        with pytest.raises(gc.errors.AttributeValueError, match="an artifact keeps no passes"):
            gc.report(artifact, tmp_path / "x.html")  # type: ignore[arg-type]
    assert not (tmp_path / "x.html").exists()
