"""Initializers by name, as arguments such as `kernel_initializer=` accept them."""

from __future__ import annotations

import re
from typing import Any, Final, TypeAlias

import numpy as np

from graphc.build.initializers import INITIALIZERS, Constant, Normal, Uniform
from graphc.build.scaled_initializers import GlorotNormal, GlorotUniform, HeNormal, HeUniform
from graphc.errors import AttributeValueError, nearest
from graphc.ir.operand import Operand
from graphc.ir.operand_types import SupportsArray
from graphc.ir.variable import Initializer


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


NAMES: Final[dict[str, Initializer]] = {
    **{
        _snake(name): cls()
        for name, cls in INITIALIZERS.items()
        if cls is not Constant  # it needs a value; layers accept a number instead
    },
    "kaiming_normal": HeNormal(),
    "kaiming_uniform": HeUniform(),
    "random_normal": Normal(),
    "random_uniform": Uniform(),
    "xavier_normal": GlorotNormal(),
    "xavier_uniform": GlorotUniform(),
}
"""Name -> initializer: the names of Keras, and those of PyTorch."""

AnyInitializer: TypeAlias = Initializer | str | complex | Operand | SupportsArray
"""The values that `as_initializer`, and so every `*_initializer=` of a layer, accepts."""


def as_initializer(value: Any, of: str) -> Any:
    """`value` as an initializer: a function, a name such as "glorot_uniform", or a number for all
    elements. Arrays and tensors stay as they are; `variable` takes them too.

    Args:
        of: the layer or function that the user called, for errors.

    Raises:
        AttributeValueError: `value` is an unknown name, a class, or has another type.
    """
    if isinstance(value, str):
        known = NAMES.get(value) or NAMES.get(_snake(value))
        if known is None:
            raise AttributeValueError.here(
                f"{of}: unknown initializer {value!r}",
                hint="write the number itself: kernel_initializer=0.5"
                if value.lower() == "constant"
                else nearest(
                    _snake(value), NAMES, "name= is the name of a variable; gc.nn.initializers"
                ),
            )
        return known
    if isinstance(value, type):
        raise AttributeValueError.here(
            f"{of}: {value.__name__} is a class", hint=f"create an instance: {value.__name__}(...)"
        )
    if isinstance(value, int | float | complex | np.number):
        return Constant(value.item() if isinstance(value, np.number) else value)
    if callable(value) or isinstance(value, (Operand, np.ndarray)) or hasattr(value, "__array__"):
        return value
    raise AttributeValueError.here(
        f"{of}: an initializer must be a function, a name, a number or an array, got {value!r}",
        hint='gc.nn.initializers.HeNormal(), or its name "he_normal"',
    )
