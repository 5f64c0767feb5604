"""Prune, in pairs of programs before and after."""

from __future__ import annotations

from dataclasses import replace

from graphc.ir.opdef import Effects
from graphc.passes.simplify.prune import Prune
from tests.passes.check import check, check_stays, program


def test_what_no_output_needs_goes() -> None:
    check(
        Prune(),
        """
        program p(x: f32[n], y: f32[n]) {
          %0 = Add(x, y) : f32[n]
          %1 = Multiply(%0, y) : f32[n]
          %2 = Negative(%1) : f32[n]
          return out = %0
        }
        """,
        """
        program p(x: f32[n], y: f32[n]) {
          %0 = Add(x, y) : f32[n]
          return out = %0
        }
        """,
    )


def test_an_unused_input_must_still_be_given() -> None:
    check_stays(
        Prune(),
        """
        program p(x: f32[n], unused: f32[n], w: state f32[3]) {
          %0 = Negative(x) : f32[n]
          return out = %0, state w = w
        }
        """,
    )


def test_a_node_of_which_one_result_is_used_stays() -> None:
    check_stays(
        Prune(),
        """
        program p(x: f32[4]) {
          %0, %1 = Split(x) {axis=0, sizes=[1, 3]} : f32[1], f32[3]
          return out = %1
        }
        """,
    )


def test_host_effects_keep_a_node_and_what_it_needs() -> None:
    start = program(
        """
        program p(x: f32[n]) {
          %0 = Negative(x) : f32[n]
          %1 = Identity(%0) : f32[n]
          %2 = Negative(%1) : f32[n]
          return out = x
        }
        """
    )
    first, shows, last = start.nodes
    shows = shows.replace(op=replace(shows.op, effects=Effects.HOST))
    result = Prune().run(start.replace(nodes=(first, shows, last)))
    assert result.program.nodes == (first, shows)
    assert result.changed == 1


def test_an_unused_result_of_a_loop_goes_with_the_work_and_inputs_it_needed() -> None:
    check(
        Prune(),
        """
        program p(w: f32[3], xs: f32[5, 3], ys: f32[5, 3]) {
          %0 = Constant() {value=f32[3] [0, 0, 0]} : f32[3]
          %1, %2 = Scan(w, %0, xs, ys) {consts=1, carries=1, length=5} : f32[3], f32[5, 3]
              with body(a0: f32[3], a1: f32[3], a2: f32[3], a3: f32[3]) {
            %0 = Add(a1, a2) : f32[3]
            %1 = Multiply(a0, a3) : f32[3]
            return r0 = %0, r1 = %1
          }
          return out = %1
        }
        """,
        """
        program p(w: f32[3], xs: f32[5, 3], ys: f32[5, 3]) {
          %0 = Constant() {value=f32[3] [0, 0, 0]} : f32[3]
          %1 = Scan(%0, xs) {consts=0, carries=1, length=5} : f32[3]
              with body(a0: f32[3], a1: f32[3]) {
            %0 = Add(a0, a1) : f32[3]
            return r0 = %0
          }
          return out = %1
        }
        """,
        prune=False,
    )


def test_bodies_are_pruned_too() -> None:
    check(
        Prune(),
        """
        program p(x: f32[3], xs: f32[5, 3]) {
          %0 = Scan(x, xs) {consts=0, carries=1, length=5} : f32[3]
              with body(a0: f32[3], a1: f32[3]) {
            %0 = Add(a0, a1) : f32[3]
            %1 = Negative(%0) : f32[3]
            return r0 = %0
          }
          return out = %0
        }
        """,
        """
        program p(x: f32[3], xs: f32[5, 3]) {
          %0 = Scan(x, xs) {consts=0, carries=1, length=5} : f32[3]
              with body(a0: f32[3], a1: f32[3]) {
            %0 = Add(a0, a1) : f32[3]
            return r0 = %0
          }
          return out = %0
        }
        """,
        prune=False,
    )
