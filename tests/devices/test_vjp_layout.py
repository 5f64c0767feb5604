"""Adjoints by `jax.vjp` on replicas are computed in pieces if the operator itself is."""

from __future__ import annotations

import numpy as np
import pytest

from graphc.autodiff import gradients
from graphc.build.placeholders import placeholder
from graphc.config import CompileOptions
from graphc.devices.replicate import Replicate
from graphc.devices.strategy import DataParallel
from graphc.ir.graph import Graph
from graphc.ops import linalg, random
from graphc.ops.arrays.shape import reshape, transpose
from graphc.ops.reductions.reduction import reduce_sum
from graphc.runtime.session import Session
from tests.laws.harness import functional
from tests.near import assert_near

FAR = 4 * np.eye(3)
BATCH = np.random.default_rng(0).uniform(size=(4, 3, 3))
WHOLE = np.random.default_rng(1).uniform(size=(3, 3))

# What each makes of a batch a [4, 3, 3] and of a replicated w [3, 3].
CUT = {
    "pieces of both operands": lambda a, w: linalg.solve(a + FAR, a) * w,
    "a whole operand": lambda a, w: linalg.solve(w + FAR, a),
    "the other one whole": lambda a, w: linalg.solve(a + FAR, w),
    "the columns cut": lambda a, w: linalg.solve(
        w + FAR, reshape(transpose(a, (1, 2, 0)), (3, 3, 4))[:, 0]
    ),
    "two results": lambda a, w: linalg.slogdet(a + w + FAR)[1],
}
GATHERED = {
    "no rule for pieces": lambda a, w: random.gamma(a + w),
    "a sum as operand": lambda a, w: linalg.det(reduce_sum(a, 0) + w),
}


def built(functions):
    with Graph(seed=1) as graph:
        a = placeholder(BATCH.shape, "float64", name="a", batch_axis=0)
        w = placeholder(WHOLE.shape, "float64", name="w", batch_axis=None)
        fetches = [g for f in functions for g in gradients([f(a, w)], [a, w])]
    return graph, fetches, {a: BATCH, w: WHOLE}


@pytest.mark.slow
def test_values() -> None:
    graph, fetches, feeds = built([*CUT.values(), *GATHERED.values()])
    options = CompileOptions(max_in_flight=1)
    alone = Session(graph).run(fetches, feeds)
    together = Session(graph, strategy=DataParallel(2), options=options).run(fetches, feeds)
    names = [f"{name}, {x}" for name in (*CUT, *GATHERED) for x in "aw"]
    for name, one, other in zip(names, alone, together, strict=True):
        assert_near(other, one, rtol=1e-9, atol=1e-9, err_msg=name)


def test_what_can_be_computed_in_pieces_is_not_gathered() -> None:
    graph, fetches, feeds = built(CUT.values())
    local = Replicate(2).replicate(functional(graph, fetches, list(feeds))).program
    made = [node.op.name for node in local.nodes]
    assert "VJP" in made and "AllReduce" in made and "AllGather" not in made
