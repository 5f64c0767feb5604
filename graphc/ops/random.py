"""`gc.random`: random numbers, drawn anew in every run, and keys."""

import typing

from graphc.ir.calls import explain_all as _explain_all
from graphc.ir.namespaces import namespace as _namespace
from graphc.ops.draws import random_keys
from graphc.ops.draws.categorical import *
from graphc.ops.draws.counts import *
from graphc.ops.draws.distributions import *
from graphc.ops.draws.dropout import *
from graphc.ops.draws.location_scale import *
from graphc.ops.draws.random_draws import *
from graphc.ops.draws.random_keys import *
from graphc.ops.draws.transformed_draws import *

bits = random_keys.random_bits
split = random_keys.split_key

_explain_all(globals(), "graphc")

if not typing.TYPE_CHECKING:  # type checkers read the imports
    __all__, __dir__, __getattr__ = _namespace("graphc.random", globals())
