"""Errors for unknown names. They suggest the name in graphc, or the nearest known name."""

from __future__ import annotations

import difflib
import inspect
import sys
from collections.abc import Iterable, Iterator
from typing import Any, Final

from graphc.errors import UnknownAttributeError, nearest
from graphc.ir.foreign_arguments import KEYWORDS, REMARKS
from graphc.ir.foreign_members import MEMBERS
from graphc.ir.foreign_names import ASSIGNMENTS, ATTRIBUTES, FUNCTIONS
from graphc.ir.other_libraries import counterpart

# The public modules in which a name is looked for that is missing elsewhere.
_MODULES: Final = (
    "gc",
    "gc.nn",
    "gc.linalg",
    "gc.random",
    "gc.fft",
    "gc.train",
    "gc.metrics",
    "gc.data",
    "gc.devices",
    "gc.nn.initializers",
)


def no_attribute(owner: Any, name: str) -> AttributeError:
    """The error for an attribute that a tensor or a variable does not have."""
    kind = type(owner).__name__
    if name.startswith("_"):
        return AttributeError(f"{kind!r} object has no attribute {name!r}", name=name, obj=owner)
    return UnknownAttributeError.here(
        f"{owner!r} has no attribute {name!r}", hint=_tensor_advice(name, dir(type(owner)))
    )


def no_assignment(owner: object, name: str) -> AttributeError:
    """The error for `owner.name = value` if the owner is a tensor, a variable or a layer."""
    if name.startswith("_"):
        return AttributeError(f"{owner!r} has no attribute {name!r} to set", name=name, obj=owner)
    return UnknownAttributeError.here(
        f"{owner!r}: its {name!r} cannot be set",
        hint=ASSIGNMENTS.get(
            name, "a tensor never changes; a dict can map tensors to what you add"
        ),
    )


def no_member(owner: object, kinds: Iterable[str | type], name: str) -> AttributeError:
    """The error for an attribute that an object does not have.

    Args:
        kinds: names of classes, or the classes; the first in `MEMBERS` has the advice.
    """
    known = [each if isinstance(each, str) else each.__name__ for each in kinds]
    kind = next((each for each in known if each in MEMBERS), "")
    own = type(owner).__name__
    if name.startswith("_"):
        return AttributeError(f"{own!r} object has no attribute {name!r}", name=name, obj=owner)
    return UnknownAttributeError.here(
        f"{own} has no attribute {name!r}", hint=_member_advice(name, kind, dir(type(owner)))
    )


def no_function(module: str, name: str, known: Iterable[str]) -> AttributeError:
    """The error for a name that a public module does not have."""
    if name.startswith("_"):
        return AttributeError(f"module {module!r} has no attribute {name!r}", name=name)
    return UnknownAttributeError.here(
        f"module {module!r} has no attribute {name!r}", hint=function_hint(module, name, known)
    )


def _tensor_advice(name: str, known: Iterable[str]) -> str:
    own = _public(known)
    return (
        _in_table(name, ATTRIBUTES)
        or counterpart(name, "Tensor", elsewhere=False)
        or _changing_method(name, own)
        or _respelled(name, own)
        or _function_of_x(name)
        or counterpart(name, "Tensor")
        or _close(name, own)
        or "dir(gc.Tensor) has the attributes; the functions of gc take tensors, such as gc.exp(x)"
    )


def function_hint(module: str, name: str, known: Iterable[str]) -> str:
    """The hint for a function `name` that the public module `module` does not have."""
    own = _public(known)
    short = module.replace("graphc", "gc", 1)
    return (
        _in_table(name, FUNCTIONS)
        or counterpart(name, module, elsewhere=False)
        or _respelled(name, own)
        or next((f"write {path}.{name}" for path, has in _elsewhere(module) if name in has), None)
        or counterpart(name, module)
        or _close(name, own)
        or _close_in_other_module(name, module)
        or f"dir({short}) has the names; the page of names in the documentation has those of "
        "TensorFlow, Keras, PyTorch and NumPy"
    )


def _member_advice(name: str, kind: str, known: Iterable[str]) -> str | None:
    own = _public(known)
    return _in_table(name, MEMBERS.get(kind, {})) or _respelled(name, own) or nearest(name, own)


def _in_table(name: str, foreign: dict[str, str]) -> str | None:
    return f"write {foreign[name]}" if name in foreign else None


def _respelled(name: str, own: Iterable[str]) -> str | None:
    """The name with other capitals and underscores."""
    same = [k for k in own if _folded(k) == _folded(name)]
    same.sort(key=lambda k: k[0].isupper() != name[0].isupper())  # Conv2d is Conv2D, not conv2d
    return f"did you mean {same[0]!r}?" if same else None


def _changing_method(name: str, own: list[str]) -> str | None:
    """The hint for PyTorch's methods that change a tensor, such as `x.clip_()`."""
    base = name.rstrip("_")
    if base == name:
        return None
    hint = f"write x.{base}(...)" if base in own else _in_table(base, ATTRIBUTES)
    hint = hint or _function_of_x(base)
    return hint and f"{hint}: a tensor never changes"


def _close_in_other_module(name: str, module: str) -> str | None:
    full = {found: f"{path}.{found}" for path, names in _elsewhere(module) for found in names}
    close = difflib.get_close_matches(name, full, n=1, cutoff=0.8)
    return f"did you mean {full[close[0]]}?" if close else None


def _folded(name: str) -> str:
    return name.lower().replace("_", "")


def _public(names: Iterable[str]) -> list[str]:
    return [name for name in names if not name.startswith("_")]


def _close(name: str, known: Iterable[str]) -> str | None:
    """A name that differs by a slip. Names that are less alike would mislead."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.75)
    close = close or [other for other in names if _is_one_slip(name, other)]
    return f"did you mean {close[0]!r}?" if close else None


def _is_one_slip(name: str, other: str) -> bool:
    """Whether one letter is wrong, or two neighbours are exchanged, in a short name."""
    if len(name) != len(other) or len(name) < 3:
        return False
    wrong = [i for i, (a, b) in enumerate(zip(name, other, strict=True)) if a != b]
    swapped = len(wrong) == 2 and sorted(name) == sorted(other) and wrong[1] == wrong[0] + 1
    return len(wrong) == 1 or swapped


def _elsewhere(module: str = "") -> Iterator[tuple[str, list[str]]]:
    """The paths and names of the other public modules, as the user sees them."""
    package = sys.modules["graphc"]
    for path in _MODULES:
        found: Any = package
        for part in path.split(".")[1:]:
            found = getattr(found, part)
        if found.__name__.replace("graphc.ops.", "graphc.") != module:
            yield path, _public(dir(found))


def _function_of_x(name: str) -> str | None:
    """`write gc.name(x, ...)` if there is such a function of a tensor."""
    for path, names in _elsewhere():
        if name not in names:
            continue
        function: Any = sys.modules["graphc"]
        for part in [*path.split(".")[1:], name]:
            function = getattr(function, part)
        if not inspect.isfunction(function):
            continue
        parameters = list(inspect.signature(function).parameters.values())
        if parameters and parameters[0].name in ("x", "a"):
            needed = [p.name for p in parameters[1:] if p.default is p.empty]
            return f"write {path}.{name}({', '.join(['x', *needed])})"
    return None


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
