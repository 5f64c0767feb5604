"""Fused operators of ONNX Runtime compared with it, and their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from tests.importers.onnx.runtime import compare, single

RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


X, M, ONE = floats(2, 3, 6, 5), floats(2, 4, 6), floats(6)
W, B = floats(4, 3, 3, 2), floats(4)
A, C = floats(3, 2, 4), floats(3, 4, 5)
IDS = RNG.integers(0, 9, (2, 4)).astype(np.int32)
MASK = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32)
CONV = {"pads": [1, 0, 1, 1], "strides": [2, 1]}
BOXES = np.array([[0.1, 0.2, 0.8, 1.2], [0, 0, 1, 1]], np.float32)

# operator, inputs (those in `known` must be known), attributes, which inputs are known
CASES: list[tuple[str, list[Any], dict[str, Any], tuple[int, ...]]] = [
    ("Gelu", [X], {}, ()),
    ("FastGelu", [M], {}, ()),
    ("FastGelu", [M, ONE], {}, ()),
    ("BiasGelu", [M, ONE], {}, ()),
    ("QuickGelu", [X], {"alpha": 1.3}, ()),
    ("QuickGelu", [X], {}, ()),
    ("FusedConv", [X, W, B], {**CONV, "activation": "Relu"}, ()),
    ("FusedConv", [X, W, B, floats(2, 4, 3, 5)], {**CONV, "activation": "Relu"}, ()),
    ("FusedConv", [X, W], {"activation": "LeakyRelu", "activation_params": [0.2]}, ()),
    ("FusedConv", [X, W], {"activation": "Clip", "activation_params": [-0.5, 1.0]}, ()),
    ("FusedConv", [X, W], {"activation": "HardSigmoid", "activation_params": [0.1, 0.4]}, ()),
    ("FusedConv", [X, W], {"activation": "Tanh", "auto_pad": "SAME_UPPER"}, ()),
    ("FusedMatMul", [A, C], {"alpha": 0.5}, ()),
    ("FusedMatMul", [A.swapaxes(1, 2).copy(), C], {"transA": 1}, ()),
    ("FusedMatMul", [A.swapaxes(0, 1).copy(), C], {"transBatchA": 1}, ()),
    ("FusedMatMul", [A, C.transpose(2, 0, 1).copy()], {"transBatchB": 1, "transB": 1}, ()),
    ("FusedMatMul", [M, ONE], {"transB": 1}, ()),
    ("TransposeMatMul", [A, C.swapaxes(1, 2).copy()], {"transB": 1}, ()),
    ("FusedGemm", [A[0], C[0], C[0, 0]], {"activation": "Relu", "beta": 0.5}, ()),
    ("FusedGemm", [A[0], C[0]], {"activation": "LeakyRelu", "activation_alpha": 0.2}, ()),
    ("SkipLayerNormalization", [M, M[:1] + 1, ONE, ONE[::-1].copy()], {"epsilon": 1e-5}, ()),
    ("SkipLayerNormalization", [M, M[0] + 1, ONE, None, ONE], {}, ()),
    ("SkipSimplifiedLayerNormalization", [M, M * 2, ONE, ONE], {"epsilon": 1e-5}, ()),
    ("EmbedLayerNormalization",
     [IDS, MASK, floats(9, 6), floats(4, 6), floats(2, 6), ONE, ONE], {"epsilon": 1e-5}, ()),
    ("EmbedLayerNormalization",
     [IDS, None, floats(9, 6), floats(5, 6), None, ONE, ONE, MASK, IDS[:1] % 5], {}, ()),
    ("CDist", [M[0], M[1, :3]], {}, ()),
    ("CDist", [M[0], M[1, :3]], {"metric": "euclidean"}, ()),
    ("CropAndResize", [X, BOXES, np.array([1, 0], np.int32), np.array([4, 1], np.int32)],
     {"extrapolation_value": 0.5}, (3,)),
    ("CropAndResize", [X, BOXES, np.array([1, 0], np.int32), np.array([3, 4], np.int32)],
     {"mode": "nearest"}, (3,)),
    ("ExpandDims", [M, np.array(-1, np.int32)], {}, (1,)),
    ("ExpandDims", [M, np.array(1, np.int32)], {}, (1,)),
    ("GatherND", [M, ints(1, 3)[None]], {}, ()),
    ("GridSample", [X, np.clip(floats(2, 3, 4, 2), -1.5, 1.5)], {"mode": "bicubic"}, ()),
    ("GridSample", [X, np.clip(floats(2, 3, 4, 2), -1.5, 1.5)], {"padding_mode": "border"}, ()),
    ("Inverse", [floats(2, 3, 3)], {}, ()),
    ("Pad", [M, ints(0, 1, 2, 0, 0, 1)[None], np.float32([3])], {}, (1,)),
    ("Pad", [M, ints(0, 1, 2, 0, 0, 1)], {"mode": "edge"}, (1,)),
    ("Range", [np.int64(1), np.int64(9), np.int64(3)], {}, (0, 1, 2)),
    ("Range", [np.float32(1), np.float32(4)], {}, (0, 1)),
    ("Trilu", [M, np.int64(1)], {"upper": 0}, (1,)),
    ("Trilu", [M], {}, ()),
    ("QuantizeLinear", [M, np.float32([0.1, 0.2, 0.1, 0.3, 0.05, 1]), np.int8([0, 1, 2, 3, 4, 5])],
     {"axis": 2}, ()),
    ("QuantizeLinear", [M, np.float32(0.01), np.uint16(300)], {}, ()),
    ("DequantizeLinear", [IDS[0].astype(np.int8), np.float32(0.1), np.int8(2)], {}, ()),
]  # fmt: skip
OUTPUTS = {
    "EmbedLayerNormalization": ["y", "lengths", "sum"],
    "SkipLayerNormalization": ["y", "", "", "sum"],
    "SkipSimplifiedLayerNormalization": ["y", "", "", "sum"],
}


@pytest.mark.parametrize(
    ("op", "values", "attrs", "known"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)]
)
def test_an_operator(
    op: str, values: list[Any], attrs: dict[str, Any], known: tuple[int, ...]
) -> None:
    proto, inputs = single(op, values, attrs, OUTPUTS.get(op, ["y"]))
    compare(proto, inputs, rtol=2e-5, fixed={f"in{i}": values[i] for i in known})


@pytest.mark.parametrize("op", ["LayerNormalization", "SimplifiedLayerNormalization"])
def test_normalization_of_the_default_domain_before_it_was_standard(op: str) -> None:
    proto, inputs = single(op, [M, ONE], {"axis": -1, "epsilon": 1e-3}, domain="")
    compare(proto, inputs)
