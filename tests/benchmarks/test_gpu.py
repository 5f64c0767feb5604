"""The GPU benchmark, with small models on CPU: both sides compute the same values."""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from benchmarks import attention, gpu, gpu_models, transformer
from tests.near import assert_near

SMALL = attention.Size(64, 32, 4)
MODELS = {
    "lstm": lambda: gpu_models.lstm(8, layers=2, units=32, length=8),
    "dlrm": lambda: gpu_models.dlrm(16, tables=2, rows=1000, width=8),
    "vit": lambda: gpu_models.vit(8, blocks=2, width=64, heads=2, size=64),
}


@pytest.mark.slow
def test_a_transformer_by_hand_and_in_graphc() -> None:
    rows = gpu.transformer_rows("tiny", transformer.Size(1, 32, 2, 16, 2))  # compares the losses
    assert [what.partition(", over ")[2] for what, *_ in rows] == [
        "JAX, written out",
        "graphc without fuse-attention",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_the_other_models(name: str, monkeypatch) -> None:
    """Both sides start from equal values. Without cuDNN, the JAX side gives the same losses."""
    by_xla = partial(jax.nn.dot_product_attention, implementation="xla")
    monkeypatch.setattr(jax.nn, "dot_product_attention", lambda *qkv, implementation: by_xla(*qkv))
    monkeypatch.setattr(gpu_models, "DTYPE", jnp.float32)
    ((what, figures, _),) = gpu.model_rows("tiny", MODELS[name]())
    assert what.endswith("over JAX") and figures.startswith("time ")


def test_sides_that_differ_are_refused() -> None:
    made = {"graphc": gpu.Form(lambda: 1.0, 1, 1.0), "JAX": gpu.Form(lambda: 1.1, 1, 1.0)}
    with pytest.raises(AssertionError, match="JAX"):
        gpu._compared("a step", made)


def test_attention_by_hand() -> None:
    rng = np.random.default_rng(0)
    q, k, v = (jnp.asarray(rng.standard_normal((1, 5, 2, 4)), jnp.float32) for _ in range(3))
    scores = np.einsum("bthd,bshd->bhts", q, k) / 2
    scores[..., ~np.tri(5, dtype=bool)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    want = np.einsum("bhts,bshd->bthd", weights, v)
    assert_near(transformer.jax_attention(q, k, v), want, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.one_jax
def test_rows_of_attention() -> None:
    (forward, _, _), (training, ratio, _) = gpu.attention_rows(SMALL)
    assert "64 tokens, bf16, forward" in forward and "training" in training
    assert ratio.startswith("time ")
