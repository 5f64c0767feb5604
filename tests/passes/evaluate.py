"""What a program means, in NumPy: node by node, by the `fold` of each operator; loops turn by
turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.ir.node import Node
from graphc.ir.program import Program

Array = np.ndarray[Any, Any]


def evaluate(program: Program, inputs: Sequence[Array]) -> list[Array]:
    """The outputs of a program without named sizes. Every operator but loops needs a `fold`."""
    values = dict(zip(program.input_tensors(), inputs, strict=True))
    for node in program.nodes:
        run = _LOOPS.get(node.op.name, _fold)
        results = run(node, [values[t] for t in node.inputs])
        for tensor, value in zip(node.outputs, results, strict=True):
            values[tensor] = np.asarray(value, tensor.type.dtype)
            assert values[tensor].shape == tensor.type.shape, f"{node.op.name}: {tensor.type}"
    return [values[t] for t in program.output_tensors()]


def _fold(node: Node, operands: Sequence[Array]) -> Sequence[Any]:
    assert node.op.fold is not None, f"{node.op.name} has no fold"
    with np.errstate(all="ignore"):
        result = node.op.fold(*operands, **node.attrs)
    assert result is not None, f"the fold of {node.op.name} declined {node.attrs}"
    return result if isinstance(result, tuple) else (result,)


def _scan(node: Node, operands: Sequence[Array]) -> Sequence[Any]:
    consts, carries, length = (node.attrs[name] for name in ("consts", "carries", "length"))
    carry = list(operands[consts : consts + carries])
    rows: list[list[Array]] = [[] for _ in range(length)]
    for i in reversed(range(length)) if node.attrs["reverse"] else range(length):
        xs = [x[i] for x in operands[consts + carries :]]
        results = evaluate(node.regions[0], [*operands[:consts], *carry, *xs])
        carry, rows[i] = results[:carries], results[carries:]
    return [*carry, *map(np.stack, zip(*rows, strict=True))]


def _map(node: Node, operands: Sequence[Array]) -> Sequence[Any]:
    mapped, length = node.attrs["mapped"], node.attrs["length"]
    rows = [
        evaluate(node.regions[0], [*[x[i] for x in operands[:mapped]], *operands[mapped:]])
        for i in range(length)
    ]
    return [np.stack(column) for column in zip(*rows, strict=True)]


def _scatter_nd(node: Node, operands: Sequence[Array]) -> Sequence[Any]:
    """Windows set along one axis, each at another place: as passes write rows."""
    operand, indices, updates = operands
    assert node.attrs["op"] == "set" and not node.attrs["batch"], "not known here"
    (axis,) = node.attrs["axes"]
    result = np.moveaxis(operand.copy(), axis, 0)
    size = result.shape[0]
    places = np.where(indices < 0, indices + size, indices)[:, 0]
    inside = (places >= 0) & (places < size)
    assert len({*places[inside]}) == inside.sum(), "one place twice"
    result[places[inside]] = np.moveaxis(updates, axis, 0)[inside]
    return [np.moveaxis(result, 0, axis)]


_LOOPS = {"Scan": _scan, "Map": _map, "ScatterNd": _scatter_nd}
