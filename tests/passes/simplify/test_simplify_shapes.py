"""Simplify shapes: each rule as a program before and after, and where rules must not apply."""

from __future__ import annotations

import pytest

from graphc.passes.simplify.simplify_shapes import SimplifyShapes
from tests.passes.check import check_pair

RULES = {
    "reshape to the same shape": """
        x: f32[n, 3]
          %0 = Reshape(x) {shape=[n, 3]} : f32[n, 3]
          return out = %0
        =>
          return out = x
    """,
    "reshape of reshape": """
        x: f32[n, 4]
          %0 = Reshape(x) {shape=[4*n]} : f32[4*n]
          %1 = Reshape(%0) {shape=[n, 2, 2]} : f32[n, 2, 2]
          return out = %1
        =>
          %0 = Reshape(x) {shape=[n, 2, 2]} : f32[n, 2, 2]
          return out = %0
    """,
    "reshape there and back": """
        x: f32[n, 4]
          %0 = Reshape(x) {shape=[4*n]} : f32[4*n]
          %1 = Reshape(%0) {shape=[n, 4]} : f32[n, 4]
          return out = %1
        =>
          return out = x
    """,
    "a repeated scalar takes any shape": """
        x: f32[]
          %0 = BroadcastTo(x) {shape=[n, 4]} : f32[n, 4]
          %1 = Reshape(%0) {shape=[4*n]} : f32[4*n]
          %2 = Transpose(%0) {perm=[1, 0]} : f32[4, n]
          %3 = Slice(%2) {starts=[1, 0], limits=[3, n], strides=[1, 1]} : f32[2, n]
          return a = %1, b = %2, c = %3
        =>
          %0 = BroadcastTo(x) {shape=[4*n]} : f32[4*n]
          %1 = BroadcastTo(x) {shape=[4, n]} : f32[4, n]
          %2 = BroadcastTo(x) {shape=[2, n]} : f32[2, n]
          return a = %0, b = %1, c = %2
    """,
    "transpose of transpose": """
        x: f32[2, n, 4]
          %0 = Transpose(x) {perm=[1, 2, 0]} : f32[n, 4, 2]
          %1 = Transpose(%0) {perm=[1, 0, 2]} : f32[4, n, 2]
          return out = %1
        =>
          %0 = Transpose(x) {perm=[2, 1, 0]} : f32[4, n, 2]
          return out = %0
    """,
    "transpose there and back": """
        x: f32[2, n, 4]
          %0 = Transpose(x) {perm=[1, 2, 0]} : f32[n, 4, 2]
          %1 = Transpose(%0) {perm=[2, 0, 1]} : f32[2, n, 4]
          return out = %1
        =>
          return out = x
    """,
    "broadcast to the same shape": """
        x: f32[n]
          %0 = BroadcastTo(x) {shape=[n]} : f32[n]
          return out = %0
        =>
          return out = x
    """,
    "broadcast of broadcast": """
        x: f32[3, 1]
          %0 = BroadcastTo(x) {shape=[2, 3, 1]} : f32[2, 3, 1]
          %1 = BroadcastTo(%0) {shape=[n, 2, 3, 4]} : f32[n, 2, 3, 4]
          return out = %1
        =>
          %0 = BroadcastTo(x) {shape=[n, 2, 3, 4]} : f32[n, 2, 3, 4]
          return out = %0
    """,
    "a broadcast adds leading axes by itself": """
        x: f32[3]
          %0 = Reshape(x) {shape=[1, 3]} : f32[1, 3]
          %1 = BroadcastTo(%0) {shape=[n, 3]} : f32[n, 3]
          return out = %1
        =>
          %0 = BroadcastTo(x) {shape=[n, 3]} : f32[n, 3]
          return out = %0
    """,
    "but no axis in the middle": """
        x: f32[2, 3]
          %0 = Reshape(x) {shape=[2, 1, 3]} : f32[2, 1, 3]
          %1 = BroadcastTo(%0) {shape=[2, n, 3]} : f32[2, n, 3]
          return out = %1
        => stays
    """,
    "a broadcast operand of an elementwise operator stays": """
        x: f32[n, 3], y: f32[3]
          %0 = BroadcastTo(y) {shape=[n, 3]} : f32[n, 3]
          %1 = Add(x, %0) : f32[n, 3]
          return out = %1
        => stays
    """,
    "a slice of everything": """
        x: f32[n, 3]
          %0 = Slice(x) {starts=[0, 0], limits=[n, 3], strides=[1, 1]} : f32[n, 3]
          return out = %0
        =>
          return out = x
    """,
    "a slice of a slice": """
        x: f32[n, 9]
          %0 = Slice(x) {starts=[0, 2], limits=[n, 8], strides=[1, 1]} : f32[n, 6]
          %1 = Slice(%0) {starts=[0, 1], limits=[n, 4], strides=[1, 1]} : f32[n, 3]
          return out = %1
        =>
          %0 = Slice(x) {starts=[0, 3], limits=[n, 6], strides=[1, 1]} : f32[n, 3]
          return out = %0
    """,
    "every second element is not everything": """
        x: f32[4]
          %0 = Slice(x) {starts=[0], limits=[4], strides=[2]} : f32[2]
          return out = %0
        => stays
    """,
    "padding by nothing": """
        x: f32[n, 3], v: f32[]
          %0 = Pad(x, v) {pads=[[0, 0, 0], [0, 0, 0]]} : f32[n, 3]
          return out = %0
        =>
          return out = x
    """,
    "padding that cuts off": """
        x: f32[5], v: f32[]
          %0 = Pad(x, v) {pads=[[1, -1, 0]]} : f32[5]
          return out = %0
        => stays
    """,
    "reverse there and back, and along axes of size 1": """
        x: f32[n, 1, 4]
          %0 = Reverse(x) {axes=[0, 1]} : f32[n, 1, 4]
          %1 = Reverse(%0) {axes=[0, 2]} : f32[n, 1, 4]
          return out = %1
        =>
          %0 = Reverse(x) {axes=[2]} : f32[n, 1, 4]
          return out = %0
    """,
    "reversed twice": """
        x: f32[4]
          %0 = Reverse(x) {axes=[0]} : f32[4]
          %1 = Reverse(%0) {axes=[0]} : f32[4]
          return out = %1
        =>
          return out = x
    """,
    "one piece is not joined": """
        x: f32[n]
          %0 = Concatenate(x) {axis=0} : f32[n]
          return out = %0
        =>
          return out = x
    """,
    "empty pieces are left out": """
        x: f32[n], y: f32[0], z: f32[2]
          %0 = Concatenate(x, y, z) {axis=0} : f32[n + 2]
          return out = %0
        =>
          %0 = Concatenate(x, z) {axis=0} : f32[n + 2]
          return out = %0
    """,
    "joined and split again": """
        x: f32[n, 2], y: f32[n, 3]
          %0 = Concatenate(x, y) {axis=1} : f32[n, 5]
          %1, %2 = Split(%0) {axis=1, sizes=[2, 3]} : f32[n, 2], f32[n, 3]
          return a = %1, b = %2
        =>
          return a = x, b = y
    """,
    "joined and split elsewhere": """
        x: f32[n, 2], y: f32[n, 3]
          %0 = Concatenate(x, y) {axis=1} : f32[n, 5]
          %1, %2 = Split(%0) {axis=1, sizes=[3, 2]} : f32[n, 3], f32[n, 2]
          return a = %1, b = %2
        => stays
    """,
    "split and joined again": """
        x: f32[n, 5]
          %0, %1 = Split(x) {axis=1, sizes=[2, 3]} : f32[n, 2], f32[n, 3]
          %2 = Concatenate(%0, %1) {axis=1} : f32[n, 5]
          return out = %2
        =>
          return out = x
    """,
    "split and joined in another order": """
        x: f32[4]
          %0, %1 = Split(x) {axis=0, sizes=[2, 2]} : f32[2], f32[2]
          %2 = Concatenate(%1, %0) {axis=0} : f32[4]
          return out = %2
        => stays
    """,
    "split into one piece": """
        x: f32[n]
          %0 = Split(x) {axis=0, sizes=[n]} : f32[n]
          return out = %0
        =>
          return out = x
    """,
    "a reduction over no axes": """
        x: f32[n]
          %0 = ReduceSum(x) {axes=[]} : f32[n]
          return out = %0
        =>
          return out = x
    """,
    "reductions over axes of size 1": """
        x: f32[n, 1], p: bool[1, 1]
          %0 = ReduceMax(x) {axes=[1]} : f32[n]
          %1 = ReduceMean(x) {axes=[1], keepdims=true} : f32[n, 1]
          %2 = ReduceAll(p) {axes=[0, 1]} : bool[]
          return a = %0, b = %1, c = %2
        =>
          %0 = Reshape(x) {shape=[n]} : f32[n]
          %1 = Reshape(p) {shape=[]} : bool[]
          return a = %0, b = x, c = %1
    """,
    "a named size may be 1, but is not known to be": """
        x: f32[n]
          %0 = ReduceSum(x) {axes=[0]} : f32[]
          return out = %0
        => stays
    """,
    "a mean over 1 element of a count of 4": """
        x: f32[1]
          %0 = ReduceMean(x) {axes=[0], count=4} : f32[]
          return out = %0
        => stays
    """,
    "transposed operands of a product": """
        a: f32[4, n], b: f32[4, 5]
          %0 = Transpose(a) {perm=[1, 0]} : f32[n, 4]
          %1 = MatMul(%0, b) : f32[n, 5]
          return out = %1
        =>
          %0 = MatMul(a, b) {transpose_a=true} : f32[n, 5]
          return out = %0
    """,
    "a batch of transposed operands, one transposed twice": """
        a: f32[n, 3, 4], b: f32[n, 4, 5]
          %0 = Transpose(a) {perm=[0, 2, 1]} : f32[n, 4, 3]
          %1 = Transpose(b) {perm=[0, 2, 1]} : f32[n, 5, 4]
          %2 = MatMul(%0, %1) {transpose_a=true, transpose_b=true} : f32[n, 3, 5]
          return out = %2
        =>
          %0 = MatMul(a, b) : f32[n, 3, 5]
          return out = %0
    """,
    "a transpose of batch axes is none of the product's business": """
        a: f32[2, n, 4], b: f32[4, 5]
          %0 = Transpose(a) {perm=[1, 0, 2]} : f32[n, 2, 4]
          %1 = MatMul(%0, b) : f32[n, 2, 5]
          return out = %1
        => stays
    """,
    "a cast to the same dtype": """
        x: f32[n]
          %0 = Cast(x) {dtype=f32} : f32[n]
          return out = %0
        =>
          return out = x
    """,
}


@pytest.mark.parametrize("name", RULES)
def test_rule(name: str) -> None:
    check_pair(SimplifyShapes(), RULES[name])
