"""Operators whose record says that they work row by row: one row of the operands gives that row of
the result."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pytest

import graphc as gc
from graphc.build.placeholders import placeholder
from graphc.ir.dim_constraints import DimConstraints
from graphc.ir.graph import Graph
from graphc.ir.node import Node, Tensor
from graphc.ir.program import region
from graphc.ir.rows import ByRows
from graphc.lowering.emit_jax import to_function
from graphc.passes.core.rowwise import attrs_of, by_rows, resized
from tests.laws.harness import Array, Built, build_case, evaluate, functional, tolerance, widened
from tests.laws.test_laws import BY_OP
from tests.near import assert_near

# Operators whose results may be sums over rows. The others return a row of the result.
SUMS = {"ConvKernelGradient", "DotGeneral", "MatMul", "RaggedDot", "ReduceMean", "ReduceSum"}
SUMS |= {"Variance"}


def claims(node: Node) -> list[tuple[ByRows, Any]]:
    """What the record says about the rows along each axis of each operand, and their number."""
    found: list[tuple[ByRows, Any]] = []
    for i, operand in enumerate(node.inputs):
        for axis, size in enumerate(operand.type.shape):
            axes = [axis if i == j else None for j in range(len(node.inputs))]
            how = by_rows(node, axes, size) if type(size) is int and size > 1 else None
            if how is not None and (how, size) not in found:
                found.append((how, size))
    return found


def one_row(node: Node, how: ByRows) -> Node:
    """The node for one row instead of all rows."""
    attrs = attrs_of(node, how, 1)
    inputs = tuple(
        Tensor(t.type if a is None else t.type._replace(shape=resized(t.type.shape, a, 1)), "")
        for t, a in zip(node.inputs, how.operands, strict=True)
    )
    (type_of_row,) = node.op.infer_types(inputs, attrs, DimConstraints())
    return node.replace(inputs=inputs, outputs=(Tensor(type_of_row, ""),), attrs=attrs)


@dataclass(frozen=True)
class Claim:
    """A node that works row by row: in which way, on how many rows, and its operands' values."""

    built: Built
    node: Node
    how: ByRows
    rows: int
    operands: list[Array]
    expected: Array

    def cut(self, row: int) -> list[Array]:
        return [
            value if axis is None else np.take(value, [row], axis)
            for value, axis in zip(self.operands, self.how.operands, strict=True)
        ]

    def check(self, parts: Sequence[Array]) -> None:
        axis = self.how.axis
        found = sum(parts) if axis is None else np.concatenate(parts, axis)
        near: dict[str, Any] = dict(tolerance(self.built.case, self.expected.dtype))
        assert_near(
            widened(np.asarray(found)),
            widened(self.expected),
            each=True,
            err_msg=f"{self.built.title}: {self.how}",
            **near,
        )


def claims_of(op: str) -> Iterator[Claim]:
    """All claims for the cases of an operator, each case with its first dtype."""
    with Graph(seed=1) as graph:
        every = [
            (build_case(case, case.dtypes[0], f"in{i}"), len(graph.nodes))
            for i, case in enumerate(BY_OP[op])
        ]
    ends = [end for _, end in every]
    said = [
        (every[bisect_right(ends, i)][0], node, *claim)
        for i, node in enumerate(graph.nodes)
        if node.op.name == op
        for claim in claims(node)
    ]
    seen = list(dict.fromkeys(t for _, n, *_ in said for t in (*n.inputs, *n.outputs)))
    if seen:
        feeds = [t for built, _ in every for t in built.tensors]
        arrays = evaluate(functional(graph, seen, feeds), [a for b, _ in every for a in b.arrays])
        values = dict(zip(seen, arrays, strict=True))
        for built, node, how, rows in said:
            operands = [values[t] for t in node.inputs]
            yield Claim(built, node, how, rows, operands, values[node.outputs[0]])


@pytest.mark.parametrize("op", sorted(BY_OP))
def test_one_row(op: str) -> None:
    found = list(claims_of(op))
    assert op in SUMS or not [claim.how for claim in found if claim.how.axis is None]
    singles = [one_row(claim.node, claim.how) for claim in found]
    functions = [to_function(region("row", n.inputs, [n], n.outputs)) for n in singles]

    @jax.jit  # one compilation per operator: programs are small, and there are many
    def compute(cuts: list[list[Any]]) -> list[Any]:
        return [f(*cut)[0] for f, cut in zip(functions, cuts, strict=True)]

    with jax.enable_x64(True):
        count = max((claim.rows for claim in found), default=0)
        by_row = [
            compute([claim.cut(min(row, claim.rows - 1)) for claim in found])
            for row in range(count)
        ]
    for i, claim in enumerate(found):
        claim.check([np.asarray(by_row[row][i]) for row in range(claim.rows)])


def test_no_axis_that_an_operator_looks_along_has_rows() -> None:
    with Graph() as graph:
        x = placeholder((4, 3), "float32", name="x")
        gc.cumsum(x, 0)
        gc.sort(x, 1)
        gc.softmax(x)
        gc.reduce_max(x, 0)
        gc.nn.dropout(x, 0.5)
        gc.matmul(x, np.ones((3, 2), np.float32))
        gc.reshape(x, (2, 6))
    said = {node.op.name: [how[:2] for how, _ in claims(node)] for node in graph.nodes}
    assert {op: found for op, found in said.items() if found} == {
        "CumSum": [((1,), 1)],
        "Sort": [((0,), 0)],
        "Softmax": [((0,), 0)],
        "ReduceMax": [((1,), 0)],
        "MatMul": [((0, None), 0), ((1, 0), None), ((None, 1), 1)],
    }
