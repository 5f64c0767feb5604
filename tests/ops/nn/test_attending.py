"""Attention in steps equals attention at once, and its memory is linear."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from graphc.ops.nn.attention_kernels import adjoints, attend
from graphc.ops.nn.attention_operands import How, Operands
from tests.near import assert_near

RNG = np.random.default_rng(0)
BATCH, HEADS, SHARED = 2, 4, 2
STEPS = ({"rows": 2}, {"rows": 3, "each_entry": True})


def array(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


def masks(time: int, source: int) -> tuple[np.ndarray, ...]:
    """Bool and floating masks with all ways to broadcast."""
    seen = RNG.random((BATCH, 1, time, source)) < 0.6
    seen[1, :, 2] = False  # a query that attends to no key
    return (
        seen,
        array(source),
        array(time, 1),
        array(HEADS, 1, source),
        array(BATCH, 1, 1, 1),
        array(BATCH, HEADS, time, source),
        RNG.random((source,)) < 0.8,
    )


def operands(time: int, source: int, masked: bool, kept: bool) -> Operands:
    return Operands(
        array(BATCH, time, HEADS, 3),
        array(BATCH, source, SHARED, 3),
        array(BATCH, source, SHARED, 5),
        masks(time, source) if masked else (),
        RNG.random((BATCH, HEADS, time, source)) < 0.7 if kept else None,
        array(BATCH, time, HEADS, 5),
    )


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("time", "source"), [(9, 5), (5, 9)])
def test_it_is_attention_at_once(time: int, source: int, causal: bool) -> None:
    kinds = [operands(time, source, m, k) for m, k in ((True, False), (False, True), (True, True))]

    def compute(kinds: list[Operands], steps: dict[str, object]) -> object:
        results = []
        for of, mean in zip(kinds, (False, False, True), strict=True):
            how = How(0.5, causal, 0.25 if of.kept is not None else 0.0, mean, **steps)
            results.append((attend(of, how), adjoints(of, how)))
        return results

    with jax.enable_x64(True):
        wanted, *found = jax.jit(lambda k: [compute(k, steps) for steps in ({}, *STEPS)])(kinds)
    for result in found:
        for a, b in zip(jax.tree.leaves(result), jax.tree.leaves(wanted), strict=True):
            assert_near(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "mask", [np.arange(4)[:, None] > np.arange(4), np.arange(4) > 0], ids=["rows", "first key"]
)
def test_a_query_that_sees_nothing(mask: np.ndarray) -> None:
    """The result is that of `where(mask, logits, -1e9)` before a softmax: equal weights for all.

    The first query attends to no key: by the mask alone, or by mask and causality together.
    """
    of = operands(4, 4, False, False)._replace(masks=(mask,))
    seen = mask & np.tri(4, dtype=bool)

    def by_hand(query, key, value):
        key, value = (jnp.repeat(x, HEADS // SHARED, 2) for x in (key, value))
        logits = 0.5 * jnp.einsum("bthd,bshd->bhts", query, key)
        weights = jax.nn.softmax(jnp.where(seen, logits, -1e9))
        return jnp.einsum("bhts,bshd->bthd", weights, value)

    def compute(of: Operands) -> list[tuple[jax.Array, ...]]:
        y, pull = jax.vjp(by_hand, *of[:3])
        hows = [How(0.5, True, 0.0, True, **steps) for steps in ({}, {"rows": 1})]
        return [(y, *pull(of.dy)), *((attend(of, how), *adjoints(of, how)) for how in hows)]

    with jax.enable_x64(True):
        wanted, *found = jax.jit(compute)(of)
    for result in found:
        for a, b in zip(result, wanted, strict=True):
            assert_near(a, b, rtol=1e-10, atol=1e-12)


def test_narrow_sums_are_wide_over_all_iterations() -> None:
    """The adjoint of the key sums 4096 terms of one sign: in bfloat16 the sum would stop at 256."""
    of = Operands(
        jnp.zeros((1, 4096, 1, 1), jnp.bfloat16),
        jnp.zeros((1, 1, 1, 1), jnp.bfloat16),
        jnp.ones((1, 1, 1, 1), jnp.bfloat16),
        (),
        dy=jnp.ones((1, 4096, 1, 1), jnp.bfloat16),
    )
    _, _, dvalue = jax.jit(lambda of: adjoints(of, How(1.0, False, 0.0, rows=2)))(of)
    assert dvalue.dtype == jnp.bfloat16
    assert dvalue.item() == 4096


@pytest.mark.parametrize("function", [attend, adjoints])
def test_memory_is_linear(function: object) -> None:
    def temporary(length: int) -> int:
        x = jax.ShapeDtypeStruct((1, length, 2, 16), np.float32)
        of = Operands(x, x, x, (), None, x)
        how = How(0.25, True, 0.0, rows=64)
        compiled = jax.jit(lambda of: function(of, how)).lower(of).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert temporary(2048) < 2.3 * temporary(1024)
    assert temporary(2048) < 2048 * 2048 * 4  # half of the weights of two heads


def without_cudnn(query, key, value, *, implementation, **options):  # jax.nn on other platforms
    assert implementation == "cudnn"
    return attention_of_jax(query, key, value, **options)


attention_of_jax = jax.nn.dot_product_attention


@pytest.mark.parametrize("masked", [False, True])
def test_by_cudnn(masked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax.nn, "dot_product_attention", without_cudnn)
    of = operands(6, 6, masked, False)
    of = of._replace(value=of.value[..., :3], dy=of.dy[..., :3])
    if masked:
        mask, _, _, _, _, bias, _ = of.masks
        of = of._replace(masks=(mask, bias))
    of = jax.tree.map(lambda x: x if x.dtype == bool else np.float32(x), of)
    hows = [How(0.5, not masked, 0.0, flash=flash) for flash in (False, True)]
    results = jax.jit(lambda of: [(attend(of, how), adjoints(of, how)) for how in hows])(of)
    for a, b in zip(*map(jax.tree.leaves, results), strict=True):
        assert_near(a, b, rtol=1e-4, atol=1e-5)
    alone = jax.jit(lambda of: attend(of, hows[1]._replace(alone=True)))(of)
    assert_near(alone, results[0][0], rtol=1e-4, atol=1e-5)
