"""Passes that read and write the marks of a training step, on generated programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from graphc.ir.dtypes import as_dtype, is_floating
from graphc.ir.graph import Graph
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Port, Program
from graphc.ir.scopes import building
from graphc.ir.types import TensorType
from graphc.ir.verify import verify
from graphc.ops.arrays import joining
from graphc.ops.control import scan
from graphc.ops.core.emit import CAST, cast, constant
from graphc.ops.elementwise import arithmetic
from graphc.ops.elementwise.transcendental import tanh
from graphc.ops.matrices.matrix_product import matmul
from graphc.ops.reductions import reduction
from graphc.ops.structure.training import (
    GRADIENTS,
    LOSS_ADJOINT,
    UPDATED,
    loss_adjoint,
    step_gradients,
    step_updates,
)
from graphc.passes.core.building import node_of
from graphc.passes.core.validate import random_inputs
from graphc.passes.precision.check_numerics import NUMERICS, CheckNumerics
from graphc.passes.precision.scale_loss import GOOD_STEPS, LOSS_SCALE, ScaleLoss
from graphc.passes.simplify.drop_marks import DropMarks
from graphc.passes.simplify.spread_casts import SpreadCasts
from tests.passes.evaluate import Array, evaluate, level
from tests.passes.generate import programs
from tests.passes.generate_bodies import PLANTED, with_bodies
from tests.passes.preserving import EXAMPLES, check_preserving, for_all

MARKS = (LOSS_ADJOINT, UPDATED, GRADIENTS)

# -- marks at random positions --------------------------------------------------------------


@st.composite
def marked(draw: Any) -> Program:
    """A program with marks at any position, also on marks; some users skip them."""
    program = draw(programs(nodes=10))
    tensors = list(program.input_tensors())
    instead: dict[Tensor, Tensor] = {}
    nodes: list[Node] = []

    def now(tensor: Tensor) -> Tensor:
        while tensor in instead and draw(st.integers(0, 3)):
            tensor = instead[tensor]
        return tensor

    for node in program.nodes:
        nodes.append(node.replace(inputs=tuple(map(now, node.inputs))))
        tensors += node.outputs
        if draw(st.booleans()):
            nodes.append(mark(draw, [now(t) for t in draw(st.permutations(tensors))]))
            marks = nodes[-1].outputs
            instead.update(zip(nodes[-1].inputs[-len(marks) :], marks, strict=True))
    outputs = tuple(port._replace(tensor=now(port.tensor)) for port in program.outputs)
    return program.replace(nodes=tuple(nodes), outputs=outputs)


def mark(draw: Callable[[Any], Any], tensors: list[Tensor]) -> Node:
    """One of the marks, of the first tensor and perhaps one more."""
    step = draw(st.sampled_from(("a", "b")))
    kind = draw(st.integers(0, 2))
    if kind == 0 and is_floating(tensors[0].type.dtype):
        return node_of(LOSS_ADJOINT, tensors[:1], step=step)
    if kind == 1:
        new = [t for t in tensors if t.type == tensors[0].type][-1]
        return node_of(UPDATED, [tensors[0], new], step=step)
    count = draw(st.sampled_from((1, 1, 3)))
    return node_of(GRADIENTS, tensors[:2], step=step, accumulate=count)


def test_dropping_marks() -> None:
    def check(before: Program, after: Program) -> None:
        """Marks of sums over micro-batches remain, and no others."""
        left = [node.name for node in after.nodes if node.op in MARKS]
        several = [n.name for n in before.nodes if n.attrs.get("accumulate", 1) > 1]
        assert left == several

    check_preserving(DropMarks(), marked(), least=0.5, compared=check)


# -- casts ----------------------------------------------------------------------------------

FLOATS = [as_dtype(name) for name in ("bf16", "f16", "f32", "f64")]


@st.composite
def casts(draw: Any) -> Program:
    """Casts to wider and narrower types between nodes, in loops too; of state and of others."""
    graph = Graph(name="casts")
    kinds = ("state", "feed", "feed")
    with building(graph):
        inputs = [
            graph.add_input(TensorType(draw(st.sampled_from(FLOATS[:3])), (2,)), f"{kind}{i}")
            for i, kind in enumerate(kinds)
        ]
        first = [cast(t, draw(st.sampled_from(FLOATS[2:]))) for t in inputs]
        tensors = [*inputs, *first]

        def any_of(fits: Callable[[Tensor], bool] = lambda t: True) -> Tensor:
            found = [t for t in tensors if fits(t)]
            return found[-1] if draw(st.booleans()) else draw(st.sampled_from(found))

        def pair() -> tuple[Tensor, Tensor]:
            a = any_of()
            return a, any_of(lambda t: t.type == a.type)

        def loop(a: Tensor, b: Tensor) -> Tensor:
            return scan.scan(lambda c, _: (c - b, None), a, length=2)[0]

        steps = (
            arithmetic.add,
            arithmetic.maximum,
            lambda a, b: tanh(a),
            lambda a, b: joining.split(joining.concatenate([a, b, a], 0), 3, 0)[1],
            loop,
        )
        for _ in range(draw(st.integers(4, 12))):
            if draw(st.booleans()):
                tensors.append(cast(any_of(), draw(st.sampled_from(FLOATS))))
            else:
                tensors.append(draw(st.sampled_from(steps))(*pair()))
        tensors += map(tanh, first)
    outputs = [*tensors[-4:], any_of()]
    return Program(
        "casts",
        tuple(Port(t.name, kind, t) for t, kind in zip(inputs, kinds, strict=True)),
        tuple(graph.nodes),
        tuple(Port(f"y{i}", "fetch", t) for i, t in enumerate(outputs)),
    )


def test_spreading_casts() -> None:
    def check(before: Program, after: Program) -> None:
        """A node that rounds a variable has at most one user."""
        users, state = after.users(), set(after.input_tensors("state"))
        for node in after.nodes:
            if node.op is CAST and node.inputs[0] in state:
                takers = set(users.get(node.outputs[0], ()))
                assert len(takers) + (node.outputs[0] in set(after.output_tensors())) <= 1

    check_preserving(SpreadCasts(), casts(), least=0.3, compared=check)


# -- the loss scale -------------------------------------------------------------------------

MATRIX = TensorType(as_dtype("f64"), (2, 2))


class Step(NamedTuple):
    """A program of training steps.

    Attributes:
        groups: per name, the state that each step updates; "": state that depends on no product.
    """

    program: Program
    groups: dict[str, list[str]]


@st.composite
def training(draw: Any) -> Step:
    """One or two steps: products forward, adjoints backward, updates with or without a slot. Also a
    mean of products that is kept, and a count."""
    graph = Graph(name="training")
    ports: list[Port] = []
    given: list[Port] = []
    groups: dict[str, list[str]] = {"": ["runs"], "mean": ["mean"]}

    def state(name: str, type: TensorType = MATRIX) -> Tensor:
        given.append(Port(name, "state", graph.add_input(type, name)))
        return given[-1].tensor

    with building(graph):
        x = graph.add_input(MATRIX, "x")
        given.append(Port("x", "feed", x))
        for step in ("a", "b")[: draw(st.integers(1, 2))]:
            weights = [state(f"{step}/w{i}") for i in range(draw(st.integers(1, 3)))]
            h, forward = x, []
            for w in weights:
                forward.append(h)
                h = matmul(h, w)
                h = tanh(h) if draw(st.booleans()) else h
            ports.append(Port(f"{step}/loss", "fetch", reduction.reduce_sum(h)))
            dtype = draw(st.sampled_from(("f32", "f64")))
            one = loss_adjoint(constant(1.0, dtype), step)
            slopes, dy = [], arithmetic.multiply(cast(one, "f64"), h)
            for h, w in zip(reversed(forward), reversed(weights), strict=True):
                slopes.append(matmul(h, dy, transpose_a=True))
                dy = matmul(dy, w, transpose_b=True)
            if draw(st.booleans()):
                slopes[0] = cast(cast(slopes[0], "f32"), "f64")
            slopes = list(step_gradients(slopes[::-1], step))
            old, new = [], []
            for w, slope in zip(weights, slopes, strict=True):
                if draw(st.booleans()):
                    slot = state(f"{w.name.split(':')[0]}/slot")
                    old, slope = [*old, slot], arithmetic.add(slot * 0.5, slope)
                    new.append(slope)
                old, new = [*old, w], [*new, arithmetic.subtract(w, slope)]
            if draw(st.booleans()):
                ports.append(Port(f"{step}/norm", "fetch", reduction.reduce_sum(slopes[-1])))
            names = {p.tensor: p.name for p in given}
            groups[step] = [names[t] for t in old]
            for t, made in zip(old, step_updates(old, new, step), strict=True):
                ports.append(Port(names[t], "state", made))
        mean, runs = state("mean"), state("runs", TensorType(as_dtype("i32"), ()))
        ports.append(Port("mean", "state", mean * 0.5 + matmul(x, x)))
        ports.append(Port("runs", "state", runs + 1))
    return Step(Program("steps", tuple(given), tuple(graph.nodes), tuple(ports)), groups)


def results(program: Program, values: dict[str, Any]) -> dict[str, Array]:
    """Outputs by name, from inputs by name."""
    inputs = [values[port.name] for port in program.inputs]
    names = [port.name for port in program.outputs]
    return dict(zip(names, evaluate(program, inputs), strict=True))


def test_scaling_the_loss() -> None:
    """A good step is equal bit by bit, since the scale is a power of two, and the scale grows with
    the number of good steps. A bad step keeps the state that it updates and values of products,
    halves the scale, and changes nothing else."""
    seen: Counter[str] = Counter()
    bad_values = st.sampled_from((None, None, np.nan, np.inf))

    def run(example: tuple[Step, Any, int], seed: int) -> None:
        (before, groups), bad, count = example
        verify(before, "functional")
        after, changed = ScaleLoss(growth=5).run(before)
        assert changed == len(groups) - 2
        verify(after, "functional")
        values = dict(
            zip((p.name for p in before.inputs), random_inputs(before, seed), strict=True)
        )
        if bad is not None:
            step = "b" if "b" in groups else "a"
            values[groups[step][-1]] = values[groups[step][-1]] * bad
        scale = np.float32(2.0 ** (seed + 9))
        values |= {LOSS_SCALE: scale, GOOD_STEPS: np.int32(count)}
        want, got = results(before, values), results(after, values)
        last, number = got.pop(LOSS_SCALE), got.pop(GOOD_STEPS)
        kept = set()
        if bad is not None:
            kept = {"mean", *groups[step]}
            assert (last, number) == (scale / 2, 0)
        else:
            grown = count == 4
            assert (last, number) == (scale * (1 + grown), 0 if grown else count + 1)
        assert got.keys() == want.keys()
        for name, value in got.items():
            wanted = values[name] if name in kept else want[name]
            np.testing.assert_array_equal(value, wanted, err_msg=name)
        seen["bad" if bad is not None else "good"] += 1
        seen[f"{len(groups) - 2} steps"] += 1

    for_all(st.tuples(training(), bad_values, st.integers(0, 4)), run)
    assert min(seen[k] for k in ("bad", "good", "1 steps", "2 steps")) > EXAMPLES // 5, seen


def test_without_a_step_nothing_is_scaled() -> None:
    def run(before: Program, seed: int) -> None:
        after, changed = ScaleLoss().run(before)
        assert after is before and changed == 0

    for_all(with_bodies(), run, 10)


# -- where the first fault was made ---------------------------------------------------------


def first_fault(program: Program, inputs: Sequence[Array]) -> tuple[list[int], str, list[Array]]:
    """The level and the path of the first fault, the name of its node, and the outputs."""
    faults: list[tuple[list[int], str]] = []

    def look(path: Any, node: Node, operands: Sequence[Array], results: Sequence[Array]) -> None:
        if operands and level(results) > level(operands):
            faults.append(([level(results), *path], node.name))

    outputs = evaluate(program, inputs, look)
    return (*(faults[0] if faults else ([], "")), outputs)


def test_the_first_fault_is_named() -> None:
    """The outputs do not change. A last output reports what was made where, as `look` sees it node
    by node, or nothing. A fed infinity is no fault."""
    seen: Counter[str] = Counter()

    def run(before: Program, seed: int) -> None:
        verify(before, "functional")
        after, changed = CheckNumerics().run(before)
        assert changed == 1 and after.outputs[-1].name == NUMERICS
        verify(after, "functional")
        assert after.inputs == before.inputs
        inputs = random_inputs(before, seed)
        if seed == 3:
            inputs[2][0] = np.inf  # a feed
        want, name, outputs = first_fault(before, inputs)
        *others, fault = evaluate(after, inputs)
        for a, b in zip(outputs, others, strict=True):
            np.testing.assert_array_equal(a, b)
        found = fault.tolist()
        if not want:
            assert found[0] == 0
        else:
            assert seed == 3 or name.startswith(PLANTED)
            assert found[: len(want)] == want and set(found[len(want) :]) <= {-1}
        seen[f"in {len(want) // 2 - 1} bodies" if want else "none"] += 1
        seen["in a later turn"] += any(want[2::2])

    for_all(with_bodies(faults=1), run)
    for_all(with_bodies(faults=2), run, 30)
    for_all(with_bodies(), run, 20)
    assert seen["none"] >= 15 and seen["in 0 bodies"] and seen["in 1 bodies"], seen
    assert seen["in 2 bodies"] + seen["in 3 bodies"] and seen["in a later turn"], seen
