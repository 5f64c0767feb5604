"""Simplify algebra: each rule as a program before and after, and where rules must not apply."""

from __future__ import annotations

import numpy as np
import pytest

from graphc.ir.dtypes import BY_SHORT
from graphc.passes.core.lossless import holds_all
from graphc.passes.simplify.simplify_algebra import SimplifyAlgebra
from tests.passes.check import check_pair

RULES = {
    "x + 0 is x": """
        x: f32[n]
          %0 = Constant() {value=f32[] 0.0} : f32[]
          %1 = Add(x, %0) : f32[n]
          return out = %1
        =>
          return out = x
    """,
    "0 + x is x, also where the zero is a broadcast one": """
        x: f32[n, 3]
          %0 = Constant() {value=f32[] 0.0} : f32[]
          %1 = BroadcastTo(%0) {shape=[n, 3]} : f32[n, 3]
          %2 = Add(%1, x) : f32[n, 3]
          return out = %2
        =>
          return out = x
    """,
    "x + zeros of a larger shape is x broadcast": """
        x: f32[3]
          %0 = Constant() {value=f32[2, 3] [[0, 0, 0], [0, 0, 0]]} : f32[2, 3]
          %1 = Add(x, %0) : f32[2, 3]
          return out = %1
        =>
          %0 = BroadcastTo(x) {shape=[2, 3]} : f32[2, 3]
          return out = %0
    """,
    "x + -y is x - y": """
        x: f32[n], y: f32[n]
          %0 = Negative(y) : f32[n]
          %1 = Add(x, %0) : f32[n]
          return out = %1
        =>
          %0 = Subtract(x, y) : f32[n]
          return out = %0
    """,
    "x - -y is x + y": """
        x: f32[n], y: f32[3, 1]
          %0 = Negative(y) : f32[3, 1]
          %1 = Subtract(x, %0) : f32[3, n]
          return out = %1
        =>
          %0 = Add(x, y) : f32[3, n]
          return out = %0
    """,
    "x - x is 0 of integers": """
        x: i32[n]
          %0 = Subtract(x, x) : i32[n]
          return out = %0
        =>
          %0 = Constant() {value=i32[] 0} : i32[]
          %1 = BroadcastTo(%0) {shape=[n]} : i32[n]
          return out = %1
    """,
    "x - x may be NaN of floats": """
        x: f32[n]
          %0 = Subtract(x, x) : f32[n]
          return out = %0
        => stays
    """,
    "--x is x": """
        x: f32[n]
          %0 = Negative(x) : f32[n]
          %1 = Negative(%0) : f32[n]
          return out = %1
        =>
          return out = x
    """,
    "x * 1 is x": """
        x: bf16[n]
          %0 = Constant() {value=bf16[3] [1, 1, 1]} : bf16[3]
          %1 = Constant() {value=bf16[] 1.0} : bf16[]
          %2 = Multiply(%1, x) : bf16[n]
          return out = %2
        =>
          return out = x
    """,
    "x * -1 is -x": """
        x: f32[n]
          %0 = Constant() {value=f32[] -1.0} : f32[]
          %1 = Multiply(%0, x) : f32[n]
          return out = %1
        =>
          %0 = Negative(x) : f32[n]
          return out = %0
    """,
    "x * 0 is 0 of integers": """
        x: i32[]
          %0 = Constant() {value=i32[] 0} : i32[]
          %1 = Multiply(x, %0) : i32[]
          return out = %1
        =>
          %0 = Constant() {value=i32[] 0} : i32[]
          return out = %0
    """,
    "x * 0 may be NaN of floats": """
        x: f32[n]
          %0 = Constant() {value=f32[] 0.0} : f32[]
          %1 = Multiply(x, %0) : f32[n]
          return out = %1
        => stays
    """,
    "-x * 3 is x * -3": """
        x: f32[n]
          %0 = Negative(x) : f32[n]
          %1 = Constant() {value=f32[] 3.0} : f32[]
          %2 = Multiply(%0, %1) : f32[n]
          return out = %2
        =>
          %0 = Constant() {value=f32[] -3.0} : f32[]
          %1 = Multiply(x, %0) : f32[n]
          return out = %1
    """,
    "-x * -y is x * y, and -x / -y is x / y": """
        x: f32[n], y: f32[n]
          %0 = Negative(x) : f32[n]
          %1 = Negative(y) : f32[n]
          %2 = Multiply(%0, %1) : f32[n]
          %3 = Divide(%0, %1) : f32[n]
          return product = %2, quotient = %3
        =>
          %0 = Multiply(x, y) : f32[n]
          %1 = Divide(x, y) : f32[n]
          return product = %0, quotient = %1
    """,
    "(x + 1) + 2 is x + 3 of integers": """
        x: i8[n]
          %0 = Constant() {value=i8[] 1} : i8[]
          %1 = Constant() {value=i8[] 127} : i8[]
          %2 = Add(x, %0) : i8[n]
          %3 = Add(%1, %2) : i8[n]
          return out = %3
        =>
          %0 = Constant() {value=i8[] -128} : i8[]
          %1 = Add(x, %0) : i8[n]
          return out = %1
    """,
    "(x * 3) * 100 is x * 44 of 8 bits": """
        x: u8[n]
          %0 = Constant() {value=u8[] 3} : u8[]
          %1 = Constant() {value=u8[] 100} : u8[]
          %2 = Multiply(x, %0) : u8[n]
          %3 = Multiply(%2, %1) : u8[n]
          return out = %3
        =>
          %0 = Constant() {value=u8[] 44} : u8[]
          %1 = Multiply(x, %0) : u8[n]
          return out = %1
    """,
    "floats would round differently": """
        x: f32[n]
          %0 = Constant() {value=f32[] 3.0} : f32[]
          %1 = Multiply(x, %0) : f32[n]
          %2 = Multiply(%1, %0) : f32[n]
          return out = %2
        => stays
    """,
    "x / 1 is x": """
        x: f32[n]
          %0 = Constant() {value=f32[] 1.0} : f32[]
          %1 = Divide(x, %0) : f32[n]
          return out = %1
        =>
          return out = x
    """,
    "x // 1 is x of integers": """
        x: i32[n]
          %0 = Constant() {value=i32[] 1} : i32[]
          %1 = FloorDivide(x, %0) : i32[n]
          return out = %1
        =>
          return out = x
    """,
    "x // 1 rounds a float": """
        x: f32[n]
          %0 = Constant() {value=f32[] 1.0} : f32[]
          %1 = FloorDivide(x, %0) : f32[n]
          return out = %1
        => stays
    """,
    "x ** 0, x ** 1, x ** 2 and x ** -1": """
        x: f32[2]
          %0 = Constant() {value=f32[] 0.0} : f32[]
          %1 = Constant() {value=f32[] 1.0} : f32[]
          %2 = Constant() {value=f32[] 2.0} : f32[]
          %3 = Power(x, %0) : f32[2]
          %4 = Power(x, %1) : f32[2]
          %5 = Power(x, %2) : f32[2]
          %6 = IntegerPower(x) {exponent=-1} : f32[2]
          return a = %3, b = %4, c = %5, d = %6
        =>
          %0 = Constant() {value=f32[] 1.0} : f32[]
          %1 = BroadcastTo(%0) {shape=[2]} : f32[2]
          %2 = Square(x) : f32[2]
          %3 = Reciprocal(x) : f32[2]
          return a = %1, b = x, c = %2, d = %3
    """,
    "x ** 0.5 is not the square root of -0.0 and -inf": """
        x: f32[2]
          %0 = Constant() {value=f32[] 0.5} : f32[]
          %1 = Power(x, %0) : f32[2]
          return out = %1
        => stays
    """,
    "squares of -x and abs(x)": """
        x: f32[n]
          %0 = Negative(x) : f32[n]
          %1 = Abs(%0) : f32[n]
          %2 = Square(%1) : f32[n]
          return out = %2
        =>
          %0 = Square(x) : f32[n]
          return out = %0
    """,
    "the square of a complex absolute value is another number": """
        z: c64[n]
          %0 = Abs(z) : f32[n]
          %1 = Square(%0) : f32[n]
          return out = %1
        => stays
    """,
    "where(true, x, y)": """
        x: f32[n], y: f32[n]
          %0 = Constant() {value=bool[] true} : bool[]
          %1 = Where(%0, x, y) : f32[n]
          return out = %1
        =>
          return out = x
    """,
    "where(false, x, y), broadcast": """
        x: f32[2, n], y: f32[n]
          %0 = Constant() {value=bool[2, 1] [[false], [false]]} : bool[2, 1]
          %1 = Where(%0, x, y) : f32[2, n]
          return out = %1
        =>
          %0 = BroadcastTo(y) {shape=[2, n]} : f32[2, n]
          return out = %0
    """,
    "where(c, x, x)": """
        c: bool[n], x: f32[n]
          %0 = Where(c, x, x) : f32[n]
          return out = %0
        =>
          return out = x
    """,
    "max(x, x) and min(x, x)": """
        x: f32[n]
          %0 = Maximum(x, x) : f32[n]
          %1 = Minimum(%0, %0) : f32[n]
          return out = %1
        =>
          return out = x
    """,
    "logic with what is known": """
        p: bool[n]
          %0 = Constant() {value=bool[] true} : bool[]
          %1 = LogicalAnd(p, %0) : bool[n]
          %2 = LogicalOr(p, %0) : bool[n]
          %3 = LogicalNot(p) : bool[n]
          %4 = LogicalNot(%3) : bool[n]
          return a = %1, b = %2, c = %4
        =>
          %0 = Constant() {value=bool[] true} : bool[]
          %1 = BroadcastTo(%0) {shape=[n]} : bool[n]
          return a = p, b = %1, c = p
    """,
    "logic of integers is bit by bit": """
        k: i32[n]
          %0 = Constant() {value=i32[] 1} : i32[]
          %1 = LogicalAnd(k, %0) : i32[n]
          return out = %1
        => stays
    """,
    "rounding twice": """
        x: f32[n]
          %0 = Floor(x) : f32[n]
          %1 = Floor(%0) : f32[n]
          return out = %1
        =>
          %0 = Floor(x) : f32[n]
          return out = %0
    """,
    "parts of a complex number just made": """
        x: f32[n], y: f32[n]
          %0 = Complex(x, y) : c64[n]
          %1 = Real(%0) : f32[n]
          %2 = Imag(%0) : f32[n]
          return re = %1, im = %2
        =>
          return re = x, im = y
    """,
    "identities, which only gradients saw": """
        x: f32[n]
          %0 = Identity(x) : f32[n]
          %1 = StopGradient(%0) : f32[n]
          %2 = Exp(%1) : f32[n]
          return out = %2
        =>
          %0 = Exp(x) : f32[n]
          return out = %0
    """,
    "a cast there and back": """
        x: bf16[n]
          %0 = Cast(x) {dtype=f32} : f32[n]
          %1 = Cast(%0) {dtype=bf16} : bf16[n]
          return out = %1
        =>
          return out = x
    """,
    "a cast by way of a wider type": """
        x: i8[n]
          %0 = Cast(x) {dtype=f32} : f32[n]
          %1 = Cast(%0) {dtype=f64} : f64[n]
          return out = %1
        =>
          %0 = Cast(x) {dtype=f64} : f64[n]
          return out = %0
    """,
    "a cast that rounds stays": """
        x: f32[n]
          %0 = Cast(x) {dtype=bf16} : bf16[n]
          %1 = Cast(%0) {dtype=f32} : f32[n]
          return out = %1
        => stays
    """,
    "integers wrap where floats saturate": """
        x: i32[n]
          %0 = Cast(x) {dtype=f64} : f64[n]
          %1 = Cast(%0) {dtype=u8} : u8[n]
          return out = %1
        => stays
    """,
    "a rule's result meets the next rule": """
        x: f32[n], y: f32[n]
          %0 = Constant() {value=f32[] -1.0} : f32[]
          %1 = Multiply(y, %0) : f32[n]
          %2 = Subtract(x, %1) : f32[n]
          return out = %2
        =>
          %0 = Add(x, y) : f32[n]
          return out = %0
    """,
    "bodies are simplified too": """
        x: f32[3], xs: f32[5, 3]
          %0 = Scan(x, xs) {consts=0, carries=1, length=5} : f32[3]
              with body(a0: f32[3], a1: f32[3]) {
            %0 = Identity(a0) : f32[3]
            %1 = Add(%0, a1) : f32[3]
            return r0 = %1
          }
          return out = %0
        =>
          %0 = Scan(x, xs) {consts=0, carries=1, length=5} : f32[3]
              with body(a0: f32[3], a1: f32[3]) {
            %0 = Add(a0, a1) : f32[3]
            return r0 = %0
          }
          return out = %0
    """,
}


@pytest.mark.parametrize("name", RULES)
def test_rule(name: str) -> None:
    check_pair(SimplifyAlgebra(), RULES[name])


def every_value(short: str) -> np.ndarray:
    """All values of a narrow dtype except NaNs."""
    dtype = BY_SHORT[short]
    if short in ("i4", "u4"):
        return np.arange(-8 if short == "i4" else 0, 8 if short == "i4" else 16).astype(dtype)
    if short == "bool":
        return np.array([False, True])
    bits = np.arange(1 << (8 * dtype.itemsize), dtype=f"u{dtype.itemsize}").view(dtype)
    with np.errstate(invalid="ignore"):  # signaling NaNs
        return bits[~np.isnan(bits.astype(np.float64))]


NARROW = [s for s, dtype in BY_SHORT.items() if dtype.itemsize <= 2]


@pytest.mark.parametrize("narrow", NARROW)
def test_a_wide_type_holds_all_values_of_a_narrow_one(narrow: str) -> None:
    """If `holds_all` is true, two casts restore every value."""
    values = every_value(narrow)
    for wide, dtype in BY_SHORT.items():
        if not holds_all(dtype, BY_SHORT[narrow]):
            continue
        there = values.astype(dtype)
        real = there.real if dtype.kind == "c" else there
        assert (real.astype(np.float64) == values.astype(np.float64)).all(), f"{narrow} -> {wide}"
        assert (real.astype(values.dtype) == values).all(), f"{narrow} -> {wide} -> {narrow}"


@pytest.mark.parametrize(
    ("wide", "narrow", "holds"),
    [
        ("f32", "bf16", True),
        ("f32", "f16", True),
        ("f16", "bf16", False),
        ("bf16", "f16", False),
        ("f32", "i32", False),
        ("f64", "i32", True),
        ("f64", "i64", False),
        ("f32", "u16", True),
        ("bf16", "i8", True),
        ("bf16", "u16", False),
        ("i64", "u32", True),
        ("u64", "i8", False),
        ("c64", "f32", True),
        ("c64", "f64", False),
        ("f64", "c64", False),
        ("i8", "bool", True),
        ("bool", "i8", False),
        ("f8e5m2", "f8e4m3fn", False),
        ("f16", "f8e5m2", True),
    ],
)
def test_what_a_type_holds(wide: str, narrow: str, holds: bool) -> None:
    assert holds_all(BY_SHORT[wide], BY_SHORT[narrow]) is holds
