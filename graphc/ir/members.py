"""A base class of objects that users hold, for which other libraries have other methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from graphc.ir.calls import explain_constructor
from graphc.ir.name_errors import no_member


class Missing:
    """A name that the instances of a class do not have: reading it raises graphc's error."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: object, owner: type[Any]) -> NoReturn:
        if instance is None:
            raise AttributeError(f"type object {owner.__name__!r} has no attribute {self.name!r}")
        raise no_member(instance, owner.__mro__, self.name)


class Helpful:
    """Unknown attributes and wrong arguments of the constructor give graphc's errors.

    The table `MEMBERS` of `graphc.ir.foreign_members` has the names of other libraries, by the name
    of the class.
    """

    __slots__ = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        explain_constructor(cls)

    if not TYPE_CHECKING:  # hidden from type checkers, which would accept any name

        def __getattr__(self, name: str) -> NoReturn:
            raise no_member(self, type(self).__mro__, name)
