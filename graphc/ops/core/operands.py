"""Operands of one kind of dtype, for functions that are composed of other functions."""

from __future__ import annotations

from typing import Any

from graphc.errors import DTypeError
from graphc.ir.dtypes import is_floating, is_integer
from graphc.ir.node import Tensor
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import convert


def as_integers(function: Any, label: str, value: Any) -> Tensor:
    """`value` as a tensor.

    Args:
        function: the function or layer that the user called, for errors.
        label: the name of the argument.

    Raises:
        DTypeError: it does not hold integers.
    """
    tensor = convert(value)
    if not is_integer(tensor.dtype):
        _refuse(f"{function}: {label} must be integers", label, tensor, 'gc.cast them to "int32"')
    return tensor


def as_floating(
    function: Any, label: str, value: Any, hint: str = 'gc.cast it to "float32"'
) -> Tensor:
    """`value` as a tensor; see `as_integers`.

    Raises:
        DTypeError: it is not floating.
    """
    tensor = convert(value)
    if not is_floating(tensor.dtype):
        _refuse(f"{function}: {label} must be floating", label, tensor, hint)
    return tensor


def _refuse(what: str, label: str, tensor: Tensor, hint: str) -> None:
    tensors: Any = {label: tensor}
    refuse(f"{what}, got {tensor.dtype.name}", error=DTypeError, hint=hint, **tensors)
