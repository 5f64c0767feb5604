"""Strings that are known only in a run: they are moved, compared with constants, and looked up.

See `core.words`. Operators that take strings in other ways are refused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from graphc.importers.core.words import Words, together
from graphc.importers.onnx.call import Call, Refused, Rule
from graphc.importers.onnx.values import is_known, is_strings

_MOVING: Final = frozenset(
    (
        "ArrayFeatureExtractor", "Concat", "Expand", "Flatten", "Gather", "GatherElements",
        "GatherND", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Tile", "Transpose",
        "Unsqueeze", "Where",
    )
)  # fmt: skip
_MEASURING: Final = frozenset(("Shape", "Size"))
_OWN: Final = frozenset(("LabelEncoder", "OneHotEncoder"))  # rules that take strings themselves
_STRING: Final = 8  # the number of the type


def results_of_strings(call: Call, rule: Rule | None) -> Any:
    """The results of a node that takes strings; None if the rule is to take the values itself.

    Raises:
        Refused: it does more with them.
    """
    given = call.inputs
    among = any(isinstance(value, Words) for value in given)
    constants = any(map(is_strings, given)) and not all(map(is_known, given))
    if call.op in _OWN or rule is None or not (among or (constants and call.op in _MOVING)):
        if among and rule is None:
            raise Refused("takes strings that are known only in a run")
        return None
    if call.op == "Cast" and call.attr("to") == _STRING:
        return given[0]
    if call.op in _MEASURING:
        return rule(replace(call, inputs=[v.ids if isinstance(v, Words) else v for v in given]))
    if call.op not in _MOVING and call.op != "Equal":
        raise Refused("takes strings that are known only in a run")
    try:
        numbers, words = together(given, is_strings)
    except ValueError as error:
        raise Refused(str(error)) from error
    if call.op == "Equal" and words.is_open and all(isinstance(v, Words) for v in given):
        raise Refused("compares two strings that are known only in a run")
    results = rule(replace(call, inputs=numbers))
    if call.op == "Equal":
        return results
    if isinstance(results, tuple):
        return tuple([Words(call.tensor(value), words) for value in results])
    return Words(call.tensor(results), words)
