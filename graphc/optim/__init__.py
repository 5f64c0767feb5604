"""Training steps from optax transformations."""

from graphc.optim.apply import apply_gradients as apply_gradients
from graphc.optim.averages import MovingAverages as MovingAverages
from graphc.optim.averages import moving_averages as moving_averages
from graphc.optim.step import minimize as minimize
