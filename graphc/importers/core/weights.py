"""The weights of an imported model: named arrays that become variables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

import numpy as np

from graphc.errors import AttributeValueError, UnknownNameError, nearest
from graphc.ir.dtypes import Array
from graphc.ir.names import legal_name
from graphc.ir.source import current_source

Trainable: TypeAlias = bool | str | Iterable[str]
"""Which weights `gc.minimize` updates: all, none, or those whose names match a pattern ("*.bias")
or one of several patterns."""


@dataclass(frozen=True)
class Weight:
    """A weight.

    Attributes:
        array: its value; of a dtype that variables can have.
        trainable: whether `gc.minimize` updates it by default. Only floating weights are updated.
    """

    array: Array
    trainable: bool = False


def variable_name(name: str) -> str:
    """The name of the variable for a weight: `name` itself, if variables can have it."""
    return legal_name(name) or "weight"


def with_trainable(
    importer: str, weights: Mapping[str, Weight], trainable: Trainable | None
) -> dict[str, Weight]:
    """The weights, of which those that `trainable` selects are trainable. None changes nothing.

    Raises:
        UnknownNameError: a pattern matches no floating weight.
        AttributeValueError: `trainable` is neither a bool nor patterns.
    """
    if trainable is None:
        return dict(weights)
    floating = {
        name: weight for name, weight in weights.items() if is_trainable_dtype(weight.array.dtype)
    }
    chosen = _matcher(importer, floating, trainable)
    return {
        name: replace(weight, trainable=name in floating and chosen(name))
        for name, weight in weights.items()
    }


def is_trainable_dtype(dtype: np.dtype[Any]) -> bool:
    """Whether weights of a dtype can be trained: floating ones, also bfloat16 and float8."""
    return dtype.kind in "fcV" and dtype.names is None


def _matcher(
    importer: str, names: Mapping[str, Weight], trainable: Trainable
) -> Callable[[str], bool]:
    if isinstance(trainable, bool):
        return lambda name: trainable is True
    patterns: Any = [trainable] if isinstance(trainable, str) else trainable
    if not isinstance(patterns, Iterable):
        patterns = [patterns]
    patterns = list(patterns)
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise AttributeValueError(
                f"{importer}: trainable must be True, False or patterns of names, got {pattern!r}",
                source=current_source(),
                hint='write trainable=True, or trainable=["classifier.*"]',
            )
        if not any(fnmatchcase(name, pattern) for name in names):
            raise UnknownNameError(
                f"{importer}: no floating weight matches trainable={pattern!r}",
                source=current_source(),
                hint=nearest(pattern, names, "list(model.weights)"),
            )
    return lambda name: any(fnmatchcase(name, pattern) for pattern in patterns)
