"""The pipeline benchmark, with a small network."""

from __future__ import annotations

import pytest

from benchmarks import pipeline


def test_1f1b_keeps_less_and_recomputation_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "WIDTH", 16)
    monkeypatch.setattr(pipeline, "ROWS", 512)
    kept = [pipeline.measured(way, 8)[0] for way in pipeline.WAYS]
    result = 512 // 8 * 16 * 4  # of a layer, for a micro-batch
    assert kept[0] >= 8 * 2 * result
    assert kept[1] == pytest.approx(pipeline.STAGES * pipeline.LAYERS * result, rel=0.2)
    assert kept[2] <= 2 * result
