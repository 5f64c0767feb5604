"""An operator's `fold` computes on the host what its `lower` computes."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from graphc.ir.graph import Graph
from graphc.lowering.emit_jax import to_function
from tests.laws.harness import build_case, families, functional, widened
from tests.near import assert_near

FAMILIES = (
    "shape",
    "creation",
    "floats",
    "searching",
    "joining",
    "slicing",
    "indexing",
    "along_axis",
    "contraction",
    "matrix_product",
)


@pytest.mark.parametrize("family", FAMILIES)
def test_fold_equals_lowering(family: str) -> None:
    graph = Graph(seed=1)
    with graph:
        built = [
            build_case(case, dtype, f"in{i}_{dtype}")
            for i, case in enumerate(families()[family])
            for dtype in case.dtypes
        ]
    feeds = [t for b in built for t in b.tensors]
    fed = dict(zip(feeds, (a for b in built for a in b.arrays), strict=True))
    nodes = [n for n in graph.nodes if n.outputs and n.outputs[0] not in fed]
    made = [t for n in nodes for t in n.outputs]
    program = functional(graph, made, feeds)
    with jax.enable_x64(True):
        found = jax.jit(to_function(program))(*fed.values())
    values = fed | dict(zip(made, map(np.asarray, found), strict=True))
    folded = 0
    for node in nodes:
        if node.op.fold is None:
            continue
        results = node.op.fold(*[values[t] for t in node.inputs], **node.attrs)
        results = results if isinstance(results, tuple) else (results,)
        for tensor, result in zip(node.outputs, results, strict=True):
            expected = values[tensor]
            got = np.asarray(result)
            assert got.shape == expected.shape, node
            if node.op.name not in ("ReduceSum", "ReduceMean"):  # these may fold in a wider dtype
                assert got.dtype == expected.dtype, node
            near = 2e-2 if expected.dtype.itemsize <= 2 else 1e-5
            assert_near(
                widened(got), widened(expected), rtol=near, atol=near, each=True, err_msg=repr(node)
            )
            folded += 1
    assert folded > len(built) / 2
