"""Move transposes: chains as programs before and after, and chains that must stay."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

import graphc as gc
from graphc.config import CompileOptions
from graphc.ir.dtypes import FLOAT32
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.ir.program import Port, Program
from graphc.ir.types import TensorType
from graphc.ops.arrays.shape import TRANSPOSE
from graphc.passes.manager import PassManager
from graphc.passes.pipelines import pipeline
from graphc.passes.simplify.axis_orders import is_free
from graphc.passes.simplify.move_transposes import MoveTransposes
from graphc.passes.simplify.prune import Prune
from graphc.passes.simplify.simplify_shapes import SimplifyShapes
from tests.laws.harness import functional
from tests.near import assert_near
from tests.passes.check import check, check_stays, pair
from tests.passes.preserving import check_preserving

MOVED = {
    "elementwise operators between two transposes": """
        x: f32[n, 4, 4, 8], y: f32[n, 8, 4, 4], s: f32[]
          %0 = Transpose(x) {perm=[0, 3, 1, 2]} : f32[n, 8, 4, 4]
          %1 = Multiply(%0, s) : f32[n, 8, 4, 4]
          %2 = Relu(%1) : f32[n, 8, 4, 4]
          %3 = Transpose(%2) {perm=[0, 2, 3, 1]} : f32[n, 4, 4, 8]
          return out = %3
        =>
          %0 = Multiply(x, s) : f32[n, 4, 4, 8]
          %1 = Relu(%0) : f32[n, 4, 4, 8]
          return out = %1
    """,
    "a channel's parameters get the new order by a reshape": """
        x: f32[n, 4, 4, 8], b: f32[8]
          %0 = Transpose(x) {perm=[0, 3, 1, 2]} : f32[n, 8, 4, 4]
          %1 = Reshape(b) {shape=[8, 1, 1]} : f32[8, 1, 1]
          %2 = Add(%0, %1) : f32[n, 8, 4, 4]
          %3 = Transpose(%2) {perm=[0, 2, 3, 1]} : f32[n, 4, 4, 8]
          return out = %3
        =>
          %0 = Reshape(b) {shape=[8, 1, 1]} : f32[8, 1, 1]
          %1 = Reshape(%0) {shape=[1, 1, 1, 8]} : f32[1, 1, 1, 8]
          %2 = Add(x, %1) : f32[n, 4, 4, 8]
          return out = %2
    """,
    "a reduction sums other axes": """
        x: f32[2, 4, 5, 8]
          %0 = Transpose(x) {perm=[0, 3, 1, 2]} : f32[2, 8, 4, 5]
          %1 = Exp(%0) : f32[2, 8, 4, 5]
          %2 = ReduceSum(%1) {axes=[2, 3], keepdims=false} : f32[2, 8]
          return out = %2
        =>
          %0 = Exp(x) : f32[2, 4, 5, 8]
          %1 = ReduceSum(%0) {axes=[1, 2], keepdims=false} : f32[2, 8]
          return out = %1
    """,
    "a result of fewer axes gets leading ones for an operand of the same chain": """
        x: f32[2, 4, 8]
          %0 = Transpose(x) {perm=[0, 2, 1]} : f32[2, 8, 4]
          %1 = ReduceSum(%0) {axes=[0], keepdims=false} : f32[8, 4]
          %2 = Add(%0, %1) : f32[2, 8, 4]
          %3 = Transpose(%2) {perm=[0, 2, 1]} : f32[2, 4, 8]
          return out = %3
        =>
          %0 = ReduceSum(x) {axes=[0], keepdims=false} : f32[4, 8]
          %1 = Reshape(%0) {shape=[1, 4, 8]} : f32[1, 4, 8]
          %2 = Add(x, %1) : f32[2, 4, 8]
          return out = %2
    """,
    "channels are concatenated, split, padded and sliced in the last axis": """
        x: f32[2, 4, 5, 8], y: f32[2, 4, 5, 6]
          %0 = Transpose(x) {perm=[0, 3, 1, 2]} : f32[2, 8, 4, 5]
          %1 = Transpose(y) {perm=[0, 3, 1, 2]} : f32[2, 6, 4, 5]
          %2 = Concatenate(%0, %1) {axis=1} : f32[2, 14, 4, 5]
          %3 = Slice(%2) {starts=[0, 2, 0, 1], limits=[2, 8, 4, 5], strides=[1, 2, 1, 1]} : A
          %4 = Reverse(%3) {axes=[1, 3]} : A
          %5 = Transpose(%4) {perm=[0, 2, 3, 1]} : B
          return out = %5
        =>
          %0 = Concatenate(x, y) {axis=3} : f32[2, 4, 5, 14]
          %1 = Slice(%0) {starts=[0, 0, 1, 2], limits=[2, 4, 5, 8], strides=[1, 1, 1, 2]} : B
          %2 = Reverse(%1) {axes=[2, 3]} : B
          return out = %2
    """,
    "a softmax over channels becomes one over the last axis": """
        x: f32[2, 4, 5, 8]
          %0 = Transpose(x) {perm=[0, 3, 1, 2]} : f32[2, 8, 4, 5]
          %1 = Softmax(%0) {axis=1} : f32[2, 8, 4, 5]
          %2 = Transpose(%1) {perm=[0, 2, 3, 1]} : f32[2, 4, 5, 8]
          return out = %2
        =>
          %0 = Softmax(x) {axis=3} : f32[2, 4, 5, 8]
          return out = %0
    """,
    "one transpose in place of two, for a result that is needed": """
        x: f32[2, 4, 5, 8], y: f32[2, 4, 5, 8]
          %0 = Transpose(x) {perm=[0, 3, 1, 2]} : f32[2, 8, 4, 5]
          %1 = Transpose(y) {perm=[0, 3, 1, 2]} : f32[2, 8, 4, 5]
          %2 = Add(%0, %1) : f32[2, 8, 4, 5]
          return out = %2
        =>
          %0 = Add(x, y) : f32[2, 4, 5, 8]
          %1 = Transpose(%0) {perm=[0, 3, 1, 2]} : f32[2, 8, 4, 5]
          return out = %1
    """,
    "an operand in the other order is transposed in place of the others": """
        x: f32[2, 4, 5, 8], y: f32[2, 4, 5, 8], z: f32[2, 8, 4, 5]
          %0 = Transpose(x) {perm=[0, 3, 1, 2]} : f32[2, 8, 4, 5]
          %1 = Add(%0, z) : f32[2, 8, 4, 5]
          %2 = Transpose(%1) {perm=[0, 2, 3, 1]} : f32[2, 4, 5, 8]
          return out = %2
        =>
          %0 = Transpose(z) {perm=[0, 2, 3, 1]} : f32[2, 4, 5, 8]
          %1 = Add(x, %0) : f32[2, 4, 5, 8]
          return out = %1
    """,
}


@pytest.mark.parametrize("text", MOVED.values(), ids=MOVED)
def test_moved(text: str) -> None:
    text = text.replace(": A", ": f32[2, 3, 4, 4]").replace(": B", ": f32[2, 4, 4, 3]")
    check(MoveTransposes(), *pair(text))


STAYS = {
    "nothing is saved": """
        x: f32[2, 4, 5, 8]
          %0 = Transpose(x) {perm=[0, 3, 1, 2]} : f32[2, 8, 4, 5]
          %1 = Exp(%0) : f32[2, 8, 4, 5]
          return out = %1
    """,
    "two transposes of parts are not better than one of the whole": """
        x: f32[4, 3, 8]
          %0 = Transpose(x) {perm=[1, 0, 2]} : f32[3, 4, 8]
          %1 = Slice(%0) {starts=[0, 0, 0], limits=[1, 4, 8], strides=[1, 1, 1]} : f32[1, 4, 8]
          %2 = Slice(%0) {starts=[1, 0, 0], limits=[2, 4, 8], strides=[1, 1, 1]} : f32[1, 4, 8]
          %3 = Exp(%2) : f32[1, 4, 8]
          return a = %1, b = %3, c = %0
    """,
    "the transposed value is needed, too": """
        x: f32[2, 4, 5, 8]
          %0 = Transpose(x) {perm=[0, 3, 1, 2]} : f32[2, 8, 4, 5]
          %1 = Exp(%0) : f32[2, 8, 4, 5]
          return a = %0, b = %1
    """,
    "weights of attention": """
        x: f32[4, 5, 8]
          %0 = Transpose(x) {perm=[1, 2, 0]} : f32[5, 8, 4]
          %1 = Softmax(%0) {axis=2} : f32[5, 8, 4]
          %2 = Transpose(%1) {perm=[2, 0, 1]} : f32[4, 5, 8]
          return out = %2
    """,
}


@pytest.mark.parametrize("text", STAYS.values(), ids=STAYS)
def test_stays(text: str) -> None:
    check_stays(MoveTransposes(), pair(text + "\n=> stays")[0])


@st.composite
def chains(draw: Any) -> Program:
    """Programs of transposes and of operators between them."""
    graph = Graph(name="generated")

    def choose(items: Sequence[Any]) -> Any:
        return items[draw(st.integers(0, len(items) - 1))]

    def step(x: Tensor) -> Tensor | Sequence[Tensor]:
        axis = draw(st.integers(0, x.ndim - 1))
        alike = [t for t in tensors if t.shape == x.shape]
        kind = choose("ttttteeavccrRspfS")
        match kind:
            case "t":
                return gc.transpose(x, draw(st.permutations(range(x.ndim))))
            case "e":
                return gc.negative(x)
            case "a":
                return gc.add(x, choose(alike))
            case "v":
                dims = [size if i == axis else 1 for i, size in enumerate(x.shape)][axis:]
                return x * gc.constant(np.arange(x.shape[axis], dtype=np.float32).reshape(dims))
            case "c":
                return gc.concatenate([x, choose(alike)], axis)
            case "r" | "R":
                return gc.reduce_sum(x, axis=axis, keepdims=kind == "R" or x.ndim < 3)
            case "s":
                return x[tuple([slice(max(1, d - (i == axis))) for i, d in enumerate(x.shape)])]
            case "p":
                return gc.pad(x, [(0, int(i == axis)) for i in range(x.ndim)])
            case "f":
                return gc.flip(x, axis)
            case _:
                size = x.shape[axis]
                return gc.split(x, [1, size - 1], axis) if size > 1 else x

    tensors = [
        graph.add_input(TensorType(FLOAT32, dims), f"x{i}")
        for i, dims in enumerate([(2, 3, 4), choose([(4, 2, 3), (2, 3, 4), (2, 3, 2, 2)])])
    ]
    with graph:
        for _ in range(draw(st.integers(3, 9))):
            made = step(choose(tensors[-3:]))
            pieces = [made] if isinstance(made, Tensor) else made
            tensors += [t for t in pieces if prod(t.shape) < 500]
    outputs = [tensors[-1], choose(tensors)]
    return Program(
        "generated",
        tuple(Port(t.name, "feed", t) for t in graph.inputs),
        tuple(graph.nodes),
        tuple(Port(f"out{i}", "fetch", t) for i, t in enumerate(outputs)),
    )


def cost(program: Program) -> int:
    """The number of elements that transposes move."""
    return sum(
        prod(node.inputs[0].type.sizes)
        for node in Prune().run(program).program.nodes
        if node.op is TRANSPOSE and not is_free(node.inputs[0].type, node.attrs["perm"])
    )


def test_preserves_the_meaning_of_chains_and_never_moves_more() -> None:
    def cheaper(before: Program, after: Program) -> None:
        simplified = [SimplifyShapes().run(p).program for p in (before, after)]
        assert cost(simplified[1]) <= cost(simplified[0])

    check_preserving(
        MoveTransposes(), chains(), examples=300, least=0.15, settled=False, compared=cheaper
    )


def _network(images: gc.Tensor) -> gc.Tensor:
    """A residual network in channels-first layout."""

    def conv(x: gc.Tensor, channels: int, name: str) -> gc.Tensor:
        w = gc.variable("glorot_uniform", shape=(3, 3, x.shape[1], channels), name=name)
        y = gc.nn.conv2d(gc.transpose(x, (0, 2, 3, 1)), w, padding="same")
        return gc.transpose(y, (0, 3, 1, 2))

    def norm(x: gc.Tensor, name: str) -> gc.Tensor:
        scale = gc.variable("ones", shape=(x.shape[1], 1, 1), name=name)
        mean = gc.reduce_mean(x, axis=(0, 2, 3), keepdims=True)
        variance = gc.reduce_mean(gc.square(x - mean), axis=(0, 2, 3), keepdims=True)
        return (x - mean) * gc.rsqrt(variance + 1e-5) * scale

    x = gc.nn.relu(norm(conv(images, 8, "w0"), "s0"))
    for i in range(1, 4):
        x = x + gc.nn.relu(norm(conv(x, 8, f"w{i}"), f"s{i}"))
    return gc.reduce_mean(gc.square(gc.reduce_mean(x, axis=(2, 3))))


def test_a_network_and_its_gradient_transpose_only_the_images() -> None:
    """No layers have transposes between them, forward and backward."""
    graph = gc.Graph()
    with graph:
        images = gc.placeholder((2, 3, 8, 8), name="images")
        loss = _network(images)
        gradients = gc.gradients(loss, gc.trainable_variables())
    before, _ = PassManager(pipeline(CompileOptions())).run(
        functional(graph, [loss, *gradients], [images])
    )
    moved = SimplifyShapes().run(MoveTransposes().run(before).program).program
    transposes = [node for node in Prune().run(moved).program.nodes if node.op is TRANSPOSE]
    assert [node.inputs[0].type.shape for node in transposes] == [(2, 3, 8, 8)]


def test_results_of_a_network_stay() -> None:
    graph = gc.Graph(seed=1)
    with graph:
        images = gc.placeholder((2, 3, 8, 8), name="images")
        loss = _network(images)
        fetches = [loss, *gc.gradients(loss, gc.trainable_variables())]
    feeds = {images: np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype(np.float32)}
    with gc.Session(graph) as session:
        got = session.run(fetches, feeds)
    options = CompileOptions(without_passes=("move-transposes",))
    with gc.Session(graph, options=options) as session:
        want = session.run(fetches, feeds)
    for a, b in zip(got, want, strict=True):
        assert_near(a, b, rtol=2e-5, atol=2e-6)
