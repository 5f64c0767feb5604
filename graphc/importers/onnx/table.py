"""The table of rules: (operator, first version) -> rule. A file for each family of operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from graphc.importers.onnx.call import Rule
from graphc.importers.onnx.families import (
    attention,
    control,
    convolutions,
    elementwise,
    images,
    indexing,
    learning,
    losses,
    matrices,
    normalization,
    pooling,
    quantized,
    randoms,
    recurrent,
    reductions,
    sequences,
    shapes,
    signals,
    trees,
)

DOMAINS: Final = ("", "ai.onnx.ml", "ai.onnx.preview.training")

_FAMILIES: Final = (
    *(attention, control, convolutions, elementwise, images, indexing, losses, matrices),
    *(normalization, pooling, quantized, randoms, recurrent, reductions, sequences, shapes),
    *(signals,),
)


def _merged() -> Mapping[str, Mapping[str, Rule]]:
    found: dict[str, dict[str, Rule]] = {"": {}, "ai.onnx.ml": {}, "ai.onnx.preview.training": {}}
    for family in _FAMILIES:
        found[""].update(family.RULES)
    found["ai.onnx.ml"].update(trees.RULES)
    found["ai.onnx.preview.training"].update(learning.RULES)
    return found


RULES: Final = _merged()


def find_rule(domain: str, op: str, version: int) -> Rule | None:
    """The rule of an operator; it reads the version itself where versions differ."""
    return RULES.get(domain, {}).get(op)
