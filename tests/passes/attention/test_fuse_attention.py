"""Fuse attention: all forms give the same values and gradients; other nodes do not change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
import pytest
from jax import numpy as jnp

import graphc as gc
from graphc.config import CompileOptions
from graphc.ir.program import Program
from graphc.ir.text import print_program
from graphc.ir.verify import verify
from graphc.passes.attention.fuse_attention import FuseAttention
from graphc.passes.simplify.prune import Prune
from graphc.runtime.targets.prepare import evaluate, prepare
from tests.near import assert_near
from tests.passes.check import check_pair, check_stays

FUSE = FuseAttention(every=True)
T, S = 6, 5
BHTD, BHSD = (2, 3, T, 8), (2, 3, S, 8)
BTHD, BSHD = (2, T, 3, 8), (2, S, 3, 8)
LOWER = np.tri(T, S, dtype=bool)


# -- programs as text -----------------------------------------------------------------------

TEXT = {
    "the forward pass": """
        q: f32[2, 6, 3, 8], k: f32[2, 5, 3, 8], v: f32[2, 5, 3, 8]
          %0 = DotGeneral(q, k) {lhs_contract=[3], rhs_contract=[3],
              lhs_batch=[0, 2], rhs_batch=[0, 2]} : f32[2, 3, 6, 5]
          %1 = Constant() {value=f32[] 0.25} : f32[]
          %2 = Multiply(%0, %1) : f32[2, 3, 6, 5]
          %3 = Softmax(%2) {axis=3} : f32[2, 3, 6, 5]
          %4 = DotGeneral(%3, v) {lhs_contract=[3], rhs_contract=[1],
              lhs_batch=[0, 1], rhs_batch=[0, 2]} : f32[2, 3, 6, 8]
          return out = %4
        =>
          %0 = Attention(q, k, v) {scale=0.25} : f32[2, 6, 3, 8]
          %1 = Transpose(%0) {perm=[0, 2, 1, 3]} : f32[2, 3, 6, 8]
          return out = %1
    """,
    "masked, backward too": """
        q: f32[2, 6, 8], k: f32[2, 5, 8], v: f32[2, 5, 8], seen: bool[5], dy: f32[2, 6, 8]
          %0 = MatMul(q, k) {transpose_b=true} : f32[2, 6, 5]
          %1 = Constant() {value=f32[] -1e9} : f32[]
          %2 = Where(seen, %0, %1) : f32[2, 6, 5]
          %3 = Softmax(%2) {axis=2} : f32[2, 6, 5]
          %4 = MatMul(dy, v) {transpose_b=true} : f32[2, 6, 5]
          %5 = Multiply(%3, %4) : f32[2, 6, 5]
          %6 = ReduceSum(%5) {axes=[2], keepdims=true} : f32[2, 6, 1]
          %7 = Subtract(%4, %6) : f32[2, 6, 5]
          %8 = Multiply(%3, %7) : f32[2, 6, 5]
          %9 = Constant() {value=f32[] 0} : f32[]
          %10 = Where(seen, %8, %9) : f32[2, 6, 5]
          %11 = MatMul(%10, k) : f32[2, 6, 8]
          return dq = %11
        =>
          %0 = Reshape(q) {shape=[2, 6, 1, 8]} : f32[2, 6, 1, 8]
          %1 = Reshape(k) {shape=[2, 5, 1, 8]} : f32[2, 5, 1, 8]
          %2 = Reshape(v) {shape=[2, 5, 1, 8]} : f32[2, 5, 1, 8]
          %3 = Reshape(seen) {shape=[1, 1, 1, 5]} : bool[1, 1, 1, 5]
          %4 = Reshape(dy) {shape=[2, 6, 1, 8]} : f32[2, 6, 1, 8]
          %5, %6, %7 = AttentionGradient(%0, %1, %2, %4, %3) {scale=1.0, mean_if_blind=true}
              : f32[2, 6, 1, 8], f32[2, 5, 1, 8], f32[2, 5, 1, 8]
          %8 = Reshape(%5) {shape=[2, 6, 8]} : f32[2, 6, 8]
          return dq = %8
    """,
    "the weights are wanted": """
        q: f32[2, 6, 8], k: f32[2, 5, 8], v: f32[2, 5, 8]
          %0 = MatMul(q, k) {transpose_b=true} : f32[2, 6, 5]
          %1 = Softmax(%0) {axis=2} : f32[2, 6, 5]
          %2 = MatMul(%1, v) : f32[2, 6, 8]
          return out = %2, weights = %1
        => stays
    """,
    "so are the logits": """
        q: f32[2, 6, 8], k: f32[2, 5, 8], v: f32[2, 5, 8]
          %0 = MatMul(q, k) {transpose_b=true} : f32[2, 6, 5]
          %1 = Softmax(%0) {axis=2} : f32[2, 6, 5]
          %2 = MatMul(%1, v) : f32[2, 6, 8]
          %3 = ReduceMax(%0) {axes=[0, 1, 2]} : f32[]
          return out = %2, greatest = %3
        => stays
    """,
    "a softmax over queries": """
        q: f32[2, 6, 8], k: f32[2, 5, 8], v: f32[2, 5, 8]
          %0 = MatMul(q, k) {transpose_b=true} : f32[2, 6, 5]
          %1 = Softmax(%0) {axis=1} : f32[2, 6, 5]
          %2 = MatMul(%1, v) : f32[2, 6, 8]
          return out = %2
        => stays
    """,
    "the bias is scaled too": """
        q: f32[2, 6, 8], k: f32[2, 5, 8], v: f32[2, 5, 8], bias: f32[5]
          %0 = MatMul(q, k) {transpose_b=true} : f32[2, 6, 5]
          %1 = Add(%0, bias) : f32[2, 6, 5]
          %2 = Constant() {value=f32[] 0.25} : f32[]
          %3 = Multiply(%1, %2) : f32[2, 6, 5]
          %4 = Softmax(%3) {axis=2} : f32[2, 6, 5]
          %5 = MatMul(%4, v) : f32[2, 6, 8]
          return out = %5
        => stays
    """,
    "logits that are no multiple of the products": """
        q: f32[2, 6, 8], k: f32[2, 5, 8], v: f32[2, 5, 8]
          %0 = MatMul(q, k) {transpose_b=true} : f32[2, 6, 5]
          %1 = Tanh(%0) : f32[2, 6, 5]
          %2 = Softmax(%1) {axis=2} : f32[2, 6, 5]
          %3 = MatMul(%2, v) : f32[2, 6, 8]
          return out = %3
        => stays
    """,
    "a finite mask and then a bias that is trained": """
        q: f32[2, 6, 8], k: f32[2, 5, 8], v: f32[2, 5, 8], m: bool[5], b: f32[6, 5], d: f32[2, 6, 8]
          %0 = MatMul(q, k) {transpose_b=true} : f32[2, 6, 5]
          %1 = Constant() {value=f32[] -1e9} : f32[]
          %2 = Where(m, %0, %1) : f32[2, 6, 5]
          %3 = Add(%2, b) : f32[2, 6, 5]
          %4 = Softmax(%3) {axis=2} : f32[2, 6, 5]
          %5 = MatMul(d, v) {transpose_b=true} : f32[2, 6, 5]
          %6 = Multiply(%4, %5) : f32[2, 6, 5]
          %7 = ReduceSum(%6) {axes=[2], keepdims=true} : f32[2, 6, 1]
          %8 = Subtract(%5, %7) : f32[2, 6, 5]
          %9 = Multiply(%4, %8) : f32[2, 6, 5]
          %10 = ReduceSum(%9) {axes=[0]} : f32[6, 5]
          return dbias = %10
        => stays
    """,
    "less the logarithm of a sum over queries": """
        q: f32[2, 6, 8], k: f32[2, 5, 8], v: f32[2, 5, 8]
          %0 = MatMul(q, k) {transpose_b=true} : f32[2, 6, 5]
          %1 = LogSumExp(%0) {axes=[1], keepdims=true} : f32[2, 1, 5]
          %2 = Subtract(%0, %1) : f32[2, 6, 5]
          %3 = Exp(%2) : f32[2, 6, 5]
          %4 = MatMul(%3, v) : f32[2, 6, 8]
          return out = %4
        => stays
    """,
    "products over entries and heads that are no attention": """
        q: f32[2, 3, 6, 8], k: f32[2, 3, 5, 8], v: f32[6, 5, 8]
          %0 = Reshape(q) {shape=[6, 6, 8]} : f32[6, 6, 8]
          %1 = Reshape(k) {shape=[6, 5, 8]} : f32[6, 5, 8]
          %2 = MatMul(%0, %1) {transpose_b=true} : f32[6, 6, 5]
          %3 = Tanh(%2) : f32[6, 6, 5]
          %4 = Softmax(%3) {axis=2} : f32[6, 6, 5]
          %5 = MatMul(%4, v) : f32[6, 6, 8]
          return out = %5
        => stays
    """,
    "a mask that sets logits to a number that counts": """
        q: f32[2, 6, 8], k: f32[2, 5, 8], v: f32[2, 5, 8], seen: bool[5]
          %0 = MatMul(q, k) {transpose_b=true} : f32[2, 6, 5]
          %1 = Constant() {value=f32[] -1.0} : f32[]
          %2 = Where(seen, %0, %1) : f32[2, 6, 5]
          %3 = Softmax(%2) {axis=2} : f32[2, 6, 5]
          %4 = MatMul(%3, v) : f32[2, 6, 8]
          return out = %4
        => stays
    """,
    "a mask that counts once it is scaled": """
        q: f32[2, 6, 8], k: f32[2, 5, 8], v: f32[2, 5, 8], seen: bool[5]
          %0 = MatMul(q, k) {transpose_b=true} : f32[2, 6, 5]
          %1 = Constant() {value=f32[] -1e5} : f32[]
          %2 = Where(seen, %0, %1) : f32[2, 6, 5]
          %3 = Constant() {value=f32[] 1e-5} : f32[]
          %4 = Multiply(%2, %3) : f32[2, 6, 5]
          %5 = Softmax(%4) {axis=2} : f32[2, 6, 5]
          %6 = MatMul(%5, v) : f32[2, 6, 8]
          return out = %6
        => stays
    """,
    "a mask after which the signs are turned: the hidden keys are all that counts": """
        q: f32[2, 6, 8], k: f32[2, 5, 8], v: f32[2, 5, 8], seen: bool[5]
          %0 = MatMul(q, k) {transpose_b=true} : f32[2, 6, 5]
          %1 = Constant() {value=f32[] -1e9} : f32[]
          %2 = Where(seen, %0, %1) : f32[2, 6, 5]
          %3 = Negative(%2) : f32[2, 6, 5]
          %4 = Softmax(%3) {axis=2} : f32[2, 6, 5]
          %5 = MatMul(%4, v) : f32[2, 6, 8]
          return out = %5
        => stays
    """,
    "the greatest of other rows is taken off": """
        q: f32[2, 6, 8], k: f32[2, 6, 8], v: f32[2, 6, 8]
          %0 = MatMul(q, k) {transpose_b=true} : f32[2, 6, 6]
          %1 = ReduceMax(%0) {axes=[2]} : f32[2, 6]
          %2 = Reshape(%1) {shape=[2, 1, 6]} : f32[2, 1, 6]
          %3 = Subtract(%0, %2) : f32[2, 6, 6]
          %4 = Exp(%3) : f32[2, 6, 6]
          %5 = ReduceSum(%4) {axes=[2], keepdims=true} : f32[2, 6, 1]
          %6 = Divide(%4, %5) : f32[2, 6, 6]
          %7 = MatMul(%6, v) : f32[2, 6, 8]
          return out = %7
        => stays
    """,
    "what is narrow was widened, so that nothing is rounded": """
        q: bf16[2, 6, 8], k: bf16[2, 5, 8], v: bf16[2, 5, 8]
          %0 = Cast(q) {dtype=f32} : f32[2, 6, 8]
          %1 = Cast(k) {dtype=f32} : f32[2, 5, 8]
          %2 = Cast(v) {dtype=f32} : f32[2, 5, 8]
          %3 = MatMul(%0, %1) {transpose_b=true} : f32[2, 6, 5]
          %4 = Softmax(%3) {axis=2} : f32[2, 6, 5]
          %5 = MatMul(%4, %2) : f32[2, 6, 8]
          return out = %5
        => stays
    """,
    "not the derivative: the row sum is added": """
        q: f32[2, 6, 8], k: f32[2, 5, 8], v: f32[2, 5, 8], dy: f32[2, 6, 8]
          %0 = MatMul(q, k) {transpose_b=true} : f32[2, 6, 5]
          %1 = Softmax(%0) {axis=2} : f32[2, 6, 5]
          %2 = MatMul(dy, v) {transpose_b=true} : f32[2, 6, 5]
          %3 = Multiply(%1, %2) : f32[2, 6, 5]
          %4 = ReduceSum(%3) {axes=[2], keepdims=true} : f32[2, 6, 1]
          %5 = Add(%2, %4) : f32[2, 6, 5]
          %6 = Multiply(%1, %5) : f32[2, 6, 5]
          %7 = MatMul(%6, k) : f32[2, 6, 8]
          return out = %7
        => stays
    """,
    "not its derivative: other values": """
        q: f32[2, 6, 8], k: f32[2, 5, 8], v: f32[2, 5, 8], w: f32[2, 5, 8], dy: f32[2, 6, 8]
          %0 = MatMul(q, k) {transpose_b=true} : f32[2, 6, 5]
          %1 = Softmax(%0) {axis=2} : f32[2, 6, 5]
          %2 = MatMul(%1, v) : f32[2, 6, 8]
          %3 = MatMul(dy, w) {transpose_b=true} : f32[2, 6, 5]
          %4 = Multiply(%1, %3) : f32[2, 6, 5]
          %5 = ReduceSum(%4) {axes=[2], keepdims=true} : f32[2, 6, 1]
          %6 = Subtract(%3, %5) : f32[2, 6, 5]
          %7 = Multiply(%1, %6) : f32[2, 6, 5]
          %8 = MatMul(%7, k) : f32[2, 6, 8]
          return out = %2, dq = %8
        => stays
    """,
    "a mask that only the backward pass has": """
        q: f32[2, 6, 8], k: f32[2, 5, 8], v: f32[2, 5, 8], dy: f32[2, 6, 8], seen: bool[5]
          %0 = MatMul(q, k) {transpose_b=true} : f32[2, 6, 5]
          %1 = Softmax(%0) {axis=2} : f32[2, 6, 5]
          %2 = MatMul(dy, v) {transpose_b=true} : f32[2, 6, 5]
          %3 = Multiply(%1, %2) : f32[2, 6, 5]
          %4 = ReduceSum(%3) {axes=[2], keepdims=true} : f32[2, 6, 1]
          %5 = Subtract(%2, %4) : f32[2, 6, 5]
          %6 = Multiply(%1, %5) : f32[2, 6, 5]
          %7 = Constant() {value=f32[] 0} : f32[]
          %8 = Where(seen, %6, %7) : f32[2, 6, 5]
          %9 = MatMul(%8, k) : f32[2, 6, 8]
          return dq = %9
        => stays
    """,
}  # fmt: skip


@pytest.mark.parametrize("name", TEXT)
def test_text(name: str) -> None:
    check_pair(FUSE, TEXT[name])


# -- ways to write attention ----------------------------------------------------------------


def plain(q: Any, k: Any, v: Any, **masks: Any) -> Any:
    logits = gc.matmul(q, k, transpose_b=True) / 8**0.5
    for mask, value in masks.items():
        logits = logits + value if mask == "bias" else gc.where(value, logits, -1e9)
    return gc.matmul(gc.nn.softmax(logits), v)


def einsum(q: Any, k: Any, v: Any) -> Any:
    weights = gc.nn.softmax(gc.einsum("bthd,bshd->bhts", q, k) * 0.3)
    return gc.einsum("bhts,bshd->bthd", weights, v)


def grouped(q: Any, k: Any, v: Any) -> Any:
    weights = gc.nn.softmax(0.3 * gc.einsum("btkgd,bskd->bkgts", q, k))
    return gc.einsum("bkgts,bskd->btkgd", weights, v)


def scaled_query(q: Any, k: Any, v: Any, bias: Any) -> Any:
    weights = gc.nn.softmax(gc.einsum("bthd,bshd->bhts", q * 0.3, k) + bias)
    return gc.einsum("bhts,bshd->bthd", weights, v)


def inverted(q: Any, k: Any, v: Any, hidden: Any) -> Any:
    logits = gc.where(hidden, -1e9, gc.matmul(q, k, transpose_b=True))
    return gc.matmul(gc.nn.softmax(logits), v)


def taken_off(q: Any, k: Any, v: Any, bias: Any) -> Any:
    return gc.matmul(gc.nn.softmax(gc.matmul(q, k, transpose_b=True) - bias), v)


def in_jax(q: Any, k: Any, v: Any) -> Any:
    logits = jnp.einsum("bthd,bshd->bhts", q, k) / 8**0.5
    logits = jnp.where(jnp.tril(jnp.ones((T, S), bool)), logits, -jnp.inf)
    return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(logits, axis=-1), v)


def in_jax_by_hand(q: Any, k: Any, v: Any) -> Any:
    logits = q @ k.swapaxes(-1, -2) * 0.3
    exponentials = jnp.exp(logits - logits.max(-1, keepdims=True))
    return (exponentials / exponentials.sum(-1, keepdims=True)) @ v


def of_jax(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.dot_product_attention(q, k, v, is_causal=True)


def less_log_sum(q: Any, k: Any, v: Any) -> Any:
    logits = gc.matmul(q, k, transpose_b=True) * 0.3
    return gc.matmul(gc.exp(logits - gc.logsumexp(logits, -1, keepdims=True)), v)


def of_log_softmax(q: Any, k: Any, v: Any) -> Any:
    return gc.matmul(gc.exp(gc.nn.log_softmax(gc.matmul(q, k, transpose_b=True))), v)


def less_log_sum_in_jax(q: Any, k: Any, v: Any) -> Any:
    logits = q @ k.swapaxes(-1, -2) * 0.3
    return jnp.exp(logits - jax.nn.logsumexp(logits, -1, keepdims=True)) @ v


def of_log_softmax_in_jax(q: Any, k: Any, v: Any) -> Any:
    logits = jnp.where(jnp.tril(jnp.ones((T, S), bool)), q @ k.swapaxes(-1, -2) * 0.3, -1e9)
    return jnp.exp(jax.nn.log_softmax(logits, -1)) @ v


def bias_after_mask(q: Any, k: Any, v: Any, bias: Any) -> Any:
    logits = gc.where(LOWER, gc.matmul(q, k, transpose_b=True) * 0.3, -np.inf) + bias
    return gc.matmul(gc.nn.softmax(logits), v)


def bias_after_mask_in_jax(q: Any, k: Any, v: Any, bias: Any) -> Any:
    logits = jnp.where(jnp.tril(jnp.ones((T, S), bool)), q @ k.swapaxes(-1, -2) * 0.3, -jnp.inf)
    return jax.nn.softmax(logits + bias, -1) @ v


def entries_by_heads(q: Any, k: Any, v: Any, mask: Any) -> Any:
    """Products have one axis for entries and heads; masks and the softmax have two."""
    q3, k3, v3 = (gc.reshape(x, (6, x.shape[2], 8)) for x in (q, k, v))
    logits = gc.reshape(gc.matmul(q3, k3, transpose_b=True) * 0.3, (2, 3, T, S))
    weights = gc.nn.softmax(gc.where(mask, logits, -1e9))
    result = gc.matmul(gc.reshape(weights, (6, T, S)), v3)
    return gc.reshape(result, (2, 3, T, 8))


def entries_by_heads_in_jax(q: Any, k: Any, v: Any) -> Any:
    """Only the mask has separate axes for entries and heads; operands never have them."""
    logits = jnp.einsum("ntd,nsd->nts", q, k).reshape(2, 3, T, S) * 0.3
    logits = jnp.where(jnp.tril(jnp.ones((T, S), bool)), logits, -1e9).reshape(6, T, S)
    weights = jax.nn.softmax(logits, -1)
    return jnp.einsum("nts,nsd->ntd", weights, v).reshape(2, 3, T, 8)


ADDED = np.where(LOWER, 0, -1e9).astype(np.float32)
SPELLINGS: Mapping[str, tuple[Callable[..., Any], list[Any], str]] = {
    "matmul": (plain, [BHTD, BHSD, BHSD], ""),
    "no batch": (plain, [(T, 8), (S, 8), (S, 7)], ""),
    "no heads": (plain, [(2, T, 8), (2, S, 8), (2, S, 7)], ""),
    "one tensor for all": (lambda x: plain(x, x, x), [BHTD], ""),
    "shared keys": (plain, [BHTD, (2, 1, S, 8), (2, 1, S, 8)], ""),
    "einsum": (einsum, [BTHD, BSHD, BSHD], ""),
    "shared by groups": (grouped, [(2, T, 3, 2, 8), BSHD, BSHD], ""),
    "transposed heads": (
        lambda *x: plain(*[gc.transpose(t, (0, 2, 1, 3)) for t in x]), [BTHD, BSHD, BSHD], "",
    ),
    "causal": (lambda *x: plain(*x, mask=LOWER), [BHTD, BHSD, BHSD], "causal"),
    "causal, added": (lambda *x: plain(*x, bias=ADDED), [BHTD, BHSD, BHSD], "causal"),
    "causal, added where": (
        lambda *x: plain(*x, bias=gc.where(LOWER, 0.0, -1e9)), [BHTD, BHSD, BHSD], "causal",
    ),
    "padding": (
        lambda q, k, v, mask: plain(q, k, v, mask=mask),
        [BHTD, BHSD, BHSD, gc.TensorSpec((2, 1, 1, S), "bool")], "",
    ),
    "padding and causal": (
        lambda q, k, v, mask: plain(q, k, v, mask=gc.logical_and(mask, LOWER)),
        [BHTD, BHSD, BHSD, gc.TensorSpec((2, 1, 1, S), "bool")], "",
    ),
    "what is hidden": (
        inverted, [BHTD, BHSD, BHSD, gc.TensorSpec((2, 1, 1, S), "bool")], "",
    ),
    "bias of a head": (scaled_query, [BTHD, BSHD, BSHD, (3, T, S)], ""),
    "bias of an entry": (scaled_query, [BTHD, BSHD, BSHD, (2, 1, 1, S)], ""),
    "bias of all": (scaled_query, [BTHD, BSHD, BSHD, (T, S)], ""),
    "taken off": (taken_off, [BHTD, BHSD, BHSD, (3, 1, S)], ""),
    "JAX's softmax": (gc.from_jax(in_jax), [BTHD, BSHD, BSHD], "causal"),
    "by hand in JAX": (gc.from_jax(in_jax_by_hand), [BHTD, BHSD, BHSD], ""),
    "vmap": (gc.from_jax(jax.vmap(in_jax_by_hand, 1, 1)), [BHTD, BHSD, BHSD], ""),
    "less the logarithm of the sum": (less_log_sum, [BHTD, BHSD, BHSD], ""),
    "exponential of the log softmax": (of_log_softmax, [BHTD, BHSD, BHSD], ""),
    "less the logarithm of the sum, in JAX": (
        gc.from_jax(less_log_sum_in_jax), [BHTD, BHSD, BHSD], "",
    ),
    "exponential of the log softmax, in JAX": (
        gc.from_jax(of_log_softmax_in_jax), [BHTD, BHSD, BHSD], "causal",
    ),
    "bias after the mask": (bias_after_mask, [BHTD, BHSD, BHSD, (3, T, S)], "causal"),
    "bias of all after the mask": (bias_after_mask, [BHTD, BHSD, BHSD, (2, 3, T, S)], "causal"),
    "entries and heads in one axis": (
        entries_by_heads, [BHTD, BHSD, BHSD, gc.TensorSpec((2, 1, 1, S), "bool")], "",
    ),
    "entries and heads in one axis, in JAX": (
        gc.from_jax(entries_by_heads_in_jax), [(6, T, 8), (6, S, 8), (6, S, 8)], "causal",
    ),
    "JAX's own": (gc.from_jax(of_jax), [BTHD, BSHD, BSHD], "causal"),
    "JAX's own, in groups": (gc.from_jax(of_jax), [(2, T, 6, 8), BSHD, BSHD], "causal"),
}  # fmt: skip


def in_graph(function: Callable[..., Any], specs: list[Any]) -> Program:
    """The simplified program of a function's result and the adjoints of its floating operands."""
    with gc.Graph() as graph:
        xs = [
            gc.placeholder(s.shape, s.dtype) if isinstance(s, gc.TensorSpec) else gc.placeholder(s)
            for s in specs
        ]
        y = function(*xs)
        dy = gc.placeholder(y.shape, y.dtype)
        floating = [x for x in xs if x.dtype != bool]
        slopes = gc.gradients(y, floating, grad_ys=dy)
    return prepare(graph, [y, *slopes], [*xs, dy], CompileOptions()).program


def check_meaning(before: Program, after: Program, tolerance: float = 1e-5) -> None:
    rng = np.random.default_rng(0)
    feeds = []
    for tensor in before.input_tensors():
        shape, dtype = tensor.type.shape, tensor.type.dtype
        bools = dtype.kind == "b"
        value = rng.random(shape) < 0.7 if bools else rng.standard_normal(shape)
        feeds.append(value.astype(dtype))
    for a, b in zip(evaluate(before, feeds), evaluate(after, feeds), strict=True):
        a, b = (x.astype(np.float64) for x in (a, b))
        assert_near(a, b, rtol=0, atol=tolerance * max(np.abs(a).max(), 0.1))


def check_fused(program: Program, causal: bool) -> Program:
    result = FUSE.run(program)
    assert result.changed == 1, print_program(program)
    after = Prune().run(result.program).program
    verify(after, "functional")
    kinds = [node.op.name for node in after.nodes]
    for gone in ("Softmax", "Exp", "MatMul", "DotGeneral"):
        assert gone not in kinds, print_program(after)
    (attention,) = [node for node in after.nodes if node.op.name == "Attention"]
    assert attention.attrs["causal"] == causal
    assert kinds.count("AttentionGradient") == 1
    return after


@pytest.mark.parametrize("name", SPELLINGS)
def test_spelling(name: str) -> None:
    function, specs, causal = SPELLINGS[name]
    before = in_graph(function, specs)
    check_meaning(before, check_fused(before, bool(causal)))


DIFFERENTIATED = {
    "JAX's softmax": (in_jax, [BTHD, BSHD, BSHD, BTHD], "float32", True),
    "by hand": (in_jax_by_hand, [BHTD, BHSD, BHSD, BHTD], "float32", False),
    "JAX's own": (of_jax, [BTHD, BSHD, BSHD, BTHD], "float32", True),
    "less the logarithm of the sum": (
        less_log_sum_in_jax, [BHTD, BHSD, BHSD, BHTD], "float32", False,
    ),
    "exponential of the log softmax": (
        of_log_softmax_in_jax, [BHTD, BHSD, BHSD, BHTD], "float32", True,
    ),
    "bias after the mask": (
        bias_after_mask_in_jax, [BHTD, BHSD, BHSD, (3, T, S), BHTD], "float32", True,
    ),
    "entries and heads in one axis": (
        entries_by_heads_in_jax, [(6, T, 8), (6, S, 8), (6, S, 8), BHTD], "float32", True,
    ),
    "JAX's own, narrow": (of_jax, [BTHD, BSHD, BSHD, BTHD], "bfloat16", True),
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENTIATED)
def test_what_jax_differentiated(name: str) -> None:
    function, shapes, dtype, causal = DIFFERENTIATED[name]

    def both(*operands: Any) -> Any:
        *xs, dy = operands
        y, pull = jax.vjp(function, *xs)
        return y, *pull(dy)

    with gc.Graph() as graph:
        xs = [gc.placeholder(shape, dtype) for shape in shapes]
        ys = gc.from_jax(both)(*xs)
    before = prepare(graph, list(ys), xs, CompileOptions()).program
    check_meaning(before, check_fused(before, causal), 1e-5 if dtype == "float32" else 2e-2)


def test_narrow_weights_of_a_wide_softmax() -> None:
    def mixed(q: Any, k: Any, v: Any) -> Any:
        logits = gc.cast(gc.matmul(q, k, transpose_b=True), "float32")
        return gc.matmul(gc.cast(gc.nn.softmax(logits), "bfloat16"), v)

    specs = [gc.TensorSpec(shape, "bfloat16") for shape in (BHTD, BHSD, BHSD)]
    before = in_graph(mixed, specs)
    check_meaning(before, check_fused(before, False), 3e-2)


def test_weights_that_much_else_depends_on_stay() -> None:
    nodes = [f"%{i + 4} = Tanh(%{i + 3 if i else 1}) : f32[6, 5]" for i in range(600)]
    text = f"""program p(q: f32[6, 8], k: f32[5, 8], v: f32[5, 8]) {{
      %0 = MatMul(q, k) {{transpose_b=true}} : f32[6, 5]
      %1 = Softmax(%0) {{axis=1}} : f32[6, 5]
      %2 = MatMul(%1, v) : f32[6, 8]
      {" ".join(f"{node}{chr(10)}" for node in nodes)}
      return out = %2, rest = %603
    }}"""
    check_stays(FUSE, text)


def test_an_adjoint_that_looks_like_attention_and_needs_its_own_result_stays() -> None:
    """After a softmax over the queries, dv = weights^T dy has a softmax over the keys of k q^T."""
    with gc.Graph() as graph:
        q, k, v = (
            gc.placeholder((2, n, 8), name=name) for name, n in (("q", 6), ("k", 5), ("v", 5))
        )
        weights = gc.softmax(gc.matmul(q, gc.transpose(k, (0, 2, 1))), axis=1)
        y = gc.matmul(weights, v)
        fetches = [y, *gc.gradients(gc.reduce_sum(gc.sin(y)), [q, k, v])]
    before = prepare(graph, fetches, [q, k, v], CompileOptions()).program
    assert FUSE.run(before).program is before


@pytest.mark.parametrize("batch", [1, 2])
def test_heads_stay_where_they_are_in_memory(batch: int) -> None:
    """In a batch with one entry, heads must not become the batch: that would transpose them."""
    with gc.Graph() as graph:
        x = gc.placeholder((batch, 6, 32), name="x")
        q, k, v = (gc.transpose(gc.reshape(t, (batch, 6, 4, 8)), (0, 2, 1, 3)) for t in (x, -x, x))
        y = gc.reshape(gc.transpose(plain(q, k, v), (0, 2, 1, 3)), x.shape)
    before = prepare(graph, [y], [x], CompileOptions()).program
    program = FUSE.run(before).program
    (node,) = [n for n in program.nodes if n.op.name == "Attention"]
    assert [t.type.shape for t in node.inputs] == [(batch, 6, 4, 8)] * 3
    check_meaning(before, program)


def test_several_and_in_bodies() -> None:
    """All are found. The body of a loop is a separate program."""
    with gc.Graph() as graph:
        x = gc.placeholder((2, T, 8))

        def layer(h: Any, _: Any) -> tuple[Any, None]:
            return h + plain(h, h, h), None

        y, _ = gc.scan(layer, plain(x, 2 * x, plain(x, x, x)), length=3)
    before = prepare(graph, [y], [x], CompileOptions()).program
    result = FUSE.run(before)
    assert result.changed == 3
    check_meaning(before, result.program)


# -- when the pass runs ---------------------------------------------------------------------


def long(length: int, **options: Any) -> gc.runtime.executable.Executable:
    shape = (1, 4, length, 16)
    with gc.Graph() as graph:
        xs = [gc.placeholder(shape, name=name) for name in "qkv"]
        y = plain(*xs, mask=np.tri(length, dtype=bool))
        slopes = gc.gradients(gc.reduce_sum(y * y), xs)
    return gc.compile(
        graph,
        fetches=slopes,
        feeds=dict.fromkeys(xs, shape),
        options=CompileOptions(cache=None, **options),
    )


def kinds(step: Any) -> list[str]:
    return [node.op.name for node in step.program.nodes]


def test_long_ones_are_fused_and_need_a_quarter_of_the_memory() -> None:
    fused, plainly = long(1024), long(1024, fuse_attention=False)
    (node,) = [node for node in fused.program.nodes if node.op.name == "AttentionGradient"]
    assert node.attrs["rows"] == 128
    assert "Softmax" in kinds(plainly)
    memory = [step.memory()["temporaries"] for step in (fused, plainly)]
    assert memory[0] < 0.25 * memory[1]


def test_short_ones_stay() -> None:
    assert "Softmax" in kinds(long(256))
