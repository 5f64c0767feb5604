"""Replicate, as pairs of programs: the global program, and the local program of four replicas."""

from __future__ import annotations

from dataclasses import replace
from textwrap import dedent

import numpy as np
import pytest

from graphc.devices.replicate import Replicate
from graphc.errors import AttributeValueError, LayoutError, PassError
from graphc.ir.compare import difference
from graphc.ir.layouts import REPLICATED, Sharded
from graphc.ir.opdef import OpDef
from graphc.ir.parse import parse_program
from graphc.ir.program import Program
from graphc.ir.text import print_program
from graphc.ir.verify import verify
from graphc.ops.catalogue import CATALOGUE
from tests.passes.check import program


def becomes(before: str, after: str, replicas: int = 4) -> tuple[str, ...]:
    """Checks that the global program becomes the local one; returns the notes."""
    local = Replicate(replicas).replicate(program(before))
    verify(local.program, "local")
    found = difference(local.program, parse_program(dedent(after).strip(), CATALOGUE))
    assert found is None, f"{found}\n\ngot\n{print_program(local.program, sources=False)}"
    return local.notes


def test_a_mean_divides_by_the_global_count_and_is_summed_where_it_leaves() -> None:
    becomes(
        """
        program p(x: f32[8, 3]) {
          batch_axis x=0
          %0 = ReduceMean(x) {axes=[0, 1], keepdims=false, count=none} : f32[]
          return mean = %0
        }
        """,
        """
        program p(x: f32[2, 3]) {
          batch_axis x=0
          %0 = ReduceMean(x) {axes=[0, 1], keepdims=false, count=24} : f32[]
          %1 = AllReduce(%0) {op="sum"} : f32[]
          return mean = %1
        }
        """,
    )


@pytest.mark.parametrize("op", ["sum", "max", "min"])
def test_a_reduction_over_the_batch_is_finished_by_the_same_one_over_replicas(op: str) -> None:
    becomes(
        f"""
        program p(x: f32[8, 3]) {{
          batch_axis x=0
          %0 = Reduce{op.title()}(x) {{axes=[0], keepdims=false}} : f32[3]
          return total = %0
        }}
        """,
        f"""
        program p(x: f32[2, 3]) {{
          batch_axis x=0
          %0 = Reduce{op.title()}(x) {{axes=[0], keepdims=false}} : f32[3]
          %1 = AllReduce(%0) {{op="{op}"}} : f32[3]
          return total = %1
        }}
        """,
    )


def test_what_stays_within_a_row_needs_no_collective_and_leaves_cut() -> None:
    start = program(
        """
        program p(x: f32[8, 3], w: state f32[3, 5]) {
          batch_axis x=0
          %0 = MatMul(x, w) : f32[8, 5]
          %1 = Tanh(%0) : f32[8, 5]
          return y = %1
        }
        """
    )
    local = Replicate(4).replicate(start)
    assert [str(n.outputs[0].type) for n in local.program.nodes] == ["f32[2, 5]", "f32[2, 5]"]
    assert local.inputs == (Sharded(0), REPLICATED)
    assert local.outputs == (Sharded(0),)
    assert local.collectives == 0 and not local.notes


def test_a_gradient_that_two_consumers_need_is_made_whole_once_where_it_is_made() -> None:
    becomes(
        """
        program p(x: f32[8, 3], d: f32[8, 5], m: state f32[3, 5], v: state f32[3, 5]) {
          batch_axis x=0, d=0
          %g = MatMul(x, d) {transpose_a=true} : f32[3, 5]
          %c = Constant() {value=f32[] 0.5} : f32[]
          %0 = Multiply(%g, %c) : f32[3, 5]
          %1 = Add(m, %0) : f32[3, 5]
          %2 = Square(%g) : f32[3, 5]
          %3 = Add(v, %2) : f32[3, 5]
          return state m = %1, state v = %3
        }
        """,
        """
        program p(x: f32[2, 3], d: f32[2, 5], m: state f32[3, 5], v: state f32[3, 5]) {
          batch_axis x=0, d=0
          %p = MatMul(x, d) {transpose_a=true} : f32[3, 5]
          %g = AllReduce(%p) {op="sum"} : f32[3, 5]
          %c = Constant() {value=f32[] 0.5} : f32[]
          %0 = Multiply(%g, %c) : f32[3, 5]
          %1 = Add(m, %0) : f32[3, 5]
          %2 = Square(%g) : f32[3, 5]
          %3 = Add(v, %2) : f32[3, 5]
          return state m = %1, state v = %3
        }
        """,
    )


def test_two_gradients_of_a_shared_weight_are_added_before_the_one_collective() -> None:
    becomes(
        """
        program p(x: f32[8, 3], d: f32[8, 5], e: f32[8, 5], w: state f32[3, 5]) {
          batch_axis x=0, d=0, e=0
          %0 = MatMul(x, d) {transpose_a=true} : f32[3, 5]
          %1 = MatMul(x, e) {transpose_a=true} : f32[3, 5]
          %2 = Add(%0, %1) : f32[3, 5]
          %3 = Subtract(w, %2) : f32[3, 5]
          return state w = %3
        }
        """,
        """
        program p(x: f32[2, 3], d: f32[2, 5], e: f32[2, 5], w: state f32[3, 5]) {
          batch_axis x=0, d=0, e=0
          %0 = MatMul(x, d) {transpose_a=true} : f32[3, 5]
          %1 = MatMul(x, e) {transpose_a=true} : f32[3, 5]
          %2 = Add(%0, %1) : f32[3, 5]
          %3 = AllReduce(%2) {op="sum"} : f32[3, 5]
          %4 = Subtract(w, %3) : f32[3, 5]
          return state w = %4
        }
        """,
    )


def test_a_whole_term_between_partial_ones_is_added_on_one_replica() -> None:
    """Two means and a penalty on the weights need only one collective."""
    becomes(
        """
        program p(x: f32[8], y: f32[8], penalty: state f32[]) {
          batch_axis x=0, y=0
          %0 = ReduceSum(x) {axes=[0], keepdims=false} : f32[]
          %1 = Add(%0, penalty) : f32[]
          %2 = ReduceSum(y) {axes=[0], keepdims=false} : f32[]
          %3 = Add(%1, %2) : f32[]
          return loss = %3
        }
        """,
        """
        program p(x: f32[2], y: f32[2], penalty: state f32[]) {
          batch_axis x=0, y=0
          %0 = ReduceSum(x) {axes=[0], keepdims=false} : f32[]
          %t = OnReplicaZero(penalty) : f32[]
          %1 = Add(%0, %t) : f32[]
          %2 = ReduceSum(y) {axes=[0], keepdims=false} : f32[]
          %3 = Add(%1, %2) : f32[]
          %4 = AllReduce(%3) {op="sum"} : f32[]
          return loss = %4
        }
        """,
    )


def test_a_partial_value_is_made_whole_while_it_is_small() -> None:
    becomes(
        """
        program p(x: f32[8], w: state f32[100, 100]) {
          batch_axis x=0
          %0 = ReduceSum(x) {axes=[0], keepdims=false} : f32[]
          %1 = Multiply(w, %0) : f32[100, 100]
          return state w = %1
        }
        """,
        """
        program p(x: f32[2], w: state f32[100, 100]) {
          batch_axis x=0
          %0 = ReduceSum(x) {axes=[0], keepdims=false} : f32[]
          %1 = AllReduce(%0) {op="sum"} : f32[]
          %2 = Multiply(w, %1) : f32[100, 100]
          return state w = %2
        }
        """,
    )


def test_a_partial_value_is_made_whole_after_it_became_small() -> None:
    becomes(
        """
        program p(x: f32[8, 30], w: f32[30]) {
          batch_axis x=0
          %0 = ReduceSum(x) {axes=[0], keepdims=false} : f32[30]
          %1 = Multiply(%0, w) : f32[30]
          %2 = ReduceSum(%1) {axes=[0], keepdims=false} : f32[]
          %3 = Exp(%2) : f32[]
          return y = %3
        }
        """,
        """
        program p(x: f32[2, 30], w: f32[30]) {
          batch_axis x=0
          %0 = ReduceSum(x) {axes=[0], keepdims=false} : f32[30]
          %1 = Multiply(%0, w) : f32[30]
          %2 = ReduceSum(%1) {axes=[0], keepdims=false} : f32[]
          %3 = AllReduce(%2) {op="sum"} : f32[]
          %4 = Exp(%3) : f32[]
          return y = %4
        }
        """,
    )


def test_what_no_longer_is_partial_once_its_operands_are_whole() -> None:
    """At first, %2 is a sum of sums. Once its indices are whole, it is cut like its updates."""
    becomes(
        """
        program p(a: f32[4, 5, 8], i: i32[4, 2], u: f32[2, 8]) {
          batch_axis a=0, i=0, u=1
          %0 = ReduceSum(a) {axes=[0], keepdims=false} : f32[5, 8]
          %1 = ReduceSum(i) {axes=[0], keepdims=false} : i32[2]
          %2 = ScatterAdd(%0, %1, u) {axis=0} : f32[5, 8]
          %3 = Tanh(%2) : f32[5, 8]
          return y = %3
        }
        """,
        """
        program p(a: f32[1, 5, 8], i: i32[1, 2], u: f32[2, 2]) {
          batch_axis a=0, i=0, u=1
          %0 = ReduceSum(a) {axes=[0], keepdims=false} : f32[5, 8]
          %s = AllReduce(%0) {op="sum"} : f32[5, 8]
          %1 = ReduceSum(i) {axes=[0], keepdims=false} : i32[2]
          %t = AllReduce(%1) {op="sum"} : i32[2]
          %c = ShardSlice(%s) {axis=1, replicas=4} : f32[5, 2]
          %2 = ScatterAdd(%c, %t, u) {axis=0} : f32[5, 2]
          %3 = Tanh(%2) : f32[5, 2]
          return y = %3
        }
        """,
    )


def test_parts_of_a_partial_value_are_made_whole_together() -> None:
    becomes(
        """
        program p(x: f32[8, 4]) {
          batch_axis x=0
          %0 = ReduceSum(x) {axes=[0], keepdims=false} : f32[4]
          %1, %2 = Split(%0) {axis=0, sizes=[1, 3]} : f32[1], f32[3]
          return a = %1, b = %2
        }
        """,
        """
        program p(x: f32[2, 4]) {
          batch_axis x=0
          %0 = ReduceSum(x) {axes=[0], keepdims=false} : f32[4]
          %1 = AllReduce(%0) {op="sum"} : f32[4]
          %2, %3 = Split(%1) {axis=0, sizes=[1, 3]} : f32[1], f32[3]
          return a = %2, b = %3
        }
        """,
    )


def test_a_whole_value_that_meets_a_cut_one_is_sliced_once() -> None:
    becomes(
        """
        program p(x: f32[8, 3], table: state f32[8, 3]) {
          batch_axis x=0
          %0 = Add(x, table) : f32[8, 3]
          %1 = Multiply(%0, table) : f32[8, 3]
          return y = %1
        }
        """,
        """
        program p(x: f32[2, 3], table: state f32[8, 3]) {
          batch_axis x=0
          %t = ShardSlice(table) {axis=0, replicas=4} : f32[2, 3]
          %0 = Add(x, %t) : f32[2, 3]
          %1 = Multiply(%0, %t) : f32[2, 3]
          return y = %1
        }
        """,
    )


def test_values_cut_along_different_axes_are_brought_together() -> None:
    notes = becomes(
        """
        program p(x: f32[8, 4], y: f32[8, 4]) {
          batch_axis x=0, y=1
          %0 = Add(x, y) : f32[8, 4]
          return z = %0
        }
        """,
        """
        program p(x: f32[2, 4], y: f32[8, 1]) {
          batch_axis x=0, y=1
          %g = AllGather(y) {axis=1, replicas=4} : f32[8, 4]
          %t = ShardSlice(%g) {axis=0, replicas=4} : f32[2, 4]
          %0 = Add(x, %t) : f32[2, 4]
          return z = %0
        }
        """,
    )
    assert notes == ("gathered y for Add at model.py:3: it needs the whole of axis 1",)


def test_an_operator_without_a_rule_gets_whole_operands_and_a_note() -> None:
    start = program(
        """
        program p(x: f32[8], w: f32[8]) {
          batch_axis x=0
          %0 = Tanh(x) : f32[8]
          %1 = Tanh(w) : f32[8]
          return y = %0, other = %1
        }
        """
    )
    ruleless = replace(CATALOGUE["Tanh"], name="Ruleless", layout=None)
    nodes = tuple(node.replace(op=ruleless) for node in start.nodes)
    local = Replicate(4).replicate(start.replace(nodes=nodes))
    made = [(node.op.name, str(node.outputs[0].type)) for node in local.program.nodes]
    assert made == [("AllGather", "f32[8]"), ("Ruleless", "f32[8]"), ("Ruleless", "f32[8]")]
    assert local.notes == ("gathered x for Ruleless at model.py:3: operator without a layout rule",)


def test_adjoints_by_vjp_lie_as_the_operator_has_it() -> None:
    attrs = '{op="Solve", count=2, wrt=[0, 1], attrs={}}'
    becomes(
        f"""
        program p(a: f32[8, 3, 3], b: f32[3, 2], dx: f32[8, 3, 2]) {{
          batch_axis a=0, dx=0
          %0, %1 = VJP(a, b, dx) {attrs} : f32[8, 3, 3], f32[3, 2]
          return da = %0, db = %1
        }}
        """,
        f"""
        program p(a: f32[2, 3, 3], b: f32[3, 2], dx: f32[2, 3, 2]) {{
          batch_axis a=0, dx=0
          %0, %p = VJP(a, b, dx) {attrs} : f32[2, 3, 3], f32[3, 2]
          %1 = AllReduce(%p) {{op="sum"}} : f32[3, 2]
          return da = %0, db = %1
        }}
        """,
    )


def test_new_state_leaves_whole() -> None:
    notes = becomes(
        """
        program p(x: f32[8], last: state f32[8], count: state i32[]) {
          batch_axis x=0
          return state last = x, state count = count
        }
        """,
        """
        program p(x: f32[2], last: state f32[8], count: state i32[]) {
          batch_axis x=0
          %0 = AllGather(x) {axis=0, replicas=4} : f32[8]
          return state last = %0, state count = count
        }
        """,
    )
    assert notes == ("gathered x for variable 'last': it must be whole",)


def test_what_depends_on_no_batch_stays_as_it_is() -> None:
    before = program(
        """
        program p(x: f32[8], w: state f32[3]) {
          batch_axis x=0
          %0 = Constant() {value=f32[] 2.0} : f32[]
          %1 = Multiply(w, %0) : f32[3]
          return state w = %1
        }
        """
    )
    local = Replicate(4).replicate(before)
    assert local.program.nodes == before.nodes


def test_random_masks_differ_between_replicas() -> None:
    becomes(
        """
        program p(x: f32[8], y: f32[8], key: u32[2]) {
          batch_axis x=0, y=0
          %0, %1 = Dropout(x, key) {rate=0.5} : f32[8], bool[8]
          %2, %3 = Dropout(y, key) {rate=0.5} : f32[8], bool[8]
          return a = %0, b = %2
        }
        """,
        """
        program p(x: f32[2], y: f32[2], key: u32[2]) {
          batch_axis x=0, y=0
          %r = ReplicaIndex() : i32[]
          %k = FoldIn(key, %r) : u32[2]
          %0, %1 = Dropout(x, %k) {rate=0.5} : f32[2], bool[2]
          %2, %3 = Dropout(y, %k) {rate=0.5} : f32[2], bool[2]
          return a = %0, b = %2
        }
        """,
    )


SCAN = """
    program p(x: f32[5, 8], steps: f32[5]) {{
      batch_axis x=1
      %0 = Constant() {{value=f32[] 0.0}} : f32[]
      %1, %2 = Scan(%0, {xs}) {{consts=0, carries=1, length=5}} : f32[], f32[5]
        with body(c: f32[], {arg}) {{
          {nodes}
          return r0 = %b, r1 = %a
        }}
      return total = %1, each = %2
    }}
"""


def test_a_loop_that_adds_up_partial_sums_ends_in_one_collective() -> None:
    before = SCAN.format(
        xs="x",
        arg="s: f32[8]",
        nodes="""%a = ReduceSum(s) {axes=[0], keepdims=false} : f32[]
          %b = Add(c, %a) : f32[]""",
    )
    becomes(
        before,
        """
        program p(x: f32[5, 2], steps: f32[5]) {
          batch_axis x=1
          %0 = Constant() {value=f32[] 0.0} : f32[]
          %1, %2 = Scan(%0, x) {consts=0, carries=1, length=5} : f32[], f32[5]
            with body(c: f32[], s: f32[2]) {
              %a = ReduceSum(s) {axes=[0], keepdims=false} : f32[]
              %b = Add(c, %a) : f32[]
              return r0 = %b, r1 = %a
            }
          %3 = AllReduce(%1) {op="sum"} : f32[]
          %4 = AllReduce(%2) {op="sum"} : f32[5]
          return total = %3, each = %4
        }
        """,
    )


def test_a_sum_that_does_not_begin_at_zero_begins_on_one_replica() -> None:
    before = SCAN.format(
        xs="x",
        arg="s: f32[8]",
        nodes="""%a = ReduceSum(s) {axes=[0], keepdims=false} : f32[]
          %b = Add(c, %a) : f32[]""",
    ).replace("value=f32[] 0.0", "value=f32[] 2.0")
    local = Replicate(4).replicate(program(before)).program
    (scan,) = [node for node in local.nodes if node.op.name == "Scan"]
    assert local.producers()[scan.inputs[0]].op.name == "OnReplicaZero"


def test_a_loop_that_adds_up_whole_values_has_no_collective() -> None:
    before = program(
        SCAN.format(
            xs="steps",
            arg="s: f32[]",
            nodes="""%a = Negative(s) : f32[]
          %b = Add(c, %a) : f32[]""",
        )
    )
    local = Replicate(4).replicate(before)
    assert local.collectives == 0
    assert local.program.nodes == before.nodes


def test_what_a_loop_body_gathers_is_counted_and_noted() -> None:
    local = Replicate(4).replicate(
        program(
            """
            program p(x: f32[5, 8], c: f32[8]) {
              batch_axis x=1
              %1 = Scan(c, x) {consts=0, carries=1, length=5} : f32[8]
                with body(c: f32[8], s: f32[8]) {
                  %a = CumSum(s) {axis=0} : f32[8]
                  %b = Add(c, %a) : f32[8]
                  return r0 = %b
                }
              return total = %1
            }
            """
        )
    )
    verify(local.program, "local")
    assert local.collectives == 1
    assert local.notes == ("gathered s for CumSum at model.py:5: it needs the whole of axis 0",)


# -- errors ------------------------------------------------------------------------------------

ROWS = """
    program p(x: f32[{rows}, 3], w: f32[3]) {{
      batch_axis x=0
      %0 = Add(x, w) : f32[{rows}, 3]
      return y = %0
    }}
"""


def test_a_size_that_is_not_bound() -> None:
    with pytest.raises(LayoutError, match="size n of its batch axis 0 is not bound"):
        Replicate(4).replicate(program(ROWS.format(rows="n")))


def test_a_program_without_a_batch_feed() -> None:
    text = """
        program p(x: f32[8, 3]) {
          return y = x
        }
    """
    with pytest.raises(LayoutError, match=r"no feed has a batch axis.*over 4 replicas"):
        Replicate(4).replicate(program(text))
    given = Replicate(4, {"x": Sharded(0)}).replicate(program(text))
    assert given.outputs == (Sharded(0),)


def test_a_program_without_feeds_runs_whole_on_every_replica() -> None:
    local = Replicate(4).replicate(program("program p(w: state f32[3]) {\n return y = w\n}"))
    assert local.collectives == 0


def test_numbers_of_replicas_that_make_no_sense() -> None:
    for replicas in (0, -1, True, 2.0):
        with pytest.raises(AttributeValueError, match="positive int"):
            Replicate(replicas)  # type: ignore[arg-type]


def test_a_rule_that_fails_is_named_with_the_line() -> None:
    def rule(ctx, node, *operands):
        raise ZeroDivisionError("oops")

    start = program(ROWS.format(rows=8))
    broken = OpDef("Broken", "x, y -> z", CATALOGUE["Add"].infer, CATALOGUE["Add"].lower, "",
                   layout=rule)  # fmt: skip
    nodes = tuple(node.replace(op=broken) for node in start.nodes)
    with pytest.raises(PassError, match=r"(?s)replicate failed at Broken.*oops.*model\.py:3"):
        Replicate(4).replicate(start.replace(nodes=nodes))


def test_requested_devices_are_overridden_with_a_note() -> None:
    start = program(ROWS.format(rows=8))
    nodes = tuple(node.replace(device="/device:GPU:1") for node in start.nodes)
    notes = Replicate(2).replicate(start.replace(nodes=nodes)).notes
    assert notes == (
        "the strategy overrides requested devices: /device:GPU:1 (first at model.py:3)",
    )


# -- size --------------------------------------------------------------------------------------


def chain(length: int) -> Program:
    """Matrix products and their gradients, each used twice, repeated many times."""
    lines = ["program p(x: f32[8, 4], w: state f32[4, 4]) {", "batch_axis x=0"]
    h = "x"
    for i in range(length):
        lines.append(f"%h{i} = MatMul({h}, w) : f32[8, 4]")
        lines.append(f"%g{i} = MatMul({h}, %h{i}) {{transpose_a=true}} : f32[4, 4]")
        lines.append(f"%a{i} = Multiply(%g{i}, w) : f32[4, 4]")
        lines.append(f"%b{i} = Square(%g{i}) : f32[4, 4]")
        lines.append(f"%c{i} = Add(%a{i}, %b{i}) : f32[4, 4]")
        h = f"%h{i}"
    outputs = ", ".join(f"o{i} = %c{i}" for i in range(length))
    return program("\n".join([*lines, f"return {outputs}", "}"]))


@pytest.mark.slow
def test_twenty_thousand_nodes() -> None:
    start = chain(4000)
    assert len(start.nodes) == 20_000
    assert Replicate(4).replicate(start).collectives == 4000


def test_too_few_rounds_cost_collectives_and_no_correctness(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("graphc.devices.layout_flow._MOST_ROUNDS", 0)
    local = Replicate(4).replicate(chain(3))
    verify(local.program, "local")
    assert local.outputs == (REPLICATED,) * 3
    assert local.collectives >= 3
    assert np.all([t.type.shape == (4, 4) for t in local.program.output_tensors()])


MAP_OF_UPDATES = """
program p(x: f32[8, 4, 3], w: state f32[4, 3], m: state f32[4, 3]) {{
  batch_axis x=0
  %0 = ReduceSum(x) {{axes=[0], keepdims=false}} : f32[4, 3]
  %1, %2 = Map(w, m, %0) {{mapped=3, length=4}} : f32[4, 3], f32[4, 3]
      with body(w: f32[3], m: f32[3], g: f32[3]) {{
    {body}
    return r0 = %b, r1 = %a
  }}
  return state w = %1, state m = %2
}}
"""


@pytest.mark.parametrize(
    "body",
    [
        "%a = Add(m, g) : f32[3]\n%b = Subtract(w, %a) : f32[3]",  # the new values would be partial
        "%s = Square(g) : f32[3]\n%a = Add(m, %s) : f32[3]\n%b = Subtract(w, g) : f32[3]",
    ],
)
def test_gradients_are_exchanged_before_a_map_of_updates(body: str) -> None:
    becomes(
        MAP_OF_UPDATES.format(body=body),
        MAP_OF_UPDATES.format(body=body)
        .replace("x: f32[8,", "x: f32[2,")
        .replace("\n  %1, %2", '\n  %g = AllReduce(%0) {op="sum"} : f32[4, 3]\n  %1, %2')
        .replace("m, %0)", "m, %g)"),
    )


def test_the_sum_of_two_partial_operands_of_a_map_is_exchanged_once() -> None:
    local = Replicate(4).replicate(
        program(
            """
            program p(x: f32[8, 4, 3], w: state f32[4, 3]) {
              batch_axis x=0
              %0 = ReduceSum(x) {axes=[0], keepdims=false} : f32[4, 3]
              %n = Negative(x) : f32[8, 4, 3]
              %1 = ReduceSum(%n) {axes=[0], keepdims=false} : f32[4, 3]
              %2 = Map(w, %0, %1) {mapped=3, length=4} : f32[4, 3]
                  with body(w: f32[3], g: f32[3], h: f32[3]) {
                %s = Add(g, h) : f32[3]
                %q = Square(%s) : f32[3]
                %a = Subtract(w, %q) : f32[3]
                return r0 = %a
              }
              return state w = %2
            }
            """
        )
    )
    assert local.collectives == 1
