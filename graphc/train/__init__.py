"""Training loops."""

import typing

from graphc.ir.namespaces import namespace as _namespace
from graphc.optim import MovingAverages as MovingAverages
from graphc.optim import apply_gradients as apply_gradients
from graphc.optim import moving_averages as moving_averages
from graphc.train.loop import History as History
from graphc.train.loop import Job as Job
from graphc.train.loop import fit as fit

if not typing.TYPE_CHECKING:  # type checkers read the imports
    __all__, __dir__, __getattr__ = _namespace("graphc.train", globals())
