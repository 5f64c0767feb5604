"""Branches by platform: which branch a platform takes, and what is refused."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax import lax
from jax import numpy as jnp

import graphc as gc
from graphc.errors import AttributeValueError, LoweringError, ShapeError
from graphc.ir.capture import capture
from graphc.ops.control.branching import add_switch
from graphc.ops.control.platforms import nodes_on, number_on, platform_index
from graphc.ops.structure.state import READ_VARIABLE
from tests.near import assert_near

X = np.arange(3.0, dtype=np.float32)
EACH = {"a": gc.sin, "b": gc.cos, "c": gc.tanh}


@pytest.mark.parametrize(
    ("platform", "number"), [("cpu", 2), ("tpu", 0), ("cuda", 1), ("rocm", 1), ("other", 2)]
)
def test_the_branch_of_a_platform(platform: str, number: int) -> None:
    assert number_on("tpu;cuda,rocm;others", platform) == number
    assert number_on("cpu;tpu", "cuda") is None


def switched(platforms: str) -> gc.Graph:
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((3,), name="x")
        add_switch("cond", platform_index(platforms), EACH, (x,), "chosen", platforms)
    return graph


@pytest.mark.parametrize(
    ("platforms", "platform", "ops"),
    [
        ("cpu;cuda;others", "cpu", {"Sin"}),
        ("cpu;cuda;others", "cuda", {"Cos"}),
        ("cpu;cuda;others", "rocm", {"Tanh"}),
        ("cpu;cuda;others", "gpu", set()),  # perhaps one, perhaps another
        ("cpu;cuda,rocm;others", "gpu", {"Cos"}),
        ("cpu;tpu;others", "gpu", {"Tanh"}),
    ],
)
def test_the_nodes_that_a_platform_runs(platforms: str, platform: str, ops: set[str]) -> None:
    graph = switched(platforms)
    chosen = [graph.node("chosen").outputs[0]]
    program = capture(graph, chosen, [graph.node("x").outputs[0]], READ_VARIABLE)
    found = {node.op.name for node in nodes_on(program, platform)}
    assert found & {"Sin", "Cos", "Tanh"} == ops


@pytest.mark.parametrize(
    "platforms", ["", "cpu,;others", "cpu;cpu", "cpu;others,cpu", "gpu;others", "default"]
)
def test_a_platform_has_one_branch(platforms: str) -> None:
    with gc.Graph(), pytest.raises(AttributeValueError, match="name each platform once"):
        platform_index(platforms)


def test_each_branch_has_platforms() -> None:
    with gc.Graph(), pytest.raises(ShapeError, match="2 groups of platforms for 3 branches"):
        add_switch("cond", platform_index("cpu;others"), EACH, (X,), None, "cpu;others")


def nested(x: Any) -> Any:
    def inner(x: Any) -> Any:
        return lax.platform_dependent(x, tpu=jnp.exp, rocm=jnp.exp, default=lambda x: x * 3)

    def step(carry: Any, _: Any) -> Any:
        return lax.platform_dependent(carry, cuda=jnp.tanh, cpu=inner, tpu=jnp.tanh), None

    return lax.scan(step, x, length=3)[0]


def test_branches_in_branches_in_a_loop_and_their_gradient() -> None:
    for function in (nested, jax.grad(lambda x: nested(x).sum())):
        graph = gc.Graph()
        with graph:
            x = gc.placeholder((3,), name="x")
            y = gc.from_jax(function)(x)
        assert_near(gc.Session(graph).run(y, {x: X}), function(X), rtol=1e-6)
    with graph.extend():
        slope = gc.gradients(gc.sum(gc.from_jax(nested)(x)), x)
    assert_near(gc.Session(graph).run(slope, {x: X}), np.full(3, 27.0), rtol=1e-6)


def test_a_platform_without_a_branch() -> None:
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((3,), name="x")
        y = gc.from_jax(lambda x: lax.platform_dependent(x, cuda=jnp.sin, tpu=jnp.cos))(x)
    with pytest.raises(LoweringError, match="has no branch for cpu") as caught:
        gc.Session(graph).run(y, {x: X})
    assert "test_platforms.py" in str(caught.value) and "cuda, tpu" in str(caught.value)
