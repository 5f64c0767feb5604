"""Strings that are known only in a run: they are moved, compared with constants, and looked up."""

from __future__ import annotations

from collections.abc import Sequence

from graphc.importers.core.words import Words, together
from graphc.importers.tensorflow.registry import Call, Rule
from graphc.importers.tensorflow.values import Value, is_host, is_strings

MOVING = frozenset(
    (
        "BroadcastTo", "Concat", "ConcatV2", "EnsureShape", "ExpandDims", "Fill", "Gather",
        "GatherNd", "GatherV2", "Identity", "IdentityN", "Pack", "Reshape", "ReverseV2", "Select",
        "SelectV2", "Slice", "Snapshot", "Split", "SplitV", "Squeeze", "StridedSlice", "Tile",
        "Transpose", "Unpack",
    )
)  # fmt: skip
"""Operators whose results have elements of their operands, whatever these are."""

_MEASURING = frozenset(("Shape", "ShapeN", "Size", "Rank"))
_COMPARING = frozenset(("Equal", "NotEqual"))
_OWN = frozenset(
    ("LookupTableFindV2", "LookupTableFind", "StringToHashBucketFast")
)  # rules that take strings themselves


def results_of_strings(call: Call, rule: Rule, values: Sequence[Value]) -> list[Value] | None:
    """The results of a node that takes strings; None if the rule is to take the values itself.

    Raises:
        Unsupported: it does more with them.
    """
    op = call.node.op
    among = any(isinstance(value, Words) for value in values)
    constants = any(map(is_strings, values)) and not all(map(is_host, values))
    if op in _OWN or not (among or (constants and op in MOVING)):
        return None
    if op in _MEASURING:
        return rule.apply(call, [v.ids if isinstance(v, Words) else v for v in values])
    if op not in MOVING and op not in _COMPARING:
        call.refuse("takes strings that are known only in a run")
    try:
        numbers, words = together(values, is_strings)
    except ValueError as error:
        call.refuse(str(error))
    if op in _COMPARING:
        if words.is_open and all(isinstance(value, Words) for value in values):
            call.refuse("compares two strings that are known only in a run")
        return rule.apply(call, numbers)
    results = rule.apply(call, numbers)
    return [Words(call.tensor(value), words) for value in results]
