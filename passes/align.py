"""Loops over the same layers, made to run over the same ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphc.ir.node import Tensor
from graphc.passes.recurrence import Recurrence

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
    and join them. One more turn outside of the loop costs less. What would not be worth a loop
    any more stays as it is.
    """
    cut = list(found)
    for i in range(len(cut)):
        for j in range(len(cut)):
            if i != j:
                cut[i] = _cut_to(cut[i], cut[j], state, is_worth_it)
    return cut


def _cut_to(
    longer: Recurrence,
    other: Recurrence,
    state: set[Tensor],
    is_worth_it: Callable[[Recurrence], bool],
) -> Recurrence:
    """`longer` without the turns at its ends that `other` does not have."""
    for stack in longer.stacks:
        if not state.issuperset(stack):
            continue
        for shorter in other.stacks:
            members = set(shorter)
            inside = [i for i, tensor in enumerate(stack) if tensor in members]
            if not 2 <= len(inside) < len(stack):
                continue
            first, last = inside[0], inside[-1]
            if stack[first : last + 1] in (shorter, shorter[::-1]):
                smaller = longer.part(first, last)
                return smaller if is_worth_it(smaller) else longer
    return longer
