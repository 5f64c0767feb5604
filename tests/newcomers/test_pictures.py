"""Displayed output: reprs, pictures, curves and progress."""

import io
import re
import sys
import xml.etree.ElementTree as ET

import numpy as np
import optax
import pytest

import graphc as gc
from graphc.errors import AttributeValueError, GraphcError, UnknownNameError
from graphc.ir.types import parse_type

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def network():
    with gc.Graph(name="net") as graph:
        x = gc.placeholder((None, 4), name="x")
        h = gc.nn.Dense(3, activation="relu", name="hidden")(x)
        y = gc.nn.Dense(2, name="out")(h)
        gc.reduce_sum(y, name="total")
    return graph


def boxes(picture):
    """Title -> the text below it."""
    root = ET.fromstring(picture.svg)
    return dict([t.text for t in g.findall(f"{SVG}text")] for g in root.findall(f"{SVG}g"))


def arrows(picture):
    root = ET.fromstring(picture.svg)
    return [path.find(f"{SVG}title").text for path in root.findall(f"{SVG}path")]


def test_scopes_are_one_box(network):
    shown = boxes(network.show())
    assert list(shown) == ["x", "hidden", "out", "total"]
    assert shown["x"] == "f32[x_0, 4]" and shown["total"] == "f32[]"
    inside = sum(node.name.startswith("hidden/") for node in network.nodes)
    assert shown["hidden"] == f"{inside} nodes"
    assert arrows(network.show()) == [
        "x to hidden/: f32[x_0, 4]", "hidden/ to out/: f32[x_0, 3]", "out/ to total: f32[x_0, 2]"
    ]  # fmt: skip


def test_depth_opens_scopes(network):
    assert len(boxes(network.show(1))) == len(network.nodes)
    with pytest.raises(AttributeValueError, match="depth must be an int of at least 0, got -1"):
        network.show(-1)


def test_producers_stand_above(network):
    root = ET.fromstring(network.show().svg)
    tops = [float(r.get("y")) for r in root.iter(f"{SVG}rect")]
    assert tops == sorted(tops) and len(set(tops)) == 4


def test_scopes_in_a_circle_are_drawn():
    with gc.Graph() as graph:
        with gc.name_scope("a") as scope:
            x = gc.constant(1.0, name="x")
        y = gc.tanh(x, name="y")
        with gc.name_scope(scope):
            gc.exp(y, name="z")
    names = [node.name for node in graph.nodes]
    assert names == ["a/x", "y", "a/z"]
    picture = graph.show()
    assert list(boxes(picture)) == ["a", "y"] and len(arrows(picture)) == 2
    assert picture.svg.count("stroke-dasharray") == 1  # the edge back


def test_large_graphs_say_what_is_left_out():
    with gc.Graph() as graph:
        for i in range(310):
            gc.constant(float(i), name=f"c{i}")
    assert "10 more boxes are not shown" in graph.show().svg


def test_the_picture_is_written_and_shown_in_notebooks(network, tmp_path):
    network.show(path=tmp_path / "net.svg")
    picture = network.show(path=tmp_path / "net.html")
    assert (tmp_path / "net.svg").read_text() == picture.svg
    assert picture.svg in (tmp_path / "net.html").read_text()
    assert re.match('<iframe srcdoc="&lt;!DOCTYPE html&gt;', network._repr_html_())
    assert repr(picture).startswith("<Picture of net:")


def test_a_step_hangs_on_what_it_runs(tmp_path):
    with gc.Graph() as graph:
        v = gc.variable(1.0, name="v")
        bump = v.assign_add(1.0)
        gc.group(bump, name="step")
    assert f"{bump.node.name} to step: runs before it" in arrows(graph.show(1))


@pytest.mark.parametrize(
    ("name", "error", "match"),
    [
        ("net.png", AttributeValueError, "a picture of a graph is .svg or .html, got"),
        ("missing/net.svg", GraphcError, "cannot write .*No such file"),
    ],
)
def test_files_that_cannot_be_written(network, tmp_path, name, error, match):
    with pytest.raises(error, match=match) as caught:
        network.show(path=tmp_path / name)
    assert "test_pictures.py" in str(caught.value) and not list(tmp_path.iterdir())


def test_names_cannot_break_the_page():
    with gc.Graph(name="<script>alert(1)</script>") as graph:
        gc.constant(np.zeros(3, "f"))
    assert "<script>alert" not in graph.show().html()


def test_sizes_without_a_name():
    with gc.Graph():
        x = gc.placeholder((None, 4))
        y = gc.placeholder((None, None))
        named = gc.placeholder((None, 4), name="rows")
        assert repr(x) == "<Tensor Placeholder:0 f32[?, 4]>"
        assert repr(y) == "<Tensor Placeholder_2:0 f32[?, ?]>"
        assert repr(named) == "<Tensor rows:0 f32[rows_0, 4]>"
        with pytest.raises(gc.errors.ShapeError) as caught:
            gc.matmul(x, np.ones((3, 3), "f"))
        assert "float32[?, 4]" in str(caught.value)
        assert parse_type(str(x.type)) == x.type


def job():
    with gc.Graph(seed=0) as graph:
        x = gc.placeholder((2,), name="x")
        w = gc.variable(np.ones(2, "f"), name="w")
        loss = gc.reduce_sum((w * x) ** 2)
        train = gc.minimize(loss, optax.sgd(0.1))
    batches = [{"x": np.ones(2, "f")}] * 5
    return gc.train.Job(graph, train, batches, steps=5, metrics={"loss": loss})


def test_history_shows_its_figures_and_curves(tmp_path):
    made = job()
    history = gc.train.fit(gc.Session(made.graph), made, progress=False)
    first, last = history.metrics["loss"][[0, -1]]
    assert repr(history).startswith(f"<History: 5 steps, loss {first:.4g} to {last:.4g}, ")
    figure = history.plot()
    (line,) = figure.axes[0].lines
    assert line.get_label() == "loss" and list(line.get_xdata()) == [1, 2, 3, 4, 5]
    np.testing.assert_array_equal(line.get_ydata(), history.metrics["loss"])
    figure.savefig(tmp_path / "history.png")
    assert figure._repr_png_().startswith(b"\x89PNG")  # the image in a notebook
    with pytest.raises(UnknownNameError, match="no metric 'los'; it has loss") as caught:
        history.plot("los")
    assert "did you mean 'loss'?" in str(caught.value)


def test_plot_names_the_extra(monkeypatch):
    made = job()
    history = gc.train.fit(gc.Session(made.graph), made, progress=False)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(gc.errors.GraphcError, match="needs Matplotlib, which is not installed"):
        history.plot()


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_for_terminals(monkeypatch, terminal):
    class Stream(io.StringIO):
        def isatty(self):
            return terminal

    made, stream = job(), Stream()
    monkeypatch.setattr(sys, "stderr", stream)
    gc.train.fit(gc.Session(made.graph), made)
    assert ("5/5" in stream.getvalue()) is terminal
