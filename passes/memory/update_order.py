"""The order in which values are overwritten: each after those whose new value it uses, and before
those whose old value it uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphc.ir.node import Node, Tensor, is_among


def needed(new: Tensor, made: Mapping[Tensor, Node], written: Sequence[Tensor]) -> list[Tensor]:
    """All values from which a new value is computed, up to those that are already written."""
    found, stack = {new: None}, [new]
    while stack:
        tensor = stack.pop()
        if tensor in made and (tensor is new or not is_among(tensor, written)):
            stack += [t for t in made[tensor].inputs if t not in found]
            found.update(dict.fromkeys(made[tensor].inputs))
    return list(found)


def ordered(
    ends: Sequence[tuple[Tensor, Tensor]], made: Mapping[Tensor, Node]
) -> list[tuple[Tensor, Tensor]] | None:
    """The ends in an order such that each is written after those whose new value it uses, and
    before those whose old value it uses. None if there is no such order."""
    news = [new for new, _ in ends]
    needs = {end: set(needed(end[0], made, news)) for end in ends}
    left, done = list(ends), list[tuple[Tensor, Tensor]]()
    while left:
        for end in left:
            later = [other for other in left if other is not end]
            takes_new = any(new in needs[end] for new, _ in later)
            if not takes_new and not any(end[1] in needs[other] for other in later):
                break
        else:
            return None
        left = [other for other in left if other is not end]
        done.append(end)
    return done
