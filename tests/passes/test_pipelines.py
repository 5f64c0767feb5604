"""Pipelines: their names, their effect on a whole program, and their speed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from graphc.build import placeholder
from graphc.config import PIPELINES, CompileOptions
from graphc.ir.compare import difference
from graphc.ir.dims import symbol
from graphc.ir.dtypes import FLOAT32
from graphc.ir.graph import Graph
from graphc.ir.program import Port, Program
from graphc.ir.rewrite import bind_sizes
from graphc.ir.text import print_program
from graphc.ir.types import TensorType
from graphc.ops.catalogue import FUNCTIONS as ops
from graphc.ops.nn.conv import conv2d
from graphc.passes.core.target import Target
from graphc.passes.manager import PassManager
from graphc.passes.pass_filter import pass_classes
from graphc.passes.pipelines import after_binding, pipeline
from graphc.passes.rolling.roll_repeats import RollRepeats
from graphc.runtime.targets.prepare import bind, prepare
from tests.passes.check import program


@pytest.mark.parametrize("name", PIPELINES)
def test_every_pipeline_of_the_options_is_there(name: str) -> None:
    options = CompileOptions(pipeline=name)
    assert (pipeline(options) == []) is (name == "O0")
    assert (after_binding(options, Target()) == []) is (name == "O0")


@pytest.mark.parametrize(
    ("target", "limit", "unroll", "turns"),
    [
        (Target("cpu"), None, None, 6),
        (Target("cpu"), "1GiB", None, 3),
        (Target("cpu", tight=True), None, None, 3),
        (Target("gpu"), None, None, 25),
        (Target("gpu"), "1GiB", None, 25),
        (Target("gpu"), None, 48, 49),
        (Target("gpu", tight=True), None, None, 3),
        (Target("any"), None, None, 3),
    ],
)
def test_the_least_number_of_iterations_of_a_loop(
    target: Target, limit: str | None, unroll: int | None, turns: int
) -> None:
    """A few iterations are faster without a loop. If memory is short, loops are needed."""
    passes = after_binding(CompileOptions(memory_limit=limit, unroll=unroll), target)
    (rolling,) = (a_pass for a_pass in passes if isinstance(a_pass, RollRepeats))
    assert rolling.turns == turns
    short = target.tight or (target.platform == "cpu" and limit is not None)
    assert rolling.shared == (1 if short else RollRepeats.shared)


def test_o1_makes_no_loops_of_its_own() -> None:
    assert pipeline(CompileOptions(pipeline="O1")) == pipeline(CompileOptions())
    rest = [a_pass.name for a_pass in after_binding(CompileOptions(pipeline="O1"), Target())]
    whole = [a_pass.name for a_pass in after_binding(CompileOptions(), Target())]
    assert [name for name in whole if name.startswith(("roll", "group"))] == [
        "roll-repeats",
        "group-alike",
    ]
    assert not {"roll-repeats", "group-alike"} & set(rest)


def test_what_the_default_makes_of_a_deep_network_and_its_update() -> None:
    """After sizes are bound: a loop in each direction, and one update for all parameters."""
    before = program(repeated_layers(16))
    bound = bind_sizes(PassManager(pipeline(CompileOptions())).run(before)[0], {"n": 4})
    got, report = PassManager(
        after_binding(CompileOptions(), Target()), stage="bound", rounds=1
    ).run(bound)
    kinds = [node.op.name for node in got.nodes]
    assert kinds == ["Constant", "Stack", "Scan", "Scan", "Map", "Unstack"]
    # A pass that changed nothing is not run again unless another pass changed something since.
    assert {row.name for row in report.rows} == {
        p.name for p in after_binding(CompileOptions(), Target())
    }
    assert report.rows[0].before > 60
    unrolled, _ = PassManager(
        after_binding(CompileOptions(pipeline="O1"), Target()), stage="bound"
    ).run(bound)
    assert unrolled is bound


def repeated_layers(depth: int) -> str:
    """y = y + tanh(y * w) for each w, the gradients, and w - 0.5 * dw."""
    lines, y = ["%half = Constant() {value=f32[] 0.5} : f32[]"], "x"
    for i in range(depth):
        lines += [
            f"%p{i} = Multiply({y}, w{i}) : f32[n, 64]",
            f"%t{i} = Tanh(%p{i}) : f32[n, 64]",
            f"%y{i} = Add({y}, %t{i}) : f32[n, 64]",
        ]
        y = f"%y{i}"
    dy = "x"
    for i in reversed(range(depth)):
        before = f"%y{i - 1}" if i else "x"
        lines += [
            f"%dp{i} = Multiply({dy}, %t{i}) : f32[n, 64]",
            f"%dv{i} = Multiply(%dp{i}, {before}) : f32[n, 64]",
            f"%dw{i} = ReduceSum(%dv{i}) {{axes=[0]}} : f32[64]",
            f"%dx{i} = Multiply(%dp{i}, w{i}) : f32[n, 64]",
            f"%dy{i} = Add({dy}, %dx{i}) : f32[n, 64]",
        ]
        dy = f"%dy{i}"
    for i in range(depth):
        lines += [
            f"%s{i} = Multiply(%dw{i}, %half) : f32[64]",
            f"%w{i} = Subtract(w{i}, %s{i}) : f32[64]",
        ]
    ports = ", ".join(f"w{i}: state f32[64]" for i in range(depth))
    outputs = ", ".join(f"state w{i} = %w{i}" for i in range(depth))
    body = "\n".join(lines)
    return f"program p(x: f32[n, 64], {ports}) {{\n{body}\nreturn y = {y}, dx = {dy}, {outputs}\n}}"


def test_what_the_default_makes_of_a_gradient() -> None:
    """The adjoints of mean(square(x @ w)) as the rules write them, and after simplification."""
    before = program(
        """
        program p(x: f32[n, 4], w: f32[4, 1]) {
          %0 = MatMul(x, w) : f32[n, 1]
          %1 = ReduceSum(%0) {axes=[1]} : f32[n]
          %2 = Square(%1) : f32[n]
          %3 = ReduceMean(%2) {axes=[0]} : f32[]
          %4 = Constant() {value=f32[] 1.0} : f32[]
          %5 = BroadcastTo(%4) {shape=[n]} : f32[n]
          %6 = Constant() {value=f32[] 2.0} : f32[]
          %7 = Constant() {value=f32[] 0.5} : f32[]
          %8 = Multiply(%6, %7) : f32[]
          %9 = Multiply(%8, %1) : f32[n]
          %10 = Multiply(%5, %9) : f32[n]
          %11 = Reshape(%10) {shape=[n, 1]} : f32[n, 1]
          %12 = BroadcastTo(%11) {shape=[n, 1]} : f32[n, 1]
          %13 = Transpose(w) {perm=[1, 0]} : f32[1, 4]
          %14 = MatMul(%12, %13) : f32[n, 4]
          %15 = Transpose(x) {perm=[1, 0]} : f32[4, n]
          %16 = MatMul(%15, %12) : f32[4, 1]
          return loss = %3, dw = %16
        }
        """
    )
    after = program(
        """
        program p(x: f32[n, 4], w: f32[4, 1]) {
          %0 = MatMul(x, w) : f32[n, 1]
          %1 = Reshape(%0) {shape=[n]} : f32[n]
          %2 = Square(%1) : f32[n]
          %3 = ReduceMean(%2) {axes=[0]} : f32[]
          %4 = MatMul(x, %0) {transpose_a=true} : f32[4, 1]
          return loss = %3, dw = %4
        }
        """
    )
    got, _ = PassManager(pipeline(CompileOptions())).run(before)
    assert difference(got, after) is None, print_program(got, sources=False)


def common_program(nodes: int) -> Program:
    """A deep network of common operators with a few things to simplify in each layer."""
    graph, n = Graph(), symbol("batch")
    with graph:
        x = graph.add_input(TensorType(FLOAT32, (n, 64)), "x")
        weights = [graph.add_input(TensorType(FLOAT32, (64, 64)), f"w{i}") for i in range(8)]
        while len(graph.nodes) < nodes:
            h = ops.tanh(ops.matmul(x, weights[len(graph.nodes) % 8]) + float(len(graph.nodes)))
            h = h - ops.reduce_mean(h * 0.9, axis=1, keepdims=True)
            h = ops.transpose(ops.reshape(h, (n, 8, 8)), (0, 2, 1))
            d = ops.exp(-ops.reshape(h, (n, 64)))
            x = ops.where(ops.greater(d, 1.0), d, x) + ops.multiply(d, 1.0)
    inputs = tuple(Port(t.name, "feed", t) for t in graph.inputs)
    return Program("deep", inputs, tuple(graph.nodes), (Port("out", "fetch", x),))


def test_a_deep_program_goes_through_all_passes() -> None:
    """No pass recurses over the depth; the benchmarks measure the time."""
    start = common_program(5000)
    program, report = PassManager(pipeline(CompileOptions())).run(start)
    assert len(program.nodes) < len(start.nodes)
    assert report.rows[0].before == len(start.nodes)


def _on_cpu(size: int) -> list[str]:
    """The default passes on a CPU for a pointwise convolution of images, as a run reports them."""
    with Graph() as graph:
        x = placeholder((4, size, size, 64), name="x")
        y = conv2d(x, placeholder((1, 1, 64, 64), name="w"))
    found = prepare(graph, [y], [graph.tensor("x:0"), graph.tensor("w:0")], CompileOptions())
    _, report = bind(found, {}, CompileOptions(), Target("cpu"))
    return [row.name for row in report.rows]


def test_many_convolutions_get_the_exact_passes_for_cpus() -> None:
    """2 * 4 * 256 * 256 * 64 * 64 operations are many; a hundredth of them is not."""
    assert "cpu-pointwise" not in _on_cpu(25)
    many = _on_cpu(256)
    assert {"cpu-pointwise", "cpu-space-to-depth", "cpu-pooling", "cpu-moments"} <= {*many}
    assert "cpu-winograd" not in many  # its tiles round more than a convolution does


def test_other_devices_do_not_get_passes_for_cpus() -> None:
    for platform in ("gpu", "any"):
        passes = after_binding(CompileOptions(), Target(platform, convolves=True))
        assert not [each.name for each in passes if each.name.startswith("cpu-")]


def test_every_pass_can_be_left_out_in_a_new_process() -> None:
    """Also those of `gc.freeze`, which takes the options of the session."""
    import graphc.runtime.freezing.freezing  # noqa: F401

    names = [
        each.class_name()
        for each in pass_classes()
        if each.optional and each.__module__.startswith("graphc.")
    ]
    assert {"fold-norms", "sink-constants", "roll-repeats"} <= {*names}
    code = f"""
import graphc as gc
with gc.Graph() as graph:
    y = gc.constant([1.0]) + 1
options = gc.CompileOptions(cache=None, without_passes={tuple(names)!r})
print(gc.Session(graph, options=options).run(y))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[2.]\n", done.stderr
