"""Cases of graphc/ops/nn/quantizing.py and graphc/ops/nn/fake_quantizing.py."""

from __future__ import annotations

import numpy as np

from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.ops.nn.fake_quantizing import fake_quantize
from graphc.ops.nn.quantizing import QUANTIZED, dequantize, quantize
from tests.laws.case import Bad, Case, In

RANGES = {"int4": (-8, 7), "uint4": (0, 15), "int8": (-128, 127), "uint8": (0, 255),
          "int16": (-(2**15), 2**15 - 1), "uint16": (0, 2**16 - 1),
          "int32": (-(2**31), 2**31 - 1)}  # fmt: skip
X = In((4, 3), low=-3.0, high=3.0, batch_axis=0)
TIES = In((4, 2), values=[[0.0625, 0.1875], [0.3125, -0.0625], [-0.1875, 28], [-28, 0.375]],
          batch_axis=0)  # fmt: skip
SCALE = In((), values=0.25)
SCALES = In((3,), values=[0.25, 0.5, 2.0])
ROWS = In((4,), values=[0.25, 0.5, 2.0, 1.0], batch_axis=0)
ROWS_LOW = In((4,), values=[-0.25, -0.5, -2.0, 0.0], batch_axis=0)
Q = In((4, 3), values=np.arange(12).reshape(4, 3) % 8, batch_axis=0)


def places(x, scale, zero, dtype):
    return np.clip(np.rint(x / scale) + zero, *RANGES[dtype])


def to(dtype):
    return Case("Quantize", lambda x: quantize(x, 0.125, 3, dtype=dtype), [TIES],
                lambda x: places(x, 0.125, 3, dtype), ("float32",), label=dtype)  # fmt: skip


def grid(x, low, high, bits=8, narrow=False):
    """The range of Jacob et al., shifted so that it represents 0 exactly."""
    first, last = int(narrow), 2**bits - 1
    scale = np.where(high < low, np.nan, high - low) / (last - first)
    step = np.where(scale == 0, 1, scale)
    zero = np.clip(np.rint(first - low / step), first, last)
    return np.clip(np.rint(x / step), first - zero, last - zero) * scale


LOW, HIGH = In((), values=-1.3), In((), values=2.0)
LOWS, HIGHS = In((3,), values=[-1.3, -2.0, 0.5]), In((3,), values=[2.0, 1.0, 3.0])

CASES = (
    *map(to, QUANTIZED),
    Case("Quantize", lambda x, s: quantize(x, s), [X, SCALE],
         lambda x, s: places(x, s, 0, "int8"), ("float16", "bfloat16", "float32", "float64"),
         bad=[
            Bad(lambda x: quantize(x, 1.0, np.zeros(4, np.int8), axis=1), [X], ShapeError,
                "sizes of zero_point and of axis 1 differ, 4 and 3"),
            Bad(lambda x: quantize(x, np.ones(3, "f4")), [X], ShapeError, "scale must be a scalar"),
            Bad(lambda x: quantize(x, np.ones(4, "f4"), axis=1), [X], ShapeError,
                "sizes of scale and of axis 1 differ, 4 and 3"),
            Bad(lambda x: quantize(x, 1.0, np.int32(3)), [X], DTypeError,
                "zero_point must be int8"),
            Bad(lambda x: quantize(x, 1.0, 0.5), [X], DTypeError, "must be int8 .* got float32"),
            Bad(lambda x: quantize(x, 1.0, 300), [X], DTypeError, "300 is out of range for int8"),
            Bad(lambda x: quantize(x, 1.0, dtype="int64"), [X], AttributeValueError,
                "dtype must be one of int4"),
            Bad(lambda x: quantize(x, 1.0, axis=2), [X], AttributeValueError, "axis 2 is out of"),
            Bad(quantize, [In((2,), "complex64"), In((), "float32")], DTypeError,
                "x must be floating"),
         ]),
    Case("Quantize", lambda x, s: quantize(x, s, np.array([0, 1, -2], np.int8), axis=-1),
         [X, SCALES], lambda x, s: places(x, s, np.array([0, 1, -2]), "int8"), label="columns"),
    Case("Quantize", lambda x, s: quantize(x, s, axis=0), [X, ROWS],
         lambda x, s: places(x, s[:, None], 0, "int8"), ("float32",), label="rows"),
    Case("Quantize", lambda x: quantize(x, 1.0, -5, dtype="int32"), [In((5,), "float32",
         values=[3e9, -3e9, np.inf, np.nan, 2.0**31 - 128])],
         lambda x: (np.array([2**31 - 1, -(2**31), 2**31 - 1, -5, 2**31 - 128]),), ("float32",),
         label="far"),
    Case("Dequantize", lambda q, s: dequantize(q, s), [Q, In((), "float32", values=0.5)],
         lambda q, s: q * s, QUANTIZED, gradient=False, bad=[
            Bad(lambda x: dequantize(x, 1.0), [X], DTypeError, "q must be one of int4, uint4"),
            Bad(lambda q: dequantize(q, 1.0, np.int16(3)), [In((2,), "int8")], DTypeError,
                "zero_point must be int8"),
            Bad(lambda q: dequantize(q, np.ones(3, "f4")), [In((3,), "int8")], ShapeError,
                "scale must be a scalar"),
            Bad(lambda q: dequantize(q, 1j), [In((3,), "int8")], DTypeError,
                "scale must be floating"),
         ]),
    Case("Dequantize", lambda q, s: dequantize(q, s, np.array([0, 1, -2], np.int8), axis=1),
         [In((4, 3), "int8", low=-4, high=4, batch_axis=0), SCALES],
         lambda q, s: (q - np.array([0.0, 1.0, -2.0])) * s, label="columns"),
    Case("Dequantize", lambda q, s: dequantize(q, s, 3), [In((4, 3), "int8", low=-128, high=127,
         batch_axis=0), SCALE], lambda q, s: (q - 3.0) * s, ("float64",), label="scalar"),
    Case("Dequantize", lambda q, s: dequantize(q, s, axis=0), [In((4, 3), "int8", batch_axis=0),
         ROWS], lambda q, s: q * s[:, None], ("float64",), label="rows"),
    Case("FakeQuantize", fake_quantize, [X, LOW, HIGH], grid,
         ("float16", "bfloat16", "float32", "float64"), gradient=False, bad=[
            Bad(lambda x: fake_quantize(x, -1.0, 1.0, bits=1), [X], AttributeValueError,
                "bits must be 2 to 16, got 1"),
            Bad(lambda x: fake_quantize(x, np.zeros(4, "f4"), 1.0), [X], ShapeError,
                "low must be a scalar"),
            Bad(lambda x: fake_quantize(x, -1j, 1.0), [X], DTypeError, "x must be floating"),
         ]),
    Case("FakeQuantize", lambda x, a, b: fake_quantize(x, a, b, bits=4, narrow_range=True, axis=1),
         [X, LOWS, HIGHS], lambda x, a, b: grid(x, a, b, 4, True), gradient=False,
         label="columns"),
    # The gradient is that of the range; a step function has no differences to compare with.
    Case("FakeQuantize", fake_quantize, [X, LOW, HIGH], None, ("float64",), label="gradient"),
    Case("FakeQuantize", lambda x, a, b: fake_quantize(x, a, b, axis=0), [X, ROWS_LOW, ROWS],
         None, ("float64",), label="gradient of rows"),
)  # fmt: skip
