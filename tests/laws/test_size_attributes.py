"""Sizes of results are not negative, in any operator."""

from __future__ import annotations

import pytest

import graphc as gc
from graphc.errors import AttributeValueError
from graphc.ops.catalogue import CATALOGUE

KINDS = {"dims": (-2,), "dim": -2}
NAMES = ("shape", "size", "sizes", "depth", "length")
INSIDE = {  # other rules check them, or graphc itself writes them from the sizes of tensors
    "AvgPoolGradient", "ConvInputGradient", "ConvKernelGradient", "DynamicSlice", "Map",
    "Placeholder", "Scan", "While",
}  # fmt: skip
ATTRIBUTES = [
    (op.name, name)
    for op in CATALOGUE.values()
    for name, attr in op.attrs.items()
    if attr.kind in KINDS and name in NAMES and op.name not in INSIDE
]


@pytest.mark.parametrize(("op", "name"), ATTRIBUTES)
def test_no_operator_takes_a_negative_size(op: str, name: str) -> None:
    attr = CATALOGUE[op].attrs[name]
    assert not attr.accepts(KINDS[attr.kind])


def test_the_error_names_the_operator_and_the_size() -> None:
    with gc.Graph(), pytest.raises(AttributeValueError, match=r"Normal: shape must .*got \(-2,\)"):
        gc.random.normal((-2,))
    with gc.Graph(), pytest.raises(AttributeValueError, match=r"Permutation: size .*got -3"):
        gc.random.permutation(-3)
