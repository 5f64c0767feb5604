"""The compared data-parallel steps compute the same, with equally many all-reduces."""

from __future__ import annotations

import pytest

from benchmarks import cnn, parallel
from tests.near import assert_near


def test_both_give_the_same_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "SIZES", (12, 70, 71, 5))
    monkeypatch.setattr(parallel, "BATCH", 8)
    model = parallel.mlp()
    # The largest kernel fills a bucket: alone in graphc, with all earlier gradients in plain JAX.
    step, ours = parallel.graphc_step(model, 4, 10_000)
    lowered, compiled, theirs = parallel.jax_step(model, 4, 10_000)
    asked = [text.count("stablehlo.all_reduce") for text in (step.stablehlo(), lowered.as_text())]
    assert asked == [2, 2]
    assert cnn.count_collectives(step.hlo()) == cnn.count_collectives(compiled.as_text()) == 1
    for _ in range(3):
        assert_near(ours(), theirs(), rtol=1e-5)
