"""One batch may have several names: all gradients can be built, and the results do not change.

The batches of x: (None, 4) and target: (None, 4) or (8, 4) have two names until an operator needs
them to be equal. Each operator of the catalogue, each layer and each loss is built with inputs and
weights of its results that share a name, have separate names, or have fixed sizes. The programs
must equal those with one name. They are compared, not run, so that few are compiled.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
import optax
import pytest

import graphc as gc
from graphc import nn
from graphc.autodiff.reverse import gradients
from graphc.build.placeholders import placeholder
from graphc.config import CompileOptions
from graphc.errors import GraphcError
from graphc.ir.compare import difference
from graphc.ir.dims import as_symbol, substitute
from graphc.ir.dtypes import is_floating
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor, position_of
from graphc.ir.program import Program
from graphc.ir.rewrite import bind_sizes
from graphc.ir.verify import verify
from graphc.lowering.emit_jax import to_function
from graphc.ops.catalogue import CATALOGUE, FUNCTIONS
from graphc.optim.step import minimize
from graphc.passes.pipelines import pipeline
from graphc.runtime.session import Session
from tests.laws import nn_table
from tests.laws.case import Case
from tests.laws.harness import (
    RANDOM_STATE,
    Array,
    as_list,
    families,
    functional,
    make_input,
    real_parts,
)
from tests.near import assert_near

OPERATORS = {
    name: tuple(
        case
        for case in cases
        if case.gradient and "float64" in case.dtypes and CATALOGUE[case.op].differentiable
    )
    for name, cases in families().items()
}
TABLES = {**{name: cases for name, cases in OPERATORS.items() if cases}, "nn": nn_table.CASES}

# The batch size of input i with n rows.
NAMINGS: dict[str, Callable[[int, int], Any]] = {
    "one name": lambda i, n: f"b{n}",
    "own names": lambda i, n: None,
    "the first named": lambda i, n: None if i == 0 else n,
    "the rest named": lambda i, n: n if i == 0 else None,
}


@dataclass(frozen=True)
class Variant:
    """How the sizes are named.

    Attributes:
        inputs: one of `NAMINGS`.
        weights: the sizes of the weights of the results: "alike" (those of the results), "named"
            (another name where the results have one), "all" named, or all "fixed".
        first: whether the weights are the first factor, so that the product takes their names.
    """

    inputs: str
    weights: str
    first: bool


OPTIONS = CompileOptions()
PLAIN = Variant("one name", "alike", True)
VARIANTS = (
    Variant("one name", "fixed", True),
    Variant("one name", "all", False),
    Variant("own names", "named", True),
    Variant("own names", "named", False),
    Variant("own names", "fixed", True),
    Variant("own names", "all", False),
    Variant("the first named", "named", True),
    Variant("the first named", "fixed", False),
    Variant("the rest named", "named", True),
    Variant("the rest named", "fixed", False),
)

# These need a batch of known size, whatever its name.
NEED_THE_SIZE = {
    ("Attention", "causal, heads cut"),
    ("Attention", "heads of queries cut"),
    ("Convolve", "same"),
    ("Convolve", "valid"),
    ("Convolve", "the longer last"),
    ("GatherNd", "a known mask"),
    ("Reverse", "getitem 15"),
    ("Slice", "getitem 4"),
}


def test_every_name_of_nn_has_a_case() -> None:
    known = {case.op for case in nn_table.CASES} | nn_table.NO_CASE | nn_table.WITHOUT_GRADIENT
    assert not set(nn.__all__) - known, "add a row to tests/laws/nn_table.py"
    assert not known - set(nn.__all__)


@pytest.mark.parametrize("table", sorted(TABLES))
def test_gradients_under_several_names(table: str) -> None:
    for case in TABLES[table]:
        if all(spec.batch_axis is None for spec in case.inputs):
            continue
        if (case.op, case.label) in NEED_THE_SIZE:
            with pytest.raises(GraphcError):
                _built(case, PLAIN)
            continue
        plain = {first: _built(case, replace(PLAIN, first=first)) for first in (True, False)}
        for variant in VARIANTS:
            title = f"{case.op} {case.label}: {variant}"
            try:
                program, _ = _built(case, variant)
            except GraphcError as error:
                raise AssertionError(title) from error
            _check_same(title, program, *plain[variant.first])


def _built(case: Case, variant: Variant) -> tuple[Program, list[Array]]:
    """The case's weighted sum and its gradients, with bound sizes, and the feeds."""
    graph = Graph(seed=1)
    sizes: dict[str, int] = {}
    feeds: list[Tensor] = []
    arrays: list[Array] = []

    def fed(array: Array, shape: Sequence[Any], name: str, axis: int | None = None) -> Tensor:
        tensor = placeholder(tuple(shape), array.dtype, name=name, batch_axis=axis)
        for dim, size in zip(tensor.shape, array.shape, strict=True):
            symbol = as_symbol(dim)
            if symbol is not None:
                sizes[symbol] = size
        feeds.append(tensor)
        arrays.append(array)
        return tensor

    with graph:
        for i, spec in enumerate(case.inputs):
            array = make_input(spec, case.dtypes[0] if case in nn_table.CASES else "float64", i)
            shape: list[Any] = list(array.shape)
            if spec.batch_axis is not None and shape[spec.batch_axis] != 1:
                shape[spec.batch_axis] = NAMINGS[variant.inputs](i, shape[spec.batch_axis])
            fed(array, shape, f"in{i}", spec.batch_axis)
        inputs = list(feeds)
        total: Tensor | None = None
        for i, part in enumerate(real_parts(as_list(case.build(*inputs)))):
            static = tuple(substitute(graph.constraints.find(d), sizes) for d in part.shape)
            array = np.random.default_rng(i).uniform(0.5, 1.5, static).astype(part.dtype)
            weights = fed(array, _weight_shape(part, static, variant.weights), f"weight{i}")
            term = FUNCTIONS.reduce_sum(weights * part if variant.first else part * weights)
            total = term if total is None else total + term
        assert total is not None, case.op
        xs = [
            tensor
            for spec, tensor in zip(case.inputs, inputs, strict=True)
            if spec.grad and is_floating(tensor.dtype)
        ]
        parameters = [v for v in graph.variables.values() if v.trainable]
        found = gradients([total], [*xs, *parameters], unconnected="zero")
    program = functional(graph, [total, *found], feeds)
    verify(program, stage="functional")
    bound = bind_sizes(program, sizes)
    verify(bound, stage="bound")
    for x, gradient in zip(xs, bound.output_tensors()[1:], strict=False):
        assert gradient.type.shape == arrays[position_of(x, feeds)].shape, case.op
    return bound, arrays


def _weight_shape(part: Tensor, static: Sequence[int], how: str) -> list[Any]:
    if how == "alike":
        return list(part.shape)
    if how == "fixed":
        return list(static)
    return [  # a named size is never 1, so it must not replace a size of 1
        size if size == 1 or (how == "named" and isinstance(dim, int)) else None
        for dim, size in zip(part.shape, static, strict=True)
    ]


def _check_same(title: str, program: Program, plain: Program, arrays: Sequence[Array]) -> None:
    """Checks that two bound programs are equal, are equal when simplified, or give equal values."""
    if difference(program, plain) is None:
        return
    if difference(_simplified(program), _simplified(plain)) is None:
        return
    for value, wanted in zip(_values(program, arrays), _values(plain, arrays), strict=True):
        near = 1e-12 if value.dtype == np.float64 else 1e-5
        scale = near * max(1.0, float(np.abs(wanted).max(initial=0)))
        assert_near(value, wanted, rtol=near, atol=scale, err_msg=title)


def _simplified(program: Program) -> Program:
    for step in pipeline(OPTIONS):
        program = step.run(program).program
    return program


def _values(program: Program, arrays: Sequence[Array]) -> list[Array]:
    """The fetched values; initial state is derived from its name."""
    values = list(arrays)
    for port in program.ports("state"):
        known = RANDOM_STATE.get(port.name)
        rng = np.random.default_rng(zlib.crc32(port.name.encode()))
        shape, dtype = port.tensor.type.shape, port.tensor.type.dtype
        values.append(rng.uniform(0.1, 1, shape).astype(dtype) if known is None else known)
    count = len(program.ports("fetch"))
    with jax.enable_x64(True):
        return [np.asarray(v) for v in jax.jit(to_function(program))(*values)[:count]]


def _trained(batches: tuple[Any, Any], layer: Callable[[], Any]) -> list[Array]:
    """The loss of each of three steps, and the parameters after them."""
    rng = np.random.default_rng(0)
    with Graph(seed=0) as graph:
        target = placeholder((batches[1], 5, 4), name="target")
        x = placeholder((batches[0], 5, 4), name="x")
        loss = FUNCTIONS.reduce_mean(nn.squared_error(predictions=layer()(x), labels=target))
        step = minimize(loss, optax.sgd(0.1))
    session = Session(graph)
    feeds = {t: rng.standard_normal((8, 5, 4)).astype(np.float32) for t in (x, target)}
    losses = [np.asarray(session.run([step, loss], feeds)[1]) for _ in range(3)]
    return [*losses, *(np.asarray(session.get(v.name)) for v in graph.variables.values())]


def test_training_under_two_names() -> None:
    """Runs the steps with one name, with two names, and with a name and a fixed size."""

    def layer() -> nn.Layer:
        return nn.Sequential(
            [nn.TransformerBlock(4, 2), lambda x: nn.BatchNorm(local=True)(x, training=True)]
        )

    wanted = _trained(("batch", "batch"), layer)
    assert wanted[2] < wanted[0]
    for batches in ((None, None), (None, 8), (8, None)):
        for value, expected in zip(_trained(batches, layer), wanted, strict=True):
            assert_near(value, expected, rtol=1e-5, atol=1e-6, err_msg=str(batches))


def _x(*shape: Any, dtype: str = "float32") -> Tensor:
    return placeholder(shape, dtype, name="x")


# Functions of several operands that require equal sizes before they make a node.
ASKING = {
    "segment_sum": lambda n: gc.segment_sum(_x(None, 3), _x(n, dtype="int32"), 4),
    "associative_scan": lambda n: gc.associative_scan(lambda a, b: a + b * 0 + _x(n), _x(3, None)),
    "tensorsolve": lambda n: gc.linalg.tensorsolve(_x(None, n), _x(n)),
    "khatri_rao": lambda n: gc.linalg.khatri_rao(_x(2, None), _x(3, n)),
    "matrix_power": lambda n: gc.linalg.matrix_power(_x(None, n), 2),
    "multivariate_normal": lambda n: gc.random.multivariate_normal(_x(None), _x(n, n)),
    "normal": lambda n: gc.random.normal((_x(None).shape[0],), mean=_x(n)),
    "weibull": lambda n: gc.random.weibull(_x(None), 1.0, (_x(n).shape[0],)),
    "gamma": lambda n: gc.random.gamma(_x(None), 1.0, (_x(n).shape[0],)),
    "categorical": lambda n: gc.random.categorical(_x(None, 3), shape=(_x(n).shape[0],)),
    "choice": lambda n: gc.random.choice(n or 4, (2,), p=_x(None)),
    "einsum": lambda n: gc.einsum("ii->i", _x(None, n)),
    "max_unpool": lambda n: nn.max_unpool(_x(None, 2, 3), _x(n, 2, 3, dtype="int32"), (4,)),
    "a cell's state": lambda n: nn.GRUCell(4)(_x(None, 3), _x(n, None)),
    "function": lambda n: gc.function(lambda a, b: a + b)(_x(None), _x(n)),
    "scan": lambda n: gc.scan(lambda c, x: (c + x, None), _x(n), _x(5, None)),
    "cond": lambda n: gc.cond(True, lambda a, b: a, lambda a, b: b, _x(None), _x(n)),
}


@pytest.mark.parametrize("size", [None, 4], ids=["named", "fixed"])
@pytest.mark.parametrize("name", ASKING)
def test_functions_ask_for_equal_sizes(name: str, size: int | None) -> None:
    with Graph() as graph:
        found = ASKING[name](size)
    fetches = [t for t in jax.tree.leaves(found) if isinstance(t, Tensor)]
    functional(graph, fetches, [n.outputs[0] for n in graph.nodes if n.op.name == "Placeholder"])
    assert graph.constraints.equalities()


def test_a_function_is_traced_once_for_two_names_of_one_size() -> None:
    calls = []

    def double(x: Tensor) -> Tensor:
        calls.append(x)
        return x * 2

    with Graph():
        f = gc.function(double)
        x, y = placeholder((None,), name="x"), placeholder((None,), name="y")
        gc.add(x, y)
        f(x), f(y)
    assert len(calls) == 1


def test_apply_gradients_takes_a_gradient_of_a_named_size() -> None:
    with Graph():
        v = gc.variable(np.zeros(3, np.float32), name="v")
        gc.train.apply_gradients([(_x(None), v)], optax.sgd(1.0))
        with pytest.raises(GraphcError, match="must be f32"):
            gc.train.apply_gradients([(_x(2), v)], optax.sgd(1.0))
