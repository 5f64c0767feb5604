"""Sink constants and hoist frozen: what moves into bodies, and what moves out of them."""

from __future__ import annotations

import pytest

from graphc.passes.frozen.hoist_frozen import HoistFrozen
from graphc.passes.simplify.sink_constants import SinkConstants
from tests.passes.check import check_pair

HOISTED = {
    "out of a loop": """
        x: f32[3], w: state f32[3]
          %0 = Scan(w, x) {consts=1, carries=1, length=5} : f32[3]
              with body(a0: f32[3], a1: f32[3]) {
            %0 = Exp(a0) : f32[3]
            %1 = Multiply(a1, %0) : f32[3]
            return r0 = %1
          }
          return out = %0
        =>
          %0 = Exp(w) : f32[3]
          %1 = Scan(%0, x) {consts=1, carries=1, length=5} : f32[3]
              with body(a0: f32[3], a1: f32[3]) {
            %0 = Multiply(a1, a0) : f32[3]
            return r0 = %0
          }
          return out = %1
    """,
    "the narrow operand of a cast that a product does without": """
        x: i8[3, 3], w: state i8[3, 3]
          %0 = Scan(w, x) {consts=1, carries=1, length=5} : i8[3, 3]
              with body(a0: i8[3, 3], a1: i8[3, 3]) {
            %0 = Negative(a0) : i8[3, 3]
            %1 = Cast(%0) {dtype=i32} : i32[3, 3]
            %2 = Cast(a1) {dtype=i32} : i32[3, 3]
            %3 = MatMul(%2, %1) : i32[3, 3]
            %4 = Cast(%3) {dtype=i8} : i8[3, 3]
            return r0 = %4
          }
          return out = %0
        =>
          %0 = Negative(w) : i8[3, 3]
          %1 = Scan(%0, x) {consts=1, carries=1, length=5} : i8[3, 3]
              with body(a0: i8[3, 3], a1: i8[3, 3]) {
            %0 = Cast(a0) {dtype=i32} : i32[3, 3]
            %1 = Cast(a1) {dtype=i32} : i32[3, 3]
            %2 = MatMul(%1, %0) : i32[3, 3]
            %3 = Cast(%2) {dtype=i8} : i8[3, 3]
            return r0 = %3
          }
          return out = %1
    """,
    "the narrow operand, although a sum of the wide one is moved": """
        x: i8[3, 3], w: state i8[3, 3]
          %0 = Scan(w, x) {consts=1, carries=1, length=5} : i8[3, 3]
              with body(a0: i8[3, 3], a1: i8[3, 3]) {
            %0 = Negative(a0) : i8[3, 3]
            %1 = Cast(%0) {dtype=i32} : i32[3, 3]
            %2 = ReduceSum(%1) {axes=[0]} : i32[3]
            %3 = Cast(a1) {dtype=i32} : i32[3, 3]
            %4 = MatMul(%3, %1) : i32[3, 3]
            %5 = Add(%4, %2) : i32[3, 3]
            %6 = Cast(%5) {dtype=i8} : i8[3, 3]
            return r0 = %6
          }
          return out = %0
        =>
          %0 = Negative(w) : i8[3, 3]
          %1 = Cast(%0) {dtype=i32} : i32[3, 3]
          %2 = ReduceSum(%1) {axes=[0]} : i32[3]
          %3 = Negative(w) : i8[3, 3]
          %4 = Scan(%2, %3, x) {consts=2, carries=1, length=5} : i8[3, 3]
              with body(a0: i32[3], a1: i8[3, 3], a2: i8[3, 3]) {
            %0 = Cast(a1) {dtype=i32} : i32[3, 3]
            %1 = Cast(a2) {dtype=i32} : i32[3, 3]
            %2 = MatMul(%1, %0) : i32[3, 3]
            %3 = Add(%2, a0) : i32[3, 3]
            %4 = Cast(%3) {dtype=i8} : i8[3, 3]
            return r0 = %4
          }
          return out = %4
    """,
    "out of one branch of two": """
        p: bool[], x: f32[3], w: state f32[3]
          %0 = Switch(p, x, w) : f32[3] with no(a0: f32[3], a1: f32[3]) {
            %0 = Multiply(a0, a1) : f32[3]
            return r0 = %0
          } with yes(a0: f32[3], a1: f32[3]) {
            %0 = Exp(a1) : f32[3]
            %1 = Multiply(a0, %0) : f32[3]
            return r0 = %1
          }
          return out = %0
        =>
          %0 = Exp(w) : f32[3]
          %1 = Switch(p, x, w, %0) : f32[3] with no(a0: f32[3], a1: f32[3], a2: f32[3]) {
            %0 = Multiply(a0, a1) : f32[3]
            return r0 = %0
          } with yes(a0: f32[3], a1: f32[3], a2: f32[3]) {
            %0 = Multiply(a0, a2) : f32[3]
            return r0 = %0
          }
          return out = %1
    """,
    "out of two bodies": """
        x: f32[3], w: state f32[3]
          %0 = Scan(w, x) {consts=1, carries=1, length=5} : f32[3]
              with outer(a0: f32[3], a1: f32[3]) {
            %0 = Scan(a0, a1) {consts=1, carries=1, length=2} : f32[3]
                with body(a0: f32[3], a1: f32[3]) {
              %0 = Exp(a0) : f32[3]
              %1 = Multiply(a1, %0) : f32[3]
              return r0 = %1
            }
            return r0 = %0
          }
          return out = %0
        =>
          %0 = Exp(w) : f32[3]
          %1 = Scan(%0, x) {consts=1, carries=1, length=5} : f32[3]
              with outer(a0: f32[3], a1: f32[3]) {
            %0 = Scan(a0, a1) {consts=1, carries=1, length=2} : f32[3]
                with body(a0: f32[3], a1: f32[3]) {
              %0 = Multiply(a1, a0) : f32[3]
              return r0 = %0
            }
            return r0 = %0
          }
          return out = %1
    """,
    "what is repeated stays, what it repeats goes": """
        x: f32[4, 3], w: state f32[3]
          %0 = Scan(w, x) {consts=1, carries=1, length=5} : f32[4, 3]
              with body(a0: f32[3], a1: f32[4, 3]) {
            %0 = Exp(a0) : f32[3]
            %1 = BroadcastTo(%0) {shape=[4, 3]} : f32[4, 3]
            %2 = Multiply(a1, %1) : f32[4, 3]
            return r0 = %2
          }
          return out = %0
        =>
          %0 = Exp(w) : f32[3]
          %1 = Scan(%0, x) {consts=1, carries=1, length=5} : f32[4, 3]
              with body(a0: f32[3], a1: f32[4, 3]) {
            %0 = BroadcastTo(a0) {shape=[4, 3]} : f32[4, 3]
            %1 = Multiply(a1, %0) : f32[4, 3]
            return r0 = %1
          }
          return out = %1
    """,
    "of a feed, nothing": """
        x: f32[3], w: f32[3]
          %0 = Scan(w, x) {consts=1, carries=1, length=5} : f32[3]
              with body(a0: f32[3], a1: f32[3]) {
            %0 = Exp(a0) : f32[3]
            %1 = Multiply(a1, %0) : f32[3]
            return r0 = %1
          }
          return out = %0
        => stays
    """,
    "of what is carried, nothing": """
        x: f32[3], w: state f32[3]
          %0, %1 = Scan(w, x) {consts=0, carries=2, length=5} : f32[3], f32[3]
              with body(a0: f32[3], a1: f32[3]) {
            %0 = Exp(a0) : f32[3]
            %1 = Multiply(a1, %0) : f32[3]
            return r0 = a0, r1 = %1
          }
          return out = %1
        => stays
    """,
    "of slices, nothing": """
        x: f32[3], w: state f32[5, 3]
          %0 = Scan(x, w) {consts=0, carries=1, length=5} : f32[3]
              with body(a0: f32[3], a1: f32[3]) {
            %0 = Exp(a1) : f32[3]
            %1 = Multiply(a0, %0) : f32[3]
            return r0 = %1
          }
          return out = %0
        => stays
    """,
}  # fmt: skip

SUNK = {
    "a flag into a loop": """
        x: f32[3]
          %0 = Constant() {value=bool[] false} : bool[]
          %1 = Scan(%0, x) {consts=1, carries=1, length=5} : f32[3]
              with body(a0: bool[], a1: f32[3]) {
            %0 = Where(a0, a1, a1) : f32[3]
            return r0 = %0
          }
          return out = %1
        =>
          %0 = Scan(x) {consts=0, carries=1, length=5} : f32[3] with body(a0: f32[3]) {
            %0 = Constant() {value=bool[] false} : bool[]
            %1 = Where(%0, a0, a0) : f32[3]
            return r0 = %1
          }
          return out = %0
    """,
    "a carry is none": """
        x: f32[3]
          %0 = Constant() {value=f32[] 1.0} : f32[]
          %1 = Scan(%0, x) {consts=0, carries=1, length=3} : f32[] with body(a0: f32[], a1: f32[]) {
            %0 = Add(a0, a1) : f32[]
            return r0 = %0
          }
          return out = %1
        => stays
    """,
}  # fmt: skip


@pytest.mark.parametrize("text", HOISTED.values(), ids=HOISTED)
def test_hoisting(text: str) -> None:
    check_pair(HoistFrozen(), text)


@pytest.mark.parametrize("text", SUNK.values(), ids=SUNK)
def test_sinking(text: str) -> None:
    check_pair(SinkConstants(), text)
