"""Evaluates a program in NumPy, node by node with each operator's `fold`, and loops iteration by
iteration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from graphc.ir.dtypes import is_floating
from graphc.ir.node import Node
from graphc.ir.program import Program
from graphc.ops.structure.numerics import INFINITE, NAN, ROWS, TURN

Array = np.ndarray[Any, Any]
Path = tuple[int, ...]
Look = Callable[[Path, Node, Sequence[Array], Sequence[Array]], None]


def evaluate(
    program: Program,
    inputs: Sequence[Array],
    look: Look | None = None,
    path: Path = (),
    start: int = 0,
) -> list[Array]:
    """The outputs of a program without named sizes. Operators need a `fold` or a function below.

    Args:
        look: is called for each node without bodies, with its path, operands and results. The
            path is its position, after the position and iteration of each enclosing body.
        path: the path of this program if it is a body: a node's position and iteration, and so on.
        start: the position of the program's first node.
    """
    values = dict(zip(program.input_tensors(), inputs, strict=True))
    for place, node in enumerate(program.nodes, start):
        operands = [values[t] for t in node.inputs]
        if node.op.name in _WITH_BODIES:
            inside = _Bodies(node, look, (*path, place))
            results = _WITH_BODIES[node.op.name](node, operands, inside)
        else:
            results = _OTHERS.get(node.op.name, _fold)(node, operands)
        for tensor, value in zip(node.outputs, results, strict=True):
            values[tensor] = np.asarray(value, tensor.type.dtype)
            assert values[tensor].shape == tensor.type.shape, f"{node.op.name}: {tensor.type}"
        if look is not None and not node.regions:
            look((*path, place), node, operands, [values[t] for t in node.outputs])
    return [values[t] for t in program.output_tensors()]


class _Bodies(NamedTuple):
    """The bodies of a node, ready to run."""

    node: Node
    look: Look | None
    path: Path

    def __call__(self, values: Sequence[Any], turn: int = 0, number: int = 0) -> list[Array]:
        """The results of one body. Positions continue from one branch to the next."""
        bodies = self.node.regions
        start = sum(len(body.nodes) for body in bodies[:number])
        given = [
            np.asarray(value, t.type.dtype)
            for value, t in zip(values, bodies[number].input_tensors(), strict=True)
        ]
        return evaluate(bodies[number], given, self.look, (*self.path, turn), start)


def _fold(node: Node, operands: Sequence[Array]) -> Sequence[Any]:
    assert node.op.fold is not None, f"{node.op.name} has no fold"
    with np.errstate(all="ignore"):
        result = node.op.fold(*operands, **node.attrs)
    assert result is not None, f"the fold of {node.op.name} declined {node.attrs}"
    return result if isinstance(result, tuple) else (result,)


def _scan(node: Node, operands: Sequence[Array], inside: _Bodies) -> Sequence[Any]:
    consts, carries, length = (node.attrs[name] for name in ("consts", "carries", "length"))
    carry = list(operands[consts : consts + carries])
    rows: list[list[Array]] = [[] for _ in range(length)]
    order = reversed(range(length)) if node.attrs["reverse"] else range(length)
    for turn, i in enumerate(order):
        xs = [x[i] for x in operands[consts + carries :]]
        results = inside([*operands[:consts], *carry, *xs], turn)
        carry, rows[i] = results[:carries], results[carries:]
    return [*carry, *map(np.stack, zip(*rows, strict=True))]


def _while(node: Node, operands: Sequence[Array], inside: _Bodies) -> Sequence[Any]:
    """A loop without xs and ys."""
    consts = list(operands[: node.attrs["consts"]])
    carry, turn = list(operands[len(consts) :]), 0
    assert node.attrs["length"] is None, "not known here"
    while inside._replace(look=None)([*consts, *carry], number=1)[0]:
        carry, turn = inside([*consts, *carry], turn), turn + 1
    return carry


def _map(node: Node, operands: Sequence[Array], inside: _Bodies) -> Sequence[Any]:
    mapped, length = node.attrs["mapped"], node.attrs["length"]
    rows = [
        inside([*[x[i] for x in operands[:mapped]], *operands[mapped:]], i) for i in range(length)
    ]
    return [np.stack(column) for column in zip(*rows, strict=True)]


def _switch(node: Node, operands: Sequence[Array], inside: _Bodies) -> Sequence[Any]:
    index, *given = operands
    return inside(given, number=min(max(int(index), 0), len(node.regions) - 1))


def _call(node: Node, operands: Sequence[Array], inside: _Bodies) -> Sequence[Any]:
    return inside(operands)


def _scatter_nd(node: Node, operands: Sequence[Array]) -> Sequence[Any]:
    """Sets windows along one axis, each at another position, in the form that passes write."""
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


def _variance(node: Node, operands: Sequence[Array]) -> Sequence[Any]:
    x, mean = operands
    squares = np.square(x - mean)
    return [squares.sum(axis=node.attrs["axes"], keepdims=True) / node.attrs["count"]]


def _as_it_is(node: Node, operands: Sequence[Array]) -> Sequence[Any]:
    """The last operands: for marks and fences, which return them unchanged."""
    return operands[len(operands) - len(node.outputs) :]


def level(values: Sequence[Array]) -> int:
    """2 if a value has a NaN, else 1 if one has an infinity, else 0."""
    floats = [value for value in values if is_floating(value.dtype)]
    if any(np.isnan(value).any() for value in floats):
        return NAN
    return INFINITE if any(np.isinf(value).any() for value in floats) else 0


def _non_finite(node: Node, operands: Sequence[Array]) -> Sequence[Any]:
    return [level(operands)]


def _first_fault(node: Node, operands: Sequence[Array]) -> Sequence[Any]:
    bodies, width = node.attrs["bodies"], node.attrs["width"]
    found: list[list[int]] = []
    levels = [int(value) for value in operands[: len(operands) - len(bodies)]]
    for fault, (place, form) in zip(operands[len(levels) :], bodies, strict=True):
        for turn, row in enumerate((fault if form == ROWS else fault[None]).tolist()):
            if row[0]:
                found.append([row[0], place, *([] if form == TURN else [turn]), *row[1:]])
                break
    for place, count, *numbers in node.attrs["rows"]:
        before, after = numbers[:count], numbers[count:]
        worst = max(levels[i] for i in after)
        if worst > max((levels[i] for i in before), default=0):
            found.append([worst, place])
    first = min(found, key=lambda fault: fault[1], default=[0] * width)
    return [[*first, *[-1] * (width - len(first))]]


def _keep_fault(node: Node, operands: Sequence[Array]) -> Sequence[Any]:
    kept, turn, fault = operands
    return [kept if kept[0] else [fault[0], turn, *fault[1:]], turn + 1]


_WITH_BODIES: dict[str, Callable[[Node, Sequence[Array], _Bodies], Sequence[Any]]] = {
    "Scan": _scan, "While": _while, "Map": _map, "Switch": _switch, "Call": _call,
}  # fmt: skip
_OTHERS: dict[str, Callable[[Node, Sequence[Array]], Sequence[Any]]] = {
    "ScatterNd": _scatter_nd, "Variance": _variance, "Fence": _as_it_is,
    "NonFinite": _non_finite, "FirstFault": _first_fault, "KeepFault": _keep_fault,
    "LossAdjoint": _as_it_is, "Gradients": _as_it_is, "Updated": _as_it_is,
}  # fmt: skip
