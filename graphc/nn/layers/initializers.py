"""Initial values for variables: `gc.nn.initializers.HeNormal()`."""

import typing

from graphc.build.initializers import *
from graphc.build.scaled_initializers import *
from graphc.ir.namespaces import namespace as _namespace

if not typing.TYPE_CHECKING:  # type checkers read the imports
    __all__, __dir__, __getattr__ = _namespace("graphc.nn.initializers", globals())
