"""The estimated peak memory: which values exist at a time, computed from types alone."""

from __future__ import annotations

import pytest

from graphc.passes.core.peak import peak
from tests.passes.check import program

ROW = 4 * 64  # bytes of f32[64]


def bytes_of(nodes: str, inputs: str = "x: f32[64], w: state f32[64, 64]") -> int:
    return peak(program(f"program p({inputs}) {{\n{nodes}\n}}"))


def test_a_value_lives_until_its_last_use() -> None:
    """Each softmax needs the one before it; the first one is also needed at the end."""
    chain = """
      %0 = Softmax(x) {axis=0} : f32[64]
      %1 = Softmax(%0) {axis=0} : f32[64]
      %2 = Softmax(%1) {axis=0} : f32[64]
    """
    assert bytes_of(f"{chain}\nreturn y = %2") == 2 * ROW
    assert bytes_of(f"{chain}\nreturn y = %2, z = %0") == 3 * ROW


def test_elementwise_values_between_are_no_arrays() -> None:
    text = """
      %0 = Exp(x) : f32[64]
      %1 = Multiply(%0, x) : f32[64]
      %2 = Tanh(%1) : f32[64]
      return y = %2
    """
    assert bytes_of(text) == ROW


def test_what_others_than_elementwise_nodes_take_is_one() -> None:
    text = """
      %0 = Exp(x) : f32[64]
      %1 = CumSum(%0) {axis=0} : f32[64]
      return y = %1
    """
    assert bytes_of(text) == 2 * ROW


def test_a_new_face_is_no_new_array() -> None:
    text = """
      %0 = CumSum(x) {axis=0} : f32[64]
      %1 = Reshape(%0) {shape=[8, 8]} : f32[8, 8]
      %2 = CumSum(%1) {axis=0} : f32[8, 8]
      return y = %2
    """
    assert bytes_of(text) == 2 * ROW


def test_state_is_written_over() -> None:
    text = """
      %0 = Add(w, w) : f32[64, 64]
      return state w = %0
    """
    assert bytes_of(text) == 0
    assert bytes_of(text.replace("state w", "y")) == 64 * ROW


def test_a_loop_has_its_stacks_from_the_start_and_one_iteration_at_a_time() -> None:
    text = """
      %0, %1 = Scan(x, w) {consts=0, carries=1, length=64} : f32[64], f32[64, 64]
          with body(a0: f32[64], a1: f32[64]) {
        %0 = CumSum(a1) {axis=0} : f32[64]
        %1 = CumSum(%0) {axis=0} : f32[64]
        return r0 = %1, r1 = %0
      }
      return y = %1
    """
    assert bytes_of(text) == 64 * ROW + ROW + 2 * ROW


def test_a_map_runs_all_iterations_at_once() -> None:
    text = """
      %0 = Map(w) {mapped=1, length=64} : f32[64, 64] with body(a0: f32[64]) {
        %0 = CumSum(a0) {axis=0} : f32[64]
        %1 = CumSum(%0) {axis=0} : f32[64]
        return r0 = %1
      }
      return y = %0
    """
    assert bytes_of(text) == 2 * 64 * ROW


@pytest.mark.parametrize("unused", ["%1 = Softmax(x) {axis=0} : f32[64]", ""])
def test_unused_values_are_freed_at_once(unused: str) -> None:
    nodes = f"""
      {unused}
      %0 = Softmax(x) {{axis=0}} : f32[64]
      return y = %0
    """
    assert bytes_of(nodes) == ROW


def test_what_waits_is_written_over_state_too() -> None:
    text = """
      %0 = Add(w, w) : f32[64, 64]
      %1 = CumSum(x) {axis=0} : f32[64]
      %2 = After(%0, %1) : f32[64, 64]
      return y = %1, state w = %2
    """
    assert bytes_of(text) == ROW


def test_what_others_wait_for_need_not_live_on() -> None:
    text = """
      %0 = CumSum(x) {axis=0} : f32[64]
      %1 = CumSum(%0) {axis=0} : f32[64]
      %2 = CumSum(%1) {axis=0} : f32[64]
      %3 = Add(w, w) : f32[64, 64]
      %4 = After(%3, %0) : f32[64, 64]
      return y = %2, state w = %4
    """
    assert bytes_of(text) == 2 * ROW


def test_an_update_by_rows_needs_a_block_of_the_product() -> None:
    text = """
      %0 = UpdateByRows(a, b, w) {states=1, rows=16} : f32[64, 64]
          with product(a: f32[2, 16], b: f32[2, 64]) {
        %0 = MatMul(a, b) {transpose_a=true} : f32[16, 64]
        return g = %0
      } with update(g: f32[16, 64], w: f32[16, 64]) {
        %0 = Add(w, g) : f32[16, 64]
        return w = %0
      }
      return state w = %0
    """
    assert bytes_of(text, "w: state f32[64, 64], a: f32[2, 64], b: f32[2, 64]") == 16 * ROW
