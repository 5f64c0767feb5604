"""The allowed contents of a StableHLO program from a file: only what graphc writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import graphc as gc
from graphc.errors import ArtifactCorruptError
from graphc.lowering.emit_jax import to_function
from graphc.untrusted.findings import findings
from graphc.untrusted.reader import _read
from graphc.untrusted.rules import NotAllowedError, check_rules, check_targets
from tests.artifacts.hostile import PROGRAMS, doubling, forge_program, module, nested
from tests.laws.harness import functional
from tests.laws.test_laws import CPU_ONLY, FAMILIES, UNPROMISED, build_all

X = np.ones((2, 2), np.float32)


# Unusual but honest programs: they run, and return what they declare.
HARMLESS = {"bits", "dynamic broadcast", "large constant", "nested", "partitions"}
# Calls of functions that no XLA library contains.
CODE = {"callback", "custom layout", "unknown composite"}


@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - {"large iota"}))
def test_a_hostile_program_does_not_run(plain: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / "model.gcx"
    forge_program(plain, path, PROGRAMS[name])
    point = gc.load(path).signatures["f"]
    if name in CODE:
        with pytest.raises(ArtifactCorruptError, match=r"a program calls '.*', which"):
            point(x=X)
    elif name in HARMLESS:
        assert np.isfinite(point(x=X)["y"]).all() and point.way == "stablehlo"
    else:
        np.testing.assert_array_equal(point(x=X)["y"], 2.0)
        assert point.way == "graph" and point.notes[0].startswith("stablehlo: ")


def found(text: str) -> dict[str, Any]:
    from jax.extend.mlir import deserialize_portable_artifact, ir, serialize_portable_artifact

    with ir.Context():
        return findings(deserialize_portable_artifact(serialize_portable_artifact(text, "1.9.0")))


def test_calls_are_counted_as_often_as_they_are_made() -> None:
    assert 4 * 2**10 < found(doubling(10))["work"] < 8 * 2**10
    assert found(doubling(11))["work"] > 2 * found(doubling(10))["work"] - 10
    assert found(doubling(60))["work"] == 2**60
    assert found(PROGRAMS["recursion"])["work"] is None
    assert found(nested(20))["work"] > 40
    with pytest.raises(NotAllowedError, match="call each other too often"):
        check_rules(found(doubling(40)), 1, refined=False)


REDUCE = """%zero = stablehlo.constant dense<0.0> : tensor<f32>
%s = "stablehlo.reduce"(%x, %zero) ({
^bb0(%a: tensor<f32>, %b: tensor<f32>):
APPLIED
stablehlo.return %c : tensor<f32>
}) {dimensions = array<i64: 0, 1>} : (tensor<2x2xf32>, tensor<f32>) -> tensor<f32>
%y = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> tensor<2x2xf32>"""


def test_values_of_a_dtype_that_graphc_has_not() -> None:
    text = """%z = stablehlo.convert %x : (tensor<2x2xf32>) -> tensor<2x2xTYPE>
%y = stablehlo.convert %z : (tensor<2x2xTYPE>) -> tensor<2x2xf32>"""
    check_rules(found(module(text.replace("TYPE", "f16"))), 1, refined=False)
    with pytest.raises(NotAllowedError, match="'f8E3M4', which graphc does not have"):
        check_rules(found(module(text.replace("TYPE", "f8E3M4"))), 1, refined=False)


def test_a_reduction_applies_arithmetic_alone() -> None:
    """XLA calls it with pieces of other shapes than the text shows."""
    plain = "%c = stablehlo.add %a, %b : tensor<f32>"
    check_rules(found(module(REDUCE.replace("APPLIED", plain))), 1, refined=False)
    other = """%d = stablehlo.reshape %a : (tensor<f32>) -> tensor<1xf32>
%c = stablehlo.reshape %d : (tensor<1xf32>) -> tensor<f32>"""
    with pytest.raises(NotAllowedError, match=r"applies 'stablehlo\.reshape'"):
        check_rules(found(module(REDUCE.replace("APPLIED", other))), 1, refined=False)


ALL_REDUCE = """%y = "stablehlo.all_reduce"(%x) ({
^bb0(%a: tensor<f32>, %b: tensor<f32>):
%c = stablehlo.add %a, %b : tensor<f32>
stablehlo.return %c : tensor<f32>
}) {replica_groups = dense<GROUPS> : tensor<1xNxi64>} : (tensor<2x2xf32>) -> tensor<2x2xf32>"""
GROUP = (
    "#stablehlo.replica_group_mesh_axes<mesh = @mesh, "
    'axes = [#stablehlo.axis_ref<name = "replica">]>'
)
IN_CONDITION = """%p = "stablehlo.partition_id"() : () -> tensor<ui32>
%q = stablehlo.constant dense<1> : tensor<ui32>
%r = stablehlo.compare EQ, %p, %q : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
%y = "stablehlo.if"(%r) ({
%z = func.call @f(%x) : (tensor<2x2xf32>) -> tensor<2x2xf32>
stablehlo.return %z : tensor<2x2xf32>
}, {
stablehlo.return %x : tensor<2x2xf32>
}) : (tensor<i1>) -> tensor<2x2xf32>"""


def test_devices_that_would_wait_forever() -> None:
    """XLA ends the process if some devices never reach a collective where others wait."""

    def reduce(groups: list[int]) -> str:
        return ALL_REDUCE.replace("GROUPS", str([groups])).replace("1xN", f"1x{len(groups)}")

    check_rules(found(module(reduce([0, 1]))), 2, refined=False)
    function = (
        "func.func private @f(%x: tensor<2x2xf32>) -> tensor<2x2xf32> {\n"
        f"{reduce([0, 1])}\nreturn %y : tensor<2x2xf32>\n}}"
    )
    meshes = {"groups": [GROUP], "meshes": ['#sdy.mesh<["replica"=2]>']}
    check_rules({**found(module(reduce([0, 1]))), **meshes}, 2, refined=False)
    for lie in (
        {"meshes": ['#sdy.mesh<["replica"=4]>']},
        {"meshes": ['#sdy.mesh<["a"=1, "replica"=2]>']},
        {"groups": [GROUP.replace('"replica"', '"replica", sub_axis_info = 1')]},
    ):
        with pytest.raises(NotAllowedError, match="could wait for others forever"):
            check_rules({**found(module(reduce([0, 1]))), **meshes, **lie}, 2, refined=False)
    for text in (
        module(reduce([0])),
        module(reduce([0, 1, 2, 3])),
        module(reduce([1, 0])),
        module(IN_CONDITION, function),
    ):
        with pytest.raises(NotAllowedError, match="could wait for others forever"):
            check_rules(found(text), 2, refined=False)


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_operator_may_be_in_a_file(family: str) -> None:
    """The rules allow JAX's lowering of each operator, so files do not fall back to their graph.

    `test_kernel_contracts` tests operators without a lowering for CUDA. JAX lowers the Sylvester
    equation for only one platform at a time.
    """
    left_out = CPU_ONLY | {"Sylvester"}
    cases = [case for case in FAMILIES[family] if case.dtypes and case.op not in left_out]
    graph, built = build_all(cases)
    fetches = list(dict.fromkeys(t for b in built for t in b.outputs))
    program = functional(graph, fetches, [t for b in built for t in b.tensors])
    arguments = [jax.ShapeDtypeStruct(t.type.shape, t.type.dtype) for t in program.input_tensors()]
    with jax.enable_x64(True):
        exported = jax.export.export(
            jax.jit(to_function(program)), platforms=("cpu", "cuda"), disabled_checks=UNPROMISED
        )(*arguments)
    seen = _read(bytes(exported.serialize()))
    check_targets(seen)
    unpromised = {check.is_custom_call() for check in UNPROMISED}
    unpromised.add("chlo.scan")  # of JAX 0.12, in cumulative sums for CUDA: the graph is used
    seen["calls"] = [call for call in seen["calls"] if call["target"] not in unpromised]
    assert not check_rules(seen, 1, refined=False)


@pytest.mark.parametrize(
    ("left", "right", "axes", "result"),
    [
        ("4x2", "3x2x5", "10", "4x5"),
        ("4x2", "4x5", "0", "3x2x5"),
    ],
)
def test_products_of_ragged_groups(left: str, right: str, axes: str, result: str) -> None:
    def call(left: str, right: str, result: str, count: int = 3) -> dict[str, Any]:
        one = "dense<1> : tensor<1xi64>"
        zero, none = one.replace("<1> ", "<0> "), "dense<> : tensor<0xi64>"
        last = [one, one, zero, zero] if axes == "10" else [zero, zero, zero, none]
        config = f"ragged_dot_dimension_numbers = [{', '.join([none, none, *last])}]"
        return {
            "operation": "stablehlo.composite",
            "target": "chlo.ragged_dot",
            "operands": [f"tensor<{left}xf32>", f"tensor<{right}xf32>", f"tensor<{count}xi32>"],
            "results": [f"tensor<{result}xf32>"],
            "attributes": {"composite_attributes": f"{{{config}}}", "decomposition": "@f"},
        }

    whole = {
        "operations": {"builtin.module": 1},
        "work": 1,
        "open": False,
        "main": [[], []],
        "groups": [],
        "guarded": False,
        "types": ["f32"],
        "comparators": [],
        "applied": [],
        "called": {},
    }
    check_rules({**whole, "calls": [call(left, right, result)]}, 1, refined=False)
    for wrong in (
        call(left, right, result, 2),
        call(left, right, result.replace("5", "6")),
        call(left.replace("4", "9"), right, result),
        call(left, right.replace("2", "9").replace("4", "9"), result),
        call(right, left, result),
    ):
        with pytest.raises(NotAllowedError, match="differently from JAX"):
            check_rules({**whole, "calls": [wrong]}, 1, refined=False)
