"""Initial values for variables: `gc.nn.initializers.HeNormal()`."""

import typing

from graphc import exports
from graphc.build.initializers import *
from graphc.ir.name_errors import no_function as _no_function

if not typing.TYPE_CHECKING:  # type checkers read the imports
    __all__ = exports.names(globals())

    def __dir__() -> list[str]:
        return __all__

    def __getattr__(name: str) -> typing.NoReturn:
        raise _no_function("graphc.nn.initializers", name, __all__)
