"""Aligns loops over the same layers, so that they run over the same range of layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from graphc.ir.node import Tensor, same_items
from graphc.passes.rolling.recurrence import Inner, Recurrence, elements_in

Tensors = tuple[Tensor, ...]


def align(
    found: Sequence[Recurrence], state: set[Tensor], is_worth_it: Callable[[Recurrence], bool]
) -> list[Recurrence]:
    """The recurrences, cut so that those over the same variables have the same number of
    iterations.

    The backward pass of the first layer often differs, because nothing needs the gradient of its
    input. Its loop is then one iteration shorter than that of the forward pass. Variables are
    stored stacked. If they were stacked once with and once without the first layer, each step would
    cut and join them. One more iteration outside of the loop costs less. If more is cut off, as
    from the forward pass of layers that are not trained, it becomes a separate loop. A recurrence
    that would no longer be worth a loop stays as it is.
    """
    done: list[Recurrence] = []
    waiting = list(found)
    while waiting:
        longer = waiting.pop(0)
        for other in (*done, *waiting):
            pieces = _pieces(longer, other, state, is_worth_it)
            if pieces:
                waiting[:0] = pieces
                break
        else:
            done.append(longer)
    return done


def cut_to_readers(
    found: Sequence[Recurrence], state: set[Tensor], is_worth_it: Callable[[Recurrence], bool]
) -> list[Recurrence]:
    """The recurrences, where those without their own variables are cut to the iterations that
    others read.

    The backward pass of the first and the last step of an unrolled recurrent network lacks nodes,
    so its loop is shorter. It would read a part of each stack of the forward pass, and each part
    would be a copy. A copy of few elements costs less than an iteration outside of the loop.
    """
    done = []
    for maker in found:
        part = maker
        if not any(state.issuperset(stack) for stack in maker.stacks):
            first, last = _turns_read(maker, [other for other in found if other is not maker])
            if len(maker.turns) - _MOST_CUT <= last - first + 1 < len(maker.turns):
                part = maker.part(first, last)
        done.append(part if is_worth_it(part) else maker)
    return done


_MOST_CUT = 2  # iterations outside of a loop
_COPIED = 1 << 16  # elements


def _turns_read(maker: Recurrence, others: Sequence[Recurrence]) -> tuple[int, int]:
    """The first and the last iteration whose values most stacks of the others hold.

    All iterations if one of these stacks holds more, or if the stacks are small.
    """
    everything = 0, len(maker.turns) - 1
    copied = 0
    made: dict[Tensor, int] = {}
    for k, turn in enumerate(maker.turns):
        made.update((t, k) for node in turn for t in node.outputs)
    follows = {c.following for c in maker.carries if isinstance(c.following, Inner)}
    carried = {turn[f.place].outputs[f.result] for turn in maker.turns for f in follows}
    ranges: Counter[tuple[int, int]] = Counter()
    for stack in (stack for other in others for stack in other.stacks):
        turns = [made.get(t, -1) for t in stack]
        if turns[0] > turns[-1]:
            turns.reverse()
        if turns[-1] < 0:
            continue
        if stack[0] in carried or stack[-1] in carried:
            continue  # also the values that enter the iterations after it
        if turns != list(range(turns[0], turns[-1] + 1)):
            return everything
        ranges[turns[0], turns[-1]] += 1
        copied += sum(elements_in(t) for t in stack)
    if copied < _COPIED:
        return everything
    first, last = ranges.most_common(1)[0][0]
    inside = all(first <= a and b <= last for a, b in ranges)
    return (first, last) if inside and last > first else everything


def _pieces(
    longer: Recurrence,
    other: Recurrence,
    state: set[Tensor],
    is_worth_it: Callable[[Recurrence], bool],
) -> list[Recurrence]:
    """Splits `longer` so that one piece has the iterations in common with `other`; [] if it
    cannot."""
    for stack in longer.stacks:
        if not state.issuperset(stack):
            continue
        for tensors in other.stacks:
            members = set(tensors)
            inside = [i for i, tensor in enumerate(stack) if tensor in members]
            if not 2 <= len(inside) < len(stack):
                continue
            first, last = inside[0], inside[-1]
            part = stack[first : last + 1]
            if not (_is_run(part, tensors) or _is_run(part[::-1], tensors)):
                continue
            common = longer.part(first, last)
            if is_worth_it(common):
                ends = ((0, first - 1), (last + 1, len(stack) - 1))
                rest = [longer.part(a, b) for a, b in ends if a < b]
                return [common, *filter(is_worth_it, rest)]
    return []


def _is_run(part: Tensors, whole: Tensors) -> bool:
    """Whether the tensors are adjacent in `whole`, in this order."""
    start = next((i for i, tensor in enumerate(whole) if tensor is part[0]), 0)
    return same_items(whole[start : start + len(part)], part)
