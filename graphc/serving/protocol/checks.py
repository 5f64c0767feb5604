"""Checks of the inputs of a request against the types of a signature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from graphc.ir.dims import as_symbol
from graphc.ir.types import TensorType, shown_types
from graphc.serving.protocol.tensors import shown
from graphc.web.failures import Failure

Types: TypeAlias = Mapping[str, TensorType]


def check_inputs(arrays: Mapping[str, np.ndarray[Any, Any]], types: Types) -> None:
    """Checks names, dtypes and shapes.

    Raises:
        Failure: INVALID_ARGUMENT: an input is missing, unknown, of another dtype, or its shape
            does not fit its type or the shapes of other inputs.
    """
    check_names(arrays, types, "request")
    bound: dict[str, tuple[int, str]] = {}
    for name, type in types.items():
        array = arrays[name]
        if array.dtype != type.dtype:
            raise _wrong(types, name, f"dtype {shown(array.dtype)}")
        if array.ndim != type.rank:
            raise _wrong(types, name, f"shape {list(array.shape)}")
        for size, dim in zip(array.shape, type.shape, strict=True):
            if isinstance(dim, int):
                if size != dim:
                    raise _wrong(types, name, f"shape {list(array.shape)}")
                continue
            symbol = as_symbol(dim)
            if symbol is not None and bound.setdefault(symbol, (size, name))[0] != size:
                other_size, other = bound[symbol]
                raise _wrong(types, name, f"size {size} where {other!r} has {other_size}")


def check_names(given: Mapping[str, Any], types: Types, where: str) -> None:
    """Checks that each input is given, and nothing else.

    Raises:
        Failure: INVALID_ARGUMENT: an input is missing or unknown.
    """
    if given.keys() == types.keys():
        return
    for name in types:
        if name not in given:
            raise Failure(
                "INVALID_ARGUMENT",
                f"{where}: input {name!r} is missing; it takes {listed(types)}",
            )
    unknown = next(name for name in given if name not in types)
    raise Failure(
        "INVALID_ARGUMENT", f"{where}: no input {unknown!r:.60}; it takes {listed(types)}"
    )


def listed(types: Types) -> str:
    """The inputs of a signature, for errors."""
    return ", ".join(map(" ".join, shown_types(types).items())) or "no inputs"


def _wrong(types: Types, name: str, found: str) -> Failure:
    wanted = shown_types(types)[name]
    return Failure("INVALID_ARGUMENT", f"input {name!r}: {found}, expected {wanted}")
