"""RollRepeats: blocks of nodes that repeat one after the other become one loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from graphc.ir.dims import product
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program, is_pure
from graphc.passes.core.base import Pass, PassResult, run_all_bodies
from graphc.passes.core.keys import kind_key
from graphc.passes.rolling.align import align, cut_to_readers
from graphc.passes.rolling.copies import without_copies, work_of
from graphc.passes.rolling.loops import Loops
from graphc.passes.rolling.poor_loops import (
    has_parameters,
    is_one_kernel,
    takes_turns,
    without_many_outside,
)
from graphc.passes.rolling.recurrence import Carried, Inner, Recurrence, elements_in, recurrences
from graphc.passes.rolling.repeats import Repeat, tandem_repeats
from graphc.passes.simplify.functionalize import RNG_COUNTER, RNG_KEY

Worth = Callable[[Recurrence], bool]

_STARTS = 4  # how many positions are tried as the start of an iteration
_EQUAL_STARTS = 16  # the same, of positions at which equally few values pass between iterations


@dataclass(frozen=True)
class RollRepeats(Pass):
    """Rolls each recurrence (the layers of a deep network, forward and backward, or the steps of an
    unrolled loop) into one `Scan`, regardless of how it was written.

    Iterations must be equal in operators, attributes and types, node for node. Each operand must be
    a value of the same iteration, of the previous iteration (carried), the same outer value in each
    iteration (shared weights), or a different outer value in each (its parameters, or values saved
    by the forward pass: stacked). First or last iterations that differ stay outside. Values of an
    iteration that later nodes use are stacked by the loop. A later loop takes such a stack as it
    is, in reverse if necessary.

    Worth it: tracing, lowering and compiling cost time for each node, and XLA does not find the
    repetition. A network of 48 blocks then compiles in the time of one block.

    Must not: roll a few small nodes, because XLA would fuse across the iterations and a loop costs
    more than it saves; roll iterations that do not depend on each other, which `GroupAlike` runs in
    parallel; roll nodes with effects.

    Attributes:
        turns: the minimum number of iterations of a loop.
        steps: the same for iterations without parameters of their own, which need no copies; None
            for `turns`. If it is given, a loop over parameters that another loop stacks may have
            one iteration fewer than `turns`.
        saved: the minimum number of nodes that a loop must save.
        layers: the same for a loop over layers with parameters of their own, if `steps` is given.
        work: the minimum number of elements that an iteration must compute.
        shared: elements of a large parameter. A loop over parameters of at least that size may save
            only a quarter of `saved` nodes if another loop takes the same parameters: they are
            stored stacked for that loop, and would be copied for the nodes of this one.
        unroll: how many iterations are compiled as one; None for an estimate.
        copied: what each byte that a loop copies must be worth, see `without_copies`; 0: nothing.
        trained: whether other programs of the graph change state that this one only reads.
    """

    turns: int = 3
    saved: int = 40
    work: int = 128
    unroll: int | None = None
    shared: int = 1 << 16
    steps: int | None = None
    layers: int = 0
    copied: int = 0
    trained: bool = True

    def run(self, program: Program) -> PassResult:
        program, changed = run_all_bodies(self, program)
        first, row = _in_order(program, self.turns)
        state = set(program.input_tensors("state"))
        chosen, worth_it = self._find(row, state)
        if self.copied:
            chosen = without_copies(chosen, program, self.copied, self.trained)
        found = align(chosen, state, worth_it)
        found = cut_to_readers(found, state, worth_it)
        found = without_many_outside(found, row, state)
        if not found:
            return PassResult(program, changed)
        at_once = [self.unroll or unroll_of(each, state) for each in found]
        loops = Loops(program, list(zip(found, at_once, strict=True)))
        return PassResult(loops.rewrite(first, row), changed + len(found))

    def _find(self, row: Sequence[Node], state: set[Tensor]) -> tuple[list[Recurrence], Worth]:
        """Recurrences that do not overlap, in decreasing order of saved nodes, and the criterion
        for whether a part of one is worth a loop."""
        search = _Search(row, state)
        few = self.saved // 4
        least = self.turns if self.steps is None else self.steps

        def is_worth_it(found: Recurrence) -> bool:
            return self._is_worth_it(found, state, self.turns, self._least(found, state))

        chosen = search.run(min(self.turns, least), self.saved, is_worth_it)
        stacked = {t for f in chosen for stack in f.stacks for t in stack if t in state}
        large = {t for t in stacked if self._is_large(t)}
        # A forward loop whose backward pass is flat is the worst: one iteration less is enough.
        fewer = self.turns - (self.steps is not None)

        def is_worth_more(found: Recurrence) -> bool:
            shares, shares_large = (
                any(tensors.issuperset(stack) for stack in found.stacks)
                for tensors in (stacked, large)
            )
            turns = fewer if shares else self.turns
            # A forward loop may have one iteration more than the backward loop found before.
            over_layers = any(2 * len(stacked.intersection(s)) >= len(s) for s in found.stacks)
            saved = self.saved if over_layers else self._least(found, state)
            saved = few if shares_large else saved
            return self._is_worth_it(found, state, turns, saved)

        if large or (stacked and fewer < self.turns):
            chosen += search.run(fewer, few if large else self.saved, is_worth_more)
        return chosen, is_worth_more

    def _is_large(self, tensor: Tensor) -> bool:
        size = product(tensor.type.shape)
        return isinstance(size, int) and size >= self.shared

    def _least(self, found: Recurrence, state: set[Tensor]) -> int:
        """How many nodes a loop must save."""
        layers = 0 if self.steps is None or not has_parameters(found, state) else self.layers
        return max(self.saved, layers)

    def _is_worth_it(self, found: Recurrence, state: set[Tensor], turns: int, saved: int) -> bool:
        """Whether a loop is profitable: it costs a few microseconds per iteration, and XLA fuses
        small nodes (see the attributes)."""
        if takes_turns(found) or (self.steps is not None and is_one_kernel(found)):
            return False
        if self.steps is not None and not has_parameters(found, state):
            turns = self.steps
        # Two chains that alternate are half as long each.
        length = len(found.turns) // (2 if _skips_turns(found) else 1)
        enough = length >= turns and found.saved >= saved
        return enough and elements_of(found) >= self.work


def _kind(index: int, node: Node) -> Hashable:
    """The properties that two equal nodes share; a node with effects is equal to no other."""
    return kind_key(node) if is_pure(node) else index


def _in_order(program: Program, few: int) -> tuple[list[Node], list[Node]]:
    """The nodes that move to the front, and the others, each in their order.

    Three groups of nodes move to the front. First, constants and nodes that depend only on them.
    Second, nodes that depend only on feeds and on such nodes, if their kind occurs less than `few`
    times. An example is a mask that every block uses: CSE left it next to its first user, which
    would then differ from the others. The same applies to the key of a run's random draws, which
    has the kind of the keys of single draws, and to the count of runs: they are next to the first
    block's draw. Third, nodes that compute a value from state for at least `few` nodes, such as the
    bias of all steps in the shape that they add.
    """
    kinds = [_kind(i, node) for i, node in enumerate(program.nodes)]
    counts = Counter(kinds)
    uses = Counter(t for node in program.nodes for t in node.inputs)
    constant: set[Tensor] = set()
    early = set(program.input_tensors("feed"))
    given = set(program.input_tensors())
    random = {p.tensor for p in program.ports("state") if p.name in (RNG_KEY, RNG_COUNTER)}
    first, others = [], []
    for kind, node in zip(kinds, program.nodes, strict=True):
        is_constant = constant.issuperset(node.inputs)
        shared = given.issuperset(node.inputs) and all(uses[t] >= few for t in node.outputs)
        if is_pure(node) and (
            is_constant or (counts[kind] < few and (shared or early.issuperset(node.inputs)))
        ):
            early.update(node.outputs)
            if is_constant:
                constant.update(node.outputs)
            first.append(node)
        elif is_pure(node) and all(t in random or t in constant for t in node.inputs):
            first.append(node)
        else:
            others.append(node)
    return first, others


class _Search:
    """Finds recurrences that do not overlap in a row of nodes."""

    def __init__(self, row: Sequence[Node], state: set[Tensor]) -> None:
        self._row = row
        self._kinds = [_kind(i, node) for i, node in enumerate(row)]
        self._taken = np.zeros(len(row), bool)
        self._layers = _Layers(state)

    def run(self, turns: int, saved: int, is_worth_it: Worth) -> list[Recurrence]:
        """The recurrences worth a loop among the unused nodes, in decreasing order of saved nodes.
        Marks their nodes as used."""
        chosen = []
        for widest in tandem_repeats(self._kinds, turns=turns, saved=saved):
            for repeat in widest.without(self._taken):
                for found in self._recurrences(repeat, is_worth_it):
                    end = found.begin + len(found.turns) * found.period
                    self._taken[found.begin : end] = True
                    chosen.append(found)
                    self._layers.add(found)
        return chosen

    def _recurrences(self, repeat: Repeat, is_worth_it: Worth) -> list[Recurrence]:
        """The recurrences in a repeat that are worth a loop, with a good start for its
        iterations."""
        best: list[Recurrence] = []
        passing, score = 0, (0, 0)
        for count, start in _best_starts(self._row, repeat):
            if best and (count > passing or not self._layers.known):
                break
            places = range(start, repeat.start + repeat.length - repeat.period + 1, repeat.period)
            found = recurrences([self._row[i : i + repeat.period] for i in places], start)
            worth_it = list(filter(is_worth_it, found))
            if worth_it and count == 0:  # no iteration depends on another, wherever they begin
                return []
            now = self._layers.score(worth_it)
            if worth_it and (not best or now > score):
                best, passing, score = worth_it, count, now
        return list(filter(_depends, best))


class _Layers:
    """The recurrences found so far. Loops over the same layers should begin their iterations at the
    same layers, even if they could begin in the middle of one. One loop can then use the stacks of
    the other unchanged."""

    def __init__(self, state: set[Tensor]) -> None:
        self._state = state
        self._known: list[_Turns] = []

    @property
    def known(self) -> bool:
        return bool(self._known)

    def add(self, found: Recurrence) -> None:
        self._known.append(_Turns(found, self._state))

    def score(self, found: Sequence[Recurrence]) -> tuple[int, int]:
        """How well recurrences match those found so far: how many iterations use the variables of
        one iteration of another loop, and how many values such iterations exchange."""
        same = handed = 0
        for one in (_Turns(each, self._state) for each in found):
            for other in self._known:
                for here, variables in enumerate(one.variables):
                    there = {other.place[t] for t in variables if t in other.place}
                    if len(there) != 1:
                        continue
                    (turn,) = there
                    same += 1
                    handed += sum(one.made.get(t) == here for t in other.taken[turn])
                    handed += sum(other.made.get(t) == turn for t in one.taken[here])
        return same, handed


class _Turns:
    """A recurrence, iteration by iteration.

    Attributes:
        variables, taken: for each iteration, the variables and the other values from its own
            slices.
        place, made: the iteration that takes a variable; the iteration that computes a value.
    """

    def __init__(self, found: Recurrence, state: set[Tensor]) -> None:
        stacks: dict[bool, list[tuple[Tensor, ...]]] = {True: [], False: []}
        for stack in found.stacks:
            stacks[state.issuperset(stack)].append(stack)
        none: list[tuple[Tensor, ...]] = [()] * len(found.turns)
        self.variables = list(zip(*stacks[True], strict=True)) or none
        self.taken = list(zip(*stacks[False], strict=True)) or none
        self.place = {t: turn for turn, row in enumerate(self.variables) for t in row}
        self.made = {
            t: turn
            for turn, nodes in enumerate(found.turns)
            for node in nodes
            for t in node.outputs
        }


def _best_starts(row: Sequence[Node], repeat: Repeat) -> list[tuple[int, int]]:
    """Where the iterations may begin, and how many values then pass from one to the next, fewest
    first.

    The fewest values come first even if there is then one fewer iteration. The values are counted
    before the last iteration, because the operands of the first may have other origins.
    """
    period, skipped = repeat.period, max(0, (repeat.turns - 4) * repeat.period)
    window = row[repeat.start + skipped : repeat.start + repeat.length]
    last_use = {tensor: i for i, node in enumerate(window) for tensor in node.inputs}
    steps = [0] * (len(window) + 1)
    for i, node in enumerate(window):
        for tensor in node.outputs:
            steps[i + 1] += 1
            steps[last_use.get(tensor, i) + 1] -= 1
    passing = list(accumulate(steps))

    def before_last_turn(offset: int) -> int:
        turns = (repeat.length - offset) // period
        return passing[offset + (turns - 1) * period - skipped]

    offsets = range(min(period, repeat.length - 2 * period + 1))
    found = sorted((before_last_turn(offset), repeat.start + offset) for offset in offsets)
    best = [pair for pair in found if pair[0] == found[0][0]]  # the first has the most iterations
    return [*best[:_EQUAL_STARTS], *found[len(best) :][: max(0, _STARTS - len(best))]]


def _depends(found: Recurrence, carries: set[int] | None = None) -> bool:
    """Whether an iteration depends on the previous one: at least a third of its nodes, or of its
    work.

    If less depends on it (a sum that grows in each iteration), the iterations should run in
    parallel. A carry that does not depend on earlier carries only shows that an iteration begins in
    the middle of a block.

    Args:
        carries: the carries to consider; by default all.
    """
    carries = set(range(len(found.carries))) if carries is None else carries
    while True:
        reached = _reached(found, carries)
        lasting = {i for i in carries if _lasts(found.carries[i].following, reached, carries)}
        if lasting == carries:
            if 3 * len(reached) >= len(found.operands):
                return True
            work = [work_of(node) for node in found.turns[0]]
            return bool(reached) and 3 * sum(work[place] for place in reached) >= sum(work)
        carries = lasting


def _skips_turns(found: Recurrence) -> bool:
    """Whether the iterations depend on those two iterations back, but not on the previous one."""
    taken = {o.index for row in found.operands for o in row if isinstance(o, Carried)}
    before = {index for index in taken if isinstance(found.carries[index].following, Inner)}
    return before != taken and not _depends(found, before)


def _lasts(following: Inner | Carried, reached: set[int], carries: set[int]) -> bool:
    """Whether a carry's next value comes from a node that needs a carry, or is such a carry."""
    if isinstance(following, Carried):
        return following.index in carries
    return following.place in reached


def _reached(found: Recurrence, carries: set[int]) -> set[int]:
    """The places of an iteration's nodes that depend on one of these carries."""
    reached: set[int] = set()
    for place, operands in enumerate(found.operands):
        for operand in operands:
            from_turn = isinstance(operand, Inner) and operand.place in reached
            if from_turn or (isinstance(operand, Carried) and operand.index in carries):
                reached.add(place)
    return reached


_TINY = 2048  # elements: about as long as the overhead of one loop iteration on a CPU
_AT_ONCE = 4


def elements_of(found: Recurrence) -> int:
    """The number of elements that an iteration computes."""
    return sum(elements_in(t) for node in found.turns[0] for t in node.outputs)


def unroll_of(found: Recurrence, state: set[Tensor]) -> int:
    """How many iterations the compiled loop should run at once.

    Measured on CPU with 48 to 128 iterations: four at once make tiny iterations over shared weights
    (an unrolled recurrent network) 6 to 10 % faster. Iterations with parameters of their own become
    1.2 to 1.5 times slower, and all take longer to compile.
    """
    return 1 if has_parameters(found, state) or elements_of(found) > _TINY else _AT_ONCE
