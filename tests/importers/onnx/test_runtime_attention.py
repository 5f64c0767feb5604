"""Attention of ONNX Runtime compared with it: masks, caches, rotation, shared keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from onnx import TensorProto

from tests.importers.onnx.models import results
from tests.importers.onnx.runtime import by_runtime, compare, single
from tests.near import assert_near

RNG = np.random.default_rng(0)
HEADS, DEPTH = 2, 16
WIDTH = HEADS * DEPTH


def floats(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def i32(*values: Any) -> np.ndarray:
    return np.array(values, np.int32)


MASKS: dict[str, Any] = {
    "none": None,
    "keys": i32([1, 1, 1, 0, 0], [1, 1, 1, 1, 1]),
    "queries": RNG.integers(0, 2, (2, 5, 5)).astype(np.int32) | np.eye(5, dtype=np.int32),
    "lengths": i32(3, 5),
    "ends and starts": i32(4, 5, 1, 0),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("unidirectional", [0, 1])
def test_self_attention(mask: str, unidirectional: int) -> None:
    values = [floats(2, 5, 8), floats(8, 3 * WIDTH), floats(3 * WIDTH), MASKS[mask]]
    attrs = {"num_heads": HEADS, "unidirectional": unidirectional}
    proto, inputs = single("Attention", values, attrs)
    compare(proto, inputs)


def test_self_attention_of_values_with_another_width_and_a_bias_of_the_logits() -> None:
    values = [floats(2, 5, 8), floats(8, 2 * WIDTH + 6), floats(2 * WIDTH + 6), None, None]
    attrs = {"num_heads": HEADS, "qkv_hidden_sizes": [WIDTH, WIDTH, 6], "scale": 0.3}
    proto, inputs = single("Attention", [*values, floats(1, HEADS, 5, 5)], attrs)
    compare(proto, inputs)


@pytest.mark.parametrize("unidirectional", [0, 1])
def test_self_attention_with_a_cache(unidirectional: int) -> None:
    past = floats(2, 2, HEADS, 4, DEPTH)
    mask = i32([1] * 9, [0, 0, 1, 1, 1, 1, 1, 1, 1])
    values = [floats(2, 5, 8), floats(8, 3 * WIDTH), floats(3 * WIDTH), mask, past]
    attrs = {"num_heads": HEADS, "unidirectional": unidirectional, "mask_filter_value": -1e4}
    proto, inputs = single("Attention", values, attrs, ["y", "present"])
    compare(proto, inputs)


@pytest.mark.parametrize("columns", [False, True])
def test_quantized_attention(columns: bool) -> None:
    scale = np.abs(floats(3 * WIDTH)) * 0.01 + 0.01 if columns else np.array(0.02, np.float32)
    zero = np.zeros(3 * WIDTH, np.int8) if columns else np.array(3, np.int8)
    x = RNG.integers(0, 256, (2, 5, 8)).astype(np.uint8)
    w = RNG.integers(-128, 128, (8, 3 * WIDTH)).astype(np.int8)
    one, middle = np.array(0.01, np.float32), np.array(120, np.uint8)
    values = [x, w, floats(3 * WIDTH), one, scale, i32(3, 5), middle, zero]
    past = floats(2, 2, HEADS, 4, DEPTH)
    attrs = {"num_heads": HEADS, "unidirectional": 1}
    proto, inputs = single("QAttention", values, attrs)
    compare(proto, inputs)
    values[5] = None
    proto, inputs = single("QAttention", [*values, past], attrs, ["y", "present"])
    compare(proto, inputs)


# -- of projected operands -------------------------------------------------------------------

Q, K, V = floats(2, 5, WIDTH), floats(2, 7, WIDTH), floats(2, 7, 2 * 12)
KEYS = i32([1, 1, 1, 0, 0, 0, 0], [1] * 7)
PAST = [floats(2, HEADS, 3, DEPTH) for _ in range(2)]
BY_HEADS = [floats(2, HEADS, 7, DEPTH) for _ in range(2)]

MULTI_HEAD: list[tuple[list[Any], dict[str, Any], list[str]]] = [
    ([Q, K, V], {}, ["y"]),
    ([Q, K, V, floats(2 * WIDTH + 24), KEYS], {"scale": 0.2}, ["y"]),
    ([Q, K, V, None, i32(3, 7), floats(2, 1, 5, 7)], {}, ["y"]),
    ([Q, Q, Q, None, None, None], {"unidirectional": 1}, ["y"]),
    ([Q, K, K, None, None, None, *PAST], {}, ["y", "k", "v"]),
    ([Q, Q, Q, floats(3 * WIDTH), None, None, *PAST], {"unidirectional": 1}, ["y", "k", "v"]),
    ([Q, *BY_HEADS], {}, ["y"]),
    ([Q, K, V, None, KEYS, floats(2, 1, 5, 7)], {}, ["y", "k", "v", "logits"]),
    ([Q, Q, Q], {"unidirectional": 1, "scale": 0.2}, ["y", "k", "v", "logits"]),
]


@pytest.mark.parametrize("number", range(len(MULTI_HEAD)))
def test_multi_head_attention(number: int) -> None:
    values, attrs, outputs = MULTI_HEAD[number]
    proto, inputs = single("MultiHeadAttention", values, {"num_heads": HEADS, **attrs}, outputs)
    proto.graph.output[-1].type.tensor_type.elem_type = TensorProto.FLOAT
    compare(proto, inputs)


@pytest.mark.parametrize("of", [2, 3])
def test_packed_operands(of: int) -> None:
    """The CPU provider of the runtime does not compute them: they are as those that are not."""
    packed = floats(2, 5, HEADS, of, DEPTH)
    parts = [packed[:, :, :, i].reshape(2, 5, WIDTH) for i in range(of)]
    first = [Q] if of == 2 else []
    missing = [None] * (2 if of == 3 else 1)
    found = []
    for values in ([*first, packed, *missing], [*first, *parts]):
        found += results(*single("MultiHeadAttention", values, {"num_heads": HEADS}))
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("part", [0, 8])
@pytest.mark.parametrize("first", [True, False])
def test_rotation(interleaved: int, part: int, first: bool) -> None:
    half = (part or DEPTH) // 2
    positions = np.array([3]) if first else RNG.integers(0, 20, (2, 5))
    attrs = {"interleaved": interleaved}
    if part:
        attrs |= {"rotary_embedding_dim": part, "num_heads": HEADS}
    values = [floats(2, 5, WIDTH), positions, floats(20, half), floats(20, half)]
    proto, inputs = single("RotaryEmbedding", values, attrs)
    compare(proto, inputs)
    proto, inputs = single("RotaryEmbedding", [floats(2, HEADS, 5, DEPTH), *values[1:]], attrs)
    compare(proto, inputs)


# -- heads that share keys -------------------------------------------------------------------

SHARED = 2
GROUPS = {"num_heads": 4, "kv_num_heads": SHARED}
COS, SIN = floats(16, DEPTH // 2), floats(16, DEPTH // 2)


def grouped(queries: int, before: int, lengths: Any, *, packed: bool = False) -> list[Any]:
    """The first inputs: queries, keys, values, the cache, and the lengths."""
    q, k, v = floats(2, queries, 4 * DEPTH), *(floats(2, queries, SHARED * DEPTH) for _ in "kv")
    first = [np.concatenate([q, k, v], -1), None, None] if packed else [q, k, v]
    past = [floats(2, SHARED, before, DEPTH) for _ in "kv"]
    total = np.array(max(lengths) + 1, np.int32)
    return [*first, *past, i32(*lengths), total]


CALLS: dict[str, tuple[int, int, Any]] = {
    "first": (5, 0, (4, 4)),
    "first, filled up": (5, 0, (2, 4)),
    "next": (1, 4, (4, 4)),
    "next, filled up": (1, 4, (2, 4)),
    "in a longer cache": (1, 9, (3, 5)),
}
HOWS: dict[str, dict[str, Any]] = {
    "plain": {},
    "window": {"local_window_size": 3},
    "cap": {"softcap": 0.8, "scale": 0.4},
    "rotary": {"do_rotary": 1},
    "interleaved": {"do_rotary": 1, "rotary_interleaved": 1},
    "smooth": {"smooth_softmax": 1},
}


@pytest.mark.parametrize("when", CALLS)
@pytest.mark.parametrize("how", HOWS)
def test_attention_of_groups(when: str, how: str) -> None:
    values = grouped(*CALLS[when], packed=how == "interleaved")
    if "do_rotary" in HOWS[how]:
        values += [COS, SIN]
    check_grouped(values, HOWS[how], CALLS[when])


def test_attention_of_groups_with_a_bias_and_sinks() -> None:
    call = (5, 0, (4, 4))
    bias, sinks = floats(2, 1, 5, 5), floats(4)
    check_grouped([*grouped(*call), None, None, None, bias, sinks], {}, call)


def check_grouped(values: list[Any], how: dict[str, Any], call: Any) -> None:
    """Compares what has a meaning: not the rows after the end of an example, nor what a cache has
    there."""
    queries, _, lengths = call
    outputs = ["y", "k", "v"]
    proto, inputs = single("GroupQueryAttention", values, {**GROUPS, **how}, outputs)
    want = by_runtime(proto, inputs)
    got = results(proto, inputs, fixed={"in6": values[6]})
    for number, (g, w) in enumerate(zip(got, want, strict=True)):
        assert g.shape == w.shape
        for i, last in enumerate(lengths):
            end = last + 1 if number or queries > 1 else queries
            axis = 1 if number else 0
            cut = (slice(None),) * axis + (slice(0, end),)
            assert_near(g[i][cut], w[i][cut], rtol=2e-5)
