"""`__all__`, `__dir__` and `__getattr__` for public modules that collect names of other modules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NoReturn

from graphc import exports
from graphc.ir.calls import explain_constructor
from graphc.ir.name_errors import no_function


def namespace(
    module: str, members: Mapping[str, object], more: Iterable[str] = ()
) -> tuple[list[str], Callable[[], list[str]], Callable[[str], NoReturn]]:
    """`__all__`, `__dir__` and `__getattr__` of a public module, whose classes explain wrong
    arguments of their constructors.

    Args:
        module: its public name, for the error for an unknown name.
        members: its `globals()`, after all imports.
        more: public names in addition to those of `exports.names`, such as submodules.
    """
    names = [*exports.names(members), *more]
    for value in members.values():
        if isinstance(value, type) and value.__module__.startswith("graphc."):
            explain_constructor(value)

    def missing(name: str) -> NoReturn:
        raise no_function(module, name, names)

    return names, lambda: names, missing
