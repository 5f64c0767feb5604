"""`gc.Limits`: small files that need too many resources are refused before they run."""

from __future__ import annotations

import re
import time
from pathlib import Path

import numpy as np
import pytest

import graphc as gc
from graphc.errors import ArtifactError, AttributeValueError
from graphc.untrusted import safe_reading
from tests.artifacts.forge import forge
from tests.artifacts.hostile import chain, forge_program, large_sort

X = np.ones((2, 2), np.float32)


def use(path: Path, limits: gc.Limits | None) -> str:
    point = gc.load(path, limits=limits).signatures["f"]
    np.testing.assert_array_equal(point(x=X)["y"], 2.0)
    return point.way


def test_a_plain_file_stays_within_limits(plain: Path, tmp_path: Path) -> None:
    limits = gc.Limits(operations=20, memory=10_000, seconds=60.0)
    assert use(plain, limits) == "stablehlo"
    path = tmp_path / "graph.gcx"
    forge(plain, path, lambda manifest: manifest["signatures"]["f"].update(convention=99))
    assert use(path, limits) == "graph"


@pytest.mark.parametrize("form", ["stablehlo", "graph"])
def test_each_limit_is_kept_by_each_form(plain: Path, tmp_path: Path, form: str) -> None:
    path = tmp_path / "model.gcx"
    convention = 99 if form == "graph" else 9
    forge(plain, path, lambda m: m["signatures"]["f"].update(convention=convention))
    if form == "stablehlo":
        path = plain
    for limits, why in (
        (gc.Limits(operations=1), r"program 'f' is beyond the limits: it has \d+ operations"),
        (gc.Limits(memory=3), "it has a tensor of 4 elements"),
        (gc.Limits(memory=31), "a run takes 32 bytes, but memory=31 is allowed"),
        (gc.Limits(seconds=1e-6), "it was not compiled within seconds=1e-06"),
    ):
        with pytest.raises(ArtifactError, match=why):
            use(path, limits)


def test_a_small_file_that_sorts_for_hours(plain: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.gcx"
    forge_program(plain, path, large_sort(28))
    assert path.stat().st_size < 10_000
    with pytest.raises(ArtifactError, match=f"a tensor of {2**28} elements"):
        use(path, gc.Limits(memory=2**27))
    with pytest.raises(ArtifactError, match=r"a run takes \d+ bytes"):
        use(path, gc.Limits(memory=2**29))


@pytest.mark.slow
def test_a_long_chain_of_operations(plain: Path, tmp_path: Path) -> None:
    """The compilation of this chain would take minutes."""
    path = tmp_path / "model.gcx"
    forge_program(plain, path, chain(20_000))
    with pytest.raises(ArtifactError, match="it has 20004 operations, but operations=10000"):
        use(path, gc.Limits(operations=10_000))
    started = time.monotonic()
    with pytest.raises(ArtifactError, match="was not compiled within seconds=2") as info:
        use(path, gc.Limits(seconds=2.0))
    assert time.monotonic() - started < 100  # the compilation is stopped; it would take minutes
    assert info.value.hint
    assert use(plain, gc.Limits(seconds=60.0)) == "stablehlo"  # the process is started again


def test_a_program_that_ends_its_compiler(plain: Path, monkeypatch) -> None:
    def ask(*arguments: object) -> dict[str, str]:
        return {"error": "reading it ended the process that did so (code -11)"}

    assert use(plain, None) == "stablehlo"
    monkeypatch.setattr(safe_reading._READER, "ask", ask)
    with pytest.raises(ArtifactError, match="code -11"):
        use(plain, gc.Limits(seconds=60.0))


def test_limits_may_be_numbers_of_numpy() -> None:
    limits = gc.Limits(operations=np.int64(5), memory=np.uint8(7), seconds=np.float32(0.5))
    assert limits == gc.Limits(operations=5, memory=7, seconds=0.5)
    assert repr(limits) == "Limits(operations=5, memory=7, seconds=0.5)"
    assert gc.Limits(seconds=np.int32(2)).seconds == 2


def test_what_is_no_limit(plain: Path) -> None:
    for wrong in (0, -1, True, np.True_, "9", float("nan"), np.float32("inf")):
        with pytest.raises(AttributeValueError, match="must be a positive number or None"):
            gc.Limits(seconds=wrong)
    for name in ("operations", "memory"):
        must = rf"Limits: {name} must be a positive number, an int, or None, got "
        for wrong in (1.5, np.float64(5), 0, -1, np.int64(-5), True, np.True_, "9", [5]):
            with pytest.raises(AttributeValueError, match=must + re.escape(repr(wrong))):
                gc.Limits(**{name: wrong})
    with pytest.raises(AttributeValueError, match=r"limits must be gc\.Limits, got 5"):
        gc.load(plain, limits=5)
