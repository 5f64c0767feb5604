"""Sequences and optional values: resolved while the model is imported."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from graphc import ops
from graphc.importers.onnx.call import Call, Refused, Rule


def _items(call: Call, i: int = 0) -> list[Any]:
    value = call.inputs[i]
    if not isinstance(value, list):
        raise Refused(
            "takes a sequence, which is only supported where it is known at import", needs=True
        )
    return value


def _place(call: Call, i: int, size: int) -> int:
    place = int(call.need(i, "the position").reshape(-1)[0])
    place = place + size if place < 0 else place
    if not 0 <= place <= size:
        raise Refused(f"has the position {place} in a sequence of {size}")
    return place


def _insert(call: Call) -> Any:
    items = _items(call)
    place = _place(call, 2, len(items)) if call.has(2) else len(items)
    return [*items[:place], call.inputs[1], *items[place:]]


def _erase(call: Call) -> Any:
    items = _items(call)
    place = _place(call, 1, len(items)) if call.has(1) else len(items) - 1
    return [*items[:place], *items[place + 1 :]]


def _at(call: Call) -> Any:
    items = _items(call)
    return items[_place(call, 1, len(items))]


def _join(call: Call) -> Any:
    tensors = [call.tensor(item) for item in _items(call)]
    if call.attr("new_axis", 0):
        return ops.stack(tensors, axis=call.attr("axis"))
    return ops.concatenate(tensors, axis=call.attr("axis"))


def _split(call: Call) -> Any:
    x, axis = call.x(), call.attr("axis", 0)
    size = x.shape[axis % x.ndim]
    if not call.has(1):
        if not isinstance(size, int):
            raise Refused("needs a known size")
        pieces = ops.split(x, [1] * size, axis)
        return list(pieces) if call.attr("keepdims", 1) else [ops.squeeze(p, axis) for p in pieces]
    given = call.need(1, "the sizes")
    if given.ndim == 0:
        if not isinstance(size, int):
            raise Refused("needs a known size")
        each = int(given)
        sizes = [min(each, size - i) for i in range(0, size, each)]
    else:
        sizes = [int(s) for s in given]
    return list(ops.split(x, sizes, axis))


def _map(call: Call) -> Any:
    rows = _items(call)
    others = call.inputs[1:]
    found = []
    for i, item in enumerate(rows):
        args = [item, *(other[i] if isinstance(other, list) else other for other in others)]
        found.append(call.body(call.attr("body"), args))
    count = len(call.outputs)
    return tuple([row[i] for row in found] for i in range(count))


def _element(call: Call) -> Any:
    if not call.has(0):
        raise Refused("takes an optional value that is not there")
    return call.inputs[0]


RULES: Final[dict[str, Rule]] = {
    "ConcatFromSequence": _join,
    "Optional": lambda call: call.inputs[0] if call.inputs else None,
    "OptionalGetElement": _element,
    "OptionalHasElement": lambda call: np.array(call.has(0)),
    "SequenceAt": _at,
    "SequenceConstruct": lambda call: list(call.inputs),
    "SequenceEmpty": lambda call: [],
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SequenceLength": lambda call: np.array(len(_items(call)), np.int64),
    "SequenceMap": _map,
    "SplitToSequence": _split,
}
