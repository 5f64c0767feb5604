"""A pipeline without the passes that the user does not want."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from inspect import isabstract
from typing import Any

from graphc.config import CompileOptions
from graphc.errors import AttributeValueError, nearest
from graphc.passes.core.base import Pass


def without(passes: Sequence[Pass], options: CompileOptions) -> list[Pass]:
    """`passes` but those that `options.without_passes` names.

    Raises:
        AttributeValueError: there is no pass of such a name, or it cannot be left out.
    """
    if not options.without_passes:
        return list(passes)
    classes = pass_classes()
    known = {each.class_name() for each in classes if each.optional}
    needed = {each.class_name() for each in classes} - known
    for name in options.without_passes:
        if name in needed:
            raise AttributeValueError(
                f"CompileOptions: without_passes names {name!r}, which nothing works without",
            )
        if name not in known:
            raise AttributeValueError(
                f"CompileOptions: without_passes names {name!r}, which is no pass",
                hint=nearest(name, sorted(known)),
            )
    return [each for each in passes if each.name not in options.without_passes]


def pass_classes() -> list[type[Pass]]:
    """Every pass whose module is imported."""
    return [each for each in _below(Pass) if not isabstract(each)]


def _below(kind: Any) -> Iterator[type[Pass]]:
    classes: list[type[Pass]] = kind.__subclasses__()
    for each in classes:
        yield each
        yield from _below(each)
