"""XLA trusts sort comparators and element types: those that JAX does not write are refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax import lax
from jax import numpy as jnp

from graphc.ir.dtypes import BY_SHORT
from graphc.untrusted.comparators import is_order
from graphc.untrusted.reader import _read
from graphc.untrusted.rules import NotAllowedError, check_rules
from tests.artifacts.hostile import forge_program, module, plain_model

_X = "tensor<2x2xf32>"
_MANY = "tensor<2x2x4096xf32>"
_S = "tensor<f32>"
_NOT_EQUAL = f"%r = stablehlo.compare NE, %p, %q : ({_S}, {_S}) -> tensor<i1>"
_TRUE = "%r = stablehlo.constant dense<true> : tensor<i1>"
_LARGE = (
    f"%b = stablehlo.broadcast_in_dim %x, dims = [0, 1] : ({_X}) -> {_MANY}\n"
    f"%i = stablehlo.iota dim = 2 : {_MANY}\n"
    f"%c = stablehlo.sine %i : {_MANY}\n"
    f"%a = stablehlo.add %b, %c : {_MANY}\n"
)


def sorting(comparison: str) -> str:
    """Sorts 4096 numbers by `comparison`, which computes `%r` from `%p` and `%q`."""
    return module(
        f'{_LARGE}%s = "stablehlo.sort"(%a) ({{\n^bb0(%p: {_S}, %q: {_S}):\n{comparison}\n'
        "stablehlo.return %r : tensor<i1>\n}) {dimension = 2 : i64, is_stable = false} : "
        f"({_MANY}) -> {_MANY}\n"
        f"%l = stablehlo.slice %s [0:2, 0:2, 5:6] : ({_MANY}) -> tensor<2x2x1xf32>\n"
        f"%y = stablehlo.reshape %l : (tensor<2x2x1xf32>) -> {_X}"
    )


def searching(comparison: str) -> str:
    """Searches for the largest of 4096 numbers, approximately, by `comparison`."""
    indices, kept = _MANY.replace("f32", "i32"), "tensor<2x2x1xf32>"
    return module(
        f"{_LARGE}%n = stablehlo.iota dim = 2 : {indices}\n"
        f"%v = stablehlo.constant dense<0xFF800000> : {_S}\n"
        "%w = stablehlo.constant dense<-1> : tensor<i32>\n"
        "%s:2 = stablehlo.custom_call @ApproxTopK(%a, %n, %v, %w) "
        "{called_computations = [@before], mhlo.backend_config = {aggregate_to_topk = true, "
        "is_fallback = true, recall_target = 9.500000e-01 : f32, reduction_dim = 2 : i64, "
        "reduction_input_size_override = -1 : i64, top_k = 1 : i64}} : "
        f"({_MANY}, {indices}, {_S}, tensor<i32>) -> ({kept}, {kept.replace('f32', 'i32')})\n"
        f"%y = stablehlo.reshape %s#0 : ({kept}) -> {_X}",
        f"func.func @before(%p: {_S}, %q: {_S}, %o: tensor<i32>, %z: tensor<i32>) -> tensor<i1> "
        f"{{\n{comparison}\nstablehlo.return %r : tensor<i1>\n}}",
    )


def of_type(name: str) -> str:
    """Sorts values of a type that no JAX or graphc array has."""
    wide, one = f"tensor<2x2x{name}>", f"tensor<{name}>"
    return module(
        f"%a = stablehlo.convert %x : ({_X}) -> {wide}\n"
        f'%b = "stablehlo.sort"(%a) ({{\n^bb0(%p: {one}, %q: {one}):\n'
        f"%r = stablehlo.compare LT, %p, %q : ({one}, {one}) -> tensor<i1>\n"
        "stablehlo.return %r : tensor<i1>\n}) {dimension = 1 : i64, is_stable = true} : "
        f"({wide}) -> {wide}\n%y = stablehlo.convert %b : ({wide}) -> {_X}"
    )


def converted(name: str) -> str:
    wide = f"tensor<2x2x{name}>"
    return module(
        f"%a = stablehlo.convert %x : ({_X}) -> {wide}\n"
        f"%y = stablehlo.convert %a : ({wide}) -> {_X}"
    )


def reducing_by_a_product() -> str:
    return module(
        f'%z = stablehlo.constant dense<0.0> : {_S}\n{_LARGE}%y = "stablehlo.reduce"(%a, %z) ({{\n'
        f"^bb0(%p: {_S}, %q: {_S}):\n"
        f"%v = stablehlo.broadcast_in_dim %p, dims = [] : ({_S}) -> {_X}\n"
        f"%w = stablehlo.dot_general %v, %v, contracting_dims = [1] x [0] : ({_X}, {_X}) -> {_X}\n"
        f"%g = stablehlo.slice %w [1:2, 0:1] : ({_X}) -> tensor<1x1xf32>\n"
        f"%r = stablehlo.reshape %g : (tensor<1x1xf32>) -> {_S}\nstablehlo.return %r : {_S}\n"
        f"}}) {{dimensions = array<i64: 2>}} : ({_MANY}, {_S}) -> {_X}"
    )


HOSTILE = {
    "reduction by a product": (reducing_by_a_product(), "applies"),
    "sort by what differs": (sorting(_NOT_EQUAL), "comparator"),
    "sort by nothing": (sorting(_TRUE), "comparator"),
    "search by what differs": (searching(_NOT_EQUAL), "comparator"),
    "search by nothing": (searching(_TRUE), "comparator"),
    "sort of f6E2M3FN": (of_type("f6E2M3FN"), "type"),
    **{
        f"values of {name}": (converted(name), "type")
        for name in ("f4E2M1FN", "f6E3M2FN", "f8E8M0FNU", "f8E3M4", "f8E4M3", "i2", "ui2")
    },
}
_LOAD = """
import json, sys, numpy as np, graphc as gc
for path in sys.argv[1:]:
    point = gc.load(path).signatures["f"]
    value = np.asarray(point(x=np.ones((2, 2), np.float32))["y"]).ravel().tolist()
    print(json.dumps([value, point.way, point.notes]), flush=True)
"""


@pytest.mark.slow
def test_hostile_sorts_and_types_take_the_graph(tmp_path: Path) -> None:
    """Without rules for them, these programs crashed the process or never ended."""
    plain_model(tmp_path / "plain.gcx")
    paths = [tmp_path / f"{i}.gcx" for i in range(len(HOSTILE))]
    for path, (text, _) in zip(paths, HOSTILE.values(), strict=True):
        forge_program(tmp_path / "plain.gcx", path, text)
    command = [sys.executable, "-c", _LOAD, *map(str, paths)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr[-1000:]
    for name, line in zip(HOSTILE, ended.stdout.splitlines(), strict=True):
        value, way, notes = json.loads(line)
        assert value == [2.0] * 4 and way == "graph", name
        assert notes[0].startswith("stablehlo: ") and HOSTILE[name][1] in notes[0], notes


def exported(function: Any, *arguments: Any) -> dict[str, Any]:
    with jax.enable_x64(True):
        program = jax.export.export(jax.jit(function), platforms=("cpu", "cuda"))(*arguments)
    return _read(bytes(program.serialize()))


@pytest.mark.parametrize("short", sorted(BY_SHORT))
def test_sorts_of_jax_pass(short: str) -> None:
    dtype = BY_SHORT[short]
    x = jax.ShapeDtypeStruct((3, 9), dtype)

    def every_sort(x: Any) -> Any:
        found: list[Any] = [lax.sort(x), lax.sort((x, x, x), num_keys=3, is_stable=False)]
        found += [jnp.argsort(x, descending=True), jnp.lexsort((x[0], x[1]))]
        if dtype.kind != "c" and not short.startswith("f8"):
            found += lax.top_k(x, 2)
        if short in ("f16", "bf16", "f32", "f64"):
            found += [*lax.approx_max_k(x, 2), *lax.approx_min_k(x, 2)]
        return found

    seen = exported(every_sort, x)
    assert not check_rules(seen, 1, refined=False) and len(seen["comparators"]) >= 3


@pytest.fixture(scope="module")
def honest() -> dict[str, Any]:
    types = ("complex64", "uint32", "float32")
    arguments = [jax.ShapeDtypeStruct((5,), np.dtype(name)) for name in types]
    [found] = exported(lambda *xs: lax.sort(xs, num_keys=3), *arguments)["comparators"]
    assert is_order(found)
    return found


def test_another_operand_anywhere_in_a_comparator_is_refused(honest: dict[str, Any]) -> None:
    """Every operand of every operation matters, so none may be another value."""
    rows, first = honest["rows"], len(honest["arguments"])
    # Constants with equal text are equal; an order by fewer keys is still an order.
    texts = [
        *range(first),
        *(str(r) if r[0].endswith("constant") else i for i, r in enumerate(rows, first)),
    ]
    orders = {value for value in range(len(texts)) if is_order({**honest, "returned": value})}
    assert len(orders) == 7  # four keys, and three lexicographic orders of them
    count = 0
    for i, (name, operands, _, _) in enumerate(rows):
        for j, operand in enumerate(operands):
            shorter = orders if (name, j) == ("stablehlo.and", 1) else set()
            for other in {-1, *range(len(texts))} - shorter:
                if other == -1 or texts[other] != texts[operand]:
                    changed = [*operands[:j], other, *operands[j + 1 :]]
                    row = [name, changed, *rows[i][2:]]
                    wrong = {**honest, "rows": [*rows[:i], row, *rows[i + 1 :]]}
                    assert not is_order(wrong), (i, j, other)
                    count += 1
    assert count > 1000


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("direction LT", "direction LE"),
        ("direction LT", "direction NE"),
        ("direction EQ", "direction GE"),
        ("direction NE", "direction EQ"),
        ("type TOTALORDER", "type FLOAT"),
        ("type UNSIGNED", "type SIGNED"),
        ("dense<0.000000e+00>", "dense<1.000000e+00>"),
        ("stablehlo.or", "stablehlo.xor"),
        ("stablehlo.and", "stablehlo.or"),
        ("stablehlo.imag", "stablehlo.real"),
        ("stablehlo.select", "stablehlo.clamp"),
    ],
)
def test_another_word_anywhere_in_a_comparator_is_refused(
    honest: dict[str, Any], old: str, new: str
) -> None:
    pieces = json.dumps(honest).split(old)
    assert len(pieces) > 1
    for i in range(1, len(pieces)):
        text = old.join(pieces[:i]) + new + old.join(pieces[i:])
        assert not is_order(json.loads(text)), text


def test_more_sorts_than_are_described_are_refused() -> None:
    seen = exported(jnp.sort, jax.ShapeDtypeStruct((5,), np.float32))
    check_rules(seen, 1, refined=False)
    with pytest.raises(NotAllowedError, match="too many"):
        check_rules({**seen, "comparators": seen["comparators"] * 10_000}, 1, refined=False)
