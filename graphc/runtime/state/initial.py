"""The state at the start of a session: the initial values of variables, computed on the host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

import numpy as np

from graphc.build import initializers
from graphc.build.variable_definition import initial_value
from graphc.collection import without_collection
from graphc.errors import GraphError
from graphc.ir.capture import capture
from graphc.ir.dtypes import Array
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.ir.program import Program
from graphc.ir.types import TensorType
from graphc.ops.structure.state import READ_VARIABLE
from graphc.passes.precision.scale_loss import (
    FIRST_SCALE,
    GOOD_STEPS,
    LOSS_SCALE,
    SCALE_TYPE,
    STEPS_TYPE,
)
from graphc.passes.simplify.functionalize import (
    COUNTER_TYPE,
    KEY_TYPE,
    RNG_COUNTER,
    RNG_KEY,
    Functionalize,
)
from graphc.runtime.targets.prepare import evaluate

_HIDDEN: Final = {
    RNG_KEY: KEY_TYPE,
    RNG_COUNTER: COUNTER_TYPE,
    LOSS_SCALE: SCALE_TYPE,
    GOOD_STEPS: STEPS_TYPE,
}


def hidden_types() -> dict[str, TensorType]:
    """The types of the hidden state: the random state and the scale of the loss."""
    return dict(_HIDDEN)


def state_types(graph: Graph) -> dict[str, TensorType]:
    """The types of all state of a graph by name, including the hidden state (the random state and
    the scale of the loss)."""
    types = {name: v.type for name, v in graph.variables.items()}
    return {**types, **_HIDDEN}


class InitialValues:
    """The initial values of a graph's variables. Each is computed when it is taken.

    If an initial value is a tensor, it is computed from the initial values of the variables that
    the tensor reads, regardless of the order in which they were created. Such values stay in memory
    until the last tensor that reads them is computed. If a value came from a function of the user,
    it stays longer, because another call of the function may return another value.

    Args:
        before: the initial values of the same graph before it got more variables.

    Raises:
        GraphError: initial values depend on each other in a cycle.
    """

    def __init__(self, graph: Graph, before: InitialValues | None = None) -> None:
        self._graph = graph
        self._hidden = _hidden_values(graph.seed)
        self._programs = _in_order(graph, _derived(graph))
        self._order = {name: number for number, name in enumerate(self._programs)}
        self._needs = {name: _needs(program) for name, program in self._programs.items()}
        self._readers = Counter(name for needs in self._needs.values() for name in needs)
        self._read = frozenset(self._readers)
        self._kept: dict[str, Array] = {} if before is None else dict(before._kept)
        self._taken: set[str] = set() if before is None else set(before._taken)
        self._computed: set[str] = set()  # the variables among them whose initial value is a tensor
        for name in () if before is None else before._computed:
            self._count(name)

    def take(self, name: str) -> Array:
        """The initial value of a variable or of hidden state.

        Raises:
            ShapeError, DTypeError: the result of the user's function does not fit.
        """
        made = self._made_first(name)
        for needed in made:
            self._make(needed)
        self._taken.add(name)
        value = self._kept[name]
        for used in {name, *made}.union(*(self._needs.get(each, ()) for each in made)):
            if not self._must_stay(used):
                self._kept.pop(used, None)
        return value

    def _made_first(self, name: str) -> list[str]:
        """The values that must be computed for `name`, in order; `name` itself comes last."""
        wanted, pending = dict[str, None](), [name]
        while pending:
            current = pending.pop()
            if current not in wanted and current not in self._kept:
                wanted[current] = None
                pending += self._needs.get(current, ())
        return sorted(wanted, key=lambda n: self._order.get(n, -1))

    def _make(self, name: str) -> None:
        program = self._programs.get(name)
        if program is not None:
            self._kept[name] = _evaluated(program, self._kept)
            self._count(name)
        elif name in self._hidden:
            self._kept[name] = self._hidden[name]
        else:
            self._kept[name] = initial_value(self._graph.variables[name], self._graph.seed)

    def _count(self, name: str) -> None:
        """Records that the tensor of a variable was computed. Repeated calls count once."""
        if name not in self._computed:
            self._computed.add(name)
            self._readers.subtract(self._needs[name])

    def _must_stay(self, name: str) -> bool:
        """Whether a value will be read or taken, or may be read again after a failure."""
        if name not in self._taken or self._readers[name] > 0:
            return True
        return name in self._read and not self._is_reproducible(name)

    def _is_reproducible(self, name: str) -> bool:
        variable = self._graph.variables.get(name)
        initial = None if variable is None else variable.initial
        return not callable(initial) or type(initial).__module__ == initializers.__name__


@without_collection()
def initial_values(graph: Graph) -> dict[str, Array]:
    """The initial value of every variable and of the hidden state, by name: see `InitialValues`."""
    values = InitialValues(graph)
    return {name: values.take(name) for name in state_types(graph)}


def key_of(seed: int) -> Array:
    """The value of the hidden key of a graph with this seed."""
    seed %= 2**64
    return np.array([seed >> 32, seed & 0xFFFFFFFF], np.uint32)


def _hidden_values(seed: int) -> dict[str, Array]:
    return {
        RNG_KEY: key_of(seed),
        RNG_COUNTER: np.zeros((), np.int32),
        LOSS_SCALE: np.array(FIRST_SCALE, np.float32),
        GOOD_STEPS: np.zeros((), np.int32),
    }


def _derived(graph: Graph) -> dict[str, Program]:
    """The programs that compute initial values which are tensors, by variable."""
    return {
        name: Functionalize()
        .run(capture(graph, [v.initial], [], READ_VARIABLE, control=False))
        .program
        for name, v in graph.variables.items()
        if isinstance(v.initial, Tensor)
    }


def _in_order(graph: Graph, derived: Mapping[str, Program]) -> dict[str, Program]:
    """The programs in an order in which each comes after those that it reads."""
    left, ordered = dict(derived), dict[str, Program]()
    while left:
        ready = [name for name, program in left.items() if left.keys().isdisjoint(_needs(program))]
        if not ready:
            names = ", ".join(map(repr, left))
            raise GraphError(
                f"the initial values of {names} depend on each other",
                source=graph.variables[next(iter(left))].source,
            )
        ordered.update((name, left.pop(name)) for name in ready)
    return ordered


def _needs(program: Program) -> set[str]:
    return {port.name for port in program.inputs}


def _evaluated(program: Program, values: Mapping[str, Array]) -> Array:
    """The one output of a program. NumPy computes it if every operator has a fold; otherwise JAX
    does."""
    folded = _fold(program, values)
    if folded is not None:
        return folded
    return evaluate(program, [values[port.name] for port in program.inputs])[0]


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
