"""The default passes on every operator of the catalogue, with its gradient.

The generated programs of test_meaning.py show that values do not change. This test shows that no
operator, body or adjoint makes a pass fail, and that new nodes have the types of `infer`.
"""

from __future__ import annotations

import pytest

from graphc.autodiff.reverse import gradients
from graphc.config import CompileOptions
from graphc.ir.dtypes import is_inexact
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.passes.manager import PassManager
from graphc.passes.pipelines import pipeline
from tests.laws.harness import Built, build_case, families, functional

FAMILIES = families()


def adjoints(b: Built) -> list[Tensor]:
    """The gradients of the inexact results with respect to the inputs."""
    xs = [
        t for t, spec in zip(b.tensors, b.case.inputs, strict=True)
        if spec.grad and is_inexact(t.type.dtype)
    ]  # fmt: skip
    ys = [t for t in b.outputs if is_inexact(t.type.dtype)]
    if not (xs and ys and b.case.gradient):
        return []
    return [g for g in gradients(ys, xs, unconnected="zero") if g is not None]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_comes_through(family: str) -> None:
    graph = Graph(seed=1)
    with graph:
        built = [
            build_case(case, case.dtypes[-1], f"in{i}") for i, case in enumerate(FAMILIES[family])
        ]
        fetches = [t for b in built for t in (*b.outputs, *adjoints(b))]
    before = functional(graph, list(dict.fromkeys(fetches)), [t for b in built for t in b.tensors])
    after, report = PassManager(pipeline(CompileOptions())).run(before)
    assert report.rows[-1].after <= report.rows[0].before
    assert [p.tensor.type for p in after.outputs] == [p.tensor.type for p in before.outputs]
    settled, _ = PassManager(pipeline(CompileOptions())).run(after)
    assert settled is after, "two rounds were not enough"
