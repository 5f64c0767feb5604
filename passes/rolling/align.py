"""Loops over the same layers, made to run over the same ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphc.ir.node import Tensor, same_items
from graphc.passes.rolling.recurrence import Recurrence

Tensors = tuple[Tensor, ...]


def align(
    found: Sequence[Recurrence],
    state: set[Tensor],
    is_worth_it: Callable[[Recurrence], bool],
) -> list[Recurrence]:
    """The recurrences, cut so that those over the same variables run over the same number.

    The backward pass of the first layer often differs (nothing needs the gradient of its
    input), so its loop is shorter by one turn than the forward pass's. Variables are stored
    stacked: were they to be stacked once with and once without the first, each step would cut
    and join them. One more turn outside of the loop costs less. Where more is cut off, as from
    the forward pass of layers that are not trained, it is a loop of its own. What would not be
    worth a loop any more stays as it is.
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


def _pieces(
    longer: Recurrence,
    other: Recurrence,
    state: set[Tensor],
    is_worth_it: Callable[[Recurrence], bool],
) -> list[Recurrence]:
    """`longer` in pieces, one of which has the turns in common with `other`; or none."""
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
    """Whether the tensors stand side by side in `whole`, in this order."""
    start = next((i for i, tensor in enumerate(whole) if tensor is part[0]), 0)
    return same_items(whole[start : start + len(part)], part)
