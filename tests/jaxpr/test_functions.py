"""Imported functions compared with JAX: values and gradients, in one compilation each."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from graphc.autodiff import gradients
from graphc.build import constant, placeholder
from graphc.ir.capture import capture
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.jaxpr import from_jax
from graphc.jaxpr.table import RULES
from graphc.lowering.emit_jax import to_function
from graphc.ops.structure.state import READ_VARIABLE
from graphc.passes.simplify.functionalize import Functionalize
from tests.jaxpr.any_functions import ANY
from tests.jaxpr.functions import ROWS as FIRST
from tests.jaxpr.functions import Row
from tests.jaxpr.more_functions import MORE
from tests.near import assert_near

# The first test that needs the rows compiles all of them in one program.
pytestmark = pytest.mark.xdist_group("imported functions")

Array = np.ndarray[Any, Any]
ROWS = (*FIRST, *MORE, *ANY)

# Primitives that some JAX version does not make, or only inside other programs.
UNSEEN = {
    "add_any", "checkpoint", "empty", "empty2", "pmin",
    "closed_call", "copy_p", "core_call", "expand_dims", "name", "pjit",
    "scatter_add", "dim_as_value", "call_hi_primitive", "tile", "unstack", "log2",
    "one_minus_square", "polynomial", "debug_callback", "debug_print", "io_callback",
    "graphc_loss", "graphc_slopes", "graphc_slope_along", "graphc_curvature",  # tests/optim
}  # fmt: skip


def arguments(row: Row) -> list[Array]:
    rng = np.random.default_rng(sum(map(ord, row.label)))
    return [
        shape
        if isinstance(shape, np.ndarray)
        else rng.uniform(row.low, row.high, shape).astype(row.dtype)
        for shape in row.shapes
    ]


def drawn(row: Row) -> list[int]:
    """The arguments with respect to which gradients are taken."""
    return [i for i, shape in enumerate(row.shapes) if not isinstance(shape, np.ndarray)]


def floating(results: Any) -> list[Any]:
    leaves = jax.tree.leaves(results)
    return [y for y in leaves if np.issubdtype(np.dtype(y.dtype), np.floating)]


def weights(shape: Any, i: int) -> Array:
    return np.cos(np.arange(np.prod(shape, dtype=int)) + i).reshape(shape)


def jax_loss(row: Row) -> Any:
    def loss(*args: Any) -> Any:
        ys = floating(row.fn(*args))
        return sum(jnp.nansum(y * weights(y.shape, i)) for i, y in enumerate(ys))

    return loss


def compiled(function: Any, *args: Any) -> Any:
    """Compiled with little optimization, because most of the time is compilation."""
    lowered = jax.jit(function).lower(*args)
    return lowered.compile({"xla_backend_optimization_level": 0})(*args)


@pytest.fixture(scope="module")
def imported() -> dict[str, Any]:
    """Label -> (results, gradients) of every row, in one program."""
    labels: dict[str, Any] = {}
    feeds: list[Tensor] = []
    values: list[Array] = []
    fetches: list[Tensor] = []
    with Graph() as graph:
        for row in ROWS:
            args = arguments(row)
            xs = [placeholder(a.shape, a.dtype) for a in args]
            feeds += xs
            values += args
            results = jax.tree.leaves(from_jax(row.fn)(*xs))
            found: list[Any] = []
            if row.gradient:
                ys = floating(results)
                seeds = [constant(weights(y.shape, i).astype(y.dtype)) for i, y in enumerate(ys)]
                found = gradients(ys, [xs[i] for i in drawn(row)], seeds, unconnected="zero")
            labels[row.label] = (len(fetches), len(results), len(found))
            fetches += [*results, *found]
    distinct = list(dict.fromkeys(fetches))
    program = Functionalize().run(capture(graph, distinct, feeds, READ_VARIABLE)).program
    with jax.enable_x64(True):
        outputs = compiled(to_function(program), *values)
    by_tensor = dict(zip(distinct, map(np.asarray, outputs), strict=True))
    everything = [by_tensor[t] for t in fetches]
    return {
        label: (everything[at : at + n], everything[at + n : at + n + m])
        for label, (at, n, m) in labels.items()
    }


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    """The results that JAX computes."""

    def everything(values: list[list[Any]]) -> list[Any]:
        found = []
        for row, args in zip(ROWS, values, strict=True):
            gradient = jax.grad(jax_loss(row), drawn(row))(*args) if row.gradient else ()
            found.append((jax.tree.leaves(row.fn(*args)), list(gradient)))
        return found

    with jax.enable_x64(True):
        results = compiled(everything, [arguments(row) for row in ROWS])
    return dict(zip([row.label for row in ROWS], results, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.label)
def test_imported_function_equals_itself(row: Row, imported: Any, expected: Any) -> None:
    tolerance = 1e-12 if row.dtype == "float64" else 1e-3
    for part in (0, 1):
        got, wanted = imported[row.label][part], expected[row.label][part]
        assert len(got) == len(wanted)
        for a, b in zip(got, wanted, strict=True):
            assert a.dtype == b.dtype
            assert_near(a, b, rtol=tolerance, atol=tolerance)


def primitives_of(jaxpr: Any) -> set[str]:
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    names = set()
    for eqn in inner.eqns:
        names.add(eqn.primitive.name)
        for value in eqn.params.values():
            if hasattr(value, "eqns") or hasattr(value, "jaxpr"):
                names |= primitives_of(value)
    return names


def test_rows_are_about_what_they_say_and_cover_the_table() -> None:
    seen: set[str] = set()
    with jax.enable_x64(True):
        for row in ROWS:
            names = primitives_of(jax.make_jaxpr(row.fn)(*arguments(row)))
            assert set(row.primitives) <= names, row.label
            seen |= names
    assert set(RULES) - seen - UNSEEN == set()
    assert len({row.label for row in ROWS}) == len(ROWS)
