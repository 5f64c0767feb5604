"""The table of rules: (operator, first version) -> rule. A file for each family of operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from graphc.importers.onnx.call import Refused, Rule
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
    runtime_attention,
    runtime_blocks,
    runtime_fused,
    runtime_general,
    runtime_grouped,
    runtime_norms,
    runtime_products,
    runtime_quantized,
    runtime_recurrent,
    sequences,
    shapes,
    signals,
    trees,
)

DOMAINS: Final = ("", "ai.onnx.ml", "ai.onnx.preview.training")
"""Those that onnx's reference implementation computes."""
_RUNTIME: Final = "com.microsoft"
_LAYOUTS: Final = "com.microsoft.nchwc"

_FAMILIES: Final = (
    *(attention, control, convolutions, elementwise, images, indexing, losses, matrices),
    *(normalization, pooling, quantized, randoms, recurrent, reductions, sequences, shapes),
    *(signals,),
)
_OF_RUNTIME: Final = (
    *(runtime_attention, runtime_blocks, runtime_fused, runtime_general, runtime_grouped),
    *(runtime_norms, runtime_products, runtime_quantized, runtime_recurrent),
)


def _merged() -> Mapping[str, Mapping[str, Rule]]:
    found: dict[str, dict[str, Rule]] = {domain: {} for domain in (*DOMAINS, _RUNTIME)}
    for family in _FAMILIES:
        found[""].update(family.RULES)
    for part in _OF_RUNTIME:
        found[_RUNTIME].update(part.RULES)
    found[""].update(runtime_norms.WITHOUT_DOMAIN)
    found["ai.onnx.ml"].update(trees.RULES)
    found["ai.onnx.preview.training"].update(learning.RULES)
    return found


RULES: Final = _merged()


def find_rule(domain: str, op: str) -> Rule | None:
    """The rule of an operator; it reads the version itself where versions differ.

    Raises:
        Refused: the domain is of no use here.
    """
    if domain == _LAYOUTS:
        raise Refused(
            "is in a layout for one processor: let ONNX Runtime optimise the model with "
            "ORT_ENABLE_EXTENDED, not ORT_ENABLE_ALL"
        )
    return RULES.get(domain, {}).get(op)
