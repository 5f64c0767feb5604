"""Stacks of values that no loop and no group of nodes computes: constants, state, feeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from graphc.ir.node import Node, Tensor
from graphc.ops.arrays.stacking import stack
from graphc.ops.core.emit import CONSTANT, emit_one
from graphc.passes.core.patterns import common_name


def stack_of(tensors: Sequence[Tensor], constants: Mapping[Tensor, Node]) -> Tensor:
    """Adds the node that stacks `tensors` along a new axis 0: a constant if all are constants.

    Args:
        constants: the node of each constant of the program.
    """
    name = common_name([t.name for t in tensors])
    values = [constants[t].attrs["value"] for t in tensors if t in constants]
    if len(values) == len(tensors):
        return emit_one(CONSTANT, (), name, value=np.stack(values))
    return stack(tensors, name=name)
