"""Training loops."""

import typing

from graphc import exports
from graphc.ir.name_errors import no_function as _no_function
from graphc.optim import MovingAverages as MovingAverages
from graphc.optim import apply_gradients as apply_gradients
from graphc.optim import moving_averages as moving_averages
from graphc.train.loop import History as History
from graphc.train.loop import Job as Job
from graphc.train.loop import fit as fit

if not typing.TYPE_CHECKING:  # type checkers read the imports
    __all__ = exports.names(globals())

    def __dir__() -> list[str]:
        return __all__

    def __getattr__(name: str) -> typing.NoReturn:
        raise _no_function("graphc.train", name, __all__)
