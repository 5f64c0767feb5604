"""`gc.random`: random numbers, drawn anew in every run, and keys."""

import typing

from graphc import exports
from graphc.ops.draws import random_keys
from graphc.ops.draws.categorical import *
from graphc.ops.draws.counts import *
from graphc.ops.draws.distributions import *
from graphc.ops.draws.random_draws import *
from graphc.ops.draws.random_keys import *
from graphc.ops.draws.transformed_draws import *

bits = random_keys.random_bits
split = random_keys.split_key

if not typing.TYPE_CHECKING:  # type checkers read the imports
    __all__ = exports.names(globals())

    def __dir__() -> list[str]:
        return __all__
