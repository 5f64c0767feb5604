"""Recompute: what a backward loop needs is computed again, where memory is limited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import is_

from graphc.errors import AttributeValueError
from graphc.ir.node import Node
from graphc.ir.program import Program
from graphc.passes.core.base import Pass, PassResult
from graphc.passes.core.peak import peak
from graphc.passes.memory.loop_pairs import LoopPair, loop_pairs
from graphc.passes.memory.recompute_plans import Plan, plans
from graphc.passes.memory.recompute_write import write
from graphc.passes.simplify.prune import Prune


@dataclass(frozen=True)
class Recompute(Pass):
    """Makes a program need no more than `budget` bytes at once, by its estimated peak, if that
    can be; else as few as it can.

    The backward pass of a loop (of rolled layers, of a user's `scan`) takes what the forward pass
    stacked: one slice a turn of each value. Of those, this pass lets go the ones that are cheap
    to compute again for the bytes that they take, and computes them in the backward body from
    those that stay. Which, is Checkmate's problem (Jain et al., Checkmate: breaking the memory
    wall with optimal tensor rematerialization, 2020) for the body of a loop, relaxed by a price
    for a byte (Everett 1963), for which a minimal cut solves it exactly. Where one carry a turn is
    still too much, turns are taken in segments (Griewank 1992; Chen et al., 2016).

    XLA cannot do it: it sees no forward and backward pass, and in flat programs it even merges
    what was computed again with what it was computed from, which it does not across loops.

    Must not: compute again what has effects, nor what is exchanged between replicas. Random draws
    are pure and take their keys as operands, so they come out the same. Sizes must be bound.

    Attributes:
        budget: bytes, beside arguments and what is written over them (see `passes/core/peak.py`).
        then: passes that follow and save memory; the program after them is estimated.
    """

    budget: int
    then: tuple[Pass, ...] = ()

    def __post_init__(self) -> None:
        if type(self.budget) is not int or self.budget < 0:
            raise AttributeValueError(f"Recompute: budget must be bytes, got {self.budget!r}")

    def run(self, program: Program) -> PassResult:
        if self._peak(program) <= self.budget:
            return PassResult(program, 0)
        courses = _courses(program)
        chosen = self._chosen(program, courses)
        changed = len(changing(chosen))
        return PassResult(carried_out(program, chosen) if changed else program, changed)

    def _chosen(self, program: Program, courses: Sequence[Course]) -> Course:
        """The first course that fits, found by halving, for mostly each takes less than the one
        before; if not even the last does, the one that takes least."""

        def estimate(course: Course) -> int:
            return self._peak(carried_out(program, course))

        low, high = 0, len(courses) - 1
        while low < high:
            middle = (low + high) // 2
            if estimate(courses[middle]) <= self.budget:
                high = middle
            else:
                low = middle + 1
        if estimate(courses[low]) <= self.budget:
            return courses[low]
        return min(courses, key=estimate)

    def _peak(self, program: Program) -> int:
        for each in self.then:
            program = each.run(program).program
        return peak(program)


# For each pair of loops the plan that it is run by.
Course = Mapping[LoopPair, Plan]


def _courses(program: Program) -> list[Course]:
    """Ways to run all pairs, from the fastest to the smallest: step by step that pair takes its
    next plan which loses the least time for the bytes that it gains."""
    options = {pair: plans(pair) for pair in all_pairs(program)}
    place = dict.fromkeys(options, 0)
    found: list[Course] = []
    while True:
        found.append({pair: options[pair][i] for pair, i in place.items()})
        steps = {
            pair: (options[pair][i], options[pair][i + 1])
            for pair, i in place.items()
            if i + 1 < len(options[pair])
        }
        if not steps:
            return found
        place[min(steps, key=lambda pair: _loss(*steps[pair]))] += 1


def _loss(before: Plan, after: Plan) -> float:
    return (after.cost - before.cost) / (before.bytes - after.bytes)


def all_pairs(program: Program) -> list[LoopPair]:
    """The pairs of the program and of bodies that are not themselves of a pair."""
    pairs = loop_pairs(program)
    paired = {loop for pair in pairs for loop in (pair.forward, pair.backward)}
    for node in program.nodes:
        if node not in paired:
            for body in node.regions:
                pairs += all_pairs(body)
    return pairs


def changing(course: Course) -> Course:
    """The part of it that computes something again, or stacks less."""
    return {p: plan for p, plan in course.items() if plan.cost or plan.bytes < p.saved_bytes}


def carried_out(program: Program, course: Course) -> Program:
    """The program with its pairs of loops run as `course` says."""
    instead: dict[Node, Sequence[Node]] = {}
    for pair, plan in changing(course).items():
        instead[pair.forward], instead[pair.backward] = write(pair, plan)
    return Prune().run(_replaced(program, instead)).program if instead else program


def _replaced(program: Program, instead: Mapping[Node, Sequence[Node]]) -> Program:
    """The program with nodes replaced, in its bodies too."""
    nodes: list[Node] = []
    for node in program.nodes:
        if node in instead:
            nodes.extend(instead[node])
            continue
        bodies = tuple([_replaced(body, instead) for body in node.regions])
        same = all(new is old for new, old in zip(bodies, node.regions, strict=True))
        nodes.append(node if same else node.replace(regions=bodies))
    if len(nodes) == len(program.nodes) and all(map(is_, nodes, program.nodes)):
        return program
    return program.replace(nodes=tuple(nodes))
