"""Locates a fault: the node inside a loop or branch, and the pass that made it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

import numpy as np

from graphc.divergence.bodies import has_bodies, run_bodies
from graphc.divergence.level import Level, ProgramSide, Seen, counterparts
from graphc.divergence.probing import Probe
from graphc.divergence.runs import Definition, Ran
from graphc.ir.dtypes import Array
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program


class Located(NamedTuple):
    """A fault.

    Attributes:
        seen: the value with the fault.
        inside: the loops around it, outermost first, such as "Scan 'lstm', iteration 3".
        turn: how many iterations the innermost loop had made.
    """

    seen: Seen
    inside: tuple[str, ...] = ()
    turn: int = 0

    @property
    def name_and_source(self) -> tuple[str, str]:
        """The name and the line of the node; in a loop of repeated blocks, those of its block."""
        node = self.seen.segment.node
        name, source = node.name or node.op.name, node.source
        if source is not None and self.turn < len(source.turns):
            name, source = source.turns[self.turn]
        return name, str(source or "")


def first_fault(program: Program, side: ProgramSide) -> Located | None:
    """The first fault of one run, in program order."""
    level = Level(program, [side])
    for seen in level.compare([inputs_of(program, side)]):
        if seen.ratio > 1.0:
            return innermost(Located(seen), side)
    return None


def inputs_of(program: Program, side: ProgramSide) -> dict[Tensor, Array]:
    """The inputs of the reference program as a run has them."""
    given = dict(zip(side.program.input_tensors(), side.inputs, strict=True))
    own = counterparts(program, list(given))
    return {t: np.asarray(given[mine]) for t, mine in own.items() if mine in given}


def innermost(found: Located, side: ProgramSide) -> Located:
    """The fault inside the body of the node, if it can be located there."""
    node = found.seen.segment.node
    mine = side.program.producers().get(side.own(found.seen.tensor))
    if mine is None or len(found.seen.segment.nodes) > 1 or not _is_alike(node, mine):
        return found
    operands = list(dict.fromkeys(mine.inputs))
    probe = Probe(side.program, operands, side.device)
    values = probe.all_values(side.inputs)
    inner: list[Located] = []
    bodies: dict[int, tuple[ProgramSide, Level, Probe]] = {}
    turns = count()

    def run(number: int, inputs: Sequence[Array], which: str) -> Sequence[Array] | None:
        if number not in bodies:
            made = _body(node.regions[number], mine.regions[number], side)
            if made is None:
                return None
            bodies[number] = made
        body, level, outputs = bodies[number]
        body.inputs = inputs
        turn = next(turns)
        for seen in level.compare([inputs_of(level.program, body)]):
            if seen.ratio > 1.0:
                label = f"{node.op.name} {node.name!r}" + (f", {which}" if which else "")
                inner.append(innermost(Located(seen, (*found.inside, label), turn), body))
                return None
        known = outputs.all_values(inputs)
        return [known[t] for t in mine.regions[number].output_tensors()]

    run_bodies(mine, [values[t] for t in mine.inputs], run)
    return inner[0] if inner else found


def _is_alike(node: Node, mine: Node) -> bool:
    same = node.op.name == mine.op.name and len(node.regions) == len(mine.regions)
    return same and has_bodies(mine)


def _body(
    body: Program, mine: Program, side: ProgramSide
) -> tuple[ProgramSide, Level, Probe] | None:
    """The comparison of two bodies; None if their inputs do not correspond."""
    inputs = body.input_tensors()
    if not counterparts(body, mine.input_tensors()).keys() >= {*inputs}:
        return None
    inner = ProgramSide(mine, [], side.device, side.label, side.least, side.least_of_products)
    return inner, Level(body, [inner]), Probe(mine, mine.output_tensors(), side.device)


def blamed_pass(definition: Definition, ran: Ran) -> tuple[str, Located] | None:
    """The first pass whose program has a fault, and the fault; None if no pass made it.

    A program is compared with the one before the pass, so that the fault is located even if later
    passes join its node with others.
    """
    programs = [definition.program, *(program for _, program in ran.history)]
    low, high = 0, len(programs) - 1  # programs[low] has no fault, programs[high] may have one
    while high - low > 1:
        middle = (low + high) // 2
        if first_fault(definition.program, ran.on(programs[middle])) is None:
            low = middle
        else:
            high = middle
    if high == 0:
        return None
    located = first_fault(programs[low], ran.on(programs[high]))
    return None if located is None else (ran.history[high - 1][0], located)
