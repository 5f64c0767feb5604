"""Removes the passes that the user disabled from a pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from inspect import isabstract
from typing import Any

from graphc.config import CompileOptions
from graphc.errors import AttributeValueError, nearest
from graphc.passes.core.base import Pass


def without(passes: Sequence[Pass], options: CompileOptions) -> list[Pass]:
    """`passes` without those that `options.without_passes` names.

    Raises:
        AttributeValueError: no pass has such a name, or the pass cannot be disabled.
    """
    if not options.without_passes:
        return list(passes)
    # Programs are compiled without these, but `gc.freeze` takes the same options.
    from graphc.passes.frozen import (  # noqa: F401
        fold_norms,
        hoist_frozen,
        remove_dropout,
        straight_weights,
    )
    from graphc.passes.simplify import sink_constants  # noqa: F401

    classes = pass_classes()
    known = {each.class_name() for each in classes if each.optional}
    needed = {each.class_name() for each in classes} - known
    for name in options.without_passes:
        if name in needed:
            raise AttributeValueError(
                f"CompileOptions: without_passes names {name!r}, which is required",
            )
        if name not in known:
            raise AttributeValueError(
                f"CompileOptions: without_passes names {name!r}, which is not a pass",
                hint=nearest(name, sorted(known)),
            )
    return [each for each in passes if each.name not in options.without_passes]


def pass_classes() -> list[type[Pass]]:
    """All passes whose modules are imported."""
    return [each for each in _below(Pass) if not isabstract(each)]


def _below(kind: Any) -> Iterator[type[Pass]]:
    classes: list[type[Pass]] = kind.__subclasses__()
    for each in classes:
        yield each
        yield from _below(each)
