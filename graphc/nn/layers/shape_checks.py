"""Checks of shapes that layers of several files have in common."""

from __future__ import annotations

from typing import Final

from graphc.ir.node import Tensor
from graphc.nn.layers.layer import Layer, check_rank
from graphc.ops.core.checks import refuse

_LAYOUTS: Final = {
    1: "[batch, width, features] (rank 3)",
    2: "[batch, height, width, features] (rank 4)",
    3: "[batch, depth, height, width, features] (rank 5)",
}


def check_space(layer: Layer, x: Tensor, rank: int) -> None:
    """Raises `ShapeError` unless `x` has `rank` axes between batch and features."""
    check_rank(layer, x, (rank + 2,), _LAYOUTS[rank])


def check_groups(layer: Layer, x: Tensor, groups: int, features: int) -> None:
    """Raises `ShapeError` unless the features of `x` can be divided into groups."""
    if features % groups:
        refuse(
            f"{layer}: {groups} groups do not divide {features} features",
            hint="the number of groups must divide the size of the last axis",
            x=x,
        )
