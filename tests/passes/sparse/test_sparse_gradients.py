"""Sparse gradients: updates by rows, their form, and updates that must stay dense."""

from __future__ import annotations

import numpy as np
import pytest

from graphc.errors import PassError
from graphc.ir.compare import difference
from graphc.ir.node import Node
from graphc.ir.program import Program
from graphc.ir.rewrite import bind_sizes
from graphc.ir.text import print_program
from graphc.ir.verify import verify
from graphc.ops.arrays.unique_rows import UNIQUE_ROWS
from graphc.passes.core.base import Pass
from graphc.passes.simplify.eliminate_common import EliminateCommon
from graphc.passes.sparse.sparse_gradients import SparseGradients
from tests.near import assert_near
from tests.passes.check import check_stays, program
from tests.passes.evaluate import evaluate

ALWAYS = SparseGradients(fewest=1, smallest=0)
LAZY = SparseGradients(lazy=True, fewest=1, smallest=0)

HEAD = "program p(t: state f32[50, 3], s: state f32[50, 3], i: i32[2, 2], u: f32[2, 2, 3])"
GRADIENT = """
  %0 = Constant() {value=f32[] 0.0} : f32[]
  %1 = BroadcastTo(%0) {shape=[50, 3]} : f32[50, 3]
  %2 = ScatterAdd(%1, i, u) {axis=0, mode="clip"} : f32[50, 3]
"""
# The gradient of the used rows, before its use.
USED = """
  %rows, %places = UniqueRows(i) {size=50, clipped=1} : i32[4], i32[2, 2]
  %0 = Constant() {value=f32[] 0.0} : f32[]
  %1 = BroadcastTo(%0) {shape=[4, 3]} : f32[4, 3]
  %g = ScatterAdd(%1, %places, u) {axis=0} : f32[4, 3]
  %to = Reshape(%rows) {shape=[4, 1]} : i32[4, 1]
"""
RATE = "  %r = Constant() {value=f32[] -0.5} : f32[]\n"


def whole(nodes: str, first: str = GRADIENT, head: str = HEAD) -> str:
    """A program's text; a line that begins with `return` ends the program."""
    return f"{head} {{\n{first}{nodes}\n}}"


def in_order_of_need(program: Program) -> Program:
    """The program with its nodes in the order in which its outputs need them; equal nodes are
    merged."""
    program = EliminateCommon().run(program).program
    made, done = program.producers(), dict[Node, None]()

    def need(node: Node) -> None:
        for tensor in node.inputs:
            if tensor in made:
                need(made[tensor])
        regions = tuple(map(in_order_of_need, node.regions))
        done.setdefault(node.replace(regions=regions) if regions else node)

    for tensor in program.output_tensors():
        if tensor in made:
            need(made[tensor])
    return program.replace(nodes=tuple(done))


def check(a_pass: Pass, before: str, after: str) -> None:
    """Checks that `a_pass` turns `before` into `after`, whatever the order of its nodes."""
    result = a_pass.run(program(before))
    verify(result.program, "functional")
    assert result.changed == 1
    got = in_order_of_need(result.program)
    found = difference(got, in_order_of_need(program(after)))
    assert found is None, f"{found}\n\ngot\n{print_program(got, sources=False)}"


def test_sgd() -> None:
    before = whole(f"""{RATE}
  %3 = Multiply(%r, %2) : f32[50, 3]
  %4 = Add(t, %3) : f32[50, 3]
  return state t = %4""")
    after = whole(
        f"""{RATE}
  %3 = Multiply(%r, %g) : f32[4, 3]
  %4 = Take(t, %rows) {{axis=0}} : f32[4, 3]
  %5 = Add(%4, %3) : f32[4, 3]
  %6 = ScatterNd(t, %to, %5) {{op="set", axes=[0]}} : f32[50, 3]
  return state t = %6""",
        USED,
    )
    check(ALWAYS, before, after)


ADAGRAD = f"""{RATE}
  %3 = Square(%2) : f32[50, 3]
  %4 = Add(%3, s) : f32[50, 3]
  %5 = Greater(%4, %0) : bool[50, 3]
  %6 = Rsqrt(%4) : f32[50, 3]
  %7 = Where(%5, %6, %1) : f32[50, 3]
  %8 = Multiply(%7, %2) : f32[50, 3]
  %9 = Multiply(%r, %8) : f32[50, 3]
  %10 = Add(t, %9) : f32[50, 3]
"""
ADAGRAD_BY_ROWS = f"""{RATE}
  %3 = Square(%g) : f32[4, 3]
  %4 = Take(s, %rows) {{axis=0}} : f32[4, 3]
  %5 = Add(%3, %4) : f32[4, 3]
  %6 = ScatterNd(s, %to, %5) {{op="set", axes=[0]}} : f32[50, 3]
  %7 = Greater(%5, %0) : bool[4, 3]
  %8 = Rsqrt(%5) : f32[4, 3]
  %9 = Where(%7, %8, %1) : f32[4, 3]
  %10 = Multiply(%9, %g) : f32[4, 3]
  %11 = Multiply(%r, %10) : f32[4, 3]
  %12 = Take(t, %rows) {{axis=0}} : f32[4, 3]
  %13 = Add(%12, %11) : f32[4, 3]
  %14 = ScatterNd(t, %to, %13) {{op="set", axes=[0]}} : f32[50, 3]
"""


def test_adagrad_by_the_old_square_sum_of_each_row() -> None:
    check(
        ALWAYS,
        whole(f"{ADAGRAD}  return state t = %10, state s = %4"),
        whole(f"{ADAGRAD_BY_ROWS}  return state t = %14, state s = %6", USED),
    )


def test_the_new_table_may_be_used_and_fetched() -> None:
    """The whole table exists: it is the old one with rows written into it."""
    more = "  %20 = ReduceSum({}) {{axes=[0, 1]}} : f32[]\n"
    check(
        ALWAYS,
        whole(
            f"{ADAGRAD}{more.format('%10')}  return y = %20, t = %10, state t = %10, state s = %4"
        ),
        whole(
            f"{ADAGRAD_BY_ROWS}{more.format('%14')}"
            "  return y = %20, t = %14, state t = %14, state s = %6",
            USED,
        ),
    )


def test_a_gradient_that_is_fetched_is_there_whole_as_well() -> None:
    before = whole(f"{ADAGRAD}  return g = %2, state t = %10, state s = %4")
    done = ALWAYS.run(program(before)).program
    table = [n.op.name for n in done.nodes if n.outputs[0].type.shape == (50, 3)]
    assert table == ["BroadcastTo", "ScatterAdd", "ScatterNd", "ScatterNd"]


def test_clipping_by_the_global_norm_sums_over_the_rows_used() -> None:
    before = whole("""
  %3 = Square(%2) : f32[50, 3]
  %4 = ReduceSum(%3) {axes=[0, 1]} : f32[]
  %5 = Sqrt(%4) : f32[]
  %6 = Divide(%2, %5) : f32[50, 3]
  %7 = Subtract(t, %6) : f32[50, 3]
  return state t = %7, norm = %5""")
    after = whole(
        """
  %3 = Square(%g) : f32[4, 3]
  %4 = ReduceSum(%3) {axes=[0, 1]} : f32[]
  %5 = Sqrt(%4) : f32[]
  %6 = Divide(%g, %5) : f32[4, 3]
  %7 = Take(t, %rows) {axis=0} : f32[4, 3]
  %8 = Subtract(%7, %6) : f32[4, 3]
  %9 = ScatterNd(t, %to, %8) {op="set", axes=[0]} : f32[50, 3]
  return state t = %9, norm = %5""",
        USED,
    )
    check(ALWAYS, before, after)


def test_a_mean_over_all_rows_divides_by_their_number() -> None:
    before = whole("""
  %3 = ReduceMean(%2) {axes=[0, 1]} : f32[]
  %4 = Multiply(%2, %3) : f32[50, 3]
  %5 = Subtract(t, %4) : f32[50, 3]
  return state t = %5""")
    after = whole(
        """
  %3 = ReduceMean(%g) {axes=[0, 1], count=150} : f32[]
  %4 = Multiply(%g, %3) : f32[4, 3]
  %5 = Take(t, %rows) {axis=0} : f32[4, 3]
  %6 = Subtract(%5, %4) : f32[4, 3]
  %7 = ScatterNd(t, %to, %6) {op="set", axes=[0]} : f32[50, 3]
  return state t = %7""",
        USED,
    )
    check(ALWAYS, before, after)


def test_updates_that_are_all_finite_or_none() -> None:
    before = whole("""
  %3 = IsFinite(%2) : bool[50, 3]
  %4 = ReduceAll(%3) {axes=[0, 1]} : bool[]
  %5 = Subtract(t, %2) : f32[50, 3]
  %6 = Where(%4, %5, t) : f32[50, 3]
  return state t = %6""")
    after = whole(
        """
  %3 = IsFinite(%g) : bool[4, 3]
  %4 = ReduceAll(%3) {axes=[0, 1]} : bool[]
  %5 = Take(t, %rows) {axis=0} : f32[4, 3]
  %6 = Subtract(%5, %g) : f32[4, 3]
  %7 = Where(%4, %6, %5) : f32[4, 3]
  %8 = ScatterNd(t, %to, %7) {op="set", axes=[0]} : f32[50, 3]
  return state t = %8""",
        USED,
    )
    check(ALWAYS, before, after)


def test_rows_of_a_piece_of_the_indices_are_stored() -> None:
    head = HEAD.replace("i: i32[2, 2]", "ids: i32[2, 6]")
    update = """
  %r = Constant() {value=f32[] -0.5} : f32[]
  %n = Constant() {value=i32[] 50} : i32[]
  %p = Slice(ids) {starts=[0, 2], limits=[2, 4], strides=[1, 1]} : i32[2, 2]
  %i = Add(%p, %n) : i32[2, 2]
"""
    before = whole(
        GRADIENT.replace(", i, u", ", %i, u")
        + """
  %3 = Multiply(%r, %2) : f32[50, 3]
  %4 = Add(t, %3) : f32[50, 3]
  return state t = %4""",
        update,
        head,
    )
    result = ALWAYS.run(program(before))
    (node,) = [node for node in result.program.nodes if node.op is UNIQUE_ROWS]
    assert node.attrs["pieces"]


def test_several_lookups_of_one_table_are_one_set_of_rows() -> None:
    head = "program p(t: state f32[50, 3], i: i32[2], j: u32[3], u: f32[2, 3], v: f32[3, 3])"
    before = whole(
        """
  %0 = Constant() {value=f32[] 0.0} : f32[]
  %1 = BroadcastTo(%0) {shape=[50, 3]} : f32[50, 3]
  %2 = ScatterAdd(%1, j, v) {axis=0, mode="drop"} : f32[50, 3]
  %3 = ScatterAdd(%1, i, u) {axis=0, mode="clip"} : f32[50, 3]
  %4 = Add(%2, %3) : f32[50, 3]
  %5 = ScatterAdd(%4, i, u) {axis=0, mode="clip"} : f32[50, 3]
  %6 = Subtract(t, %5) : f32[50, 3]
  return state t = %6""",
        "",
        head,
    )
    after = whole(
        """
  %rows, %pi, %pj = UniqueRows(i, j) {size=50, clipped=1} : i32[5], i32[2], i32[3]
  %0 = Constant() {value=f32[] 0.0} : f32[]
  %1 = BroadcastTo(%0) {shape=[5, 3]} : f32[5, 3]
  %2 = ScatterAdd(%1, %pj, v) {axis=0, mode="drop"} : f32[5, 3]
  %x = BroadcastTo(%0) {shape=[5, 3]} : f32[5, 3]
  %3 = ScatterAdd(%x, %pi, u) {axis=0, mode="drop"} : f32[5, 3]
  %4 = Add(%2, %3) : f32[5, 3]
  %5 = ScatterAdd(%4, %pi, u) {axis=0, mode="drop"} : f32[5, 3]
  %6 = Take(t, %rows) {axis=0} : f32[5, 3]
  %7 = Subtract(%6, %5) : f32[5, 3]
  %to = Reshape(%rows) {shape=[5, 1]} : i32[5, 1]
  %8 = ScatterNd(t, %to, %7) {op="set", axes=[0]} : f32[50, 3]
  return state t = %8""",
        "",
        head,
    )
    check(ALWAYS, before, after)


def test_what_is_known_of_all_rows_is_computed_on_those_used() -> None:
    """Weights of columns, broadcasts, a product with a matrix, and transposed rows."""
    head = "program p(t: state f32[3, 50], i: i32[4], u: f32[3, 4], c: f32[50], w: f32[3, 3])"
    before = whole(
        """
  %0 = Constant() {value=f32[] 0.0} : f32[]
  %1 = BroadcastTo(%0) {shape=[3, 50]} : f32[3, 50]
  %2 = ScatterAdd(%1, i, u) {axis=1} : f32[3, 50]
  %3 = Exp(c) : f32[50]
  %4 = Multiply(%2, %3) : f32[3, 50]
  %5 = Subtract(t, %4) : f32[3, 50]
  return state t = %5""",
        "",
        head,
    )
    after = whole(
        """
  %rows, %places = UniqueRows(i) {size=50} : i32[4], i32[4]
  %0 = Constant() {value=f32[] 0.0} : f32[]
  %1 = BroadcastTo(%0) {shape=[3, 4]} : f32[3, 4]
  %2 = ScatterAdd(%1, %places, u) {axis=1} : f32[3, 4]
  %3 = Take(c, %rows) {axis=0} : f32[4]
  %4 = Exp(%3) : f32[4]
  %5 = Multiply(%2, %4) : f32[3, 4]
  %6 = Take(t, %rows) {axis=1} : f32[3, 4]
  %7 = Subtract(%6, %5) : f32[3, 4]
  %to = Reshape(%rows) {shape=[4, 1]} : i32[4, 1]
  %8 = ScatterNd(t, %to, %7) {op="set", axes=[1]} : f32[3, 50]
  return state t = %8""",
        "",
        head,
    )
    check(ALWAYS, before, after)


MOMENTUM = f"""{RATE}
  %3 = Multiply(s, %r) : f32[50, 3]
  %4 = Add(%2, %3) : f32[50, 3]
  %5 = Multiply(%r, %4) : f32[50, 3]
  %6 = Add(t, %5) : f32[50, 3]
  return state t = %6, state s = %4"""


def test_momentum_moves_all_rows() -> None:
    check_stays(ALWAYS, whole(MOMENTUM))


def test_lazy_momentum_moves_the_rows_used() -> None:
    after = whole(
        f"""{RATE}
  %3 = Take(s, %rows) {{axis=0}} : f32[4, 3]
  %4 = Multiply(%3, %r) : f32[4, 3]
  %5 = Add(%g, %4) : f32[4, 3]
  %6 = ScatterNd(s, %to, %5) {{op="set", axes=[0]}} : f32[50, 3]
  %7 = Multiply(%r, %5) : f32[4, 3]
  %8 = Take(t, %rows) {{axis=0}} : f32[4, 3]
  %9 = Add(%8, %7) : f32[4, 3]
  %10 = ScatterNd(t, %to, %9) {{op="set", axes=[0]}} : f32[50, 3]
  return state t = %10, state s = %6""",
        USED,
    )
    check(LAZY, whole(MOMENTUM), after)


def test_lazy_means_the_same_for_any_sizes() -> None:
    """A table of few rows, and a batch of unknown size."""
    head = "program p(t: state f32[2, 3], s: state f32[2, 3], i: i32[b], u: f32[b, 3])"
    text = whole(MOMENTUM, GRADIENT, HEAD).replace(HEAD, head).replace("50, 3", "2, 3")
    start = program(text)
    done, changed = SparseGradients(lazy=True).run(start)
    assert changed == 1
    later, changed = SparseGradients(lazy=True).run(bind_sizes(done, {"b": 7}))
    assert changed == 0
    assert not any(
        node.op.name == "BroadcastTo" and node.attrs["shape"] == (2, 3) for node in later.nodes
    )


def test_a_slot_that_decays_by_itself_decays_and_gets_its_rows() -> None:
    """An rmsprop slot: only used rows of the table change, and only s is as large as the table."""
    before = whole(f"""{RATE}
  %3 = Multiply(s, %r) : f32[50, 3]
  %4 = Square(%2) : f32[50, 3]
  %5 = Add(%3, %4) : f32[50, 3]
  %6 = Multiply(%5, %2) : f32[50, 3]
  %7 = Add(t, %6) : f32[50, 3]
  return state t = %7, state s = %5""")
    done = ALWAYS.run(program(before)).program
    table = [n.op.name for n in done.nodes if n.outputs[0].type.shape == (50, 3)]
    assert table == ["Multiply", "ScatterNd", "ScatterNd"]


def test_an_average_of_the_table_is_computed_of_the_whole_new_table() -> None:
    before = whole("""
  %3 = Subtract(t, %2) : f32[50, 3]
  %4 = Add(s, %3) : f32[50, 3]
  %5 = Tanh(%4) : f32[50, 3]
  return state t = %3, state s = %5""")
    done = ALWAYS.run(program(before)).program
    table = [n.op.name for n in done.nodes if n.outputs[0].type.shape == (50, 3)]
    assert table == ["ScatterNd", "Add", "Tanh"]


STAYS = {
    "the gradient alone": "  return g = %2",
    "another term of the gradient: tied weights, decay of weights": """
  %3 = Add(%2, t) : f32[50, 3]
  %4 = Subtract(t, %3) : f32[50, 3]
  return state t = %4""",
    "a new value that is not the old one elsewhere": """
  %3 = Subtract(s, %2) : f32[50, 3]
  return state t = %3""",
    "rows mixed with each other": """
  %3 = CumSum(%2) {axis=0} : f32[50, 3]
  %4 = Subtract(t, %3) : f32[50, 3]
  return state t = %4""",
    "rows by their places": """
  %3 = Reverse(%2) {axes=[0]} : f32[50, 3]
  %4 = Subtract(t, %3) : f32[50, 3]
  return state t = %4""",
    "a sum to which rows not used add something": """
  %3 = Exp(%2) : f32[50, 3]
  %4 = ReduceSum(%3) {axes=[0, 1]} : f32[]
  %5 = Multiply(t, %4) : f32[50, 3]
  return state t = %5""",
}


@pytest.mark.parametrize("name", STAYS)
def test_stays(name: str) -> None:
    check_stays(ALWAYS, whole(STAYS[name]))


@pytest.mark.parametrize(
    ("a_pass", "sparse"),
    [
        (SparseGradients(smallest=150, fewest=12), True),
        (SparseGradients(smallest=151, fewest=1), False),
        (SparseGradients(smallest=0, fewest=13), False),
    ],
)
def test_only_where_it_pays(a_pass: SparseGradients, sparse: bool) -> None:
    start = program(whole(f"{ADAGRAD}  return state t = %10, state s = %4"))
    assert a_pass.run(start).changed == sparse


def test_waits_until_the_number_of_lookups_is_known() -> None:
    text = """program p(t: state f32[50, 3], i: i32[b], u: f32[b, 3]) {
      %0 = Constant() {value=f32[] 0.0} : f32[]
      %1 = BroadcastTo(%0) {shape=[50, 3]} : f32[50, 3]
      %2 = ScatterAdd(%1, i, u) {axis=0} : f32[50, 3]
      %3 = Subtract(t, %2) : f32[50, 3]
      return state t = %3
    }"""
    check_stays(ALWAYS, text)
    assert ALWAYS.run(bind_sizes(program(text), {"b": 4})).changed == 1


def test_more_rows_than_int32_counts_stay() -> None:
    check_stays(
        ALWAYS,
        """program p(t: state i8[2147483647], i: i32[4], u: i8[4]) {
      %0 = Constant() {value=i8[] 0} : i8[]
      %1 = BroadcastTo(%0) {shape=[2147483647]} : i8[2147483647]
      %2 = ScatterAdd(%1, i, u) {axis=0} : i8[2147483647]
      %3 = Subtract(t, %2) : i8[2147483647]
      return state t = %3
    }""",
    )


def test_rows_chosen_by_what_rows_became_stay() -> None:
    """The second lookup depends on the table that the first one changed."""
    check_stays(
        ALWAYS,
        whole("""
  %3 = Subtract(t, %2) : f32[50, 3]
  %4 = ArgMax(%3) {axis=1, dtype=i32} : i32[50]
  %5 = BroadcastTo(%0) {shape=[50, 3]} : f32[50, 3]
  %6 = ScatterAdd(%5, %4, s) {axis=0} : f32[50, 3]
  %7 = Subtract(%3, %6) : f32[50, 3]
  return state t = %7"""),
    )


def test_two_updates_after_each_other_write_into_one_buffer() -> None:
    """The second uses the result of the first, which reused the buffer of the old table."""
    before = whole("""
  %3 = Subtract(t, %2) : f32[50, 3]
  %4 = Take(%3, i) {axis=0} : f32[2, 2, 3]
  %5 = ScatterAdd(%1, i, %4) {axis=0, mode="clip"} : f32[50, 3]
  %6 = Subtract(%3, %5) : f32[50, 3]
  return state t = %6""")
    done = ALWAYS.run(program(before)).program
    first, second = [n for n in done.nodes if n.op.name == "ScatterNd"]
    assert second.inputs[0] is first.outputs[0]


def same_values(text: str) -> None:
    """Checks that the pass changes the program, but not its results."""
    before = program(text)
    result = ALWAYS.run(before)
    assert result.changed
    verify(result.program, "functional")
    rng = np.random.default_rng(0)
    feeds = [
        rng.integers(0, 8, t.type.shape).astype(t.type.dtype)
        if t.type.dtype.kind == "i"
        else rng.standard_normal(t.type.shape).astype(t.type.dtype)
        for t in before.input_tensors()
    ]
    pairs = zip(evaluate(before, feeds), evaluate(result.program, feeds), strict=True)
    for one, other in pairs:
        assert_near(one, other, rtol=1e-5, atol=1e-5)


def test_rows_and_columns_of_one_table_are_written_beside_each_other() -> None:
    same_values("""program p(t: state f32[8, 8], i: i32[2], u: f32[2, 8]) {
  %0 = Constant() {value=f32[] 0.0} : f32[]
  %1 = BroadcastTo(%0) {shape=[8, 8]} : f32[8, 8]
  %2 = ScatterAdd(%1, i, u) {axis=0} : f32[8, 8]
  %3 = Subtract(t, %2) : f32[8, 8]
  %4 = Transpose(%2) {perm=[1, 0]} : f32[8, 8]
  %5 = Subtract(t, %4) : f32[8, 8]
  return state t = %3, other = %5
}""")


def test_a_sum_of_one_tables_rows_may_be_a_factor_of_anothers() -> None:
    same_values("""
program p(t: state f32[32, 8], s: state f32[8], i: i32[2], u: f32[2, 8], j: i32[2], w: f32[2]) {
  %0 = Constant() {value=f32[] 0.0} : f32[]
  %1 = BroadcastTo(%0) {shape=[32, 8]} : f32[32, 8]
  %2 = ScatterAdd(%1, i, u) {axis=0} : f32[32, 8]
  %3 = Subtract(t, %2) : f32[32, 8]
  %4 = ReduceSum(%2) {axes=[0]} : f32[8]
  %5 = BroadcastTo(%0) {shape=[8]} : f32[8]
  %6 = ScatterAdd(%5, j, w) {axis=0} : f32[8]
  %7 = Multiply(%6, %4) : f32[8]
  %8 = Subtract(s, %7) : f32[8]
  return state t = %3, state s = %8
}""")


def test_the_carry_of_a_loop_is_state() -> None:
    loop = """
        program p(t: f32[50, 3], i: i32[5, 2], u: f32[5, 2, 3]) {{
          %0 = Scan(t, i, u) {{consts=0, carries=1, length=5}} : f32[50, 3]
              with body(t: f32[50, 3], i: i32[2], u: f32[2, 3]) {{
            {}
          }}
          return t = %0
        }}"""
    before = """%0 = Constant() {value=f32[] 0.0} : f32[]
            %1 = BroadcastTo(%0) {shape=[50, 3]} : f32[50, 3]
            %2 = ScatterAdd(%1, i, u) {axis=0} : f32[50, 3]
            %3 = Subtract(t, %2) : f32[50, 3]
            return r0 = %3"""
    after = """%rows, %places = UniqueRows(i) {size=50} : i32[2], i32[2]
            %0 = Constant() {value=f32[] 0.0} : f32[]
            %1 = BroadcastTo(%0) {shape=[2, 3]} : f32[2, 3]
            %2 = ScatterAdd(%1, %places, u) {axis=0} : f32[2, 3]
            %3 = Take(t, %rows) {axis=0} : f32[2, 3]
            %4 = Subtract(%3, %2) : f32[2, 3]
            %5 = Reshape(%rows) {shape=[2, 1]} : i32[2, 1]
            %6 = ScatterNd(t, %5, %4) {op="set", axes=[0]} : f32[50, 3]
            return r0 = %6"""
    check(ALWAYS, loop.format(before), loop.format(after))


def test_a_failure_names_the_pass_and_the_lookup(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no such rows")

    monkeypatch.setattr("graphc.passes.sparse.sparse_gradients.RowWriter", fail)
    with pytest.raises(PassError, match="sparse-gradients failed at ScatterAdd"):
        ALWAYS.run(program(whole(f"{ADAGRAD}  return state t = %10, state s = %4")))
