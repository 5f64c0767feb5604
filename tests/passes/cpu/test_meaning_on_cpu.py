"""CPU passes and attention in steps preserve the results of generated programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import strategies as st

from graphc.ir.dtypes import as_dtype
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.ir.program import Port, Program
from graphc.ir.scopes import building
from graphc.ir.types import TensorType
from graphc.lowering.emit_jax import to_function
from graphc.ops.control import scan
from graphc.ops.core import emit
from graphc.ops.elementwise import arithmetic
from graphc.ops.elementwise.powers import square
from graphc.ops.elementwise.transcendental import tanh
from graphc.ops.nn.attention import ATTENTION, ATTENTION_GRADIENT
from graphc.ops.nn.conv_rules import CONV, CONV_INPUT_GRADIENT, CONV_KERNEL_GRADIENT
from graphc.ops.nn.normalization import VARIANCE
from graphc.ops.nn.pooling import MAX_POOL, MAX_POOL_GRADIENT
from graphc.ops.reductions import reduction
from graphc.passes.attention import attention_steps
from graphc.passes.attention.attention_steps import StepAttention
from graphc.passes.core.target import Target
from graphc.passes.cpu import cpu_winograd
from graphc.passes.cpu.cpu_moments import CpuMoments
from graphc.passes.cpu.cpu_pooling import CpuPooling
from graphc.passes.cpu.cpu_stacked_bits import CpuStackedBits
from graphc.passes.cpu.cpu_winograd import CpuWinograd
from graphc.passes.simplify.prune import Prune
from tests.passes.preserving import check_preserving

BF16, F32, F64, BOOL = (as_dtype(name) for name in ("bf16", "f32", "f64", "bool"))


def written(graph: Graph, outputs: Sequence[Tensor], name: str) -> Program:
    """The program of a graph; all inputs are feeds."""
    return Program(
        name,
        tuple(Port(t.name, "feed", t) for t in graph.inputs),
        tuple(graph.nodes),
        tuple(Port(f"y{i}", "fetch", t) for i, t in enumerate(outputs)),
    )


# -- sums, means and variances of the same tensors ------------------------------------------


@st.composite
def moments(draw: Any) -> Program:
    """Moments along axes in any order: of tensors, of products, of differences from means. The
    differences also have other uses."""
    graph = Graph(name="moments")
    full = draw(st.sampled_from(((4, 3, 2), (3, 5))))

    def one_of(tensors: Sequence[Tensor]) -> Tensor:
        return tensors[-1] if draw(st.booleans()) else draw(st.sampled_from(tensors))

    with building(graph):
        whole = [graph.add_input(TensorType(F64, full), f"x{i}") for i in range(2)]
        smaller = [graph.add_input(TensorType(F64, full[-1:]), "m")]
        differences: list[Tensor] = []

        def axes() -> tuple[int, ...]:
            found = [axis for axis in range(len(full)) if draw(st.booleans())]
            return tuple(found or [0])

        def mean() -> None:
            smaller.append(reduction.reduce_mean(one_of(whole), axes(), keepdims=True))

        def variance() -> None:
            x, along = one_of(whole), axes()
            centre = reduction.reduce_mean(x, along, keepdims=True)
            count = int(np.prod([full[axis] for axis in along]))
            made = emit.emit_one(VARIANCE, (x, centre), axes=along, count=count)
            smaller.extend([centre, made])

        def difference() -> None:
            pair = (one_of(whole), one_of([*smaller, *whole]))
            made = arithmetic.subtract(*(pair if draw(st.integers(0, 4)) else pair[::-1]))
            if made.shape == full:
                differences.append(made)
                whole.append(made)

        def product() -> None:
            factors = [one_of(differences or whole), one_of(whole)]
            factors = factors if draw(st.booleans()) else factors[::-1]
            is_square = draw(st.integers(0, 3)) == 0
            made = square(factors[0]) if is_square else arithmetic.multiply(*factors)
            whole.append(made)
            total = reduction.reduce_sum(made, axes(), keepdims=draw(st.booleans()))
            (smaller if total.ndim == len(full) else others).append(total)

        others: list[Tensor] = []
        steps = (mean, variance, difference, product)
        for step in (mean, difference):
            step()
        for _ in range(draw(st.integers(3, 9))):
            draw(st.sampled_from(steps))()
        product()
    return written(graph, [*others, *smaller, one_of(whole)], "moments")


def test_moments() -> None:
    def check(before: Program, after: Program) -> None:
        """No sum shares its difference with another sum or with another use."""
        used = Prune().run(after).program
        users = used.users()
        for node in used.nodes:
            if node.op.name == "Subtract" and makes_fence(used, node.inputs[1]):
                assert len(set(users[node.outputs[0]])) == 1  # perhaps as both factors

    check_preserving(CpuMoments(elements=12), moments(), least=0.5, compared=check)


def makes_fence(program: Program, tensor: Tensor) -> bool:
    node = program.producers().get(tensor)
    return node is not None and node.op.name == "Fence"


# -- the gradient of pooling ----------------------------------------------------------------


@st.composite
def poolings(draw: Any) -> Program:
    """The gradient of max pooling over one or two axes, of integer values: many are equal."""
    rank = draw(st.integers(1, 2))
    window = [draw(st.integers(1, 3)) for _ in range(rank)]
    strides = [draw(st.integers(1, 3)) for _ in range(rank)]
    padding = [tuple(draw(st.integers(0, w - 1)) for _ in range(2)) for w in window]
    size = [draw(st.integers(w, 6)) for w in window]
    attrs = {
        "window": tuple(window),
        "strides": tuple(strides),
        "padding": tuple(padding),
        "dilation": (1,) * rank,
    }
    graph = Graph(name="pooling")
    with building(graph):
        x = graph.add_input(TensorType(F32, (2, *size, 2)), "x")
        whole = emit.cast(emit.cast(x * 2, "i32"), "f32")
        y = emit.emit_one(MAX_POOL, (whole,), **attrs)
        dy = graph.add_input(y.type, "dy")
        slopes = emit.emit_one(MAX_POOL_GRADIENT, (whole, dy), **attrs)
    return written(graph, [slopes], "pooling")


def by_xla(program: Program, inputs: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    quickly = {"xla_backend_optimization_level": 0}
    with jax.enable_x64(True):
        run = jax.jit(to_function(program), compiler_options=quickly)
        return [np.asarray(v) for v in run(*inputs)]


@pytest.mark.slow
@pytest.mark.one_jax
def test_pooling() -> None:
    check_preserving(
        CpuPooling(taps=6), poolings(), examples=40, least=0.6, evaluate=by_xla, exactly=False
    )


# -- convolutions in tiles ------------------------------------------------------------------


@st.composite
def convolutions(draw: Any) -> Program:
    """A convolution and its gradients; some have strides or groups."""
    window = [draw(st.integers(1, 5)) for _ in range(2)]
    plain = draw(st.integers(0, 9)) < 9
    groups = 1 if plain else draw(st.integers(1, 2))
    attrs = {
        "strides": (1, 1) if plain else (1, draw(st.integers(1, 2))),
        "padding": tuple(tuple(draw(st.integers(0, 2)) for _ in range(2)) for _ in window),
        "dilation": (1, 1),
        "groups": groups,
    }
    batch, channels, filters = (draw(st.integers(1, most)) for most in (4, 2, 2))
    size = [draw(st.integers(w, 7)) for w in window]
    graph = Graph(name="convolutions")
    with building(graph):
        x = graph.add_input(TensorType(F64, (batch, *size, channels * groups)), "x")
        w = graph.add_input(TensorType(F64, (*window, channels, filters * groups)), "w")
        y = emit.emit_one(CONV, (x, w), **attrs)
        dy = graph.add_input(y.type, "dy")
        dx = emit.emit_one(CONV_INPUT_GRADIENT, (dy, w), size=x.shape[1:-1], **attrs)
        dw = emit.emit_one(CONV_KERNEL_GRADIENT, (x, dy), size=w.shape[:-2], **attrs)
    return written(graph, [y, dx, dw], "convolutions")


@pytest.mark.slow
@pytest.mark.one_jax
def test_convolutions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Includes convolutions that gain nothing; a few images at a time."""
    monkeypatch.setattr(cpu_winograd, "_LEAST_GAIN", 1e9)

    def check(before: Program, after: Program) -> None:
        assert all(node.attrs["tiles"] for node in after.nodes)

    check_preserving(
        CpuWinograd(bytes=12_000),
        convolutions(),
        examples=40,
        least=0.6,
        evaluate=by_xla,
        exactly=False,
        compared=check,
    )


# -- bfloat16 in loops ----------------------------------------------------------------------


@st.composite
def stacks(draw: Any) -> Program:
    """Loops, also nested, that take and stack bfloat16 values and others, some without change."""
    graph = Graph(name="stacks")

    def one_of(tensors: Sequence[Tensor]) -> Tensor:
        return tensors[-1] if draw(st.booleans()) else draw(st.sampled_from(tensors))

    def made_of(tensors: Sequence[Tensor]) -> Tensor:
        a, b = one_of(tensors), one_of(tensors)
        made = tanh(a) if draw(st.booleans()) else arithmetic.add(emit.cast(a, b.dtype), b)
        return emit.cast(made, draw(st.sampled_from((BF16, BF16, F32))))

    def loop(stacked: Sequence[Tensor], vectors: Sequence[Tensor], depth: int) -> list[Tensor]:
        """A loop over some of the stacks; returns its stacked results."""

        def turn(carry: list[Tensor], xs: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
            values = [*vectors, *carry, *xs]
            for _ in range(draw(st.integers(1, 3))):
                values.append(made_of(values))
            if depth:
                loop(stacked, values, depth - 1)
            after = [emit.cast(one_of(values), carry[0].dtype)]
            return after, [one_of(values) for _ in range(draw(st.integers(1, 2)))]

        xs = [one_of(stacked) for _ in range(draw(st.integers(1, 2)))]
        last, made = scan.scan(turn, [one_of(vectors)], xs, reverse=draw(st.booleans()))
        results.append(last[0])
        return list(made)

    with building(graph):
        dtypes = (BF16, draw(st.sampled_from((BF16, F32))))
        stacked = [graph.add_input(TensorType(d, (3, 2)), f"x{i}") for i, d in enumerate(dtypes)]
        vectors = [graph.add_input(TensorType(d, (2,)), f"c{i}") for i, d in enumerate(dtypes)]
        results: list[Tensor] = []
        for _ in range(draw(st.integers(1, 3))):
            stacked += loop(stacked, vectors, 0)
            if not draw(st.integers(0, 3)):
                stacked.append(tanh(one_of(stacked)))
    return written(graph, [*results, stacked[-1], one_of(stacked)], "stacks")


def test_stacked_bits() -> None:
    def check(before: Program, after: Program) -> None:
        for node in after.walk():
            if node.op.name == "Scan":
                given = node.inputs[node.attrs["consts"] + node.attrs["carries"] :]
                stacked = [*given, *node.outputs[node.attrs["carries"] :]]
                assert all(t.type.dtype != BF16 for t in stacked)

    check_preserving(CpuStackedBits(), stacks(), least=0.8, compared=check)


# -- attention in steps ---------------------------------------------------------------------


@st.composite
def attentions(draw: Any) -> Program:
    """An attention and its gradient: grouped heads, masks, biases, causal or not, dropout."""
    batch, groups, shared = (draw(st.integers(1, 2)) for _ in range(3))
    time, source = draw(st.sampled_from(((4, 4), (5, 3), (7, 7), (2, 6))))
    heads = groups * shared
    attrs = {
        "scale": 0.5,
        "causal": draw(st.booleans()),
        "mean_if_blind": draw(st.booleans()),
    }
    graph = Graph(name="attention")

    def input(name: str, shape: Sequence[int], dtype: Any = F64) -> Tensor:
        return graph.add_input(TensorType(dtype, tuple(shape)), name)

    with building(graph):
        query = input("query", (batch, time, heads, 3))
        key = input("key", (batch, source, shared, 3))
        value = input("value", (batch, source, shared, 2))
        masks = []
        for name, dtype in (("mask", BOOL), ("bias", F64)):
            if draw(st.booleans()):
                full = (batch, heads, time, source)
                shape = [size if draw(st.booleans()) else 1 for size in full]
                masks.append(input(name, shape[draw(st.sampled_from((0, 0, 2))) :], dtype))
        y = emit.emit_one(ATTENTION, (query, key, value, *masks), **attrs)
        dy = input("dy", y.shape)
        kept = []
        if draw(st.booleans()):
            kept = [input("kept", (batch, heads, time, source), BOOL)]
            attrs["dropout"] = 0.5
        operands = (query, key, value, dy, *masks, *kept)
        slopes = emit.emit_node(ATTENTION_GRADIENT, operands, **attrs).outputs
    return written(graph, [y, *slopes], "attention")


def at_once_or_by_xla(program: Program, inputs: Sequence[Any]) -> Sequence[Any]:
    """Evaluates in NumPy what has no steps: query, key, value, masks, dy, kept."""
    forward, backward = program.nodes
    if any(forward.attrs[name] or backward.attrs[name] for name in ("rows", "each_entry")):
        return by_xla(program, inputs)
    values = dict(zip(program.input_tensors(), inputs, strict=True))
    query, key, value, dy, *masks = (values[t] for t in backward.inputs)
    kept = masks.pop() / 0.5 if backward.attrs["dropout"] else 1.0
    heads, shared = query.shape[2], key.shape[2]
    key, value = (np.repeat(x, heads // shared, axis=2) for x in (key, value))
    logits = 0.5 * np.einsum("bthd,bshd->bhts", query, key)
    seen = np.tri(*logits.shape[2:], dtype=bool) | (not forward.attrs["causal"])
    for mask in masks:
        seen, logits = (seen & mask, logits) if mask.dtype == bool else (seen, logits + mask)
    weights = np.where(seen, np.exp(logits), 0)
    total = weights.sum(-1, keepdims=True)
    blind = 1 / logits.shape[3] if forward.attrs["mean_if_blind"] else 0
    weights = np.where(total > 0, weights / np.where(total > 0, total, 1), blind)
    y = np.einsum("bhts,bshe->bthe", weights, value)
    dweights = np.einsum("bthe,bshe->bhts", dy, value) * kept
    slopes = weights * (dweights - (dweights * weights).sum(-1, keepdims=True))
    slopes = np.where(seen, slopes, 0)
    of_key = 0.5 * np.einsum("bhts,bthd->bshd", slopes, query)
    of_value = np.einsum("bhts,bthe->bshe", weights * kept, dy)

    def summed(x: Any, shape: Sequence[int]) -> Any:
        shape = (1,) * (x.ndim - len(shape)) + tuple(shape)
        return x.sum(tuple(i for i, size in enumerate(shape) if size == 1), keepdims=True)

    def over_groups(x: Any) -> Any:
        return x.reshape(*x.shape[:2], shared, heads // shared, -1).sum(3)

    biases = [summed(slopes, m.shape).reshape(m.shape) for m in masks if m.dtype != bool]
    of_query = 0.5 * np.einsum("bhts,bshd->bthd", slopes, key)
    return [y, of_query, over_groups(of_key), over_groups(of_value), *biases]


@pytest.mark.slow
@pytest.mark.one_jax
def test_steps_of_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small attentions count as long in this test."""
    for name, value in {
        "_SHORTEST": 4, "_FEWEST_WEIGHTS": {"cpu": 24}, "_ROWS": 3, "_FEWER_ROWS": 2, "_LONG": 7,
    }.items():  # fmt: skip
        monkeypatch.setattr(attention_steps, name, value)
    check_preserving(
        StepAttention(Target("cpu")),
        attentions(),
        examples=30,
        least=0.5,
        evaluate=at_once_or_by_xla,
        exactly=False,
    )
