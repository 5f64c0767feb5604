"""GroupAlike: nodes that do the same with different values become one `Map`."""

from __future__ import annotations

import pytest

from graphc.passes.rolling.group_alike import GroupAlike
from tests.passes.check import check, program

GROUP = GroupAlike()
WEIGHTS = "w0: state f32[2], w1: state f32[2], w2: state f32[2]"


def test_updates_of_parameters_alike_become_one_of_stacked_parameters() -> None:
    """The updates get the order of the stack that they start with, not that of the program."""
    check(
        GROUP,
        f"""
        program p(dw: f32[3, 2], {WEIGHTS}, m0: state f32[2], m1: state f32[2], m2: state f32[2]) {{
          %0, %1, %2 = Unstack(dw) : f32[2], f32[2], f32[2]
          %3 = Constant() {{value=f32[] 0.5}} : f32[]
          %4 = Multiply(m2, %3) : f32[2]
          %5 = Add(%4, %2) : f32[2]
          %6 = Subtract(w2, %5) : f32[2]
          %7 = Multiply(m0, %3) : f32[2]
          %8 = Add(%7, %0) : f32[2]
          %9 = Subtract(w0, %8) : f32[2]
          %10 = Multiply(m1, %3) : f32[2]
          %11 = Add(%10, %1) : f32[2]
          %12 = Subtract(w1, %11) : f32[2]
          return state m1 = %11, state m2 = %5, state w0 = %9, state w1 = %12
        }}
        """,
        f"""
        program p(dw: f32[3, 2], {WEIGHTS}, m0: state f32[2], m1: state f32[2], m2: state f32[2]) {{
          %0 = Constant() {{value=f32[] 0.5}} : f32[]
          %1 = Stack(m0, m1, m2) : f32[3, 2]
          %2 = Stack(w0, w1, w2) : f32[3, 2]
          %3, %4 = Map(%1, dw, %2, %0) {{mapped=3, length=3}} : f32[3, 2], f32[3, 2]
              with body(a0: f32[2], a1: f32[2], a2: f32[2], a3: f32[]) {{
            %0 = Multiply(a0, a3) : f32[2]
            %1 = Add(%0, a1) : f32[2]
            %2 = Subtract(a2, %1) : f32[2]
            return r0 = %1, r1 = %2
          }}
          %5, %6, %7 = Unstack(%3) : f32[2], f32[2], f32[2]
          %8, %9, %10 = Unstack(%4) : f32[2], f32[2], f32[2]
          return state m1 = %6, state m2 = %7, state w0 = %8, state w1 = %9
        }}
        """,
    )


def test_before_and_after_a_value_of_all_there_are_two_maps() -> None:
    """The value is the norm of all gradients, by which each is scaled."""
    check(
        GROUP,
        f"""
        program p(dw: f32[3, 2], {WEIGHTS}) {{
          %0, %1, %2 = Unstack(dw) : f32[2], f32[2], f32[2]
          %3 = Square(%0) : f32[2]
          %4 = ReduceSum(%3) {{axes=[0]}} : f32[]
          %5 = Square(%1) : f32[2]
          %6 = ReduceSum(%5) {{axes=[0]}} : f32[]
          %7 = Add(%4, %6) : f32[]
          %8 = Square(%2) : f32[2]
          %9 = ReduceSum(%8) {{axes=[0]}} : f32[]
          %10 = Add(%7, %9) : f32[]
          %11 = Multiply(%0, %10) : f32[2]
          %12 = Subtract(w0, %11) : f32[2]
          %13 = Multiply(%1, %10) : f32[2]
          %14 = Subtract(w1, %13) : f32[2]
          %15 = Multiply(%2, %10) : f32[2]
          %16 = Subtract(w2, %15) : f32[2]
          return state w0 = %12, state w1 = %14, state w2 = %16
        }}
        """,
        f"""
        program p(dw: f32[3, 2], {WEIGHTS}) {{
          %0 = Map(dw) {{mapped=1, length=3}} : f32[3] with body(a0: f32[2]) {{
            %0 = Square(a0) : f32[2]
            %1 = ReduceSum(%0) {{axes=[0]}} : f32[]
            return r0 = %1
          }}
          %1, %2, %3 = Unstack(%0) : f32[], f32[], f32[]
          %4 = Add(%1, %2) : f32[]
          %5 = Add(%4, %3) : f32[]
          %6 = Stack(w0, w1, w2) : f32[3, 2]
          %7 = Map(dw, %6, %5) {{mapped=2, length=3}} : f32[3, 2]
              with body(a0: f32[2], a1: f32[2], a2: f32[]) {{
            %0 = Multiply(a0, a2) : f32[2]
            %1 = Subtract(a1, %0) : f32[2]
            return r0 = %1
          }}
          %8, %9, %10 = Unstack(%7) : f32[2], f32[2], f32[2]
          return state w0 = %8, state w1 = %9, state w2 = %10
        }}
        """,
    )


def test_a_stack_whose_operands_a_row_makes_is_the_result_of_the_row() -> None:
    """The stack contains the keys of a rolled loop; the numbers folded in become one constant."""
    check(
        GROUP,
        """
        program p(k: state u32[2]) {
          %0 = Constant() {value=i32[] 5} : i32[]
          %1 = FoldIn(k, %0) : u32[2]
          %2 = Constant() {value=i32[] 6} : i32[]
          %3 = FoldIn(k, %2) : u32[2]
          %4 = Constant() {value=i32[] 7} : i32[]
          %5 = FoldIn(k, %4) : u32[2]
          %6 = Stack(%1, %3, %5) : u32[3, 2]
          return keys = %6
        }
        """,
        """
        program p(k: state u32[2]) {
          %0 = Constant() {value=i32[3] [5, 6, 7]} : i32[3]
          %1 = Map(%0, k) {mapped=1, length=3} : u32[3, 2] with body(a0: i32[], a1: u32[2]) {
            %0 = FoldIn(a1, a0) : u32[2]
            return r0 = %0
          }
          return keys = %1
        }
        """,
    )


def test_of_several_results_the_used_ones_leave_the_map() -> None:
    check(
        GROUP,
        f"""
        program p(dw: f32[3, 4], {WEIGHTS}) {{
          %0, %1, %2 = Unstack(dw) : f32[4], f32[4], f32[4]
          %3, %4 = Split(%0) {{axis=0, sizes=[2, 2]}} : f32[2], f32[2]
          %5, %6 = Split(%1) {{axis=0, sizes=[2, 2]}} : f32[2], f32[2]
          %7, %8 = Split(%2) {{axis=0, sizes=[2, 2]}} : f32[2], f32[2]
          %9 = Subtract(w0, %4) : f32[2]
          %10 = Subtract(w1, %6) : f32[2]
          %11 = Subtract(w2, %8) : f32[2]
          return first = %5, state w0 = %9, state w1 = %10, state w2 = %11
        }}
        """,
        f"""
        program p(dw: f32[3, 4], {WEIGHTS}) {{
          %0 = Stack(w0, w1, w2) : f32[3, 2]
          %1, %2 = Map(dw, %0) {{mapped=2, length=3}} : f32[3, 2], f32[3, 2]
              with body(a0: f32[4], a1: f32[2]) {{
            %0, %1 = Split(a0) {{axis=0, sizes=[2, 2]}} : f32[2], f32[2]
            %2 = Subtract(a1, %1) : f32[2]
            return r0 = %0, r1 = %2
          }}
          %3, %4, %5 = Unstack(%1) : f32[2], f32[2], f32[2]
          %6, %7, %8 = Unstack(%2) : f32[2], f32[2], f32[2]
          return first = %4, state w0 = %6, state w1 = %7, state w2 = %8
        }}
        """,
    )


def test_one_value_of_a_row_that_another_row_shares_comes_first() -> None:
    check(
        GROUP,
        """
        program p(dw: f32[3, 2]) {
          %0, %1, %2 = Unstack(dw) : f32[2], f32[2], f32[2]
          %3 = Square(%0) : f32[2]
          %4 = Square(%1) : f32[2]
          %5 = Square(%2) : f32[2]
          %6 = Multiply(%0, %4) : f32[2]
          %7 = Multiply(%1, %4) : f32[2]
          %8 = Multiply(%2, %4) : f32[2]
          return a = %6, b = %7, c = %8, d = %3
        }
        """,
        """
        program p(dw: f32[3, 2]) {
          %0 = Map(dw) {mapped=1, length=3} : f32[3, 2] with first(a0: f32[2]) {
            %0 = Square(a0) : f32[2]
            return r0 = %0
          }
          %1, %2, %3 = Unstack(%0) : f32[2], f32[2], f32[2]
          %4 = Map(dw, %2) {mapped=1, length=3} : f32[3, 2] with then(a0: f32[2], a1: f32[2]) {
            %0 = Multiply(a0, a1) : f32[2]
            return r0 = %0
          }
          %5, %6, %7 = Unstack(%4) : f32[2], f32[2], f32[2]
          return a = %5, b = %6, c = %7, d = %1
        }
        """,
    )


def test_a_stack_in_another_order_comes_between() -> None:
    check(
        GROUP,
        """
        program p(dw: f32[3, 2]) {
          %0, %1, %2 = Unstack(dw) : f32[2], f32[2], f32[2]
          %3 = Square(%0) : f32[2]
          %4 = Square(%1) : f32[2]
          %5 = Square(%2) : f32[2]
          %6 = Tanh(%5) : f32[2]
          %7 = Tanh(%3) : f32[2]
          %8 = Tanh(%4) : f32[2]
          %9 = Stack(%5, %3, %4) : f32[3, 2]
          %10 = Stack(%6, %7, %8) : f32[3, 2]
          return a = %9, b = %10
        }
        """,
        """
        program p(dw: f32[3, 2]) {
          %0 = Map(dw) {mapped=1, length=3} : f32[3, 2] with first(a0: f32[2]) {
            %0 = Square(a0) : f32[2]
            return r0 = %0
          }
          %1, %2, %3 = Unstack(%0) : f32[2], f32[2], f32[2]
          %4 = Stack(%3, %1, %2) : f32[3, 2]
          %5 = Map(%4) {mapped=1, length=3} : f32[3, 2] with then(a0: f32[2]) {
            %0 = Tanh(a0) : f32[2]
            return r0 = %0
          }
          return a = %4, b = %5
        }
        """,
    )


def test_a_stack_along_another_axis_is_made_of_the_slices() -> None:
    nodes = """
          %0, %1, %2 = Unstack(dw) : f32[2], f32[2], f32[2]
          %3 = Tanh(%0) : f32[2]
          %4 = Tanh(%1) : f32[2]
          %5 = Tanh(%2) : f32[2]"""
    check(
        GROUP,
        f"""
        program p(dw: f32[3, 2]) {{{nodes}
          %6 = Stack(%3, %4, %5) {{axis=1}} : f32[2, 3]
          return stack = %6
        }}
        """,
        """
        program p(dw: f32[3, 2]) {
          %0 = Map(dw) {mapped=1, length=3} : f32[3, 2] with body(a0: f32[2]) {
            %0 = Tanh(a0) : f32[2]
            return r0 = %0
          }
          %1, %2, %3 = Unstack(%0) : f32[2], f32[2], f32[2]
          %4 = Stack(%1, %2, %3) {axis=1} : f32[2, 3]
          return stack = %4
        }
        """,
    )


def test_a_stack_that_is_there_serves_though_no_row_makes_it() -> None:
    """The steps depend on each other, but their squares do not."""
    steps = """
          %0 = Tanh(x) : f32[2]
          %1 = Tanh(%0) : f32[2]
          %2 = Tanh(%1) : f32[2]
          %3 = Stack(x, %0, %1) : f32[3, 2]
          %4 = Stack(%0, %1, %2) : f32[3, 2]"""
    check(
        GROUP,
        f"""
        program p(x: f32[2]) {{{steps}
          %5 = Square(%0) : f32[2]
          %6 = Square(%1) : f32[2]
          %7 = Square(%2) : f32[2]
          return before = %3, p = %5, q = %6, r = %7
        }}
        """,
        f"""
        program p(x: f32[2]) {{{steps}
          %5 = Map(%4) {{mapped=1, length=3}} : f32[3, 2] with body(a0: f32[2]) {{
            %0 = Square(a0) : f32[2]
            return r0 = %0
          }}
          %6, %7, %8 = Unstack(%5) : f32[2], f32[2], f32[2]
          return before = %3, p = %6, q = %7, r = %8
        }}
        """,
    )


def test_nodes_that_need_each_other_stay_and_others_are_still_grouped() -> None:
    """The stack of the layers' inputs cannot be computed at once. Neither can values of the
    products, which would need a copy. Values computed from the stack can."""
    network = f"""
        program p(x: f32[2], {WEIGHTS}, a: state f32[2]) {{
          %0 = Tanh(x) : f32[2]
          %1 = Multiply(%0, a) : f32[2]
          %2 = Tanh(%1) : f32[2]
          %3 = Multiply(%2, a) : f32[2]
          %4 = Tanh(%3) : f32[2]
          %5 = Multiply(%4, a) : f32[2]
          %6 = Stack(%0, %2, %4) : f32[3, 2]
          %7 = Square(%1) : f32[2]
          %8 = Square(%3) : f32[2]
          %9 = Square(%5) : f32[2]"""
    check(
        GROUP,
        f"""{network}
          %10 = Add(%0, w0) : f32[2]
          %11 = Add(%2, w1) : f32[2]
          %12 = Add(%4, w2) : f32[2]
          return squares = %7, more = %8, last = %9, state w0 = %10, state w1 = %11, state w2 = %12
        }}
        """,
        f"""{network}
          %10 = Stack(w0, w1, w2) : f32[3, 2]
          %11 = Map(%6, %10) {{mapped=2, length=3}} : f32[3, 2] with body(a0: f32[2], a1: f32[2]) {{
            %0 = Add(a0, a1) : f32[2]
            return r0 = %0
          }}
          %12, %13, %14 = Unstack(%11) : f32[2], f32[2], f32[2]
          return squares = %7, more = %8, last = %9, state w0 = %12, state w1 = %13, state w2 = %14
        }}
        """,
    )


@pytest.mark.parametrize(("size", "grouped"), [(1 << 9, False), (1 << 8, True)])
def test_large_first_values_of_weights_stay_apart(size: int, grouped: bool) -> None:
    """As one stack they would all be in memory at the same time, twice. 1 MB each is large."""
    text = f"""
        program p(keys: u32[3, 2]) {{
          %0, %1, %2 = Unstack(keys) : u32[2], u32[2], u32[2]
          %3 = Constant() {{value=f32[] 0.5}} : f32[]
          %4 = RandomNormal(%0) {{shape=[{size}, {size}], dtype=f32}} : f32[{size}, {size}]
          %5 = RandomNormal(%1) {{shape=[{size}, {size}], dtype=f32}} : f32[{size}, {size}]
          %6 = RandomNormal(%2) {{shape=[{size}, {size}], dtype=f32}} : f32[{size}, {size}]
          %7 = Multiply(%4, %3) : f32[{size}, {size}]
          %8 = Multiply(%5, %3) : f32[{size}, {size}]
          %9 = Multiply(%6, %3) : f32[{size}, {size}]
          return a = %7, b = %8, c = %9
        }}
    """
    made = GROUP.run(program(text)).program
    assert ("Map" in {node.op.name for node in made.nodes}) == grouped
