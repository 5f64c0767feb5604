"""What tracing an optax transformation gives: the state's slots and two recorded programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphc.ir.node import Tensor
from graphc.ir.operand import Operand
from graphc.ir.program import Program
from graphc.ir.scopes import AMBIENT, at_source
from graphc.ir.source import current_source
from graphc.ir.types import TensorType
from graphc.ops.control.deferred_bodies import with_bodies

Array = np.ndarray[Any, Any]


class NeedsObjective(Exception):
    """An optimizer evaluates the loss at parameters of its own choice, as line searches do."""


class NeedsTensor(Exception):
    """An optimizer calculates with a tensor of the graph, such as a learning rate that is fed.

    Attributes:
        operand: the tensor or variable.
    """

    def __init__(self, operand: Operand) -> None:
        super().__init__(operand)
        self.operand = operand


@dataclass(frozen=True)
class Slot:
    """One leaf of an optimizer's state.

    Attributes:
        parameter: the number of the parameter that it is kept for; None for what is common.
        path: the rest of its name.
        type: static.
        fill: the number that its initial value is full of; None for a value to calculate.
    """

    parameter: int | None
    path: str
    type: TensorType
    fill: Array | None

    def name(self, parameters: Sequence[str], step: str) -> str:
        """The name of the variable: `<parameter>/<step>/<path>`, or `<step>/<path>`."""
        parts = [step, self.path]
        if self.parameter is not None:
            parts = [parameters[self.parameter], *parts]
        return "/".join(filter(None, parts))


@dataclass(frozen=True)
class Recipe:
    """How an optimizer's state starts, and what one step does.

    Attributes:
        slots: the leaves of the state.
        init: parameters -> the initial values of the slots without a `fill`.
        update: gradients, state, parameters and loss -> new parameters and new state. After the
            loss it takes the tensors to which the optimizer refers, then, if it evaluates the
            loss, the values from which the loss is calculated.
    """

    slots: tuple[Slot, ...]
    init: Program
    update: Program


def paste(
    program: Program, operands: Sequence[Tensor], body: Callable[[str], Program] | None = None
) -> list[Tensor]:
    """Adds the nodes of a recorded program to the graph being built and returns its results.

    Calls of the loss get their bodies from `body`. A node keeps its recorded line. A node without
    a line gets the current one.
    """
    graph = AMBIENT.graphs[-1]
    copies: dict[Tensor, Tensor] = dict(zip(program.input_tensors(), operands, strict=True))
    outer = AMBIENT.source or current_source()
    placed = program if body is None else with_bodies(program, body)
    with at_source(outer):
        for node in placed.nodes:
            AMBIENT.source = node.source or outer
            inputs = [copies[t] for t in node.inputs]
            new = graph.add(node.op, inputs, node.attrs, node.regions, node.op.name)
            copies.update(zip(node.outputs, new.outputs, strict=True))
    return [copies[t] for t in program.output_tensors()]
