"""What an operator gives for the rows that no lookup used, known by algebra alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.ir.node import Node, Tensor
from graphc.ops.elementwise.arithmetic import ADD, DIVIDE, MULTIPLY, SUBTRACT
from graphc.ops.elementwise.comparison import WHERE
from graphc.ops.structure.state import IDENTITY, STOP_GRADIENT
from graphc.passes.core.rowwise import ByRows, attrs_of, resized

# A number that every element is, a tensor that the value equals there, or None: not known.
Outside = np.generic | Tensor | None

_LARGEST = 1 << 16  # elements of a row that are computed on the host to see what comes out


def outside_of(node: Node, how: ByRows, operands: Sequence[Outside]) -> Outside:
    """What `node` gives outside the rows, of what its operands are there.

    A product with 0 counts as 0, and so does 0 divided by anything: it is not where the other
    factor is infinite or NaN, or the divisor 0.
    """
    if all(isinstance(value, np.generic) for value in operands):
        return _folded(node, how, operands)
    x, y = operands[0], operands[1] if len(operands) > 1 else None
    op = node.op
    if op in (IDENTITY, STOP_GRADIENT):
        return x
    if op is ADD:
        return _kept(node, x, y, 0) if _is(y, 0) else _kept(node, y, x, 0)
    if op is SUBTRACT:
        return _kept(node, x, y, 0)
    if op is MULTIPLY:
        if _is(x, 0) or _is(y, 0):
            return _zero(node)
        return _kept(node, x, y, 1) if _is(y, 1) else _kept(node, y, x, 1)
    if op is DIVIDE:
        return _zero(node) if _is(x, 0) else _kept(node, x, y, 1)
    if op is WHERE:
        return _chosen(node, x, y, operands[2])
    return None


def _is(value: Outside, number: int) -> bool:
    return isinstance(value, np.generic) and bool(value == number)


def _zero(node: Node) -> np.generic:
    zero: np.generic = node.outputs[0].type.dtype.type(0)
    return zero


def _kept(node: Node, kept: Outside, other: Outside, neutral: int) -> Tensor | None:
    """`kept` where the other operand changes nothing of it, not even the shape."""
    fits = isinstance(kept, Tensor) and kept.type == node.outputs[0].type
    return kept if fits and _is(other, neutral) else None  # type: ignore[return-value]


def _chosen(node: Node, condition: Outside, x: Outside, y: Outside) -> Outside:
    if isinstance(condition, np.generic):
        found = x if condition else y
    elif isinstance(x, np.generic) and isinstance(y, np.generic):
        found = x if bool(x == y) else None
    else:
        found = x if x is y else None
    if isinstance(found, Tensor) and found.type != node.outputs[0].type:
        return None  # it was broadcast
    return found


def _folded(node: Node, how: ByRows, operands: Sequence[Any]) -> Outside:
    """The one number that all elements of a row become."""
    fold = node.op.fold
    shapes: list[Any] = [
        tensor.type.shape if axis is None else resized(tensor.type.shape, axis, 1)
        for tensor, axis in zip(node.inputs, how.operands, strict=True)
    ]
    if fold is None or not all(type(dim) is int for shape in shapes for dim in shape):
        return None
    if sum(int(np.prod(shape)) for shape in shapes) > _LARGEST:
        return None
    rows = [np.full(shape, value) for shape, value in zip(shapes, operands, strict=True)]
    try:
        with np.errstate(divide="raise", invalid="raise", over="raise", under="ignore"):
            result = fold(*rows, **attrs_of(node, how, 1))
    except ArithmeticError:
        return None
    if result is None:
        return None
    row = np.asarray(result).astype(node.outputs[0].type.dtype)
    if not row.size:
        return None
    value: np.generic = row.flat[0]
    return value if bool((row == value).all()) else None
