"""Attention compared with `jax.nn`, with named sizes, and the weights that dropout keeps."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from graphc.autodiff import gradients
from graphc.build.placeholders import placeholder
from graphc.devices.strategy import DataParallel
from graphc.errors import DTypeError, ShapeError
from graphc.ir.graph import Graph
from graphc.ops.nn.attention import attention
from graphc.ops.reductions.reduction import reduce_sum
from graphc.runtime.session import Session
from tests.near import assert_near

SHAPES = ((4, 6, 4, 8), (4, 5, 2, 8), (4, 5, 2, 8))


def operands(*shapes):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def test_it_is_that_of_jax_with_named_sizes() -> None:
    arrays, mask = operands(*SHAPES), np.random.default_rng(1).random((4, 1, 6, 5)) < 0.7
    mask[..., 0] = True  # jax.nn gives a query without keys the mean of all values
    with Graph() as graph:
        q = placeholder(("n", "t", 4, 8))
        k, v = (placeholder(("n", "s", 2, 8)) for _ in range(2))
        m = placeholder(("n", 1, "t", "s"), "bool")
        y = attention(q, k, v, mask=m, causal=True)
        assert y.shape == q.shape
        slopes = gradients(reduce_sum(y * y), [q, k, v])
    got = Session(graph).run([y, *slopes], dict(zip([q, k, v, m], [*arrays, mask], strict=True)))

    def ours(q, k, v):
        return jax.nn.dot_product_attention(q, k, v, mask=mask, is_causal=True)

    wanted, pull = jax.vjp(ours, *arrays)
    for a, b in zip(got, (wanted, *pull(2 * wanted)), strict=True):
        assert_near(a, b, rtol=1e-4, atol=1e-5)


def test_a_scale_that_is_not_known() -> None:
    with Graph():
        q = placeholder(("n", 3, 4, "d"))
        with pytest.raises(ShapeError, match="the scale depends on the depth d"):
            attention(q, q, q)
        assert attention(q, q, q, scale=1.0).shape == q.shape


@pytest.mark.parametrize("replicas", [1, 2])
def test_gradients_drop_the_weights_that_were_dropped(replicas: int) -> None:
    """The adjoint of the values is the transpose of the weights after dropout."""
    query, key, _ = operands(*SHAPES)
    with Graph() as graph:
        q, k = (placeholder(a.shape, name=n, batch_axis=0) for a, n in ((query, "q"), (key, "k")))
        v = placeholder((4, 5, 2, 5), name="v", batch_axis=0)
        y = attention(q, k, v, dropout=0.5)
        slope = gradients(reduce_sum(y), v)
    # If the values are the identity, the result equals the weights.
    eye = np.broadcast_to(np.eye(5, dtype=np.float32)[None, :, None], (4, 5, 2, 5))
    strategy = DataParallel(replicas) if replicas > 1 else None
    weights, dv = Session(graph, strategy=strategy).run([y, slope], {q: query, k: key, v: eye})
    kept = np.asarray(weights) > 0
    assert 0.3 < kept.mean() < 0.7
    assert not np.array_equal(kept[:2], kept[2:])  # each replica draws its own
    by_key = weights.sum(1).reshape(4, 2, 2, 5).sum(2)  # over time, and heads that share a key
    assert_near(dv[..., 0], by_key.transpose(0, 2, 1), rtol=1e-5)


def test_without_keys_all_is_zero() -> None:
    with Graph() as graph:
        q, k = placeholder((2, 3, 4, 8)), placeholder((2, "source", 2, 8))
        y = attention(q, k, k, causal=True)
        slopes = gradients(reduce_sum(y), [q, k])
    feeds = {q: np.ones((2, 3, 4, 8), np.float32), k: np.ones((2, 0, 2, 8), np.float32)}
    y, dq, dk = Session(graph).run([y, *slopes], feeds)
    assert not np.any(y) and not np.any(dq) and dk.shape == (2, 0, 2, 8)


def test_masks_are_bool_and_biases_floating() -> None:
    with Graph():
        q, m = placeholder((2, 3, 4, 8)), placeholder((3, 3), "bool")
        with pytest.raises(DTypeError, match=r"(?s)mask must be bool, got float32.*bias="):
            attention(q, q, q, mask=q[0, :, 0, :3])
        with pytest.raises(DTypeError, match=r"(?s)bias must be floating, got bool.*mask="):
            attention(q, q, q, bias=m)


def test_a_query_that_sees_nothing_is_zero() -> None:
    """The result is not the mean of the values, which a softmax over equal logits would give."""
    arrays = operands(*SHAPES)
    seen = np.ones((4, 1, 6, 5), bool)
    seen[0, :, 2] = False  # one query of one batch element
    seen[1, :, :, 1:] = False  # queries that attend to one key
    with Graph() as graph:
        q, k, v = (placeholder(a.shape) for a in arrays)
        y = attention(q, k, v, mask=seen)
        slopes = gradients(reduce_sum(y * y), [q, k, v])
    got, dq, dk, dv = Session(graph).run([y, *slopes], dict(zip([q, k, v], arrays, strict=True)))
    assert not np.any(got[0, 2]) and not np.any(dq[0, 2])
    assert_near(got[1], np.broadcast_to(arrays[2][1, :1].repeat(2, 1), (6, 4, 8)), rtol=1e-7)
    assert not np.any(dk[1, 1:]) and not np.any(dv[1, 1:])
    assert all(np.isfinite(a).all() and np.any(a) for a in (got, dq, dk, dv))


def test_a_query_before_the_first_key_sees_nothing() -> None:
    """The attention is causal, and the mask hides what the first queries could attend to."""
    arrays = operands(*SHAPES)
    with Graph() as graph:
        q, k, v = (placeholder(a.shape) for a in arrays)
        y = attention(q, k, v, mask=np.arange(5) >= 2, causal=True)
    got = Session(graph).run(y, dict(zip([q, k, v], arrays, strict=True)))
    assert not np.any(got[:, :2]) and np.all(np.any(got[:, 2:], axis=(-1, -2)))
