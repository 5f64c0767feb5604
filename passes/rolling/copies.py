"""Loops whose copies of parameters cost more than the loops save."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from graphc.ir.costs import bytes_of
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ops.core.emit import CONSTANT
from graphc.ops.structure.ordering import FENCE
from graphc.passes.core.costs import node_cost
from graphc.passes.rolling.recurrence import Recurrence, elements_in

_LARGE = 1 << 18  # bytes: smaller arrays are copied within a core's cache
_MANY = 2048  # nodes, without a loop: above, XLA takes more than linear time to compile them


def work_of(node: Node) -> int:
    """The floating-point operations of a node, or its number of elements if sizes are named."""
    if all(t.type.is_static for t in (*node.inputs, *node.outputs)):
        return node_cost(node).flops
    return sum(map(elements_in, node.outputs))


def without_copies(
    found: Sequence[Recurrence], program: Program, worth: int, trained: bool
) -> list[Recurrence]:
    """The recurrences, except those that would copy much for little work.

    A loop copies the slice of each iteration, and arrays that a caller passes one by one are first
    copied into a stack, in each run; those that a loop passes to its body, in each iteration of
    that loop. A program without loops reads all of them where they are.
    State that steps change is stored as a stack, and its new values are written in any case.

    Recurrences over the same parameters, such as the forward and the backward pass, stay together.
    Copies of small arrays count for nothing if there are many nodes, which take long to compile,
    or values that are computed again to save memory: XLA:CPU computes them again only in a loop.

    Args:
        worth: how many floating-point operations of all iterations each byte must be worth. For
            large feeds, and operands of a body, each iteration must do as many.
        trained: whether the state that the program only reads is changed by others, and counts for
            nothing.
    """
    kept = _constants(program) if trained else _constants(program) | unchanged(program)
    apart = {*program.input_tensors("feed"), *program.input_tensors("arg")}
    large = {t for t in apart if bytes_of(t) >= _LARGE}

    def is_worth_it(group: Sequence[Recurrence]) -> bool:
        turns = max(len(each.turns) for each in group)
        work = sum(work_of(node) for each in group for node in each.turns[0])
        nodes = [node for each in group for turn in each.turns for node in turn]
        counts_small = len(nodes) <= _MANY and not any(map(_has_fence, nodes))
        copied = apart if counts_small else large
        once = sum(_bytes(each, kept) for each in group)
        always = sum(_bytes(each, copied) for each in group)
        return turns * work >= worth * (once + turns * always)

    groups = _together(found, kept | apart)
    bad = {id(each) for group in groups if not is_worth_it(group) for each in group}
    return [each for each in found if id(each) not in bad]


def unchanged(program: Program) -> set[Tensor]:
    """The state that a program only reads."""
    changed = {port.name for port in program.new_state()}
    return {port.tensor for port in program.ports("state") if port.name not in changed}


def _constants(program: Program) -> set[Tensor]:
    return {t for node in program.nodes if node.op is CONSTANT for t in node.outputs}


def _has_fence(node: Node) -> bool:
    inner = (n for body in node.regions for n in body.walk())
    return node.op is FENCE or any(n.op is FENCE for n in inner)


def _bytes(found: Recurrence, tensors: set[Tensor]) -> int:
    """The bytes of an iteration's slices of stacks of these tensors."""
    return bytes_of(*[stack[0] for stack in found.stacks if tensors.issuperset(stack)])


def _together(found: Iterable[Recurrence], tensors: set[Tensor]) -> list[list[Recurrence]]:
    """The recurrences in groups: those that use some of the same stacked tensors."""
    groups: list[tuple[set[Tensor], list[Recurrence]]] = []
    for each in found:
        own = {t for stack in each.stacks for t in stack} & tensors
        sharing = [group for group in groups if not group[0].isdisjoint(own)]
        groups = [group for group in groups if group[0].isdisjoint(own)]
        joined = own.union(*[group[0] for group in sharing])
        groups.append((joined, [*[one for group in sharing for one in group[1]], each]))
    return [group for _, group in groups]
