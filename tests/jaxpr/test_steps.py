"""Whole training steps, imported and in JAX, give the same results; one compilation each."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import graphc as gc
from graphc.ir.capture import capture
from graphc.lowering.emit_jax import to_function
from graphc.ops.structure.state import READ_VARIABLE
from graphc.passes.simplify.functionalize import Functionalize
from tests.jaxpr.steps import LSTM, STEPS, VAE, Step
from tests.near import assert_near


def compiled(function: Any, *args: Any) -> Any:
    lowered = jax.jit(function).lower(*args)
    return lowered.compile({"xla_backend_optimization_level": 0})(*args)


pytestmark = pytest.mark.xdist_group("steps")  # one process runs the expensive fixtures


@pytest.fixture(scope="module")
def imported() -> dict[str, Any]:
    results, feeds, values = {}, [], []
    with gc.Graph() as graph:
        for step in STEPS:
            args = jax.tree.map(lambda a: gc.placeholder(a.shape, a.dtype), step.args)
            feeds += jax.tree.leaves(args)
            values += jax.tree.leaves(step.args)
            results[step.name] = gc.from_jax(step.fn)(*args)
    fetches = list(dict.fromkeys(jax.tree.leaves(results)))
    program = Functionalize().run(capture(graph, fetches, feeds, READ_VARIABLE)).program
    with jax.enable_x64(True):
        outputs = dict(zip(fetches, compiled(to_function(program), *values), strict=True))
    return jax.tree.map(lambda t: outputs[t], results)


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    def everything(args: Any) -> Any:
        return [step.fn(*a) for step, a in zip(STEPS, args, strict=True)]

    with jax.enable_x64(True):
        found = compiled(everything, [step.args for step in STEPS])
    return {step.name: result for step, result in zip(STEPS, found, strict=True)}


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_an_imported_step_equals_itself(step: Step, imported: Any, expected: Any) -> None:
    got, wanted = imported[step.name], expected[step.name]
    assert jax.tree.structure(got) == jax.tree.structure(wanted)
    changed = 0
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        assert a.dtype == b.dtype
        tolerance = 1e-5 if step.name == "accumulated" else 1e-12  # this step computes in float32
        assert_near(a, b, rtol=tolerance, atol=tolerance)
        changed += np.size(a)
    assert changed


@pytest.mark.parametrize("step", [LSTM, VAE], ids=lambda step: step.name)
def test_an_imported_step_trains(step: Step) -> None:
    """Parameters and optimizer state are variables, assigned from the results of the step."""
    params, opt_state, *batch = step.args
    with gc.Graph() as graph:
        state = jax.tree.map(gc.variable, (params, opt_state))
        feeds = [gc.placeholder(a.shape, a.dtype) for a in batch]
        *new, loss = gc.from_jax(step.fn)(*state, *feeds)
        assigned = jax.tree.map(lambda v, t: v.assign(t), state, tuple(new))
        train = gc.group(*jax.tree.leaves(assigned))
    session = gc.Session(graph)
    given = dict(zip(feeds, batch, strict=True))
    got = [float(session.run([train, loss], given)[1]) for _ in range(4)]
    wanted = []
    with jax.enable_x64(True):
        jitted = jax.jit(step.fn)
        for _ in range(4):
            params, opt_state, value = jitted(params, opt_state, *batch)
            wanted.append(float(value))
    assert got[-1] < got[0]
    assert_near(got, wanted, rtol=1e-11)
