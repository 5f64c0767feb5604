"""Operators of each family compared with onnx's reference implementation, and their gradients."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import helper

import graphc as gc
from tests.importers.onnx.models import check, check_gradient, model, results
from tests.near import assert_near

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 3, 6, 5)).astype(np.float32)
P = np.abs(X) + 0.5
M = RNG.normal(size=(4, 3)).astype(np.float32)
PLACES = np.array([[0, 2], [1, -1]], np.int64)
EIGHT = RNG.normal(size=(1, 8, 2, 3)).astype(np.float32)
BYTES = np.array([1, 250], np.uint8)
POOL = {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1]}
W = RNG.normal(size=(4, 3, 3, 2)).astype(np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


# operator, inputs (those in `fixed` must be known), attributes, which inputs are known
CASES: list[tuple[str, list[Any], dict[str, Any], tuple[int, ...]]] = [
    ("Add", [X, M[:1, :1]], {}, ()),
    ("Div", [np.array([7, -7, 5]), np.array([2, 2, -3])], {}, ()),
    ("Mod", [np.array([7, -7, 5]), np.array([2, 2, -3])], {}, ()),
    ("Mod", [X, X[:1] + 0.3], {"fmod": 1}, ()),
    ("Pow", [P, np.array(2, np.int64)], {}, ()),
    ("BitShift", [BYTES, np.array([1, 2], np.uint8)], {"direction": "LEFT"}, ()),
    ("Clip", [X, np.float32(-0.5), np.float32(0.5)], {}, ()),
    ("Celu", [X], {"alpha": 0.5}, ()),
    ("Selu", [X], {}, ()),
    ("HardSwish", [X], {}, ()),
    ("Gelu", [X], {"approximate": "tanh"}, ()),
    ("PRelu", [X, M[:3, :1, None]], {}, ()),
    ("Softmax", [X], {"axis": 1}, ()),
    ("LogSoftmax", [X], {}, ()),
    ("Hardmax", [X], {"axis": 2}, ()),
    ("Cast", [X], {"to": 7}, ()),
    ("IsInf", [np.array([np.inf, -np.inf, 1], np.float32)], {"detect_negative": 0}, ()),
    ("Reshape", [X, ints(0, -1)], {}, (1,)),
    ("Flatten", [X], {"axis": 2}, ()),
    ("Transpose", [X], {"perm": [2, 0, 3, 1]}, ()),
    ("Expand", [M[:, :1], ints(2, 4, 3)], {}, (1,)),
    ("Slice", [X, ints(5, 4), ints(0, -100), ints(2, 3), ints(-2, -1)], {}, (1, 2, 3, 4)),
    ("Pad", [X, ints(0, 1, 3, 0, 0, 0, 2, 1), np.float32(3.0)], {}, (1,)),
    ("Pad", [X, ints(0, 0, 2, 1, 0, 0, 1, 2)], {"mode": "reflect"}, (1,)),
    ("Tile", [M, ints(2, 3)], {}, (1,)),
    ("Trilu", [M], {"upper": 0}, ()),
    ("DepthToSpace", [EIGHT], {"blocksize": 2}, ()),
    ("DepthToSpace", [EIGHT], {"blocksize": 2, "mode": "CRD"}, ()),
    ("ReduceMean", [X, ints(1, 3)], {"keepdims": 0}, (1,)),
    ("ReduceLogSumExp", [X], {}, ()),
    ("ReduceMax", [np.array([[True, False]])], {}, ()),
    ("ArgMax", [X], {"axis": 2, "select_last_index": 1}, ()),
    ("CumSum", [M, np.array(1)], {"reverse": 1, "exclusive": 1}, (1,)),
    ("TopK", [X, ints(2)], {"axis": 2, "largest": 0}, (1,)),
    ("Gather", [X, PLACES], {"axis": 1}, ()),
    ("GatherElements", [M, np.array([[0, -1]] * 4)], {"axis": 1}, ()),
    ("GatherND", [M, PLACES % 3], {}, ()),
    ("ScatterElements", [M, PLACES, M[:2, :2]], {"axis": 1, "reduction": "add"}, ()),
    ("ScatterND", [M, ints(1, 3)[:, None], M[:2]], {"reduction": "max"}, ()),
    ("OneHot", [PLACES, np.array(3), np.array([2.0, 5.0], np.float32)], {"axis": 1}, (1,)),
    ("Gemm", [M, M, M[:1, :1]], {"transB": 1, "alpha": 0.5, "beta": 2.0}, ()),
    ("Einsum", [M, M], {"equation": "ij,kj->ik"}, ()),
    ("Conv", [X, W, M[:, 0]], {"strides": [2, 1], "pads": [1, 0, 2, 1]}, ()),
    ("Conv", [X, W], {"auto_pad": "SAME_LOWER", "strides": [2, 2]}, ()),
    ("Conv", [X, W[:3, :1]], {"group": 3, "dilations": [2, 1]}, ()),
    ("ConvTranspose", [X, W[:3]], {"strides": [2, 3], "output_padding": [1, 2]}, ()),
    ("MaxPool", [X], {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1}, ()),
    ("AveragePool", [X], {**POOL, "count_include_pad": 1}, ()),
    ("GlobalAveragePool", [X], {}, ()),
    ("LRN", [X[:, :2] * 9], {"size": 3}, ()),
    ("InstanceNormalization", [X, M[:3, 0], M[:3, 1]], {}, ()),
    ("LayerNormalization", [X, X[0, 0], X[1, 0]], {"axis": 2}, ()),
    ("GroupNormalization", [EIGHT, *EIGHT[0, :, 0, :2].T], {"num_groups": 2}, ()),
    ("LpNormalization", [X], {"axis": 1, "p": 2}, ()),
    ("BatchNormalization", [X, M[:3, 0], M[:3, 1], M[:3, 2], P[0, :, 0, 0]], {}, ()),
    ("QuantizeLinear", [X, np.float32(0.1), np.uint8(12)], {}, ()),
    ("DequantizeLinear", [np.array([[1, 250]], np.uint8), np.float32(0.1), np.uint8(12)], {}, ()),
    ("MatMulInteger", [BYTES[None], BYTES[:, None], np.uint8(12)], {}, ()),
    ("Resize", [X, None, np.array([1, 1, 0.6, 1.7], np.float32)], {"mode": "cubic"}, (2,)),
    ("Resize", [X, None, None, ints(2, 3, 4, 9)], {"mode": "linear", "antialias": 1}, (3,)),
    ("GridSample", [X, np.clip(RNG.normal(size=(2, 3, 4, 2)), -1.5, 1.5).astype("f")], {}, ()),
    ("NegativeLogLikelihoodLoss", [X[:, :, 0, 0], ints(2, 0)], {}, ()),
    ("SoftmaxCrossEntropyLoss", [X[:, :, 0, 0], ints(2, 0), P[0, :, 0, 0]], {}, ()),
]  # fmt: skip


def single(op: str, values: list[Any], attrs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """A model with one node, and its inputs by name."""
    names = ["" if value is None else f"in{i}" for i, value in enumerate(values)]
    outputs = ["y"]
    inputs = {name: value for name, value in zip(names, values, strict=True) if name}
    return model([helper.make_node(op, names, outputs, **attrs)], inputs, outputs), inputs


each_case = pytest.mark.parametrize(
    ("op", "values", "attrs", "known"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)]
)


@each_case
def test_an_operator(
    op: str, values: list[Any], attrs: dict[str, Any], known: tuple[int, ...]
) -> None:
    proto, inputs = single(op, values, attrs)
    check(proto, inputs, rtol=2e-5, fixed={f"in{i}": values[i] for i in known})


@each_case
def test_inputs_known_at_import_give_the_same(
    op: str, values: list[Any], attrs: dict[str, Any], known: tuple[int, ...]
) -> None:
    proto, inputs = single(op, values, attrs)
    got = results(proto, {}, fixed=inputs)
    want = results(proto, inputs, fixed={f"in{i}": values[i] for i in known})
    for a, b in zip(got, want, strict=True):
        assert a.dtype == b.dtype
        assert_near(a, b, rtol=2e-5)


def test_a_quantized_product_of_vectors_is_a_scalar() -> None:
    one, zero = np.ones(1, np.float32), np.zeros(1, np.int8)
    a, b = np.array([1, 2, 3], np.int8), np.array([4, 5, 6], np.int8)
    proto, inputs = single("QLinearMatMul", [a, one, zero, b, one, zero, one, zero], {})
    (got,) = results(proto, inputs)
    assert got.shape == () and got == 32


def test_quantized_products_of_float8_are_refused() -> None:
    one, zero = np.float32(1), np.zeros((), ml_dtypes.float8_e4m3fn)
    a = np.full((2, 2), 1.5, zero.dtype)
    proto, inputs = single("QLinearMatMul", [a, one, zero, a, one, zero, one, zero], {})
    with pytest.raises(gc.errors.ModelImportError, match="of float8_e4m3fn is not supported"):
        results(proto, inputs)


@pytest.mark.parametrize(
    ("shape", "places", "axis"),
    [((2, 300), (2, 100), 1), ((100, 4), (70, 3), 0), ((2, 3, 90), (1, 3, 90), -1)],
)
def test_known_elements_are_gathered_from_long_axes(
    shape: tuple[int, ...], places: tuple[int, ...], axis: int
) -> None:
    x = RNG.normal(size=shape).astype(np.float32)
    where = RNG.integers(-shape[axis], shape[axis], places)
    proto, inputs = single("GatherElements", [x, where], {"axis": axis})
    grid = list(np.indices(places))
    grid[axis] = where
    for known in ({}, inputs):
        given = {name: v for name, v in inputs.items() if name not in known}
        assert np.array_equal(results(proto, given, fixed=known)[0], x[tuple(grid)])


@pytest.mark.parametrize("op", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_recurrent_layers(op: str, direction: str) -> None:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    n = 2 if direction == "bidirectional" else 1
    shapes = [(5, 2, 3), (n, 4 * gates, 3), (n, 4 * gates, 4), (n, 8 * gates)]
    values = [RNG.normal(size=shape).astype(np.float32) * 0.5 for shape in shapes]
    names = [f"in{i}" for i in range(4)]
    node = helper.make_node(op, names, ["y", "h"], hidden_size=4, direction=direction)
    inputs = dict(zip(names, values, strict=True))
    proto = model([node], inputs, ["y", "h"], opset=22)
    if n == 1:
        check(proto, inputs, rtol=1e-4)
        return
    got = results(proto, inputs)  # the reference supports both directions only for some operators
    one = [helper.make_node(op, names, ["y", "h"], hidden_size=4)]
    part = {name: v if i == 0 else v[:1] for i, (name, v) in enumerate(inputs.items())}
    assert_near(got[0][:, :1], results(model(one, part, ["y", "h"]), part)[0], rtol=1e-5)
    back = {name: v[::-1] if i == 0 else v[1:] for i, (name, v) in enumerate(inputs.items())}
    backward = results(model(one, back, ["y", "h"]), back)[0][::-1]
    assert_near(got[0][:, 1:], backward, rtol=1e-5)


STEPS = {"Hardmax", "ArgMax", "Cast", "Mod", "IsInf", "OneHot", "QuantizeLinear"}
DIFFERENTIABLE = [c for c in CASES if c[0] not in STEPS]


@pytest.mark.parametrize(
    ("op", "values", "attrs", "known"),
    [c for c in DIFFERENTIABLE if c[1][0].dtype == np.float32],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_gradients_are_finite_differences(
    op: str, values: list[Any], attrs: dict[str, Any], known: tuple[int, ...]
) -> None:
    """Compares the derivative along one direction, in float64."""
    scales = op == "Resize"  # which are always float32
    wide = [
        v.astype(np.float64)
        if getattr(v, "dtype", None) == np.float32 and not (scales and i)
        else v
        for i, v in enumerate(values)
    ]
    proto, inputs = single(op, wide, attrs)
    check_gradient(proto, inputs, {f"in{i}": wide[i] for i in known})
