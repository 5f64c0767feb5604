"""What JAX traced of an optimizer: equal nodes each time, for its current hyperparameters."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import optax
import pytest
from jax import numpy as jnp

from graphc.build import variable
from graphc.ir.compare import difference
from graphc.ir.dtypes import FLOAT32
from graphc.ir.graph import Graph
from graphc.ir.program import Program, region
from graphc.ir.scopes import at_source
from graphc.ir.source import Source
from graphc.ir.types import TensorType
from graphc.ops.catalogue import FUNCTIONS as ops
from graphc.ops.core.emit import constant
from graphc.optim import minimize
from graphc.optim.recipe import Slot, paste
from graphc.runtime.session import Session
from tests.near import assert_near
from tests.optim.transformations import TRANSFORMATIONS


def build(tx: Any) -> Graph:
    with Graph() as graph:
        w = variable(np.ones((4, 3), np.float32), name="kernel")
        b = variable(np.ones(3, np.float32), name="bias")
        minimize(ops.reduce_mean(ops.square(ops.reduce_sum(w, axis=0) + b)), tx)
    return graph


def program_of(graph: Graph) -> Program:
    return region("step", graph.inputs, graph.nodes, [])


@pytest.mark.parametrize("label", TRANSFORMATIONS)
def test_a_transformation_made_twice_gives_the_same_nodes_names_and_state(label: str) -> None:
    """Otherwise later processes could not find the compiled step."""
    one, other = (build(TRANSFORMATIONS[label]()) for _ in range(2))
    assert difference(program_of(one), program_of(other)) is None
    assert [n.name for n in one.nodes] == [n.name for n in other.nodes]
    assert [(n, v.type) for n, v in one.variables.items()] == [
        (n, v.type) for n, v in other.variables.items()
    ]


def test_every_dtype_and_value_of_a_slot_is_the_initial_value() -> None:
    state = {
        "half": jnp.full((2,), -0.1, jnp.bfloat16),
        "far": jnp.full((), -jnp.inf),
        "nan": jnp.full((3,), jnp.nan),
        "flag": jnp.ones((), bool),
        "count": jnp.full((), 2**31 - 1, jnp.int32),
        "values": jnp.arange(400, dtype=jnp.float32),
        "complex": jnp.full((2,), 1 + 2j, jnp.complex64),
    }
    tx = optax.GradientTransformation(lambda p: state, lambda g, s, p=None: (g, s))
    session = Session(build(tx))
    for name, value in state.items():
        got = session.get(f"train/{name}")
        assert got.dtype == value.dtype
        assert_near(np.asarray(got), np.asarray(value), 0.0)


def test_names_of_slots() -> None:
    type = TensorType(FLOAT32, ())
    names = [
        Slot(n, p, type, None).name(["w", "b"], "train") for n in (None, 1) for p in ("", "mu")
    ]
    assert names == ["train", "train/mu", "b/train", "b/train/mu"]


def test_pasted_nodes_keep_their_lines() -> None:
    """Nodes without a line get the line of the step."""
    with Graph() as recorded:
        x = recorded.add_input(TensorType(FLOAT32, ()), "x")
        y = ops.tanh(ops.exp(x))
    first, second = recorded.nodes
    own, step = Source("rates.py", 3), Source("train.py", 7)
    nodes = [first.replace(source=own), second.replace(source=None)]
    with Graph() as graph, at_source(step):
        paste(region("r", [x], nodes, [y]), [constant(1.0)])
    assert [node.source for node in graph.nodes[-2:]] == [own, step]


# -- what a transformation depends on is read each time ----------------------------------------


class Rate:
    def __init__(self) -> None:
        self.rate = 0.1

    def __call__(self, step: Any) -> Any:
        return self.rate * jnp.ones_like(step, jnp.float32)


RATE = 0.1


def helper(step: Any) -> Any:
    return RATE * jnp.ones_like(step, jnp.float32)


def _first(step: Any, pick: Callable[[int], float]) -> float:
    return pick(0)


def _rates() -> Any:
    yield from (0.1, 0.4)


def _changes(patch: Any) -> dict[str, tuple[Any, Callable[[], Any]]]:
    """A schedule of 0.1, and functions that change it to 0.4."""
    listed, array, called = [0.1], np.array([0.1]), Rate()
    rates = _rates()
    return {
        "list in a closure": (lambda s: listed[0], lambda: listed.__setitem__(0, 0.4)),
        "array in a closure": (lambda s: array[0], lambda: array.__setitem__(0, 0.4)),
        "attribute of an object": (called, lambda: setattr(called, "rate", 0.4)),
        "global of a helper": (
            lambda s: helper(s),
            lambda: patch.setitem(globals(), "RATE", 0.4),
        ),
        "function of a module": (
            lambda s: 0.1 * jnp.cos(0.0 * s),
            lambda: patch.setattr(jnp, "cos", lambda x: 4.0 + x),
        ),
        "generator": (lambda s: next(rates), lambda: None),
        "partial of a C function": (
            functools.partial(_first, pick=listed.__getitem__),
            lambda: listed.__setitem__(0, 0.4),
        ),
    }


@pytest.mark.parametrize("label", _changes(None))
def test_a_change_behind_a_function_changes_the_next_step(label: str, monkeypatch: Any) -> None:
    schedule, change = _changes(monkeypatch)[label]
    tx = optax.chain(optax.identity(), optax.scale_by_schedule(lambda s: -schedule(s)))
    moved = []
    for turn in range(2):
        if turn:
            change()
        session = Session(build(tx))
        session.run("train", {})
        moved.append(1 - float(session.get("kernel")[0, 0]))
    assert moved[0] > 0
    assert moved[1] == pytest.approx(4 * moved[0], rel=1e-5)
