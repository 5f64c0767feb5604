"""Errors for unknown names. They suggest the name in graphc, or the nearest known name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from graphc.errors import UnknownAttributeError, nearest
from graphc.ir.foreign_arguments import KEYWORDS, REMARKS
from graphc.ir.foreign_names import ASSIGNMENTS, ATTRIBUTES, FUNCTIONS, MEMBERS
from graphc.ir.source import current_source


def no_attribute(owner: Any, name: str) -> AttributeError:
    """The error for an attribute that a tensor or a variable does not have."""
    kind = type(owner).__name__
    if name.startswith("_"):
        return AttributeError(f"{kind!r} object has no attribute {name!r}", name=name, obj=owner)
    return UnknownAttributeError(
        f"{owner!r} has no attribute {name!r}",
        source=current_source(),
        hint=_advice(name, ATTRIBUTES, dir(type(owner))),
    )


def no_assignment(owner: object, name: str) -> AttributeError:
    """The error for `owner.name = value` if the owner is a tensor, a variable or a layer."""
    if name.startswith("_"):
        return AttributeError(f"{owner!r} has no attribute {name!r} to set", name=name, obj=owner)
    return UnknownAttributeError(
        f"{owner!r}: its {name!r} cannot be set",
        source=current_source(),
        hint=ASSIGNMENTS.get(
            name, "a tensor never changes; a dict can map tensors to what you add"
        ),
    )


def no_member(owner: object, kind: str, name: str) -> AttributeError:
    """The error for an attribute that an object of a class in `MEMBERS` does not have."""
    own = type(owner).__name__
    if name.startswith("_"):
        return AttributeError(f"{own!r} object has no attribute {name!r}", name=name, obj=owner)
    return UnknownAttributeError(
        f"{own} has no attribute {name!r}",
        source=current_source(),
        hint=_advice(name, MEMBERS[kind], dir(type(owner))),
    )


def no_function(module: str, name: str, known: Iterable[str]) -> AttributeError:
    """The error for a name that a public module does not have."""
    if name.startswith("_"):
        return AttributeError(f"module {module!r} has no attribute {name!r}", name=name)
    return UnknownAttributeError(
        f"module {module!r} has no attribute {name!r}",
        source=current_source(),
        hint=_advice(name, FUNCTIONS, known),
    )


def _advice(name: str, foreign: dict[str, str], known: Iterable[str]) -> str | None:
    if name in foreign:
        return f"write {foreign[name]}"
    public = [k for k in known if not k.startswith("_")]
    by_case = {k.lower().replace("_", ""): k for k in public}
    same = by_case.get(name.lower().replace("_", ""))
    return f"did you mean {same!r}?" if same else nearest(name, public)


def nearest_keyword(name: str, known: Iterable[str]) -> str | None:
    """A `hint` line for an unknown argument: its name in graphc, or the nearest argument."""
    names = list(known)
    if name == "keep_prob" and "rate" in names:
        return "rate= is the probability of zero: rate = 1 - keep_prob"
    for other in KEYWORDS.get(name, ()):
        if other in names:
            return f"it is called {other}= here"
    if name in REMARKS:
        return f"leave it out: {REMARKS[name]}"
    hint = nearest(name, names)
    if "feeds" in names and hint is not None and hint.startswith("known names"):
        return "feeds are one dict: {x: value}, from placeholders or their names"
    return hint
