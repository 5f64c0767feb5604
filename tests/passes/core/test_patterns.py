"""One common name for many names."""

from __future__ import annotations

import pytest

from graphc.passes.core.patterns import common_name, scope_of


@pytest.mark.parametrize(
    ("names", "common"),
    [
        (["block0/MatMul", "block1/MatMul", "block2/MatMul"], "block*/MatMul"),
        (["Add", "Add_1", "Add_2"], "Add_*"),  # the first name has no number
        (["layer_9/w", "layer_10/w"], "layer_*/w"),
        (["a1/b2/c", "a1/b3/c"], "a1/b*/c"),  # a common number is kept
        (["a1/b2", "a2/b3"], "a*/b*"),
        (["w", "w"], "w"),
        (["weight_a", "weight_b"], "weight_*"),
        (["x", "y"], "*"),
        (["x1", "x1/y"], "x1*"),
    ],
)
def test_common_name(names: list[str], common: str) -> None:
    assert common_name(names) == common


@pytest.mark.parametrize(
    ("names", "scope"),
    [
        (["block*/MatMul", "block*/out/Tanh", "Add_*"], "block*"),
        (["block*/MatMul", "gradients/block*/MatMul", "gradients/block*/Mul"], "gradients/block*"),
        (["Add", "Tanh"], "repeated"),
        ([], "repeated"),
    ],
)
def test_scope_of(names: list[str], scope: str) -> None:
    assert scope_of(names) == scope
