"""Recompute: recomputes values that a backward loop needs, if memory is limited."""

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
    """Reduces the estimated peak memory of a program to `budget` bytes if possible, or else as far
    as possible.

    The backward pass of a loop (of rolled layers, or of a user's `scan`) uses the stacks of the
    forward pass, which hold one slice per iteration of each value. This pass drops the stacks that
    are cheap to recompute for the bytes that they occupy. The backward body computes them again
    from the remaining stacks. The choice of stacks is the problem of Checkmate (Jain et al.,
    Checkmate: breaking the memory wall with optimal tensor rematerialization, 2020) for the body of
    a loop. It is relaxed by a price per byte (Everett 1963), for which a minimal cut solves it
    exactly. If one carry per iteration is still too much, iterations are grouped into segments
    (Griewank 1992; Chen et al., 2016).

    XLA cannot do this: it does not distinguish the forward and the backward pass. In flat programs
    it even merges a recomputed value with the original one, but it does not merge across loops.

    Must not: recompute nodes with effects, or values that replicas exchange. Random draws are pure
    and take their keys as operands, so they are reproduced exactly. Sizes must be bound.

    Attributes:
        budget: bytes, in addition to arguments and results that overwrite them (see
            `passes/core/peak.py`).
        then: later passes that save memory; the estimate is for the program after them.
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
        """The first plan that fits, found by bisection because each plan usually needs less memory
        than the one before. If even the last one does not fit, the plan that needs the least
        memory."""

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


# The plan chosen for each pair of loops.
Course = Mapping[LoopPair, Plan]


def _courses(program: Program) -> list[Course]:
    """Plans for all pairs, from the fastest to the smallest. Each step advances the pair whose next
    plan loses the least time per byte saved."""
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
    """The pairs of the program, and of those bodies that do not themselves belong to a pair."""
    pairs = loop_pairs(program)
    paired = {loop for pair in pairs for loop in (pair.forward, pair.backward)}
    for node in program.nodes:
        if node not in paired:
            for body in node.regions:
                pairs += all_pairs(body)
    return pairs


def changing(course: Course) -> Course:
    """The plans that recompute something or stack less."""
    return {p: plan for p, plan in course.items() if plan.cost or plan.bytes < p.saved_bytes}


def carried_out(program: Program, course: Course) -> Program:
    """The program with its pairs of loops rewritten according to `course`."""
    instead: dict[Node, Sequence[Node]] = {}
    for pair, plan in changing(course).items():
        instead[pair.forward], instead[pair.backward] = write(pair, plan)
    return Prune().run(_replaced(program, instead)).program if instead else program


def _replaced(program: Program, instead: Mapping[Node, Sequence[Node]]) -> Program:
    """The program with nodes replaced, including those in its bodies."""
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
