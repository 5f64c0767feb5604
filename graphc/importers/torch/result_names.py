"""The names of a module's results, from the keys of the nest that it returns."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any


class _Position(str):
    """What stands in a nest for a result: its name without a key."""


def result_names(
    count: int, filled: Callable[[list[Any]], Any], taken: Container[str | None]
) -> tuple[str, ...]:
    """`logits` for the result `{"logits": logits}`, and `cache_0` for the first of
    `{"cache": (a, b)}`. Results without keys, and those whose keys are no names in Python or are
    taken, are `output_0`, `output_1`, and so on.

    Args:
        count: the number of results that are tensors.
        filled: (one value for each of them) -> the nest with these values.
        taken: names of inputs, from which those of outputs must differ.
    """
    positions = [_Position(f"output_{number}") for number in range(count)]
    try:
        nest = filled(list(positions))
    except Exception:  # a class that checks what it holds
        nest = None
    found = {str(position): "_".join(path) for path, position in _leaves(nest)}
    names = [
        found[position]
        if found.get(position, "").isidentifier() and found[position] not in taken
        else str(position)
        for position in positions
    ]
    return tuple(names if len(set(names)) == count else map(str, positions))


def _leaves(nest: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], _Position]]:
    """The positions in a nest, with the keys that lead to them. A number counts only after a key:
    a tuple at the top has no keys."""
    if isinstance(nest, _Position):
        yield path, nest
    elif isinstance(nest, tuple) and hasattr(nest, "_fields"):
        for field, part in zip(nest._fields, nest, strict=True):
            yield from _leaves(part, (*path, field))
    elif isinstance(nest, Mapping):
        for key, part in nest.items():
            yield from _leaves(part, (*path, str(key)))
    elif isinstance(nest, (list, tuple)):
        for number, part in enumerate(nest):
            yield from _leaves(part, (*path, str(number)) if path else ())
