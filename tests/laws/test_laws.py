"""The laws that every operator of the catalogue obeys.

There is one program per operator, for all its cases and dtypes: one per case would take hours.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import pytest

from graphc.autodiff.reverse import gradients
from graphc.build.placeholders import placeholder
from graphc.config import CompileOptions
from graphc.devices.strategy import DataParallel
from graphc.errors import GraphcError
from graphc.ir.compare import difference
from graphc.ir.fingerprint import fingerprint
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.ir.parse import parse_program
from graphc.ir.program import Program
from graphc.ir.serial import dump_program, load_program
from graphc.ir.text import print_program
from graphc.ir.verify import verify
from graphc.lowering.emit_jax import to_function
from graphc.ops.catalogue import CATALOGUE, FUNCTIONS
from graphc.ops.catalogue import FAMILIES as FAMILIES_OF_OPERATORS
from graphc.runtime.session import Session
from tests.laws.case import Bad, Case
from tests.laws.dtypes import representative
from tests.laws.harness import (
    Array,
    Built,
    build_case,
    evaluate,
    families,
    functional,
    make_input,
    random_state,
    tolerance,
    widened,
)
from tests.near import assert_near

FAMILIES = families()
BY_OP: dict[str, list[Case]] = {}
for cases in FAMILIES.values():
    for case in cases:
        BY_OP.setdefault(case.op, []).append(case)

# Operators that no user function makes alone, with the test that covers them.
ELSEWHERE = {
    "Placeholder": "every law feeds through it",
    "ReadVariable": "tests/runtime: gone after functionalize",
    "Assign": "tests/runtime: gone after functionalize",
    "Group": "tests/runtime: a fetch without a value",
    "RandomKey": "tests/runtime: gone after functionalize",
    "AllReduce": "tests/devices: stands in local programs only",
    "ReduceScatter": "tests/devices: stands in local programs only",
    "AllGather": "tests/devices: stands in local programs only",
    "ShardSlice": "tests/devices: stands in local programs only",
    "PaddedPiece": "tests/devices: stands in local programs only",
    "FillPadding": "tests/devices: stands in local programs only",
    "ReplicaIndex": "tests/devices: stands in local programs only",
    "OnReplicaZero": "tests/devices: stands in local programs only",
    "Whole": "tests/devices/test_gather_parameters.py: only `GatherParameters` makes it",
    "LocalBatchNorm": "tests/nn/layers/test_local_batch_norm.py: differs by the number of devices",
    "LocalBatchNormGradient": "tests/nn/layers/test_local_batch_norm.py: differs by their number",
    "LossAdjoint": "tests/passes/simplify/test_marks_and_casts.py: a mark, set by `minimize`",
    "Gradients": "tests/passes/simplify/test_marks_and_casts.py: a mark, set by `minimize`",
    "Updated": "tests/passes/simplify/test_marks_and_casts.py: a mark, set by `minimize`",
    "Map": "tests/ops/control/test_mapping.py: made by the pass `GroupAlike` alone",
    "UpdateByRows": "tests/ops/matrices/test_row_updates.py: only `CpuUpdateByRows` makes it",
    "PyCallback": "tests/ops/structure/test_host.py: a Python function has no text",
    "PureCallback": "tests/ops/structure/test_host.py: a Python function has no text",
    "NonFinite": "tests/runtime/targets/test_numerics.py: put in by `CheckNumerics` alone",
    "OutOfRange": "tests/runtime/targets/test_ranges.py: put in by `CheckNumerics` alone",
    "FirstFault": "tests/runtime/targets/test_numerics.py: put in by `CheckNumerics` alone",
    "KeepFault": "tests/runtime/targets/test_numerics.py: put in by `CheckNumerics` alone",
    "Print": "tests/ops/structure/test_host.py: it has no result",
}


def test_every_operator_has_a_case() -> None:
    own = {op.name for family in FAMILIES_OF_OPERATORS for op in family.OPS}
    missing = own - BY_OP.keys() - ELSEWHERE.keys()
    assert not missing, f"operators without a law case: {sorted(missing)}"
    assert not BY_OP.keys() - CATALOGUE.keys()


def test_every_operator_states_its_part_in_mixed_precision() -> None:
    missing = [name for name, op in CATALOGUE.items() if op.precision is None]
    assert not missing, f"OpDef.precision is to be stated for {missing}"


def build_all(
    cases: Sequence[Case], only: str | None = None, once: Case | None = None
) -> tuple[Graph, list[Built]]:
    """A graph of all cases with all their dtypes.

    Args:
        only: use this dtype alone.
        once: a case that is built only with the first of its dtypes.
    """
    graph = Graph(seed=1)
    with graph:
        built = [
            build_case(case, dtype, f"in{i}_{dtype}")
            for i, case in enumerate(cases)
            for dtype in (case.dtypes[:1] if case is once else case.dtypes)
            if only is None or dtype == only
        ]
    return graph, built


@pytest.mark.parametrize("op", sorted(BY_OP))
def test_values_types_and_round_trips(op: str) -> None:
    known = representative(op)  # tests/laws/test_dtypes.py runs it with all
    graph, built = build_all(BY_OP[op], once=known and known[0])
    assert any(node.op.name == op for node in graph.nodes), f"no case makes a {op} node"
    fetches = list(dict.fromkeys(t for b in built for t in b.outputs))
    feeds = [t for b in built for t in b.tensors]
    program = functional(graph, fetches, feeds)
    verify(program, stage="functional")
    check_round_trips(program)
    values = dict(
        zip(fetches, evaluate(program, [a for b in built for a in b.arrays]), strict=True)
    )
    for b in built:
        for tensor in b.outputs:
            value = values[tensor]
            assert value.dtype == tensor.type.dtype, f"{b.title}: dtype"
            assert value.shape == tensor.type.shape, f"{b.title}: shape"
        check_oracle(b, [values[t] for t in b.outputs])


def check_oracle(b: Built, got: Sequence[Array]) -> None:
    if b.case.oracle is None:
        return
    # The oracle computes in float64, whatever the tested dtype.
    wanted = b.case.oracle(*[widened(a) for a in b.arrays])
    wanted = wanted if isinstance(wanted, (tuple, list)) else (wanted,)
    assert len(wanted) == len(got), b.title
    for value, expected in zip(got, wanted, strict=True):
        assert_near(
            widened(value),
            np.asarray(expected),
            **tolerance(b.case, value.dtype),
            each=True,
            err_msg=b.title,
        )


def check_round_trips(program) -> None:
    again = parse_program(print_program(program), CATALOGUE)
    assert difference(program, again) is None
    manifest, arrays = dump_program(program)
    assert difference(program, load_program(manifest, arrays, CATALOGUE)) is None
    assert fingerprint(again) == fingerprint(program)


def weighted_sum(b: Built) -> Tensor | None:
    """A scalar that depends on every inexact result with different weights."""
    total = None
    for i, tensor in enumerate(b.outputs):
        parts = [tensor]
        if tensor.type.dtype == np.complex128:
            parts = [FUNCTIONS.real(tensor), FUNCTIONS.imag(tensor)]
        for part in parts:
            if part.type.dtype == np.float64:
                term = FUNCTIONS.reduce_sum(part * weights(part.type.shape, i))
                total = term if total is None else total + term
    return total


def weights(shape: Sequence[int], i: int) -> Array:
    return np.random.default_rng(100 + i).uniform(0.5, 1.5, shape)


DIFFERENTIABLE = sorted(
    op
    for op, cases in BY_OP.items()
    if CATALOGUE[op].differentiable and any(c.gradient and "float64" in c.dtypes for c in cases)
)


@pytest.mark.slow
@pytest.mark.parametrize("op", DIFFERENTIABLE)
def test_gradient(op: str) -> None:
    cases = [c for c in BY_OP[op] if c.gradient and "float64" in c.dtypes]
    graph, built = build_all(cases, only="float64")
    wanted: list[tuple[Built, int, Tensor]] = []
    losses = []
    with graph:
        for b in built:
            loss = weighted_sum(b)
            xs = [
                i
                for i, (spec, t) in enumerate(zip(b.case.inputs, b.tensors, strict=True))
                if spec.grad and t.type.dtype == np.float64
            ]
            assert loss is not None and xs, f"{b.title}: nothing to differentiate"
            losses.append(loss)
            found = gradients([loss], [b.tensors[i] for i in xs])
            wanted += [(b, i, g) for i, g in zip(xs, found, strict=True)]
    feeds = [t for b in built for t in b.tensors]
    arrays = [a for b in built for a in b.arrays]
    # Losses too: the gradient of a linear operator uses none of its inputs.
    program = functional(graph, [*(g for _, _, g in wanted), *losses], feeds)
    verify(program, stage="functional")
    values, expected = and_by_jax(program, functional(graph, losses, feeds), arrays)
    position = {t: i for i, t in enumerate(feeds)}
    for (b, i, g), value in zip(wanted, values[: len(wanted)], strict=True):
        assert g.type == b.tensors[i].type, f"{b.title}: type of the gradient of input {i}"
        assert_near(
            value,
            expected[position[b.tensors[i]]],
            rtol=1e-8,
            atol=1e-9,
            err_msg=f"{b.title}: input {i}, against jax.grad",
        )
        if b.case.oracle is not None:
            assert_near(
                value,
                finite_differences(b, i),
                rtol=1e-4,
                atol=1e-5,
                err_msg=f"{b.title}: input {i}, against finite differences",
            )


def and_by_jax(
    program: Program, losses: Program, arrays: Sequence[Array]
) -> tuple[list[Array], dict[int, Array]]:
    """The fetches of a program, and the gradient of the sum of the losses by `jax.grad`, by input
    position. One compilation for both takes two thirds of the time."""
    wrt = [i for i, a in enumerate(arrays) if a.dtype == np.float64]
    function = to_function(losses)
    count = len(losses.ports("fetch"))

    def total(differentiated: Sequence[Any], values: Sequence[Any], state: Sequence[Any]) -> Any:
        full = list(values)
        for i, value in zip(wrt, differentiated, strict=True):
            full[i] = value
        return sum(function(*full, *state)[:count])

    def both(values: Sequence[Any], state: Sequence[Any], other: Sequence[Any]) -> Any:
        slopes = jax.grad(total)([values[i] for i in wrt], values, other)
        return to_function(program)(*values, *state), slopes

    with jax.enable_x64(True):
        values, slopes = jax.jit(both)(list(arrays), random_state(program), random_state(losses))
    found = [np.asarray(v) for v in values[: len(program.ports("fetch"))]]
    return found, {i: np.asarray(g) for i, g in zip(wrt, slopes, strict=True)}


def finite_differences(b: Built, position: int, step: float = 1e-6) -> Array:
    """Central differences of the oracle, element by element."""

    def loss(arrays: Sequence[Array]) -> float:
        results = b.case.oracle(*arrays)
        results = results if isinstance(results, (tuple, list)) else (results,)
        return sum(
            float(np.sum((np.real(r) + np.imag(r)) * weights(np.shape(r), i)))
            for i, r in enumerate(results)
            if b.outputs[i].type.dtype in (np.float64, np.complex128)
        )

    base = [a.copy() for a in b.arrays]
    result = np.zeros_like(base[position])
    for index in np.ndindex(result.shape):
        original = base[position][index]
        base[position][index] = original + step
        above = loss(base)
        base[position][index] = original - step
        below = loss(base)
        base[position][index] = original
        result[index] = (above - below) / (2 * step)
    return result


LAYOUT_DTYPES = ("float64", "float32", "int32", "bool", "complex64")


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_layout(family: str) -> None:
    """A family's program gives the same on four devices as on one. For two devices and operands in
    every layout, see tests/devices/test_layout_rules.py."""
    cases = [
        case
        for case in FAMILIES[family]
        if case.layout and any(spec.batch_axis is not None for spec in case.inputs)
    ]
    if not cases:
        pytest.skip("no case of this family has a batch")
    graph = Graph(seed=1)
    with graph:
        built = []
        for i, case in enumerate(cases):
            dtype = next(d for d in (*LAYOUT_DTYPES, *case.dtypes) if d in case.dtypes)
            built.append(build_case(case, dtype, f"in{i}"))
    fetches = [t for b in built for t in b.outputs]
    feeds = {t: a for b in built for t, a in zip(b.tensors, b.arrays, strict=True)}
    alone = Session(graph).run(fetches, feeds)
    options = CompileOptions(max_in_flight=1)
    together = Session(graph, strategy=DataParallel(4), options=options).run(fetches, feeds)
    position = 0
    for b in built:
        for _ in b.outputs:
            a, c = np.asarray(alone[position]), np.asarray(together[position])
            position += 1
            assert a.shape == c.shape and a.dtype == c.dtype, b.title
            near = 1e-10 if a.dtype == np.float64 else 1e-4
            assert_near(widened(c), widened(a), rtol=near, atol=near, err_msg=b.title)


CPU_ONLY = {
    name for name in CATALOGUE if CATALOGUE[name].cpu_only
}  # JAX has no lowering for other devices
UNPROMISED = [  # JAX may change these calls: they may be lowered, but not stored
    jax.export.DisabledSafetyCheck.custom_call(name)
    for name in ("cuhybrid_eig_real", "cuhybrid_eig_comp", "cu_cholesky_update_ffi")
]


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_lowers_for_cuda(family: str) -> None:
    """The lowering for a GPU must work without a GPU."""
    cases = FAMILIES[family]
    graph, built = build_all([c for c in cases if c.dtypes and c.op not in CPU_ONLY])
    fetches = list(dict.fromkeys(t for b in built for t in b.outputs))
    program = functional(graph, fetches, [t for b in built for t in b.tensors])
    arguments = [jax.ShapeDtypeStruct(t.type.shape, t.type.dtype) for t in program.input_tensors()]
    with jax.enable_x64(True):
        exported = jax.export.export(
            jax.jit(to_function(program)), platforms=("cuda",), disabled_checks=UNPROMISED
        )
        assert "func.func public @main" in exported(*arguments).mlir_module()


BAD = [
    pytest.param(bad, id=f"{case.op}-{n}-{i}")
    for cases in FAMILIES.values()
    for n, case in enumerate(cases)
    for i, bad in enumerate(case.bad)
]


@pytest.mark.parametrize("bad", BAD)
def test_bad_input(bad: Bad) -> None:
    """One clear error names this file's line and leaves the graph unchanged."""
    graph = Graph()
    with graph:
        tensors = []
        for i, spec in enumerate(bad.inputs):
            dtype = make_input(spec, "float32", i).dtype
            tensors.append(placeholder(spec.shape, dtype, name=f"in{i}"))
        before = len(graph.nodes)
        with pytest.raises(bad.error) as caught:
            bad.call(*tensors)
    assert isinstance(caught.value, GraphcError)
    text = str(caught.value)
    assert re.search(bad.match, text), text
    assert re.search(r"(test_laws|cases_\w+)\.py:\d+", text), f"no user's line in: {text}"
    made = {node.op.name for node in graph.nodes[before:]}
    assert not made - {"Constant", "Cast", "Slice", "Reshape", "InRange"}  # of operands
