"""Checks that an option of a layer is in an interval."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from graphc.errors import AttributeValueError
from graphc.ir.operand import Operand
from graphc.ops.core.checks import refuse

Interval = tuple[str, Callable[[Any], bool]]
UNIT: Final[Interval] = ("[0, 1]", lambda v: 0 <= v <= 1)
RATE: Final[Interval] = ("[0, 1)", lambda v: 0 <= v < 1)
POSITIVE: Final[Interval] = ("(0, inf)", lambda v: v > 0)
EPSILON: Final[Interval] = ("(0, 1)", lambda v: 0 < v < 1)
NOT_NEGATIVE: Final[Interval] = ("[0, inf)", lambda v: v >= 0)

_HINTS = {
    "rate": "it is the probability of a zero; keep_prob of TensorFlow is 1 - rate",
    "epsilon": "sizes are known from the first call: layer = gc.nn.LayerNorm(), y = layer(x)",
    "momentum": "sizes are known from the first call: norm = gc.nn.BatchNorm(), y = norm(x, True)",
}


def within(layer: str, what: str, value: Any, interval: Interval, tensors: bool = False) -> Any:
    """`value`, a number in the interval. With `tensors`, tensors pass unchecked."""
    if tensors and isinstance(value, Operand):
        return value
    words, fits = interval
    if not isinstance(value, (int, float, np.number)) or not fits(value):
        refuse(
            f"{layer}: {what} must lie in {words}, got {value!r}",
            error=AttributeValueError,
            hint=_HINTS.get(what),
        )
    return value
