"""The garbage collector's state is restored, whatever happens while it is disabled."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import optax
import pytest

import graphc
from graphc.collection import without_collection
from graphc.runtime.targets.jax_program import JaxProgram


@pytest.fixture(autouse=True)
def collecting() -> Iterator[None]:
    """Each test begins and ends with the collector enabled."""
    gc.enable()
    yield
    gc.enable()


def test_it_rests_inside_and_runs_again_after_the_outermost() -> None:
    with without_collection():
        with without_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_does_not_leave_it_off() -> None:
    with pytest.raises(ValueError, match="inside"), without_collection():
        raise ValueError("inside")
    assert gc.isenabled()


def test_a_disabled_collector_stays_disabled() -> None:
    gc.disable()
    with without_collection():
        pass
    assert not gc.isenabled()


def test_building_and_running_leave_it_on() -> None:
    graph = graphc.Graph()
    with graph:
        w = graphc.variable([1.0, 2.0], name="w")
        loss = graphc.reduce_sum(w * w)
        train = graphc.minimize(loss, optax.sgd(0.1))
    assert gc.isenabled()
    graphc.Session(graph).run([train, loss])
    assert gc.isenabled()


def test_it_rests_while_a_jax_function_is_imported_and_lowered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[str, bool]] = []
    lower = JaxProgram.lower

    def lowered(self: JaxProgram) -> Any:
        seen.append(("lowered", gc.isenabled()))
        return lower(self)

    def function(x: Any) -> Any:
        seen.append(("imported", gc.isenabled()))
        return x + 1

    monkeypatch.setattr(JaxProgram, "lower", lowered)
    options = graphc.CompileOptions(cache=None)
    assert graphc.jit(function, options=options)(np.zeros(2)).tolist() == [1, 1]
    assert seen == [("imported", False), ("lowered", False)]
    assert gc.isenabled()
