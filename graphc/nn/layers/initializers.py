"""Initial values for variables: `gc.nn.initializers.HeNormal()`."""

import typing

from graphc import exports
from graphc.build.initializers import *

if not typing.TYPE_CHECKING:  # type checkers read the imports
    __all__ = exports.names(globals())

    def __dir__() -> list[str]:
        return __all__
