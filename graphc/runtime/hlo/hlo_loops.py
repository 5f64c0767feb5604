"""The number of iterations of a loop in an HLO program."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from graphc.runtime.hlo.hlo_text import Computation, Instruction, Module

_KNOWN = re.compile(r'"known_trip_count":\s*\{\s*"n":\s*"(\d+)"')
_OTHER = ("other",)
_DEPTH = 8  # of an expression; a counter has a simple one


def trip_count(module: Module, computation: Computation, loop: Instruction) -> int | None:
    """The number of iterations of a `while` instruction, None if it is not known.

    XLA records the number of most loops. Without a record, the loop must count an integer up from
    one constant to another.
    """
    known = _KNOWN.search(loop.attribute("backend_config"))
    if known is not None:
        return int(known[1])
    names = [loop.attribute(name).lstrip("%") for name in ("condition", "body")]
    condition, body = (module[name] for name in names)
    match _expression(module, condition, condition.root):
        case ("compare", "LT", ("carry", int(index)), ("constant", int(bound))):
            pass
        case _:
            return None
    start = computation[loop.operands[0]]
    if start.opcode != "tuple" or body.root.opcode != "tuple":
        return None
    first = _expression(module, computation, computation[start.operands[index]])
    match _expression(module, body, body[body.root.operands[index]]):
        case ("add", ("carry", int(other)), ("constant", int(step))) if other == index:
            pass
        case _:
            return None
    if first[0] != "constant" or step <= 0:
        return None
    return int(max(0, -(-(bound - first[1]) // step)))


def _expression(
    module: Module,
    computation: Computation,
    instruction: Instruction,
    arguments: Sequence[tuple[Any, ...]] | None = None,
    depth: int = 0,
) -> tuple[Any, ...]:
    """A value in terms of constants and of the values that the loop carries.

    Args:
        arguments: the expressions of the parameters of a fusion.
        depth: the depth of the expression so far.
    """

    def of(place: int) -> tuple[Any, ...]:
        operand = computation[instruction.operands[place]]
        return _expression(module, computation, operand, arguments, depth + 1)

    opcode = instruction.opcode
    if depth > _DEPTH:
        return _OTHER
    if opcode == "parameter":
        return ("parameter",) if arguments is None else arguments[int(instruction.literal)]
    if opcode == "constant" and re.fullmatch(r"-?\d+", instruction.literal):
        return "constant", int(instruction.literal)
    if opcode == "get-tuple-element":
        source, index = of(0), int(instruction.attribute("index"))
        if source == ("parameter",):
            return "carry", index
        return source[1 + index] if source[0] == "tuple" else _OTHER
    if opcode in ("copy", "bitcast", "convert", "reshape"):
        return of(0)
    if opcode in ("fusion", "call"):
        body = module[instruction.callees[0]]
        values = [of(place) for place in range(len(instruction.operands))]
        return _expression(module, body, body.root, values, depth + 1)
    if opcode in ("add", "compare") and len(instruction.operands) == 2:
        direction = [instruction.attribute("direction")] if opcode == "compare" else []
        left, right = of(0), of(1)
        if opcode == "add" and left[0] == "constant":
            left, right = right, left
        return opcode, *direction, left, right
    if opcode == "tuple":
        return "tuple", *(of(place) for place in range(len(instruction.operands)))
    return _OTHER
