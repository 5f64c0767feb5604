"""Operators of ONNX Runtime: what is refused, named sizes, gradients, and those that only its
providers for GPUs compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from onnx import helper

import graphc as gc
from graphc.errors import ModelImportError
from tests.importers.onnx.models import check_gradient, model, results
from tests.importers.onnx.runtime import DOMAIN, by_runtime, compare, single
from tests.near import assert_near

RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def i32(*values: Any) -> np.ndarray:
    return np.array(values, np.int32)


X, ONE = floats(2, 4, 6), floats(6)
W = floats(6, 18)
IMAGE = floats(2, 4, 5, 6)  # channels last
CACHE = floats(2, 2, 2, 2, 3)

# -- refusals --------------------------------------------------------------------------------

REFUSED: list[tuple[str, list[Any], dict[str, Any], str]] = [
    ("Gelu", [X], {"approximate": "tanh"}, "has the attribute 'approximate', which is not"),
    ("Gelu", [X, ONE], {}, "has an input number 1, which is not supported"),
    ("FusedConv", [X, X], {"activation": "Mish"}, "with the activation 'Mish' is not supported"),
    ("Attention", [X, W], {"num_heads": 2, "do_rotary": 1}, "with do_rotary=1 is not supported"),
    ("Attention", [X, W, None, i32([[[1]]])], {"num_heads": 2}, "with a mask of 4 axes"),
    ("Attention", [X, W, None, i32(1, 2, 3)], {"num_heads": 2}, r"a mask of the shape \(3,\)"),
    ("MultiHeadAttention", [X, X, X, *[None] * 5, i32(3)], {"num_heads": 2}, "input number 8"),
    ("RotaryEmbedding", [X], {"is_packed_batching": 1}, "with is_packed_batching=1"),
    ("MatMulNBits", [X], {"weight_prepacked": 1}, "with weight_prepacked=1 is not supported"),
    ("MatMulNBits", [X, X, X, None, i32(0)], {"K": 6, "N": 2, "block_size": 16}, "'g_idx'"),
    ("MatMulNBits", [X], {"bits": 3}, "with weights of 3 bits is not supported"),
    ("GroupQueryAttention", [X], {"qk_output": 1}, "with qk_output=1 is not supported"),
    ("GroupQueryAttention", [X], {"causal": 0}, "with causal=0 is not supported"),
    ("GroupQueryAttention", [X], {"k_quant_type": "PER_TENSOR"}, "k_quant_type='PER_TENSOR'"),
    ("GroupNorm", [IMAGE, ONE, ONE], {"groups": 2, "activation": 2}, "with the activation 2"),
    ("SimplifiedLayerNormalization", [X, ONE], {"stash_type": 10}, "with stash_type=10"),
    ("QLinearSoftmax", [X.astype(np.uint8)], {}, "has no attribute 'opset'"),
    ("MatMulIntegerToFloat", [i32(*[[1, 2]] * 2), i32([1]), ONE, ONE], {}, "with several scales"),
    ("CDist", [X[0], X[1]], {"metric": "cosine"}, "with the metric 'cosine' is not supported"),
    ("LongformerAttention", [X], {}, "is not imported"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("op", "values", "attrs", "why"), REFUSED, ids=[f"{c[0]}-{i}" for i, c in enumerate(REFUSED)]
)
def test_nothing_is_ignored(op: str, values: list[Any], attrs: dict[str, Any], why: str) -> None:
    proto, _ = single(op, values, attrs)
    with pytest.raises(ModelImportError, match=f"com.microsoft.{op} .*{why}"):
        gc.from_onnx(proto)


def test_results_that_are_not_computed_are_refused() -> None:
    proto, _ = single("SkipSimplifiedLayerNormalization", [X, X, ONE], {}, ["y", "mean"])
    with pytest.raises(ModelImportError, match="with the mean as a result is not supported"):
        gc.from_onnx(proto)
    proto, _ = single("Gelu", [X], {}, ["y", "z"])
    with pytest.raises(ModelImportError, match="has a result number 1 that is used"):
        gc.from_onnx(proto)


def test_layouts_for_one_processor() -> None:
    proto, _ = single("ReorderInput", [IMAGE], {}, domain="com.microsoft.nchwc")
    with pytest.raises(ModelImportError, match="optimise the model with ORT_ENABLE_EXTENDED"):
        gc.from_onnx(proto)


def test_the_total_length_of_a_cache_must_be_known() -> None:
    values = [floats(1, 2, 12), floats(1, 2, 6), floats(1, 2, 6), None, None, i32(1), np.int32(2)]
    proto, inputs = single("GroupQueryAttention", values, {"num_heads": 4, "kv_num_heads": 2})
    with pytest.raises(ModelImportError, match="needs the total length at import"):
        gc.from_onnx(proto)
    (y,) = results(proto, inputs, fixed={"in6": np.int32(2)})
    assert y.shape == (1, 2, 12)


HALF: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("SkipLayerNormalization", [X, X + 1, ONE, ONE], {}),
    ("SkipSimplifiedLayerNormalization", [X, X + 1, ONE], {}),
    ("MatMulNBits", [floats(3, 64), RNG.integers(0, 256, (8, 4, 8)).astype(np.uint8),
                     np.abs(floats(8, 4))], {"K": 64, "N": 8, "block_size": 16}),
    ("GatherBlockQuantized", [RNG.integers(0, 256, (9, 16)).astype(np.uint8), np.array([1, 8]),
                              floats(9, 2)], {"block_size": 16}),
    ("RotaryEmbedding", [floats(2, 5, 32), np.array([3]), floats(9, 8), floats(9, 8)], {}),
]  # fmt: skip


@pytest.mark.parametrize(("op", "values", "attrs"), HALF, ids=[c[0] for c in HALF])
def test_half_precision(op: str, values: list[Any], attrs: dict[str, Any]) -> None:
    half = [v.astype(np.float16) if v.dtype == np.float32 else v for v in values]
    proto, inputs = single(op, half, attrs)
    compare(proto, inputs, rtol=2e-3)


# -- named sizes -----------------------------------------------------------------------------


def check_named(
    op: str,
    values: list[Any],
    shapes: dict[int, list[Any]],
    attrs: dict[str, Any],
    more: Any,
    outputs: Any = ("y",),
) -> None:
    """Imports a node once with named sizes, and runs it on `values` and on the inputs of `more`."""
    proto, inputs = single(op, values, attrs, outputs)
    for i, shape in shapes.items():
        (port,) = (p for p in proto.graph.input if p.name == f"in{i}")
        kind = port.type.tensor_type.elem_type
        port.CopyFrom(helper.make_tensor_value_info(port.name, kind, shape))
    alone = gc.from_onnx(proto).to_graph()
    with gc.Session(alone.graph) as session:
        for given in (inputs, {**inputs, **{f"in{i}": v for i, v in more.items()}}):
            feeds = {alone.inputs[name]: v for name, v in given.items()}
            found = session.run(list(alone.outputs.values()), feeds)
            for got, want in zip(found, by_runtime(proto, given), strict=True):
                assert got.shape == want.shape
                assert_near(got, want, rtol=2e-3 if "LSTM" in op else 1e-5)


def test_a_cache_of_a_named_length() -> None:
    mask = np.ones((2, 6), np.int32)
    mask[0, :2] = 0
    attrs = {"num_heads": 2, "unidirectional": 1}
    shapes = {
        0: ["batch", "time", 6],
        3: ["batch", "total"],
        4: [2, "batch", 2, "before", 3],
    }
    longer = {0: floats(1, 2, 6), 3: np.ones((1, 7), np.int32), 4: floats(2, 1, 2, 5, 3)}
    values = [X, W, ONE.repeat(3), mask, CACHE]
    check_named("Attention", values, shapes, attrs, longer, ["y", "present"])


def test_cross_attention_of_named_lengths() -> None:
    shapes = {0: ["batch", "time", 6], 1: ["batch", "source", 6], 2: ["batch", "source", 6]}
    other = {0: floats(3, 2, 6), 1: floats(3, 5, 6), 2: floats(3, 5, 6)}
    check_named("MultiHeadAttention", [X, X + 1, X], shapes, {"num_heads": 2}, other)


def test_embeddings_of_sentences_of_a_named_length() -> None:
    values = [i32([1, 2, 3]), None, floats(9, 6), floats(8, 6), None, ONE, ONE]
    check_named("EmbedLayerNormalization", values, {0: ["batch", "time"]}, {},
                {0: i32([1, 2, 3, 4, 5], [8, 7, 6, 5, 4])}, ["y", "lengths"])  # fmt: skip


def test_a_quantized_layer_over_a_named_time() -> None:
    kernels = [RNG.integers(-99, 99, (1, n, 16)).astype(np.int8) for n in (6, 4)]
    one, none = np.array([0.01], np.float32), np.array([0], np.int8)
    values = [floats(5, 2, 6), *kernels, *[None] * 5, one, none, one, none]
    check_named("DynamicQuantizeLSTM", values, {0: ["time", "batch", 6]}, {"hidden_size": 4},
                {0: floats(9, 3, 6)})  # fmt: skip


def test_groups_with_a_cache_of_a_named_length() -> None:
    """The total length is the size of a mask, as in exported language models."""
    names = ["q", "k", "v", "old_k", "old_v", "lengths", "total"]
    nodes = [
        helper.make_node("Shape", ["mask"], ["shape"], start=1, end=2),
        helper.make_node("Cast", ["shape"], ["total"], to=6),
        helper.make_node("GroupQueryAttention", names, ["y", "new_k", "new_v"], domain=DOMAIN,
                         num_heads=4, kv_num_heads=2),
    ]  # fmt: skip

    def inputs(before: int, time: int) -> dict[str, Any]:
        kv, old = [floats(2, time, 16) for _ in "kv"], [floats(2, 2, before, 8) for _ in "kv"]
        last = before + time - 1
        values = [floats(2, time, 32), *kv, *old, i32(last, last - (time == 1))]
        mask = np.ones((2, before + time), np.int64)
        return dict(zip([*names[:-1], "mask"], [*values, mask], strict=True))

    first = inputs(3, 1)
    shapes = {name: [2, 2, "before", 8] for name in ("old_k", "old_v")} | {"mask": [2, "total"]}
    shapes |= {name: [2, "time", first[name].shape[-1]] for name in "qkv"}
    proto = model(nodes, first, ["y"], opset=17, domains=[DOMAIN], shapes=shapes)
    proto.graph.output[0].ClearField("type")
    proto.ir_version = 10
    alone = gc.from_onnx(proto).to_graph()
    with gc.Session(alone.graph, unused_feeds="ignore") as session:
        for given in (first, inputs(6, 1), inputs(0, 5)):
            got = session.run(
                alone.outputs["y"], {alone.inputs[name]: v for name, v in given.items()}
            )
            assert_near(got, by_runtime(proto, given)[0], rtol=1e-5)


# -- gradients -------------------------------------------------------------------------------

SHARED = [floats(2, 3, 12), floats(2, 3, 6), floats(2, 3, 6), None, None, i32(2, 2), np.int32(3)]
DIFFERENTIABLE: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("Gelu", [X], {}),
    ("FastGelu", [X, ONE], {}),
    ("QuickGelu", [X], {}),
    ("FusedConv", [floats(2, 3, 5, 6), floats(4, 3, 3, 3)], {"activation": "Tanh"}),
    ("FusedMatMul", [X, W], {"alpha": 0.5}),
    ("FusedGemm", [X[0], W], {"activation": "Sigmoid"}),
    ("SkipLayerNormalization", [X, X[:1], ONE, ONE], {}),
    ("SkipSimplifiedLayerNormalization", [X, X[:1], ONE], {}),
    ("Attention", [X, W, None, i32(3, 4), CACHE], {"num_heads": 2, "unidirectional": 1}),
    ("MultiHeadAttention", [X, X + 1, X], {"num_heads": 2}),
    ("GroupQueryAttention", SHARED, {"num_heads": 4, "kv_num_heads": 2, "softcap": 2.0}),
]


@pytest.mark.parametrize(("op", "values", "attrs"), DIFFERENTIABLE, ids=lambda v: str(v)[:9])
def test_gradients(op: str, values: list[Any], attrs: dict[str, Any]) -> None:
    wide = [v.astype(np.float64) if getattr(v, "dtype", 0) == np.float32 else v for v in values]
    proto, inputs = single(op, wide, attrs)
    check_gradient(proto, inputs, {"in6": values[6]} if op.startswith("Group") else {})


def test_the_gradient_of_a_product_with_weights_in_blocks() -> None:
    packed = RNG.integers(0, 256, (5, 2, 8)).astype(np.uint8)
    attrs = {"K": 32, "N": 5, "block_size": 16}
    values = [RNG.normal(size=(3, 32)), packed, RNG.random((5, 2)).astype(np.float32)]
    check_gradient(*single("MatMulNBits", values, attrs))


# -- operators without a kernel for CPUs -----------------------------------------------------


def check_same(op: str, values: list[Any], attrs: dict[str, Any], want: Any) -> None:
    proto, inputs = single(op, values, attrs)
    assert_near(results(proto, inputs)[0], want, rtol=1e-5)


def softmax(x: np.ndarray, axes: Any = -1) -> Any:
    e = np.exp(x - x.max(axes, keepdims=True))
    return e / e.sum(axes, keepdims=True)


def test_softmax_with_a_bias() -> None:
    x, inner, outer = floats(2, 3, 4, 5), floats(2, 4, 5), floats(3, 4, 5)
    attrs = {"axis": 3, "is_inner_broadcast": 0}
    check_same(
        "BiasSoftmax",
        [
            x,
            floats(1, 1, 1, 5) * 0,
        ],
        attrs,
        softmax(x),
    )
    check_same("BiasSoftmax", [x, outer], attrs, softmax(x + outer))
    want = softmax((x + inner[:, None]), (2, 3))
    check_same("BiasSoftmax", [x, inner], {"axis": 2, "is_inner_broadcast": 1}, want)


def test_sums_with_biases() -> None:
    check_same("BiasAdd", [X, ONE, X * 2], {}, X * 3 + ONE)
    check_same("BiasDropout", [X, ONE, X * 2], {}, X * 3 + ONE)
    proto, inputs = single("BiasDropout", [X, ONE, None, None, np.bool_(True)], {})
    with pytest.raises(ModelImportError, match="in training mode is not supported"):
        gc.from_onnx(proto, fixed={"in4": inputs["in4"]})
    erf = np.vectorize(__import__("math").erf)
    a, b = np.split(X + ONE, 2, -1)
    check_same("BiasSplitGelu", [X, ONE], {}, a * b * 0.5 * (1 + erf(b / np.sqrt(2))))


@pytest.mark.parametrize("op", ["NhwcConv", "NhwcFusedConv"])
def test_convolutions_with_the_channels_last(op: str) -> None:
    w, bias, attrs = floats(3, 6, 2, 3), floats(3), {"pads": [1, 0, 1, 1]}
    first = np.ascontiguousarray(IMAGE.transpose(0, 3, 1, 2))
    (y,) = results(*single("Conv", [first, w, bias], attrs, domain=""))
    want = y.transpose(0, 2, 3, 1)
    if op == "NhwcConv":
        check_same(op, [IMAGE, w, bias], attrs, want)
        return
    z = floats(*want.shape)
    check_same(op, [IMAGE, w, bias, z], {**attrs, "activation": "Relu"}, np.maximum(want + z, 0))


@pytest.mark.parametrize("last", [0, 1])
def test_normalized_groups(last: int) -> None:
    x = floats(2, 4, 3, 5)  # channels first
    scale, bias, skip, more = (floats(4) for _ in "abcd")

    def normalized(x: np.ndarray) -> np.ndarray:
        apart = x.reshape(2, 2, -1).astype(np.float64)
        y = (apart - apart.mean(-1, keepdims=True)) / apart.std(-1, keepdims=True)
        return y.reshape(x.shape) * scale[:, None, None] + bias[:, None, None]

    def placed(x: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if last else x

    attrs = {"groups": 2, "channels_last": last, "activation": 0, "epsilon": 1e-9}
    check_same("GroupNorm", [placed(x), scale, bias], attrs, placed(normalized(x)))
    total = x + (skip + more)[:, None, None]
    y = normalized(total)
    silu = placed(y / (1 + np.exp(-y)))
    values = [placed(x), scale, bias, np.stack([skip, skip]), more]
    proto, inputs = single("SkipGroupNorm", values, {**attrs, "activation": 1}, ["y", "sum"])
    for got, want in zip(results(proto, inputs), (silu, placed(total)), strict=True):
        assert_near(got, want, rtol=1e-5)


def test_a_product_with_an_activation() -> None:
    want = np.maximum(X @ W * 0.5, 0)
    check_same("FusedMatMulActivation", [X, W], {"alpha": 0.5, "activation": "Relu"}, want)
