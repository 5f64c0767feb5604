"""Graphs and programs as GraphDefs."""

import re
from typing import Any

import numpy as np
import optax
import pytest
from hypothesis import given, settings

import graphc as gc
from graphc.ir.program import Program
from graphc.train.tensorboard.graph_def import graph_def
from graphc.train.tensorboard.node_names import UniqueNames, readable, within
from graphc.train.tensorboard.run_metadata import run_metadata
from tests.passes.generate_bodies import with_bodies
from tests.passes.generate_repeated import repeated


def check(target: Any) -> dict[str, Any]:
    """The nodes of a definition by name; checks that names are readable and inputs exist."""
    definition = graph_def(target).definition
    nodes = {node.name: node for node in definition.node}
    assert len(nodes) == len(definition.node)
    for node in definition.node:
        assert re.fullmatch(r"[A-Za-z0-9_.\-]+(/[A-Za-z0-9_.\-]+)*", node.name), node.name
        for operand in node.input:
            name, _, number = operand.removeprefix("^").partition(":")
            assert name in nodes, (node.name, operand)
            assert name != node.name
            if number:
                assert int(number) < len(nodes[name].attr["_output_shapes"].list.shape)
    text = str(definition)
    assert text.isascii()
    assert not re.search(r'\\["\\n]', text), "the view reads texts without escapes"
    return nodes


def loops() -> gc.Graph:
    with gc.Graph() as graph:
        x = gc.placeholder(("batch", 4), name="x")
        total = gc.variable(0.0, name="total")
        w = gc.variable(np.ones((4, 4), np.float32), name="deep/w")

        def body(carry: Any, row: Any) -> Any:
            inner = gc.while_loop(
                lambda c: gc.reduce_sum(c) < 9.0, lambda c: c + row, carry @ w, max_trip_count=4
            )
            return gc.tanh(inner), inner

        with gc.name_scope("outer"):
            state, rows = gc.scan(body, x, gc.constant(np.ones((3, 4), np.float32)))
        y = gc.cond(gc.reduce_sum(state) > 0, lambda: state, lambda: state * 3.0)
        loss = gc.reduce_mean(y**2) + gc.reduce_sum(rows[0])
        gc.group(gc.minimize(loss, optax.adam(0.1)), total.assign_add(loss), name="all")
    return graph


def test_a_graph_with_loops_and_its_gradient() -> None:
    graph = loops()
    nodes = check(graph)
    [scan] = [name for name in nodes if name.startswith("outer/") and nodes[name].op == "Scan"]
    inside = {name for name in nodes if name.startswith(f"{scan}/scan_body/")}
    assert any(nodes[name].op == "While" for name in inside)
    assert not any("outer" in name.removeprefix(scan) for name in inside)
    assert nodes["all"].op == "NoOp"
    assert "^train" in nodes["all"].input
    assert nodes["deep/w/read_1"].input == ["deep/w"]
    assert any(name.startswith("train/gradients/outer/") for name in nodes)


def test_every_stage_of_the_passes() -> None:
    graph = loops()
    step = gc.compile(graph, "all", {"x": (2, 4)})
    history = step.pass_history()
    for number, taken in enumerate((history.start, *history.steps)):
        nodes = check(taken.after)
        assert "x" in nodes, number
    nodes = check(step.program)
    assert nodes["x"].op == "Placeholder"
    assert [d.size for d in nodes["x"].attr["_output_shapes"].list.shape[0].dim] == [2, 4]


def test_rolled_blocks() -> None:
    with gc.Graph() as graph:
        h = gc.placeholder((2, 8), name="x")
        for number in range(16):
            with gc.name_scope(f"block{number}"):
                w = gc.variable(np.ones((8, 8), np.float32), name="w")
                h = gc.tanh(h @ w)
        gc.minimize(gc.reduce_mean(h), optax.sgd(0.1))
    step = gc.compile(graph, ["train"], {"x": (2, 8)})
    nodes = check(step.program)
    assert "Scan" in {node.op for node in nodes.values()}
    check(graph)


@settings(deadline=None, max_examples=20)
@given(with_bodies())
def test_programs_with_bodies(program: Program) -> None:
    check(program)


@settings(deadline=None, max_examples=10)
@given(repeated())
def test_programs_with_repeated_blocks(program: Program) -> None:
    check(program)


def test_odd_names() -> None:
    with gc.Graph() as graph:
        for name in ('a "quoted" name', "näme", "a;0", "^control", "a b/c?1", "x//y", "/lead", "."):
            with gc.name_scope("scope"):
                gc.exp(1.0, name=name)
        v = gc.variable(1.0, name="v")
        v.assign(v + 1.0)
        gc.exp(2.0, name="v/read/deeper")
    check(graph)


def test_large_and_odd_attributes() -> None:
    with gc.Graph() as graph:
        big = gc.constant(np.arange(10_000.0), name="big")
        gc.constant(np.array([np.nan, np.inf]), name="nan")
        gc.reshape(big, (100, 100), name="square")
        gc.constant(np.zeros((0, 3)), name="empty")
    nodes = check(graph)
    assert nodes["big"].attr["value"].s in (b"float64[10000]", b"float32[10000]")
    assert nodes["big"].ByteSize() < 1000
    assert nodes["nan"].attr["value"].s == b"[nan, inf]"
    assert nodes["square"].attr["code"].s.startswith(b"gc.reshape(big")
    assert nodes["square"].attr["source"].s.startswith(b"test_graph_def.py:")


def test_a_body_that_several_calls_share() -> None:
    @gc.function
    def layer(x: Any) -> Any:
        return gc.tanh(x) * 2.0

    with gc.Graph() as graph:
        x = gc.placeholder((3,), name="x")
        layer(layer(x))
    check(graph)
    picture = graph_def(graph)
    tanhs = [name for name, node in picture.nodes.items() if node.op.name == "Tanh"]
    assert len(tanhs) == 2
    [key] = {picture.nodes[name].name for name in tanhs}
    stats = run_metadata(picture, {key: 1.0}, None).step_stats.dev_stats[0].node_stats
    times = {s.node_name: s.all_end_rel_micros for s in stats if s.all_end_rel_micros}
    assert times == dict.fromkeys(tanhs, 500_000)


def test_the_time_of_a_scope_is_the_sum_of_its_nodes() -> None:
    with gc.Graph() as graph:
        x = gc.placeholder((3,), name="x")
        for number in range(4):  # the scopes alternate
            with gc.name_scope("even" if number % 2 == 0 else "odd"):
                x = gc.tanh(x)
    seconds = {node: 1e-3 * (i + 1) for i, node in enumerate(graph.nodes[1:])}
    stats = run_metadata(graph_def(graph), seconds, {}).step_stats.dev_stats[0].node_stats
    for scope, total in (("even", 4000), ("odd", 6000)):
        inside = [s for s in stats if s.node_name.startswith(scope)]
        end = max(s.all_start_micros + s.all_end_rel_micros for s in inside)
        assert end - min(s.all_start_micros for s in inside) == total


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("a/b", "a/b"), ("a b/ü", "a_b/_"), ("x//y", "x/_/y"), ("", "_"), ("a:0", "a_0")],
)
def test_readable(name: str, wanted: str) -> None:
    assert readable(name) == wanted


def test_unique_names() -> None:
    names = UniqueNames()
    made = [names.new(name) for name in ("a", "a", "a_1", "a", "a_1")]
    assert made == ["a", "a_1", "a_1_1", "a_2", "a_1_2"]


@pytest.mark.parametrize(
    ("name", "owner", "wanted"),
    [
        ("rnn/MatMul", "rnn/Scan", "MatMul"),
        ("rnn/x/MatMul", "rnn/Scan", "x/MatMul"),
        ("MatMul", "rnn/Scan", "MatMul"),
        ("Scan", "Scan", "Scan"),
        ("Scan/a", "Scan", "a"),
    ],
)
def test_within(name: str, owner: str, wanted: str) -> None:
    assert within(name, owner) == wanted
