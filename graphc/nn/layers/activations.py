"""Activations by name, for the `activation=` of layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from graphc.errors import AttributeValueError, nearest
from graphc.ir.node import Tensor
from graphc.nn.functional import nonlinear
from graphc.ops.elementwise import activation, transcendental

__all__ = ["ACTIVATIONS"]

Activation = Callable[[Tensor], Tensor]

ACTIVATIONS: Final[dict[str, Callable[..., Tensor]]] = {
    "celu": nonlinear.celu,
    "elu": activation.elu,
    "gelu": activation.gelu,
    "hard_sigmoid": nonlinear.hard_sigmoid,
    "hard_silu": nonlinear.hard_silu,
    "hard_tanh": nonlinear.hard_tanh,
    "leaky_relu": activation.leaky_relu,
    "log_sigmoid": nonlinear.log_sigmoid,
    "log_softmax": activation.log_softmax,
    "mish": nonlinear.mish,
    "relu": activation.relu,
    "relu6": activation.relu6,
    "selu": nonlinear.selu,
    "sigmoid": transcendental.sigmoid,
    "silu": activation.silu,
    "softmax": activation.softmax,
    "softplus": transcendental.softplus,
    "softsign": nonlinear.softsign,
    "squareplus": nonlinear.squareplus,
    "swish": nonlinear.swish,
    "tanh": transcendental.tanh,
}
"""The activations by the names that layers take, such as `Dense(8, activation="relu")`."""


def identity(x: Tensor) -> Tensor:
    """Returns `x`: the function of a layer without an activation."""
    return x


def as_activation(value: Any) -> Activation | None:
    """Returns `value` as a function of a tensor. It may be a name in `ACTIVATIONS`, a function, or
    None for no activation, which Keras calls "linear".

    Raises:
        AttributeValueError: `value` is an unknown name, or none of these.
    """
    if value == "linear":
        return None
    if value is None or (callable(value) and not isinstance(value, type)):
        return value
    known = ACTIVATIONS.get(value) if isinstance(value, str) else None
    if known is None:
        raise AttributeValueError.here(
            f"unknown activation {value!r}",
            hint=nearest(value.lower(), ACTIVATIONS)
            if isinstance(value, str)
            else "pass a function such as gc.nn.relu, or its name; do not pass sizes of the "
            "input: the first call determines them",
        )
    return known
