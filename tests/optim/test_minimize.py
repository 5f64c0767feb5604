"""`minimize` compared with hand-written optax: every transformation in one program, five steps."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import optax
import pytest
from jax import lax
from jax import numpy as jnp
from jax.experimental import io_callback

from graphc.build import add_to_collection, name_scope, placeholder, variable
from graphc.errors import (
    AttributeValueError,
    DTypeError,
    GradientError,
    GraphError,
    JaxImportError,
    ShapeError,
)
from graphc.ir.graph import Graph
from graphc.ir.node import Node, Tensor
from graphc.ops.catalogue import FUNCTIONS as ops
from graphc.optim import minimize
from graphc.runtime.session import Session
from tests.compiling import optimised
from tests.near import assert_near
from tests.optim.transformations import TRANSFORMATIONS, WARM

Array = np.ndarray[Any, Any]
STEPS = 5


def start(label: str) -> dict[str, Array]:
    rng = np.random.default_rng(sum(map(ord, label)))
    return {
        "hidden/kernel": rng.normal(size=(4, 5)),
        "hidden/bias": rng.normal(size=5),
        "out/kernel": rng.normal(size=(5, 2)),
        "out/bias": np.zeros(2),
    }


def batches() -> list[Array]:
    rng = np.random.default_rng(7)
    return [rng.normal(size=(6, 4)) for _ in range(STEPS)]


def scope_of(label: str) -> str:
    return label.replace(" ", "_")


def build(x: Tensor, label: str) -> tuple[Tensor, Node]:
    """The network, whose variables have a separate scope, and its training step."""
    with name_scope(scope_of(label)):
        v = {name: variable(value, name=name) for name, value in start(label).items()}
        hidden = ops.tanh(ops.matmul(x, v["hidden/kernel"]) + v["hidden/bias"])
        out = ops.matmul(hidden, v["out/kernel"]) + v["out/bias"]
        loss = ops.reduce_mean(ops.square(out - 1.0))
        return loss, minimize(loss, TRANSFORMATIONS[label](), variables=list(v.values()))


def jax_loss(params: Any, x: Any, prefix: str) -> Any:
    hidden = jnp.tanh(x @ params[prefix + "hidden/kernel"] + params[prefix + "hidden/bias"])
    out = hidden @ params[prefix + "out/kernel"] + params[prefix + "out/bias"]
    return jnp.mean((out - 1.0) ** 2)


def taken(update: Any, extras: dict[str, Any]) -> dict[str, Any]:
    """Sharpness-aware minimization accepts no further extra arguments."""
    own = inspect.signature(update).parameters
    everything = any(p.kind is p.VAR_KEYWORD for p in own.values())
    return extras if everything else {k: v for k, v in extras.items() if k in own}


def value_fn(x: Any, prefix: str, params: Any, grad_fn: Any = None) -> Any:
    """The loss in the form for line searches, which refuse other extra arguments."""
    return jax_loss(params, x, prefix)


# optax computes their warm-up in float32. On JAX 0.12 without optimizations (conftest.py), XLA
# rounds it differently in two programs, so these are compiled as for users.
OPTIMISED = ["schedule_free"]
QUICK = [label for label in TRANSFORMATIONS if label not in OPTIMISED]

pytestmark = pytest.mark.xdist_group("minimize")  # one process runs the expensive fixtures


@pytest.fixture(scope="module")
def trained() -> dict[str, tuple[list[float], dict[str, Array]]]:
    """Label -> losses and final variables, by graphc."""
    with optimised():
        found = train_by_graphc(OPTIMISED)
    return found | train_by_graphc(QUICK)


def train_by_graphc(labels: Sequence[str]) -> dict[str, tuple[list[float], dict[str, Array]]]:
    with Graph() as graph:
        x = placeholder((6, 4), "float64", name="x")
        built = [build(x, label) for label in labels]
    session = Session(graph)
    losses = []
    for batch in batches():
        losses.append(session.run([built], {x: batch})[0])
    return {
        label: (
            [float(step[i][0]) for step in losses],
            {n: np.asarray(session.get(n)) for n in graph.variables if n.startswith(f"{scope}/")},
        )
        for i, (label, scope) in enumerate((t, scope_of(t)) for t in labels)
    }


@pytest.fixture(scope="module")
def by_hand() -> dict[str, tuple[list[float], Any, Any]]:
    """Label -> losses, final parameters and final state, by optax."""
    with optimised():
        found = train_by_optax(OPTIMISED)
    return found | train_by_optax(QUICK)


def train_by_optax(labels: Sequence[str]) -> dict[str, tuple[list[float], Any, Any]]:
    with jax.enable_x64(True):
        txs = {label: optax.with_extra_args_support(TRANSFORMATIONS[label]()) for label in labels}
        params = {
            label: {f"{scope_of(label)}/{n}": jnp.asarray(a) for n, a in start(label).items()}
            for label in txs
        }
        states = {label: tx.init(params[label]) for label, tx in txs.items()}

        @jax.jit
        def step(params: Any, states: Any, x: Any) -> Any:
            losses = {}
            for label, tx in txs.items():
                loss = functools.partial(value_fn, x, f"{scope_of(label)}/")
                losses[label], slopes = jax.value_and_grad(loss)(params[label])
                extras = {
                    "value": losses[label],
                    "grad": slopes,
                    "value_fn": loss,
                    "grad_fn": lambda p, _, loss=loss: jax.grad(loss)(p),
                }
                updates, states[label] = tx.update(
                    slopes, states[label], params[label], **taken(tx.update, extras)
                )
                params[label] = optax.apply_updates(params[label], updates)
            return params, states, losses

        history = []
        for batch in batches():
            params, states, losses = step(params, states, batch)
            history.append(losses)
    return {
        label: ([float(h[label]) for h in history], params[label], states[label]) for label in txs
    }


def slot_values(label: str, variables: dict[str, Array]) -> list[Array]:
    """The slots among the variables, in the order in which optax flattens its state."""
    own = {f"{scope_of(label)}/{name}" for name in start(label)}
    return [value for name, value in variables.items() if name not in own]


@pytest.mark.slow
@pytest.mark.parametrize("label", TRANSFORMATIONS)
def test_minimize_equals_optax(label: str, trained: Any, by_hand: Any) -> None:
    losses, variables = trained[label]
    wanted_losses, params, state = by_hand[label]
    assert_near(losses, wanted_losses, rtol=1e-12)
    assert losses[0] != losses[-1]
    for name, value in params.items():
        assert_near(variables[name], value, rtol=1e-12, atol=1e-12, err_msg=name)
    slots, wanted = slot_values(label, variables), jax.tree.leaves(state)
    assert len(slots) == len(wanted)
    for got, value in zip(slots, wanted, strict=True):
        if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            value = jax.random.key_data(value)
        assert got.dtype == value.dtype
        assert_near(got, value, rtol=1e-12, atol=1e-12)


# -- names and structure -----------------------------------------------------------------------


def small(
    tx: optax.GradientTransformation | None = None, dtype: str = "float32", **options: Any
) -> tuple[Graph, Tensor, Node]:
    with Graph() as graph:
        x = placeholder((None, 4), dtype, name="x")
        with name_scope("hidden"):
            w = variable(np.ones((4, 3), dtype), name="kernel")
        loss = ops.reduce_mean(ops.square(ops.matmul(x, w)), name="loss")
        node = minimize(loss, tx or optax.adam(0.1), **options)
    return graph, loss, node


def test_slots_are_variables_named_by_parameter_and_path() -> None:
    graph, _, node = small()
    slots = ["train/0/count", "hidden/kernel/train/0/mu", "hidden/kernel/train/0/nu"]
    assert list(graph.variables) == ["hidden/kernel", *slots]
    assert [v.name for v in graph.variables.values() if v.trainable] == ["hidden/kernel"]
    assert graph.variables["hidden/kernel/train/0/mu"].type == graph.variables["hidden/kernel"].type
    assert node.name == "train"
    assert node.op.name == "Group"


def test_names_of_injected_and_partitioned_state() -> None:
    adam = optax.inject_hyperparams(optax.adam)(0.1)
    tx = optax.partition({"a b": adam}, lambda p: dict.fromkeys(p, "a b"))
    graph, _, _ = small(tx, name="step")
    inner = "inner_states/a_b/inner_state"
    assert f"step/{inner}/hyperparams/learning_rate" in graph.variables
    assert f"hidden/kernel/step/{inner}/inner_state/0/mu" in graph.variables


def test_steps_of_one_name_stay_apart() -> None:
    graph, loss, first = small()
    with graph:
        second = minimize(loss, optax.adam(0.2))
    assert (first.name, second.name) == ("train", "train_1")
    assert "hidden/kernel/train_1/0/mu" in graph.variables
    assert not any(name.endswith("_1") for name in graph.variables)


def test_step_is_in_the_name_scope_of_its_creation() -> None:
    with Graph() as graph:
        w = variable(np.ones(3, np.float32), name="w")
        with name_scope("outer"):
            node = minimize(ops.reduce_sum(ops.square(w)), optax.adam(0.1))
    assert node.name == "outer/train"
    assert "w/outer/train/0/mu" in graph.variables
    assert "outer/train/0/count" in graph.variables


def test_zero_state_needs_no_nodes_and_other_state_its_own() -> None:
    graph, _, _ = small(optax.adagrad(0.1, initial_accumulator_value=0.5))
    assert not any("/init/" in node.name for node in graph.nodes)
    assert Session(graph).get("hidden/kernel/train/0/sum_of_squares").tolist() == [[0.5] * 3] * 4
    graph, _, _ = small(_anchored())
    anchor = Session(graph).get("hidden/kernel/train/anchor")
    np.testing.assert_array_equal(anchor, np.full((4, 3), 2.0))


def _anchored() -> optax.GradientTransformation:
    """A transformation whose state starts at twice the parameters."""

    def init(params: Any) -> Any:
        return {"anchor": jax.tree.map(lambda p: 2.0 * p, params)}

    def update(updates: Any, state: Any, params: Any = None) -> Any:
        return jax.tree.map(lambda u, a: -0.1 * (u + a), updates, state["anchor"]), state

    return optax.GradientTransformation(init, update)


def test_nodes_of_the_step_carry_the_line_of_minimize() -> None:
    graph, _, node = small()
    lines = {n.source for n in graph.nodes if n.name.startswith("train/update/")}
    assert lines == {node.source}
    assert node.source is not None
    assert "minimize(loss" in node.source.code


def test_half_precision_parameters_keep_their_dtype() -> None:
    graph, loss, node = small(optax.adamw(WARM), dtype="bfloat16")
    session = Session(graph)
    session.run([node, loss], {"x": np.ones((2, 4), jnp.bfloat16)})
    assert session.get("hidden/kernel").dtype == jnp.bfloat16
    assert session.get("hidden/kernel/train/0/mu").dtype == jnp.bfloat16


def test_only_the_given_variables_are_trained() -> None:
    with Graph() as graph:
        a = variable(np.ones(2, np.float32), name="a")
        b = variable(np.ones(2, np.float32), name="b")
        variable(np.ones(2, np.float32), name="unused")
        loss = ops.reduce_sum(ops.square(a) * b)
        only_b = minimize(loss, optax.sgd(0.1), variables=[b])
        both = minimize(loss, optax.sgd(0.1), name="both")
    session = Session(graph)
    session.run(only_b, {})
    assert session.get("a").tolist() == [1.0, 1.0]
    assert_near(session.get("b"), 0.9, rtol=1e-6)
    session.run(both, {})
    assert_near(session.get("a"), 1 - 0.1 * 2 * 0.9, rtol=1e-6)
    assert session.get("unused").tolist() == [1.0, 1.0]


def test_all_assignments_use_values_from_before_the_step() -> None:
    # p1 <- p1 - g1(p1, p0): wrong if p0 were assigned first.
    with Graph() as graph:
        p = [variable(np.array(v, np.float32), name=f"p{i}") for i, v in enumerate((2.0, 3.0))]
        node = minimize(p[0] * p[1], optax.sgd(1.0))
    session = Session(graph)
    session.run(node, {})
    assert (float(session.get("p0")), float(session.get("p1"))) == (-1.0, 1.0)


def test_updates_of_what_the_loss_computes_run_too() -> None:
    with Graph() as graph:
        x = placeholder((3,), name="x")
        w = variable(np.ones(3, np.float32), name="w")
        related = variable(np.zeros(3, np.float32), name="related", trainable=False)
        apart = variable(np.zeros(3, np.float32), name="apart", trainable=False)
        h = ops.multiply(x, w)
        add_to_collection("updates", related.assign(h * 2.0))
        add_to_collection("updates", apart.assign(x + 1.0))  # shares only the feed
        node = minimize(ops.reduce_sum(h), optax.sgd(0.5))
    session = Session(graph)
    session.run(node, {x: np.array([1, 2, 3], np.float32)})
    assert session.get("related").tolist() == [2.0, 4.0, 6.0]
    assert session.get("apart").tolist() == [0.0, 0.0, 0.0]


# -- errors ------------------------------------------------------------------------------------


def in_graph(build: Any) -> Any:
    with Graph():
        w = variable(np.ones(2, np.float32), name="w")
        return build(w)


@pytest.mark.parametrize(
    ("build", "error", "text"),
    [
        (
            lambda w: minimize(ops.square(w), optax.sgd(0.1)),
            ShapeError,
            "the loss must be a scalar, got f32\\[2\\]",
        ),
        (
            lambda w: minimize(ops.argmax(w), optax.sgd(0.1)),
            DTypeError,
            "the loss must be floating, got i32\\[\\]",
        ),
        (lambda w: minimize(1.0, optax.sgd(0.1)), GraphError, "the loss must be a tensor"),
        (
            lambda w: minimize(ops.reduce_sum(w), 0.1),
            AttributeValueError,
            "0.1 is not an optax transformation",
        ),
        (
            lambda w: minimize(ops.reduce_sum(ops.zeros(2)), optax.sgd(0.1)),
            GradientError,
            "depends on no trainable variable",
        ),
        (
            lambda w: minimize(
                ops.reduce_sum(w),
                optax.sgd(0.1),
                variables=[w, variable(np.ones(2, np.float32), name="other")],
            ),
            GradientError,
            "no gradient path from 'other'",
        ),
        (
            lambda w: minimize(
                ops.reduce_sum(w),
                optax.sgd(0.1),
                variables=[w, variable(np.ones(2, np.float32), name="mean", trainable=False)],
            ),
            GradientError,
            "(?s)from 'mean'.*not trainable: leave it out, as a layer's trainable_variables",
        ),
        (
            lambda w: minimize(ops.reduce_sum(w), optax.sgd(0.1), variables=[]),
            GradientError,
            "no variables are given",
        ),
    ],
)
def test_errors(build: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        in_graph(build)


@pytest.mark.parametrize(
    ("change", "text", "place"),
    [
        (
            lambda u: u * lax.rng_uniform(0.0, 1.0, u.shape).astype(u.dtype),
            "JAX primitive 'rng_uniform': these random numbers",
            "in <lambda>, test_minimize.py",
        ),
        (lambda u: io_callback(np.sin, u, u), "it prints or calls back to Python", "leave that"),
    ],
    ids=["primitive", "callback"],
)
def test_what_cannot_be_imported_is_named(change: Any, text: str, place: str) -> None:
    def update(updates: Any, state: Any, params: Any = None) -> Any:
        return jax.tree.map(change, updates), state

    with pytest.raises(JaxImportError) as caught:
        small(optax.GradientTransformation(lambda p: (), update))
    assert f"minimize: this optax transformation cannot be used: {text}" in str(caught.value)
    assert place in str(caught.value) and "test_minimize.py" in str(caught.value.source)


def test_a_transformation_that_keeps_a_random_key() -> None:
    tx = optax.chain(optax.add_noise(0.1, 0.5, jax.random.key(3)), optax.sgd(0.1))
    graph, _, node = small(tx)
    session = Session(graph)
    params = {"hidden/kernel": jnp.ones((4, 3))}
    state = tx.init(params)
    for _ in range(2):
        session.run(node, {"x": np.zeros((2, 4), np.float32)})  # the gradient is only noise
        updates, state = tx.update(jax.tree.map(jnp.zeros_like, params), state, params)
        params = optax.apply_updates(params, updates)
    assert_near(session.get("hidden/kernel"), params["hidden/kernel"], rtol=1e-6)


def test_an_update_that_changes_its_state_is_refused() -> None:
    def update(updates: Any, state: Any, params: Any = None) -> Any:
        return updates, {"count": state["count"] + 0.5}

    tx = optax.GradientTransformation(lambda p: {"count": jnp.zeros((), jnp.int32)}, update)
    with pytest.raises(JaxImportError, match=r"makes f32\[\] of the state 'train/count', a i32"):
        small(tx)
