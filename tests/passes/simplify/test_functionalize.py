"""Functionalize, in pairs of programs before and after."""

from __future__ import annotations

from textwrap import dedent

from graphc.ir.compare import difference
from graphc.ir.parse import parse_program
from graphc.ir.text import print_program
from graphc.ir.verify import verify
from graphc.ops.catalogue import CATALOGUE
from graphc.passes.simplify.functionalize import Functionalize
from tests.passes.check import SOURCE, program


def check(before: str, after: str, changed: int) -> None:
    """Checks that the captured program `before` becomes the pure program `after`."""
    start = parse_program(dedent(before).strip(), CATALOGUE, source_file=SOURCE)
    verify(start)
    result = Functionalize().run(start)
    verify(result.program, "functional")
    found = difference(result.program, program(after))
    assert found is None, f"{found}\n\ngot\n{print_program(result.program, sources=False)}"
    assert result.changed == changed


def test_a_read_is_a_state_input_and_reads_of_one_value_are_one() -> None:
    check(
        """
        program p(x: f32[3]) {
          %0 = ReadVariable() {variable="v", dtype=f32, shape=[3]} : f32[3]
          %1 = Add(%0, x) : f32[3]
          %2 = ReadVariable() {variable="v", dtype=f32, shape=[3]} : f32[3]
          return y = %1, v = %2
        }
        """,
        """
        program p(x: f32[3], v: state f32[3]) {
          %0 = Add(v, x) : f32[3]
          return y = %0, v = v
        }
        """,
        changed=2,
    )


def test_a_read_sees_the_last_assignment_before_it() -> None:
    check(
        """
        program p(x: f32[]) {
          %0 = ReadVariable() {variable="v", dtype=f32, shape=[]} : f32[]
          %1 = Add(%0, x) : f32[]
          %2 = Assign(%1) {variable="v"} : f32[]
          %3 = ReadVariable() {variable="v", dtype=f32, shape=[]} : f32[]
          %4 = Multiply(%0, %3) : f32[]
          %5 = Assign(%4) {variable="v"} : f32[]
          return before = %0, between = %2, after = %5
        }
        """,
        """
        program p(x: f32[], v: state f32[]) {
          %0 = Add(v, x) : f32[]
          %1 = Multiply(v, %0) : f32[]
          return before = v, between = %0, after = %1, state v = %1
        }
        """,
        changed=4,
    )


def test_what_is_only_assigned_is_no_input_and_two_variables_may_swap() -> None:
    check(
        """
        program p(x: f32[]) {
          %0 = Assign(x) {variable="u"} : f32[]
          %1 = ReadVariable() {variable="v", dtype=f32, shape=[]} : f32[]
          %2 = ReadVariable() {variable="w", dtype=f32, shape=[]} : f32[]
          %3 = Assign(%2) {variable="v"} : f32[]
          %4 = Assign(%1) {variable="w"} : f32[]
          return
        }
        """,
        """
        program p(x: f32[], v: state f32[], w: state f32[]) {
          return state u = x, state v = w, state w = v
        }
        """,
        changed=5,
    )


def test_keys_come_from_the_root_key_and_the_runs_number_which_advances_once() -> None:
    check(
        """
        program p(s: i32[]) {
          %0 = RandomKey(s) : u32[2]
          %1 = RandomNormal(%0) {shape=[3]} : f32[3]
          %2 = Constant() {value=i32[] -1} : i32[]
          %3 = RandomKey(%2) : u32[2]
          %4 = RandomNormal(%3) {shape=[3]} : f32[3]
          return a = %1, b = %4
        }
        """,
        """
        program p(s: i32[], __random__/key: state u32[2], __random__/counter: state i32[]) {
          %0 = FoldIn(__random__/key, __random__/counter) : u32[2]
          %1 = Constant() {value=i32[] 1} : i32[]
          %2 = Add(__random__/counter, %1) : i32[]
          %3 = FoldIn(%0, s) : u32[2]
          %4 = RandomNormal(%3) {shape=[3]} : f32[3]
          %5 = Constant() {value=i32[] -1} : i32[]
          %6 = FoldIn(%0, %5) : u32[2]
          %7 = RandomNormal(%6) {shape=[3]} : f32[3]
          return a = %4, b = %7, state __random__/counter = %2
        }
        """,
        changed=2,
    )


def test_what_a_body_reads_is_an_operand_and_what_it_assigns_is_carried() -> None:
    check(
        """
        program p(x: f32[]) {
          %0 = Scan(x) {consts=0, carries=1, length=5} : f32[]
              with body(a0: f32[]) {
            %0 = ReadVariable() {variable="v", dtype=f32, shape=[]} : f32[]
            %1 = Multiply(a0, %0) : f32[]
            %2 = Assign(%1) {variable="v"} : f32[]
            %3 = ReadVariable() {variable="w", dtype=f32, shape=[]} : f32[]
            %4 = Add(%1, %3) : f32[]
            %5 = Assign(%4) {variable="unread"} : f32[]
            return r0 = %4
          }
          %1 = ReadVariable() {variable="v", dtype=f32, shape=[]} : f32[]
          return y = %0, v = %1
        }
        """,
        """
        program p(x: f32[], v: state f32[], w: state f32[], unread: state f32[]) {
          %0, %1, %2 = Scan(w, x, v, unread) {consts=1, carries=3, length=5} : f32[], f32[], f32[]
              with body(a0: f32[], a1: f32[], a2: f32[], a3: f32[]) {
            %0 = Multiply(a1, a2) : f32[]
            %1 = Add(%0, a0) : f32[]
            return r0 = %1, r1 = %0, r2 = %1
          }
          return y = %0, v = %1, state v = %1, state unread = %2
        }
        """,
        changed=2,
    )


def test_each_iteration_of_nested_bodies_draws_from_a_key_of_its_own() -> None:
    check(
        """
        program p(x: f32[], s: i32[]) {
          %0 = Scan(s, x) {consts=1, carries=1, length=2} : f32[]
              with outer(a0: i32[], a1: f32[]) {
            %0 = Scan(a0, a1) {consts=1, carries=1, length=3} : f32[]
                with inner(a0: i32[], a1: f32[]) {
              %0 = RandomKey(a0) : u32[2]
              %1 = RandomNormal(%0) {shape=[]} : f32[]
              %2 = Add(a1, %1) : f32[]
              return r0 = %2
            }
            return r0 = %0
          }
          return y = %0
        }
        """,
        """
        program p(
          x: f32[], s: i32[], __random__/key: state u32[2], __random__/counter: state i32[]
        ) {
          %0 = FoldIn(__random__/key, __random__/counter) : u32[2]
          %1 = Constant() {value=i32[] 1} : i32[]
          %2 = Add(__random__/counter, %1) : i32[]
          %3 = Constant() {value=i32[] 0} : i32[]
          %4, %5 = Scan(s, %0, x, %3) {consts=2, carries=2, length=2} : f32[], i32[]
              with outer(a0: i32[], a1: u32[2], a2: f32[], a3: i32[]) {
            %0 = FoldIn(a1, a3) : u32[2]
            %1 = Constant() {value=i32[] 0} : i32[]
            %2, %3 = Scan(a0, %0, a2, %1) {consts=2, carries=2, length=3} : f32[], i32[]
                with inner(a0: i32[], a1: u32[2], a2: f32[], a3: i32[]) {
              %0 = FoldIn(a1, a3) : u32[2]
              %1 = FoldIn(%0, a0) : u32[2]
              %2 = RandomNormal(%1) {shape=[]} : f32[]
              %3 = Add(a2, %2) : f32[]
              %4 = Constant() {value=i32[] 1} : i32[]
              %5 = Add(a3, %4) : i32[]
              return r0 = %3, r1 = %5
            }
            %4 = Constant() {value=i32[] 1} : i32[]
            %5 = Add(a3, %4) : i32[]
            return r0 = %2, r1 = %5
          }
          return y = %4, state __random__/counter = %2
        }
        """,
        changed=1,
    )


def test_a_pure_program_stays_as_it_is() -> None:
    text = """
        program p(x: f32[n]) {
          %0 = Negative(x) : f32[n]
          return y = %0
        }
        """
    check(text, text, changed=0)
