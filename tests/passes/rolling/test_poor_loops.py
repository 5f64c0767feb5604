"""What is not rolled although it repeats, because it runs faster without a loop."""

from __future__ import annotations

from dataclasses import replace

import optax
import pytest

import graphc as gc
from graphc.ir.program import Program
from graphc.passes.rolling.roll_repeats import RollRepeats
from tests.passes.check import program

ROLL = RollRepeats(turns=3, steps=3, saved=4, work=0)


def rolled(text: str, roll: RollRepeats = ROLL) -> Program:
    return roll.run(program(text)).program


def loops(made: Program) -> list[int]:
    return [node.attrs["length"] for node in made.nodes if node.op.name == "Scan"]


def in_turns(size: int, halves: int = 8) -> str:
    """Products with two matrices in turn, both computed before."""
    lines = [f"%0 = Exp(c) : f32[{size}, {size}]", f"%1 = Sin(c) : f32[{size}, {size}]"]
    last = "x"
    for half in range(halves):
        at = 2 + 2 * half
        lines.append(f"%{at} = MatMul(%{half % 2}, {last}) : f32[{size}, 1]")
        lines.append(f"%{at + 1} = Tanh(%{at}) : f32[{size}, 1]")
        last = f"%{at + 1}"
    body = "\n".join([*lines, f"return out = {last}"])
    return f"program p(c: f32[{size}, {size}], x: f32[{size}, 1]) {{\n{body}\n}}"


def test_two_large_matrices_in_turn_are_used_where_they_are() -> None:
    """An iteration is both of them, not a half that takes its slice of copies."""
    made = rolled(in_turns(64))
    assert loops(made) == [4]
    assert {node.op.name for node in made.nodes} == {"Exp", "Sin", "Scan"}


def test_two_small_values_in_turn_are_stacked() -> None:
    made = rolled(in_turns(4))
    assert loops(made) == [8]
    assert [node.op.name for node in made.nodes].count("Stack") == 1


def polynomial(op: str = "Add", coefficient: str = "f32[]") -> str:
    names = [f"k{i}" for i in range(12)]
    state = ", ".join(f"{name}: state {coefficient}" for name in names)
    lines, last = [], "x"
    for i, name in enumerate(names):
        more = f"({last}, {name})" if op == "Add" else f"({last})"
        lines.append(f"%{2 * i} = {op}{more} : f32[100]")
        lines.append(f"%{2 * i + 1} = Multiply(%{2 * i}, x) : f32[100]")
        last = f"%{2 * i + 1}"
    body = "\n".join([*lines, f"return out = {last}"])
    return f"program p(x: f32[100], {state}) {{\n{body}\n}}"


def test_a_polynomial_is_one_kernel() -> None:
    assert loops(rolled(polynomial())) == []
    assert loops(rolled(polynomial("Tanh"))) == [12], "work of many instructions is worth a loop"
    many = replace(ROLL, steps=None)
    assert loops(rolled(polynomial(), many)) == [12], "on GPUs"


def test_large_operands_of_their_own_are_worth_a_loop() -> None:
    text = polynomial(coefficient="f32[2500]").replace("f32[100]", "f32[2500]")
    assert loops(rolled(text)) == [12]


def layers(count: int) -> str:
    """Dense layers with weights of their own."""
    state = ", ".join(f"w{i}: state f32[8, 8]" for i in range(count))
    lines, last = [], "x"
    for i in range(count):
        lines.append(f"%{2 * i} = MatMul({last}, w{i}) : f32[2, 8]")
        lines.append(f"%{2 * i + 1} = Tanh(%{2 * i}) : f32[2, 8]")
        last = f"%{2 * i + 1}"
    body = "\n".join([*lines, f"return out = {last}"])
    return f"program p(x: f32[2, 8], {state}) {{\n{body}\n}}"


@pytest.mark.parametrize(("least", "found"), [(0, [8]), (14, [8]), (15, [])])
def test_small_layers_must_be_many(least: int, found: list[int]) -> None:
    assert loops(rolled(layers(8), replace(ROLL, layers=least))) == found


@pytest.mark.parametrize(("kind", "found"), [("dense", 0), ("with norms", 2)])
def test_by_default_on_cpus(kind: str, found: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """8 layers with norms save 240 nodes forward. The loop backward takes the same parameters, so
    it may save fewer."""
    monkeypatch.setattr("graphc.passes.pipelines._FEWEST_IN_LAYERS", 240)
    graph = gc.Graph(seed=0)
    with graph:
        y = x = gc.placeholder((32, 16), name="x")
        for i in range(8):
            if kind == "dense":
                y = gc.nn.Dense(16, activation=gc.tanh, name=f"d{i}")(y)
            else:
                mean = gc.reduce_mean(y, axis=-1, keepdims=True)
                spread = gc.reduce_mean(gc.square(y - mean), axis=-1, keepdims=True)
                z = (y - mean) * gc.rsqrt(spread + 1e-5)
                for j in range(4):
                    z = gc.nn.Dense(16, activation=gc.nn.gelu, name=f"b{i}/d{j}")(z)
                y = y + z
        train = gc.minimize(gc.reduce_mean(gc.square(y)), optax.adam(1e-3), name="train")
    session = gc.Session(graph, options=gc.CompileOptions(cache=None))
    local = session.compile(train, {x: (32, 16)}).stages.local
    assert sum(node.op.name == "Scan" for node in local.nodes) == found
