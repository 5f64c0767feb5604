"""The four forms of the benchmarks' transformer are one model."""

from __future__ import annotations

import pytest

from benchmarks.transformer import Size, check, graphc_model, imported_model, initial

SMALL = Size(blocks=3, width=16, heads=2, sequence=8, batch=2)


@pytest.mark.slow
@pytest.mark.one_jax
def test_all_forms_give_the_same_losses() -> None:
    check(SMALL, tolerance=1e-4)


def test_parameters_are_those_of_the_facts() -> None:
    """Eight for each block and those outside the blocks, with Adam's state."""
    names = set(initial(SMALL))
    assert len(names) == 8 * SMALL.blocks + 5
    graph = graphc_model(SMALL).graph
    assert {v.name for v in graph.variables.values() if v.trainable} == names
    assert len(graph.variables) == len(imported_model(SMALL).graph.variables) == 3 * len(names) + 1
