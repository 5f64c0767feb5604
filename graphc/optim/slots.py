"""The state of an optax transformation as variables, one for each leaf of its nest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.build.initializers import Constant
from graphc.build.variable_definition import variable
from graphc.ir.node import Tensor
from graphc.ir.scopes import absolute_scope, device
from graphc.ir.variable import Variable
from graphc.optim.recipe import Slot


def make_slots(
    slots: Sequence[Slot], computed: Sequence[Tensor], parameters: Sequence[Variable], name: str
) -> list[Variable]:
    """A variable for each leaf of the state.

    A leaf that belongs to a parameter is named `<parameter>/<name>/<path>` and has the device of
    the parameter. Any other leaf is named `<name>/<path>`. Constant initial values need no nodes.

    Args:
        computed: the initial values of the slots without a `fill`, in order.
        parameters: the parameters, in the order of the recipe.
        name: the name of the training step.
    """
    values = iter(computed)
    names = [v.name for v in parameters]
    made = []
    for slot in slots:
        initial: Any
        if slot.fill is None:
            initial = next(values)
        elif slot.type.shape:
            initial = Constant(slot.fill.item())
        else:
            initial = np.array(slot.fill)
        where = "" if slot.parameter is None else parameters[slot.parameter].device
        label = slot.name(names, name)
        with absolute_scope(""), device(None), device(where):
            made.append(
                variable(
                    initial,
                    shape=None if slot.fill is None else slot.type.shape,
                    dtype=None if slot.fill is None else slot.type.dtype,
                    trainable=False,
                    name=label,
                )
            )
    return made
