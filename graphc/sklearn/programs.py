"""Compiled programs of estimators, shared by all estimators of a process whose graphs are equal.

Cross-validation and grid search fit many clones of an estimator. Their graphs are equal except for
their seeds, so they are compiled once per process, for each number of rows and steps.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from graphc.config import CompileOptions
from graphc.devices.mesh import Strategy
from graphc.ir.dtypes import Array
from graphc.ir.graph import Graph
from graphc.runtime.buffers.packing import Members, filled
from graphc.runtime.core.forking import FORKING, SharedLock
from graphc.runtime.state.state import State
from graphc.runtime.step.compiler import compile
from graphc.runtime.step.executable import Executable
from graphc.sklearn.networks import Network

Feed = tuple[str, tuple[int, ...]]  # a role, and the shape that it is fed with

_KEPT = 64  # programs in memory


class Program:
    """One network under one strategy and set of options, and its executables.

    Args:
        network: the graph and the names in it.
        strategy, options: as for `gc.compile`.
    """

    def __init__(
        self, network: Network, strategy: Strategy | None, options: CompileOptions | None
    ) -> None:
        self.names = network.names
        self._graph: Graph = network.graph()
        self._strategy, self._options = strategy, options
        self._executables: dict[Any, Executable] = {}
        self._lock = SharedLock()

    def executable(
        self, roles: Sequence[str], feeds: Sequence[Feed], steps: int | None = None
    ) -> Executable:
        """The executable that fetches `roles`. The first call compiles it."""
        key = (tuple(roles), tuple(feeds), steps)
        with self._lock.lock:
            found = self._executables.get(key)
            if found is None:
                found = self._executables[key] = compile(
                    self._graph,
                    [self._graph_item(role) for role in roles],
                    {self.tensor(role): shape for role, shape in feeds},
                    strategy=self._strategy,
                    options=self._options,
                    steps=steps,
                )
            return found

    def tensor(self, role: str) -> str:
        """The name by which a tensor is fed."""
        return self.names[role]

    def _graph_item(self, role: str) -> Any:
        name = self.names[role]
        return self._graph.find_node(name) or self._graph.tensor(name)


def state_of(executable: Executable, values: Mapping[str, Array]) -> State:
    """A state that holds `values`, where the executable wants them."""
    layout, home = executable.layout, executable.executor.home
    return State(layout, [filled(b, values.__getitem__, home(b)) for b in layout.buffers])


def values_of(state: State) -> dict[str, Array]:
    """Copies of all variables of a state on the host, hidden ones included."""
    member = Members(state.layout, state.buffers)
    return {name: np.array(member(name)) for name in state.layout.types}


class _Programs:
    """The programs of this process, those that were used last at the end."""

    def __init__(self) -> None:
        self.lock = SharedLock()
        self.programs: OrderedDict[Any, Program] = OrderedDict()
        self.states: WeakKeyDictionary[Any, dict[Any, State]] = WeakKeyDictionary()
        FORKING.watch(self)

    def forked(self) -> None:
        """Called in a child process, which has none of the parent's programs."""
        self.programs, self.states = OrderedDict(), WeakKeyDictionary()


_PROGRAMS = _Programs()


def program_of(
    network: Network, strategy: Strategy | None, options: CompileOptions | None
) -> Program:
    """The program of a network in this process."""
    key = (network.digest, repr(strategy), repr(options))
    with _PROGRAMS.lock.lock:
        program = _PROGRAMS.programs.pop(key, None)
        if program is None:
            program = Program(network, strategy, options)
        _PROGRAMS.programs[key] = program
        while len(_PROGRAMS.programs) > _KEPT:
            _PROGRAMS.programs.popitem(last=False)
    return program


def kept_states(owner: object) -> dict[Any, State]:
    """The states that belong to `owner` in this process, as long as it lives."""
    with _PROGRAMS.lock.lock:
        return _PROGRAMS.states.setdefault(owner, {})
