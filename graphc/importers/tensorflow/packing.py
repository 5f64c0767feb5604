"""Values as tensors and back, where they enter and leave the bodies of loops and branches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphc import ops
from graphc.importers.tensorflow.evaluation import Scope
from graphc.importers.tensorflow.registry import Call, Unsupported
from graphc.importers.tensorflow.values import (
    NOTHING,
    REFUSED,
    Counting,
    Sizes,
    TensorStack,
    Value,
    WeightValue,
    shown,
)
from graphc.ir.node import Tensor

Unpack = Callable[[Tensor], Value]


def pack(call: Call, value: Value, what: str) -> Tensor:
    """A value as a tensor.

    Raises:
        Unsupported: it is no tensor: a variable, a table, strings.
    """
    if isinstance(value, TensorStack):
        try:
            return value.filled()
        except ValueError as error:
            raise Unsupported(f"{what}: {error}") from None
    if value is NOTHING:
        return ops.constant(np.float32(0))
    if is_packable(value):
        return call.tensor(value)
    raise Unsupported(f"{what} is {shown(value)}, which may not change in a body")


def is_packable(value: Value) -> bool:
    """Whether `pack` can make a tensor of it."""
    if isinstance(value, np.ndarray):
        return bool(value.dtype.kind != "O")
    return isinstance(value, (Tensor, Sizes, Counting, WeightValue, TensorStack))


def unpacker(value: Value) -> Unpack:
    """What makes the value of a tensor that `pack` has made of a value of this kind."""
    if isinstance(value, TensorStack):
        return value.with_data
    return lambda tensor: tensor


def refused_among(values: Sequence[Value]) -> bool:
    """Whether an operator that these values come from is refused."""
    return any(value is REFUSED for value in values)


def body_values(scope: Scope, edges: Sequence[Any], after: Sequence[str] = ()) -> list[Value]:
    """The results of a body.

    Raises:
        RefusedBody: one of its operators is refused.
    """
    values = scope.get(edges, after)
    if refused_among(values):
        raise RefusedBody
    return values


class RefusedBody(Exception):
    """An operator in a body is refused; the refusal is recorded already."""
