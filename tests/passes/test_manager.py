"""The pass manager: order, counting, and the three ways in which it detects a wrong pass."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphc.errors import AttributeValueError, PassError, VerifyError
from graphc.ir.dims import symbol
from graphc.ir.program import Program
from graphc.ops.elementwise.arithmetic import ADD, SUBTRACT
from graphc.ops.reductions.reduction import REDUCE_SUM
from graphc.passes.core.base import Pass, PassResult
from graphc.passes.core.rules import Rewriter, Rules, change, simplify
from graphc.passes.core.validate import check_meaning, choose_sizes, random_inputs
from graphc.passes.manager import PassManager
from graphc.passes.simplify.prune import Prune
from graphc.passes.simplify.simplify_algebra import SimplifyAlgebra
from tests.passes.check import program
from tests.passes.evaluate import evaluate

TEXT = """
program model(x: f32[n, 3], y: f32[n, 3]) {
  %0 = Identity(x) : f32[n, 3]
  %1 = Add(%0, y)  : f32[n, 3]
  %2 = Negative(y) : f32[n, 3]
  return total = %1, first = %0
}
"""


@dataclass(frozen=True)
class SwapSign(Pass):
    """Wrong: changes sums to differences."""

    def run(self, program: Program) -> PassResult:
        rules: Rules = {ADD: lambda rw, node: change(node, SUBTRACT, node.inputs)}
        return simplify(self, program, rules)


@dataclass(frozen=True)
class DropAxis(Pass):
    """Wrong: leaves a node whose type does not follow from its operands."""

    def run(self, program: Program) -> PassResult:
        rules: Rules = {ADD: lambda rw, node: change(node, REDUCE_SUM, node.inputs[:1], axes=(1,))}
        return simplify(self, program, rules)


@dataclass(frozen=True)
class Stumble(Pass):
    """Wrong: fails at sums."""

    def run(self, program: Program) -> PassResult:
        def rule(rw: Rewriter, node: Any) -> None:
            raise ZeroDivisionError("division by zero")

        return simplify(self, program, {ADD: rule})


@dataclass(frozen=True)
class LoseOutput(Pass):
    """Wrong: drops an output."""

    def run(self, program: Program) -> PassResult:
        return PassResult(program.replace(outputs=program.outputs[:1]), 1)


@dataclass(frozen=True)
class Explode(Pass):
    """Wrong: fails outside any node."""

    def run(self, program: Program) -> PassResult:
        raise KeyError("nothing here")


def test_a_pass_is_named_by_its_class() -> None:
    assert SimplifyAlgebra().name == "simplify-algebra"
    assert Prune().name == "prune"


def test_the_report_tells_what_each_pass_did() -> None:
    after, report = PassManager([SimplifyAlgebra(), Prune()], rounds=3).run(program(TEXT))
    assert [node.op.name for node in after.nodes] == ["Add"]
    told = [(row.name, row.round, row.before, row.after, row.changed) for row in report.rows]
    assert told == [
        ("simplify-algebra", 1, 3, 2, 1),
        ("prune", 1, 2, 1, 1),
        ("simplify-algebra", 2, 1, 1, 0),
        ("prune", 2, 1, 1, 0),
    ]
    lines = str(report).splitlines()
    assert lines[0].split() == ["pass", "round", "before", "after", "changed", "ms", "check", "ms"]
    assert lines[1].split()[:5] == ["simplify-algebra", "1", "3", "2", "1"]
    assert lines[-1].startswith("3 -> 1 nodes, ")
    assert report.to_json()[1]["name"] == "prune"
    assert len((report + report).rows) == 8


def test_a_pass_that_found_nothing_is_not_run_again_on_the_same_program() -> None:
    _, report = PassManager([Prune(), SimplifyAlgebra(), Prune()], rounds=2).run(
        program("program p(x: f32[n]) {\n  return out = x\n}")
    )
    assert [row.name for row in report.rows] == ["prune", "simplify-algebra"]


def test_no_passes_are_no_change() -> None:
    start = program(TEXT)
    after, report = PassManager([]).run(start)
    assert after is start
    assert report.rows == ()
    assert "0.0 ms" in str(report)


def test_nodes_in_bodies_count() -> None:
    _, report = PassManager([Prune()]).run(
        program(
            """
            program p(x: f32[3], xs: f32[5, 3]) {
              %0 = Scan(x, xs) {consts=0, carries=1, length=5} : f32[3]
                  with body(a0: f32[3], a1: f32[3]) {
                %0 = Add(a0, a1) : f32[3]
                return r0 = %0
              }
              return out = %0
            }
            """
        )
    )
    assert report.rows[0].before == 2


def test_validation_names_the_pass_that_changed_the_meaning() -> None:
    manager = PassManager([Prune(), SwapSign()], validate=True, evaluator=evaluate)
    with pytest.raises(PassError, match="pass swap-sign changed the meaning") as info:
        manager.run(program(TEXT))
    assert "output 'total' differs" in str(info.value)
    assert "before," in str(info.value)


def test_validation_lets_what_is_right_pass() -> None:
    manager = PassManager([SimplifyAlgebra(), Prune()], validate=True, evaluator=evaluate)
    result, _ = manager.run(program(TEXT))
    assert [node.op.name for node in result.nodes] == ["Add"]


def test_a_dropped_port_is_a_changed_meaning() -> None:
    manager = PassManager([LoseOutput()], validate=True, evaluator=evaluate)
    with pytest.raises(PassError, match="pass lose-output changed the meaning") as info:
        manager.run(program(TEXT))
    assert "the ports are" in str(info.value)


def test_verification_names_the_pass_the_node_and_the_users_line() -> None:
    with pytest.raises(PassError, match="pass drop-axis left an invalid program") as info:
        PassManager([DropAxis()]).run(program(TEXT))
    text = str(info.value)
    assert "ReduceSum" in text
    assert "expected f32[n]" in text
    assert "at model.py:3" in text
    assert isinstance(info.value.__cause__, VerifyError)


def test_verification_can_be_left_out() -> None:
    after, _ = PassManager([DropAxis()], verify=False).run(program(TEXT))
    assert after.nodes[1].op is REDUCE_SUM


def test_a_failing_pass_names_itself_the_node_and_the_users_line() -> None:
    with pytest.raises(PassError, match="pass stumble failed at Add") as info:
        PassManager([Stumble()]).run(program(TEXT))
    assert "ZeroDivisionError: division by zero" in str(info.value)
    assert "at model.py:3" in str(info.value)


def test_a_pass_that_fails_outside_any_node_is_named_too() -> None:
    with pytest.raises(PassError, match="pass explode failed") as info:
        PassManager([Explode()]).run(program(TEXT))
    assert "nothing here" in str(info.value)


def test_no_pass_is_blamed_for_an_invalid_input_program() -> None:
    start = program(TEXT)
    with pytest.raises(VerifyError):
        PassManager([Prune()]).run(start.replace(nodes=start.nodes[1:]))


def test_the_text_before_and_after_each_pass_is_dumped(tmp_path: Path) -> None:
    manager = PassManager([SimplifyAlgebra(), Prune()], dump=str(tmp_path / "out"))
    manager.run(program(TEXT))
    manager.run(program(TEXT))
    assert sorted(f.name for f in (tmp_path / "out").iterdir()) == ["model", "model-2"]
    files = sorted((tmp_path / "out" / "model").iterdir())
    assert [f.name for f in files] == ["00-start.txt", "01-simplify-algebra.txt", "02-prune.txt"]
    texts = [f.read_text() for f in files]
    assert ["Identity" in text for text in texts] == [True, False, False]
    assert ["Negative" in text for text in texts] == [True, True, False]
    assert "# model.py:3" in texts[0]


def test_validation_needs_an_evaluator() -> None:
    with pytest.raises(AttributeValueError, match="needs an evaluator"):
        PassManager([], validate=True)
    with pytest.raises(AttributeValueError, match="rounds must be at least 1, got 0"):
        PassManager([], rounds=0)


def test_sizes_for_validation_meet_the_equalities() -> None:
    start = program(
        """
        program p(x: f32[n, m], y: f32[k]) {
          size n*m == 2*k
          %0 = Reshape(x) {shape=[2*k]} : f32[2*k]
          return out = %0
        }
        """
    )
    sizes = choose_sizes(start)
    assert sizes["n"] * sizes["m"] == 2 * sizes["k"]
    impossible = start.replace(equalities=((symbol("n") * 2, symbol("n") * 2 + 1),))
    with pytest.raises(PassError, match="no small sizes found"):
        choose_sizes(impossible)


def test_a_difference_of_rounding_is_none() -> None:
    def nearly(p: Program, inputs: Any) -> list[np.ndarray]:
        return [out * np.float32(1 + 1e-6) for out in evaluate(p, inputs)]

    def answers(p: Program, inputs: Any) -> list[np.ndarray]:
        return (evaluate if p is bound else nearly)(p, inputs)

    text = TEXT.replace("[n, 3]", "[2, 3]")
    bound = program(text)
    assert check_meaning(bound, program(text), answers, 0) is None


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f8e5m2", "i4", "u32", "bool", "c64"])
def test_random_inputs_have_the_types_of_the_ports(dtype: str) -> None:
    start = program(f"program p(x: {dtype}[4, 3]) {{\n  return out = x\n}}")
    (value,) = random_inputs(start, seed=1)
    assert value.dtype == start.inputs[0].tensor.dtype
    assert value.shape == (4, 3)
    assert (value == random_inputs(start, seed=1)[0]).all()
    assert check_meaning(start, start, evaluate, 1) is None
