"""A program with loops, for a GPU that is short of memory, against the program without loops:
their buffers and results are equal."""

from __future__ import annotations

import numpy as np
import optax
import pytest

import graphc as gc
from graphc.config import CompileOptions
from graphc.passes.core.target import Target
from graphc.passes.pipelines import on_device
from graphc.runtime.buffers.layout import StateLayout
from graphc.runtime.buffers.state_buffers import physical, propose
from graphc.runtime.feeds.fetches import FetchNest, resolve_feeds
from graphc.runtime.state.initial import state_types
from graphc.runtime.targets.prepare import bind, evaluate, prepare
from tests.near import assert_near


@pytest.mark.slow
def test_loops_take_the_buffers_of_the_flat_program() -> None:
    g = gc.Graph(seed=0)
    with g:
        x = gc.placeholder((4, 8), name="x")
        h = x
        for i in range(12):
            h = h + gc.nn.gelu(
                gc.nn.Dense(8, name=f"layer{i}")(gc.nn.LayerNorm(name=f"norm{i}")(h))
            )
        loss = gc.reduce_mean(h * h, name="loss")
        train = gc.minimize(loss, optax.adam(0.1), name="train")
    options = CompileOptions()
    nest = FetchNest(g, [train, loss])
    prepared = prepare(g, nest.distinct, list(resolve_feeds(g, {"x": (4, 8)})), options)
    flat, tight = (
        bind(prepared, {}, options, Target("gpu", tight=tight))[0] for tight in (False, True)
    )
    scans = [sum(node.op.name == "Scan" for node in each.nodes) for each in (flat, tight)]
    assert scans == [0, 2]
    layout = StateLayout({}).with_variables(state_types(g))
    layout = layout.with_groups(propose(flat, layout))
    programs = [physical(each, layout) for each in (flat, tight)]
    ports = [[(p.name, p.kind, p.tensor.type) for p in each.inputs] for each in programs]
    assert ports[0] == ports[1]
    rng = np.random.default_rng(0)
    inputs = [
        rng.uniform(0.5, 1, t.type.shape).astype(t.type.dtype) for t in programs[0].input_tensors()
    ]
    expected = evaluate(programs[0], inputs)
    for program in programs:
        for a_pass in on_device(options, "gpu", 0):
            program = a_pass.run(program).program
        for got, wanted in zip(evaluate(program, inputs), expected, strict=True):
            assert_near(got, wanted, 1e-4)
