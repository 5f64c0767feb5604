"""Runs the body of a loop, a branch or a call as often as the node does."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from graphc.ir.dtypes import Array
from graphc.ir.node import Node
from graphc.ops.control.bodies import parts_of
from graphc.runtime.targets.prepare import evaluate

RunBody = Callable[[int, Sequence[Array], str], "Sequence[Array] | None"]
"""(number of the region, its inputs, which iteration) -> its outputs, or None to stop."""

_ITERATIONS = 10_000


def run_bodies(node: Node, operands: Sequence[Array], run: RunBody) -> None:
    """Calls `run` for each execution of a body of `node`; for other operators, never."""
    body = _BODIES.get(node.op.name)
    if body is not None:
        body(node, operands, run)


def has_bodies(node: Node) -> bool:
    """Whether `run_bodies` supports the node."""
    return node.op.name in _BODIES


def _call(node: Node, operands: Sequence[Array], run: RunBody) -> None:
    run(0, operands, "")


def _switch(node: Node, operands: Sequence[Array], run: RunBody) -> None:
    number = int(np.clip(int(operands[0]), 0, len(node.regions) - 1))
    run(number, operands[1:], f"branch {number}")


def _scan(node: Node, operands: Sequence[Array], run: RunBody) -> None:
    given = parts_of(node, list(operands))
    carry, count = list(given.carries), int(node.attrs["length"])
    order = range(count - 1, -1, -1) if node.attrs["reverse"] else range(count)
    for i in order:
        outputs = run(0, [*given.consts, *carry, *(x[i] for x in given.xs)], f"iteration {i}")
        if outputs is None:
            return
        carry = list(outputs[: len(carry)])


def _while(node: Node, operands: Sequence[Array], run: RunBody) -> None:
    given = parts_of(node, list(operands))
    carry = list(given.carries)
    for i in range(_ITERATIONS):
        if not bool(evaluate(node.regions[1], [*given.consts, *carry])[0]):
            return
        slices = [x[int(carry[0])] for x in given.xs]
        outputs = run(0, [*given.consts, *carry, *slices], f"iteration {i}")
        if outputs is None:
            return
        carry = list(outputs[: len(carry)])


def _map(node: Node, operands: Sequence[Array], run: RunBody) -> None:
    mapped = node.attrs["mapped"]
    for i in range(int(node.attrs["length"])):
        inputs = [*(x[i] for x in operands[:mapped]), *operands[mapped:]]
        if run(0, inputs, f"element {i}") is None:
            return


_BODIES: dict[str, Callable[[Node, Sequence[Array], RunBody], None]] = {
    "Call": _call,
    "Map": _map,
    "Scan": _scan,
    "Switch": _switch,
    "While": _while,
}
