"""Errors for calls with wrong arguments. They state the parameters and the nearest argument."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from graphc.errors import ArgumentError, GraphcError
from graphc.ir.name_errors import nearest_keyword
from graphc.ir.source import current_source

F = TypeVar("F", bound=Callable[..., Any])


def explained(function: F, hint: str | None = None) -> F:
    """Wraps a function so that it raises `ArgumentError` where Python would raise a bare
    `TypeError` because the arguments do not fit its signature. Errors of graphc that have no source
    line get the user's line.

    Args:
        hint: the hint of the error, unless an argument has the wrong name.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except GraphcError as error:
            if error.source is None:
                error.source = current_source()
            raise
        except TypeError as error:
            misuse = _misuse(function, args, kwargs, hint)
            if misuse is None:  # the error is another one, from inside the function
                raise
            raise misuse from error

    call.is_explained = True  # type: ignore[attr-defined]
    return cast(F, call)


def explain_constructor(cls: type[Any]) -> None:
    """Applies `explained` to the constructor that a class defines."""
    own = vars(cls).get("__init__")
    if inspect.isfunction(own) and not hasattr(own, "is_explained"):
        cls.__init__ = explained(own)


def explain_methods(cls: type[Any]) -> None:
    """Applies `explained` to the public methods that a class defines."""
    for name, method in list(vars(cls).items()):
        if inspect.isfunction(method) and not name.startswith("_"):
            setattr(cls, name, explained(method))


def explain_all(namespace: dict[str, Any], package: str) -> None:
    """Replaces the public functions of a package by functions that explain wrong arguments, both in
    a namespace and in the modules that define them. Names already bound elsewhere do not change.

    Args:
        namespace: the `globals()` of a module that collects names.
        package: functions defined outside it are not replaced.
    """
    found: dict[Any, Any] = {}
    for name, value in namespace.items():
        if name.startswith("_") or not inspect.isfunction(value) or hasattr(value, "is_explained"):
            continue
        if value.__module__.startswith(package):
            found.setdefault(value, explained(value))
    homes = [vars(sys.modules[name]) for name in {value.__module__ for value in found}]
    for names in (namespace, *homes):
        for name, value in names.items():
            if inspect.isfunction(value) and value in found:
                names[name] = found[value]


def _misuse(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], hint: str | None
) -> ArgumentError | None:
    """The error for these arguments, or None if they fit the signature."""
    signature = inspect.signature(function)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        what = str(error)
    else:
        return None
    name = _name_of(function, args)
    parameters = [p for p in signature.parameters.values() if p.name != "self"]
    names = [p.name for p in parameters]
    unknown = [k for k in kwargs if k not in names]
    if unknown:
        what = f"it has no argument {unknown[0]!r}"
        hint = nearest_keyword(unknown[0], names)
    elif hint is None:
        own = args[1:] if "self" in signature.parameters else args
        hint = _form(name, parameters, own, too_many="too many" in what)
    return ArgumentError.here(
        f"{name}: {what}", details=[f"it takes {_signature(signature)}"], hint=hint
    )


def _name_of(function: Callable[..., Any], args: tuple[Any, ...]) -> str:
    """The name by which users know the function; for a method, with the object's public class."""
    name = function.__qualname__
    owner, _, method = name.rpartition(".")
    if owner and args and any(c.__qualname__ == owner for c in type(args[0]).__mro__):
        own = [c for c in type(args[0]).__mro__ if c.__module__.startswith("graphc.")]
        public = [c.__qualname__ for c in own if not c.__name__.startswith("_")]
        if public:
            name = f"{public[0]}.{method}"
    return name.removesuffix(".__init__").removesuffix(".__call__")


# Parameters that take several values as one tuple or list.
_SEVERAL = ("shape", "axes", "reps", "tensors", "layers", "fetches", "variables")


def _form(
    name: str, parameters: list[inspect.Parameter], args: tuple[Any, ...], too_many: bool
) -> str | None:
    """A hint that shows the right call if arguments are missing or there are too many."""
    required = [p for p in parameters if p.default is p.empty]
    by_name = [f"{p.name}=..." for p in required if p.kind is p.KEYWORD_ONLY]
    if by_name:
        before = [p.name for p in required if p.kind is not p.KEYWORD_ONLY]
        return f"{name}({', '.join([*before, *by_name])})"
    if not too_many:
        return f"{name}({', '.join(p.name for p in required if p.kind is not p.VAR_POSITIONAL)})"
    names = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
    several = next((each for each in names if each in _SEVERAL), None)
    if several is None:
        rest = [f"{p.name}=" for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "name"]
        if rest:
            return f"give these by name: {', '.join(rest)}"
        return f"{name}({', '.join(names)})"
    place = names.index(several)
    values = args[place:]
    shown = repr(values) if all(isinstance(v, int) for v in values) else "[a, b, ...]"
    return f"{several} is one argument: {name}({', '.join([*names[:place], shown])})"


def _signature(signature: inspect.Signature) -> str:
    """The parameters with their default values, without types."""
    kept = [
        p.replace(annotation=inspect.Parameter.empty)
        for p in signature.parameters.values()
        if p.name != "self"
    ]
    return str(signature.replace(parameters=kept, return_annotation=inspect.Signature.empty))
