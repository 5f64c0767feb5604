"""Cases of graphc/ops/elementwise/complex_parts.py."""

from __future__ import annotations

import numpy as np

from graphc.errors import DTypeError
from graphc.ops.elementwise import arithmetic, powers, transcendental
from graphc.ops.elementwise import complex_parts as ops
from graphc.ops.reductions import axiswise, reduction
from tests.laws.case import Bad, Case, In

COMPLEX = ("complex64", "complex128")
ALL = ("int32", "float32", "float64", *COMPLEX)
A = In((4, 3), batch_axis=0)


def through(op, function, oracle):
    """`function` of complex numbers with real inputs and outputs, so that it has gradients."""

    def build(a, b):
        z = function(ops.make_complex(a, b))
        return ops.real(z) + 2.0 * ops.imag(z * z)

    def expected(a, b):
        z = oracle(a + 1j * b)
        return np.real(z) + 2.0 * np.imag(z * z)

    inputs = [In((4, 3), low=0.2, high=0.9, batch_axis=0)] * 2
    return Case(op, build, inputs, expected, rtol=1e-4, label="complex")


THROUGH = (
    through("Abs", lambda z: arithmetic.absolute(z) * z, lambda z: np.abs(z) * z),
    through("Divide", lambda z: z / (z + 2), lambda z: z / (z + 2)),
    through("Multiply", lambda z: z * (z - 1j), lambda z: z * (z - 1j)),
    through("Power", lambda z: powers.power(z, z), lambda z: z**z),
    through("IntegerPower", lambda z: z**3, lambda z: z**3),
    through("Square", powers.square, np.square),
    through("Sqrt", powers.sqrt, np.sqrt),
    through("Rsqrt", powers.rsqrt, lambda z: 1 / np.sqrt(z)),
    through("Reciprocal", powers.reciprocal, lambda z: 1 / z),
    through("Exp", transcendental.exp, np.exp),
    through("Expm1", transcendental.expm1, np.expm1),
    through("Log", transcendental.log, np.log),
    through("Log1p", transcendental.log1p, np.log1p),
    through("Sin", transcendental.sin, np.sin),
    through("Cos", transcendental.cos, np.cos),
    through("Tan", transcendental.tan, np.tan),
    through("Asin", transcendental.asin, np.arcsin),
    through("Acos", transcendental.acos, np.arccos),
    through("Atan", transcendental.atan, np.arctan),
    through("Sinh", transcendental.sinh, np.sinh),
    through("Cosh", transcendental.cosh, np.cosh),
    through("Tanh", transcendental.tanh, np.tanh),
    through("Sigmoid", transcendental.sigmoid, lambda z: 1 / (1 + np.exp(-z))),
    through("Conj", ops.conj, np.conj),
    through("Real", lambda z: z * ops.real(z), lambda z: z * np.real(z)),
    through("Imag", lambda z: z * ops.imag(z), lambda z: z * np.imag(z)),
    through("ReduceSum", lambda z: z * reduction.reduce_sum(z), lambda z: z * np.sum(z)),
    through("ReduceMean", lambda z: z * reduction.reduce_mean(z), lambda z: z * np.mean(z)),
    through("ReduceProd", lambda z: z * reduction.reduce_prod(z, 1, True),
            lambda z: z * np.prod(z, 1, keepdims=True)),
    through("CumSum", lambda z: axiswise.cumsum(z, 0), lambda z: np.cumsum(z, 0)),
)  # fmt: skip

CASES = (
    *THROUGH,
    Case("Real", ops.real, [A], np.real, dtypes=ALL),
    Case("Imag", ops.imag, [A], np.imag, dtypes=COMPLEX),
    Case("Imag", ops.imag, [A], np.imag, gradient=False, label="of real numbers"),
    Case(
        "Complex",
        ops.make_complex,
        [A, A],
        lambda re, im: re + 1j * im,
        gradient=False,
        bad=[
            Bad(
                ops.make_complex,
                [In((2,), "bfloat16")] * 2,
                DTypeError,
                "Complex: re must be float32 or float64, got bfloat16",
            )
        ],
    ),
    Case(
        "Complex",
        ops.make_complex,
        [In((3,)), A],
        lambda re, im: re + 1j * im,
        gradient=False,
        label="row",
    ),
    Case(
        "Complex",
        lambda re, im: ops.real(ops.make_complex(re, im) * ops.make_complex(1.0, re)),
        [In((3,)), A],
        lambda re, im: re - im * re,
        label="and back",
    ),
    Case("Conj", ops.conj, [A], np.conj, dtypes=ALL),
)
