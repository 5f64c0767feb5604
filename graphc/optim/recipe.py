"""The result of tracing an optax transformation: the state's slots and two recorded programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from graphc.ir.dtypes import Array
from graphc.ir.node import Tensor
from graphc.ir.operand import Operand
from graphc.ir.program import Program
from graphc.ir.scopes import AMBIENT, at_source
from graphc.ir.source import current_source
from graphc.ir.types import TensorType
from graphc.ops.control.deferred_bodies import with_bodies


class NeedsObjective(Exception):
    """An optimizer evaluates the loss at parameters that it chooses, as line searches do."""


class NeedsTensor(Exception):
    """An optimizer computes with a tensor of the graph, such as a learning rate that is fed.

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
        parameter: the number of the parameter to which it belongs; None for common state.
        path: the rest of its name.
        type: its type, whose sizes are all ints.
        fill: the number that fills its initial value; None for an initial value that is computed.
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
    """How an optimizer's state is initialised, and the computation of one step.

    Attributes:
        slots: the leaves of the state.
        init: parameters -> the initial values of the slots without a `fill`.
        update: gradients, state, parameters and loss -> new parameters and new state. After the
            loss it takes the tensors to which the optimizer refers, then, if it evaluates the
            loss, the values from which the loss is computed.
    """

    slots: tuple[Slot, ...]
    init: Program
    update: Program


def paste(
    program: Program, operands: Sequence[Tensor], body: Callable[[str], Program] | None = None
) -> list[Tensor]:
    """Adds the nodes of a recorded program to the graph being built and returns its results.

    Calls of the loss get their bodies from `body`. A node keeps its recorded source line. A node
    without a line gets the current one.
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
