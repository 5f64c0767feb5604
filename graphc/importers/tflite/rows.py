"""Finds the replacement of a row, which the converter writes as three parts.

Loops store the result of an iteration so: `concat([x[:i], row, x[i + 1:]])`. The sizes of the parts
are known only in a run; that of the result is that of x.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphc.importers.tflite.reading import Operator

if TYPE_CHECKING:
    from graphc.importers.tflite.translation import Body


def replaced_row(b: Body, op: Operator) -> tuple[int, int] | None:
    """The tensors x and i of a concatenation that replaces row i of x; None if it is none."""
    if op.options["axis"] != 0 or len(op.inputs) != 3 or b.tensor(op.inputs[1]).shape[:1] != (1,):
        return None
    before, after = (_made(b, index, "SLICE", 3) for index in (op.inputs[0], op.inputs[2]))
    if before is None or after is None or before.inputs[0] != after.inputs[0]:
        return None
    x = before.inputs[0]
    end = _first_of(b, before.inputs[2], (-1, *b.tensor(x).shape[1:]))
    start = _first_of(b, after.inputs[1], 0)
    if end is None or start is None or not _is(b, before.inputs[1], 0):
        return None
    if not _is(b, after.inputs[2], -1):
        return None
    added = _made(b, start, "ADD", 2)
    if added is None or added.options["activation"]:
        return None
    one = [i for i in added.inputs if i != end]
    return (x, end) if len(one) == 1 and end in added.inputs and _is(b, one[0], 1) else None


def _made(b: Body, index: int, name: str, inputs: int) -> Operator | None:
    """The operator that computes a tensor, if it is of a kind."""
    op = b.makers.get(index)
    fits = op is not None and op.name == name and len(op.inputs) == inputs and min(op.inputs) >= 0
    return op if fits else None


def _first_of(b: Body, index: int, rest: int | tuple[int, ...]) -> int | None:
    """The scalar tensor at the begin of a vector whose other elements are constants: all `rest`, or
    for sizes each -1 or the one of `rest`."""
    joined = _made(b, index, "CONCATENATION", 2)
    if joined is None:
        return None
    reshaped = b.makers.get(joined.inputs[0])
    if reshaped is None or reshaped.name != "RESHAPE" or b.tensor(joined.inputs[0]).shape != (1,):
        return None
    if isinstance(rest, int):
        return reshaped.inputs[0] if _is(b, joined.inputs[1], rest) else None
    found = _constant(b, joined.inputs[1])
    if found is None or len(found) != len(rest) - 1:
        return None
    fits = all(size in (-1, own) for size, own in zip(found, rest[1:], strict=True))
    return reshaped.inputs[0] if fits else None


def _constant(b: Body, index: int) -> list[int] | None:
    tensor = b.tensor(index)
    if index in b.makers or tensor.quantization is not None or not b.model.is_constant(tensor):
        return None
    array = b.model.constant(tensor)
    return (
        [int(v) for v in np.ravel(array)] if array.dtype.kind == "i" and array.size < 32 else None
    )


def _is(b: Body, index: int, value: int) -> bool:
    """Whether a tensor is a constant with this value everywhere."""
    found = _constant(b, index)
    return found is not None and all(item == value for item in found)
