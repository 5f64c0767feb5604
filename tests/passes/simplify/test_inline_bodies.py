"""Inline bodies, in pairs of programs before and after."""

from __future__ import annotations

from graphc.passes.simplify.inline_bodies import InlineBodies
from tests.passes.check import check, check_stays


def test_a_function_with_one_caller() -> None:
    check(
        InlineBodies(),
        """
        program p(x: f32[n], y: f32[n]) {
          %0 = Negative(x) : f32[n]
          %1, %2 = Call(%0, y) : f32[n], f32[n] with f(a0: f32[n], a1: f32[n]) {
            %0 = Add(a0, a1) : f32[n]
            return r0 = %0, r1 = a1
          }
          %3 = Multiply(%1, %2) : f32[n]
          return out = %3, same = %2
        }
        """,
        """
        program p(x: f32[n], y: f32[n]) {
          %0 = Negative(x) : f32[n]
          %1 = Add(%0, y) : f32[n]
          %2 = Multiply(%1, y) : f32[n]
          return out = %2, same = y
        }
        """,
    )


def test_one_caller_in_another_that_is_itself_inlined() -> None:
    check(
        InlineBodies(),
        """
        program p(x: f32[n]) {
          %0 = Call(x) : f32[n] with f(a0: f32[n]) {
            %0 = Call(a0) : f32[n] with g(a0: f32[n]) {
              %0 = Negative(a0) : f32[n]
              return r0 = %0
            }
            return r0 = %0
          }
          return out = %0
        }
        """,
        """
        program p(x: f32[n]) {
          %0 = Negative(x) : f32[n]
          return out = %0
        }
        """,
    )


def test_a_function_with_two_callers_stays() -> None:
    check_stays(
        InlineBodies(),
        """
        program p(x: f32[n]) {
          %0 = Call(x) : f32[n] with f(a0: f32[n]) {
            %0 = Negative(a0) : f32[n]
            return r0 = %0
          }
          %1 = Call(%0) : f32[n] with f(a0: f32[n]) {
            %0 = Negative(a0) : f32[n]
            return r0 = %0
          }
          return out = %1
        }
        """,
    )


def test_a_branch_that_a_constant_chooses() -> None:
    check(
        InlineBodies(),
        """
        program p(x: f32[n], i: i32[]) {
          %0 = Constant() {value=i32[] 7} : i32[]
          %1 = Switch(%0, x) : f32[n] with branch0(a0: f32[n]) {
            %0 = Negative(a0) : f32[n]
            return r0 = %0
          } with branch1(a0: f32[n]) {
            %0 = Constant() {value=bool[] false} : bool[]
            %1 = Switch(%0, a0) : f32[n] with false_branch(a0: f32[n]) {
              return r0 = a0
            } with true_branch(a0: f32[n]) {
              %0 = Negative(a0) : f32[n]
              return r0 = %0
            }
            %2 = Add(%1, a0) : f32[n]
            return r0 = %2
          }
          return out = %1
        }
        """,
        """
        program p(x: f32[n], i: i32[]) {
          %0 = Add(x, x) : f32[n]
          return out = %0
        }
        """,
    )


def test_choices_at_run_time_and_nodes_with_a_device_stay() -> None:
    check_stays(
        InlineBodies(),
        """
        program p(x: f32[n], i: i32[]) {
          %0 = Switch(i, x) : f32[n] with branch0(a0: f32[n]) {
            return r0 = a0
          } with branch1(a0: f32[n]) {
            %0 = Negative(a0) : f32[n]
            return r0 = %0
          }
          %1 = Call(%0) : f32[n] on /device:GPU:0 with f(a0: f32[n]) {
            %0 = Negative(a0) : f32[n]
            return r0 = %0
          }
          return out = %1
        }
        """,
    )
