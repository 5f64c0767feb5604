"""The state that a session starts with: every variable's initial value, made on the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from graphc.build.variables import initial_value
from graphc.collection import without_collection
from graphc.errors import GraphError
from graphc.ir.capture import capture
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.ir.program import Program
from graphc.ir.types import TensorType
from graphc.ir.variable import Variable
from graphc.ops.state import READ_VARIABLE
from graphc.passes.functionalize import (
    COUNTER_TYPE,
    KEY_TYPE,
    RNG_COUNTER,
    RNG_KEY,
    Functionalize,
)
from graphc.passes.scale_loss import (
    FIRST_SCALE,
    GOOD_STEPS,
    LOSS_SCALE,
    SCALE_TYPE,
    STEPS_TYPE,
)
from graphc.runtime.prepare import evaluate

Array = np.ndarray[Any, Any]

_HIDDEN: Final = {
    RNG_KEY: KEY_TYPE,
    RNG_COUNTER: COUNTER_TYPE,
    LOSS_SCALE: SCALE_TYPE,
    GOOD_STEPS: STEPS_TYPE,
}


def state_types(graph: Graph) -> dict[str, TensorType]:
    """The types of all state of a graph by name, hidden state included: that of random numbers
    and of the scale of the loss."""
    types = {name: v.type for name, v in graph.variables.items()}
    return {**types, **_HIDDEN}


@without_collection()
def initial_values(graph: Graph) -> dict[str, Array]:
    """The initial value of every variable by name.

    A variable whose initial value is a tensor gets it from the initial values of the variables
    that tensor reads, in whatever order they were made.

    Raises:
        GraphError: initial values that depend on each other in a circle.
    """
    seed = graph.seed % 2**64
    values: dict[str, Array] = {
        RNG_KEY: np.array([seed >> 32, seed & 0xFFFFFFFF], np.uint32),
        RNG_COUNTER: np.zeros((), np.int32),
        LOSS_SCALE: np.array(FIRST_SCALE, np.float32),
        GOOD_STEPS: np.zeros((), np.int32),
    }
    derived: dict[str, tuple[Variable, Program]] = {}
    for name, variable in graph.variables.items():
        if isinstance(variable.initial, Tensor):
            captured = capture(graph, [variable.initial], [], READ_VARIABLE)
            derived[name] = (variable, Functionalize().run(captured).program)
        else:
            values[name] = initial_value(variable, graph.seed)
    while derived:
        ready = [name for name, (_, p) in derived.items() if _needs(p) <= values.keys()]
        if not ready:
            names = ", ".join(map(repr, derived))
            raise GraphError(
                f"the initial values of {names} depend on each other",
                source=next(iter(derived.values()))[0].source,
            )
        programs = [derived.pop(name)[1] for name in ready]
        values.update(zip(ready, _evaluate_all(programs, values), strict=True))
    return {name: values[name] for name in state_types(graph)}


def _needs(program: Program) -> set[str]:
    return {port.name for port in program.inputs}


def _evaluate_all(programs: Sequence[Program], values: Mapping[str, Array]) -> list[Array]:
    """The one output of each program: by NumPy where every operator has a fold, else by JAX."""
    results: list[Array | None] = [_fold(program, values) for program in programs]
    for i, program in enumerate(programs):
        if results[i] is None:
            inputs = [values[port.name] for port in program.inputs]
            results[i] = evaluate(program, inputs)[0]
    return [r for r in results if r is not None]


def _fold(program: Program, values: Mapping[str, Array]) -> Array | None:
    known: dict[Tensor, Array] = {p.tensor: values[p.name] for p in program.inputs}
    for node in program.nodes:
        if node.op.fold is None or len(node.outputs) != 1:
            return None
        result = node.op.fold(*[known[t] for t in node.inputs], **node.attrs)
        if result is None:
            return None
        type = node.outputs[0].type
        known[node.outputs[0]] = np.asarray(result, type.dtype)
    return known[program.outputs[0].tensor]
