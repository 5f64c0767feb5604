"""Training steps from optax transformations."""

from graphc.optim.step import minimize as minimize

__all__ = ["minimize"]
