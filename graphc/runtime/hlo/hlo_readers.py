"""Which instructions read the result of another."""

from __future__ import annotations

from collections.abc import Mapping

from graphc.runtime.hlo.hlo_text import Computation, Instruction

_VIEWS = frozenset(("bitcast", "tuple", "get-tuple-element"))


def readers_in(computation: Computation) -> Mapping[str, frozenset[str]]:
    """Of each instruction, those that read its result, perhaps through views.

    Instructions that start work of another stream or device are left out: they end before their
    result is there.
    """
    found: dict[str, set[str]] = {}
    for instruction in reversed(computation.instructions):
        if _picks_of_tuple(instruction, computation):
            continue
        is_view = instruction.opcode in _VIEWS
        own = found.get(instruction.name, set()) if is_view else {instruction.name}
        for operand in instruction.operands:
            found.setdefault(operand, set()).update(own)
    return {
        instruction.name: frozenset(found.get(instruction.name, ()))
        for instruction in computation.instructions
        if not instruction.opcode.endswith("-start")
    }


def _picks_of_tuple(instruction: Instruction, computation: Computation) -> bool:
    """Whether it reads only one of the operands of a tuple."""
    if instruction.opcode != "get-tuple-element":
        return False
    return computation[instruction.operands[0]].opcode == "tuple"
