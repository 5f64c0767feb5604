"""Training steps from optax transformations."""

from typing import TYPE_CHECKING

from graphc.ir.namespaces import namespace as _namespace
from graphc.optim.apply import apply_gradients as apply_gradients
from graphc.optim.averages import MovingAverages as MovingAverages
from graphc.optim.averages import moving_averages as moving_averages
from graphc.optim.step import minimize as minimize

if not TYPE_CHECKING:  # hidden from type checkers, which would then accept any name
    __all__, __dir__, __getattr__ = _namespace(__name__, globals())
