"""Layout rules of shape, index and product operators need no unnecessary gather."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from graphc.build.placeholders import placeholder
from graphc.ir.graph import Graph
from graphc.ir.layouts import REPLICATED, Partial, Sharded
from graphc.ops.arrays.subscript import getitem
from graphc.ops.catalogue import FUNCTIONS as ops

R, SUM, MAX = REPLICATED, Partial("sum"), Partial("max")
S0, S1, S2, S3 = map(Sharded, range(4))
X = (8, 6, 4)  # on 4 replicas
INT, F = "int32", "float32"


def x_of(call, shape=X):
    return call, [(shape, F)]


# operator, layouts of the operands, required layouts, layout of the result, local attributes
PLANS = [
    (x_of(lambda x: ops.reshape(x, (8, 24))), [S0], [S0], S0, {"shape": (2, 24)}),
    (x_of(lambda x: ops.reshape(x, (48, 4))), [S0], [S0], S0, {"shape": (12, 4)}),
    (x_of(lambda x: ops.reshape(x, (4, 2, 24))), [S0], [S0], S0, {"shape": (1, 2, 24)}),
    (x_of(lambda x: ops.reshape(x, (1, 8, 24))), [S0], [S0], S1, {"shape": (1, 2, 24)}),
    (x_of(lambda x: ops.reshape(x, (2, 96))), [S0], [R], R, None),
    (x_of(lambda x: ops.reshape(x, (48, 2, 2))), [S2], [R], R, None),
    (x_of(lambda x: ops.reshape(x, (8, 24))), [SUM], [SUM], SUM, None),
    (x_of(lambda x: ops.reshape(x, (8, 24))), [MAX], [MAX], MAX, None),
    (x_of(lambda x: ops.reshape(x, (6, 32)), (6, 8, 4)), [S1], [S1], S1, {"shape": (6, 8)}),
    (x_of(lambda x: ops.reshape(x, (48, 4)), (6, 8, 4)), [S1], [R], R, None),
    (x_of(lambda x: ops.transpose(x, (1, 2, 0))), [S0], [S0], S2, None),
    (x_of(lambda x: ops.transpose(x, (1, 2, 0))), [SUM], [SUM], SUM, None),
    (x_of(lambda x: ops.broadcast_to(x, (3, *X))), [S0], [S0], S1, {"shape": (3, 2, 6, 4)}),
    (x_of(lambda x: ops.broadcast_to(x, (3, *X))), [SUM], [R], R, None),
    (x_of(lambda x: getitem(x, (slice(None), 2))), [S0], [S0], S0, {"limits": (2, 3, 4)}),
    (x_of(lambda x: x[1:]), [S0], [R], R, None),
    (x_of(lambda x: x[1:]), [SUM], [SUM], SUM, None),
    (x_of(lambda x: ops.flip(x, 1)), [S0], [S0], S0, None),
    (x_of(lambda x: ops.flip(x, 0)), [S0], [R], R, None),
    (x_of(lambda x: ops.split(x, 2, 1)), [S0], [S0], S0, None),
    (x_of(lambda x: ops.split(x, 2, 0)), [S0], [R], R, None),
    (
        x_of(lambda x: ops.pad_with(x, 0, [(0, 0, 0), (1, 1, 0), (0, 0, 0)])),
        [S0, R],
        [S0, R],
        S0,
        None,
    ),
    (x_of(lambda x: ops.pad_with(x, 0, [(1, 0, 0)] * 3)), [S0, R], [R, R], R, None),
    (x_of(lambda x: ops.pad_with(x, 0, [(1, 0, 0)] * 3)), [SUM, R], [SUM, SUM], SUM, None),
    (x_of(lambda x: ops.concatenate([x, x], 1)), [S0, R], [S0, S0], S0, None),
    (x_of(lambda x: ops.concatenate([x, x], 0)), [S0, S0], [R, R], R, None),
    (x_of(lambda x: ops.concatenate([x, x], 0)), [SUM, SUM], [SUM, SUM], SUM, None),
    (x_of(lambda x: ops.concatenate([x, x], 0)), [SUM, R], [R, R], R, None),
    ((ops.take, [((10, 3), F), ((8, 5), INT)]), [R, S0], [R, S0], S0, None),
    ((lambda x, i: ops.take(x, i, 1), [((8, 3), F), ((8, 5), INT)]), [R, S0], [R, S0], S1, None),
    ((lambda x, i: ops.take(x, i, 1), [((8, 3), F), ((2, 5), INT)]), [S0, R], [S0, R], S0, None),
    ((ops.take, [((10, 8), F), ((2, 5), INT)]), [S1, R], [S1, R], S2, None),
    ((ops.take, [((8, 3), F), ((8,), INT)]), [S0, S0], [R, S0], S0, None),
    ((ops.take, [((8, 3), F), ((8,), INT)]), [SUM, R], [SUM, R], SUM, None),
    ((ops.take, [((8, 3), F), ((8,), INT)]), [SUM, S0], [R, S0], S0, None),
    ((lambda i: ops.one_hot(i, 3), [((8, 5), INT)]), [S0], [S0], S0, None),
    ((lambda i: ops.one_hot(i, 3, axis=0), [((8, 5), INT)]), [S0], [S0], S1, None),
]


SCATTER = (ops.scatter_add, [((10, 3), F), ((8, 5), INT), ((8, 5, 3), F)])
ALONG = (ops.take_along_axis, [((8, 10), F), ((8, 1), INT)])
PUT = (ops.scatter_add_along_axis, [((8, 10), F), ((8, 1), INT), ((8, 1), F)])
PLANS += [
    (SCATTER, [R, S0, S0], [SUM, S0, S0], SUM, None),
    (SCATTER, [R, S0, R], [SUM, S0, S0], SUM, None),
    (SCATTER, [R, R, S1], [SUM, S1, S1], SUM, None),
    (SCATTER, [R, R, S2], [S1, R, S2], S1, None),
    (SCATTER, [S1, R, R], [S1, R, S2], S1, None),
    (SCATTER, [R, R, SUM], [SUM, R, SUM], SUM, None),
    (SCATTER, [SUM, R, R], [SUM, R, SUM], SUM, None),
    (SCATTER, [R, R, R], [R, R, R], R, None),
    (ALONG, [S0, S0], [S0, S0], S0, None),
    (ALONG, [R, S0], [S0, S0], S0, None),
    (ALONG, [SUM, R], [SUM, R], SUM, None),
    (PUT, [R, S0, S0], [S0, S0, S0], S0, None),
    (PUT, [R, R, SUM], [SUM, R, SUM], SUM, None),
]

MATRIX = (ops.matmul, [((8, 4), F), ((4, 12), F)])
SQUARE = (ops.matmul, [((8, 8), F), ((8, 8), F)])
KERNEL = (lambda a, b: ops.matmul(a, b, transpose_a=True), [((8, 4), F), ((8, 12), F)])
BATCHED = (ops.matmul, [((4, 8, 2, 3), F), ((8, 3, 5), F)])
FLAGS = (ops.matmul, [((8, 4), "bool"), ((4, 12), "bool")])
DOT = (
    lambda a, b: ops.dot_general(a, b, ((0, 2), (2, 1)), ((1,), (0,))),
    [((8, 4, 12, 16), F), ((4, 12, 8, 20), F)],
)
PLANS += [
    (MATRIX, [S0, R], [S0, R], S0, None),
    (MATRIX, [R, S1], [R, S1], S1, None),
    (MATRIX, [S1, R], [S1, S0], SUM, None),
    (MATRIX, [R, S0], [S1, S0], SUM, None),
    (MATRIX, [SUM, R], [SUM, R], SUM, None),
    (MATRIX, [R, SUM], [R, SUM], SUM, None),
    (MATRIX, [SUM, SUM], [R, R], R, None),
    (MATRIX, [S0, SUM], [S0, R], S0, None),
    (SQUARE, [S0, S0], [S0, R], S0, None),
    (KERNEL, [S0, S0], [S0, S0], SUM, None),
    (BATCHED, [S0, R], [S0, R], S0, None),
    (BATCHED, [S1, R], [S1, S0], S1, None),
    (BATCHED, [R, S0], [S1, S0], S1, None),
    (BATCHED, [S2, R], [S2, R], S2, None),
    (BATCHED, [S3, R], [S3, S1], SUM, None),
    (FLAGS, [S1, R], [R, R], R, None),
    (FLAGS, [S0, R], [S0, R], S0, None),
    (DOT, [S0, R], [S0, S2], SUM, None),
    (DOT, [S1, R], [S1, S0], S0, None),
    (DOT, [S3, R], [S3, R], S1, None),
    (DOT, [R, S3], [R, S3], S2, None),
    (DOT, [R, S1], [S2, S1], SUM, None),
]


@pytest.mark.parametrize("n", range(len(PLANS)))
def test_plan(n: int) -> None:
    (call, inputs), given, required, result, attrs = PLANS[n]
    graph = Graph()
    with graph:
        tensors = [placeholder(s, d, name=f"x{i}") for i, (s, d) in enumerate(inputs)]
        call(*tensors)
    node = next(n for n in graph.nodes if len(n.inputs) == len(given) and n.op.layout is not None)
    plan = node.op.layout(SimpleNamespace(replicas=4), node, *given)
    assert list(plan.operands) == required
    assert list(plan.results) == [result] * len(node.outputs)
    assert (dict(plan.attrs) if plan.attrs else None) == attrs
