"""Divides a step into two halves: the part that each worker computes, and the part that the
parameter server applies.

Used by `AsyncDataParallel`. A worker's half takes a batch and the state that the worker has read.
It returns the values to send to the server, mostly gradients. The server's half takes these values
and its current state, and returns the new state. The operands of a node determine its half:

- nodes computed from the gradients of `minimize` belong to the server: the update, with the current
  slots, schedule and parameters;
- nodes computed from state alone belong to the server where new state depends on them, so that
  counters count exactly, and to the worker where other values depend on them. A node may be
  computed in both halves;
- nodes computed from feeds or random draws belong to the worker, except for the end of a
  read-modify-write. In `average * 0.9 + statistic * 0.1`, or `seen + n`, the product with the
  average and the sum belong to the server. So no update of a moving average, of a count,
  or of a hand-written `w.assign_sub(rate * gradient)` is lost.

A value that is assigned independently of the old value (`last_loss.assign(loss)`) is sent to the
server unchanged, and the last writer wins. The same holds for assignments in a loop or branch that
the gradients depend on too.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence
from typing import NamedTuple

from graphc.errors import GraphError
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Effects
from graphc.ir.program import Port, Program, dependents, effects_of
from graphc.ir.rewrite import used_from
from graphc.ops.elementwise.powers import RECIPROCAL
from graphc.ops.structure.training import GRADIENTS
from graphc.passes.precision.scale_loss import LOSS_SCALE
from graphc.passes.simplify.functionalize import RNG_COUNTER, RNG_KEY


class Halves(NamedTuple):
    """The two programs of a step.

    Attributes:
        worker: takes the step's feeds, then the inputs for random draws, if any, and state. It
            returns its part of the fetches, then the values to send.
        server: takes the sent values as feeds, in the same order, and state. It returns its part of
            the fetches, and the new state.
        on_server: for each fetch of the step, whether the server computes it.
        draws: the names of the worker's last feeds: `RNG_KEY`, `RNG_COUNTER` or both.
    """

    worker: Program
    server: Program
    on_server: tuple[bool, ...]
    draws: tuple[str, ...]


class _Kind(enum.Enum):
    """What a value is computed from."""

    STATE = "of state alone"
    WORKER = "computed from feeds or random draws"
    GRADIENT = "a gradient"
    SERVER = "of gradients"
    UPDATED = "new state, or computed from new state and state alone"


_CROSSING = (_Kind.WORKER, _Kind.GRADIENT)


def step_halves(program: Program) -> Halves:
    """The halves of a functional program whose sizes are ints.

    Raises:
        GraphError: the program assigns no state, or both halves would call a host function.
    """
    if not program.new_state():
        raise GraphError(
            "run_workers: no fetch assigns a variable, so there is nothing for the server to apply",
            hint="fetch a training step too; session.run is for the rest",
        )
    first = _Kinds(program, ())
    return _Cut(program, _Kinds(program, _tails(program, first))).run()


class _Kinds:
    """The kinds of a program's nodes and values.

    Attributes:
        nodes, tensors: the kind of each.
    """

    def __init__(self, program: Program, tails: Collection[Node]) -> None:
        self._scale = {p.tensor for p in program.ports("state") if p.name == LOSS_SCALE}
        self._keys = {p.tensor for p in program.ports("state") if p.name == RNG_KEY}
        new_state = {port.tensor for port in program.new_state()}
        self.nodes: dict[Node, _Kind] = {}
        self.tensors: dict[Tensor, _Kind] = {
            p.tensor: _Kind.WORKER if p.kind == "feed" else _Kind.STATE for p in program.inputs
        }
        for node in program.nodes:
            kind = _Kind.UPDATED if node in tails else self._of(node)
            self.nodes[node] = kind
            # The kind of a node that takes a new value, as in a second step of the same run, is
            # determined anew.
            new = kind if kind in _CROSSING else _Kind.UPDATED
            self.tensors.update((t, new if t in new_state else kind) for t in node.outputs)

    def _of(self, node: Node) -> _Kind:
        if node.op is GRADIENTS:
            return _Kind.GRADIENT
        operands = {self.tensors[t] for t in node.inputs}
        if _Kind.SERVER in operands or _Kind.GRADIENT in operands:
            return _Kind.SERVER
        if _Kind.WORKER in operands:
            return _Kind.WORKER
        if _Kind.UPDATED in operands:
            return _Kind.UPDATED
        return _Kind.WORKER if self._is_pinned(node) else _Kind.STATE

    def _is_pinned(self, node: Node) -> bool:
        """Whether the server must not recompute it. This holds for draws, which would give other
        values, for the inverse of the loss scale of the worker's gradients, and for calls of host
        functions."""
        if not self._keys.isdisjoint(node.inputs) or _calls_host(node):
            return True
        return node.op is RECIPROCAL and not self._scale.isdisjoint(node.inputs)


# -- read, modify, write ------------------------------------------------------------------------


def _tails(program: Program, kinds: _Kinds) -> set[Node]:
    """The last nodes of read-modify-writes with workers' values."""
    old = {port.name: port.tensor for port in program.ports("state")}
    found: set[Node] = set()
    for port in program.new_state():
        if port.name in old and kinds.tensors[port.tensor] is _Kind.WORKER:
            tail = _tail(program, kinds, old[port.name], port.tensor)
            if any(node.regions for node in tail) and not tail.isdisjoint(_working(program)):
                continue  # do not compute a loop that contains the forward pass twice
            found |= tail
    return found


def _tail(program: Program, kinds: _Kinds, old: Tensor, new: Tensor) -> set[Node]:
    """The end of the path from a variable's old value to its new value. The server must compute it
    itself, because the variable may have changed since the worker read it.

    It begins at the last node that combines the old value (or a value computed from state alone)
    with a worker's value. It also includes whole paths from the old value on which every value has
    the shape of the variable, because there the server is exact at little cost. The forward and
    backward pass use the parameters earlier, through values of other shapes, so they stay with the
    worker.
    """
    from_state = [node for node in program.nodes if kinds.nodes[node] is _Kind.STATE]
    own = dependents(from_state, {old})
    makers = [node for node in program.nodes if kinds.nodes[node] is _Kind.WORKER]
    leading = used_from(makers, {new})
    entries = [node for node in leading if not own.isdisjoint(node.inputs)]
    before_others = set(used_from(leading, {t for node in entries for t in node.inputs}))
    last = [node for node in entries if node not in before_others]
    short = _shaped_paths(leading, entries, old, new)
    return set(_following(leading, last)) | short


def _following(nodes: Sequence[Node], first: Collection[Node]) -> list[Node]:
    """`first`, and all nodes that depend on their results."""
    made = dependents(nodes, [t for node in first for t in node.outputs])
    return [node for node in nodes if not made.isdisjoint(node.outputs)]


def _shaped_paths(
    nodes: Sequence[Node], first: Sequence[Node], old: Tensor, new: Tensor
) -> set[Node]:
    """The nodes on paths from `first` to `new` on which all values have the shape of `old`."""
    shaped = [
        node
        for node in nodes
        if not node.regions
        and node.op.precision != "narrow"  # a product may have that shape by chance
        and all(t.type.shape == old.type.shape for t in node.outputs)
    ]
    return set(used_from(_following(shaped, [n for n in first if n in shaped]), {new}))


def _working(program: Program) -> set[Node]:
    """The nodes that lead to gradients, or to fetched values other than new state."""
    new_state = {p.tensor for p in program.new_state()}
    wanted = {p.tensor for p in program.ports("fetch")} - new_state
    wanted.update(t for node in program.nodes if node.op is GRADIENTS for t in node.inputs)
    return set(used_from(program.nodes, wanted))


# -- the cut ------------------------------------------------------------------------------------


class _Cut:
    """The division of one program."""

    def __init__(self, program: Program, kinds: _Kinds) -> None:
        self._program, self._kinds = program, kinds
        self._fetches = program.ports("fetch")
        self._on_server = tuple(
            kinds.tensors[p.tensor] in (_Kind.SERVER, _Kind.UPDATED) for p in self._fetches
        )

    def run(self) -> Halves:
        applied = self._server_nodes()
        crossing = self._crossing(applied)
        computed = self._worker_nodes(crossing)
        self._check_host(set(applied) & set(computed))
        worker, draws = self._worker(computed, crossing)
        return Halves(worker, self._server(applied, crossing), self._on_server, draws)

    def _fetched(self, on_server: bool) -> list[Port]:
        rows = zip(self._fetches, self._on_server, strict=True)
        return [port for port, there in rows if there is on_server]

    def _server_nodes(self) -> tuple[Node, ...]:
        kinds = self._kinds.nodes
        ports = [*self._program.new_state(), *self._fetched(on_server=True)]
        own = [node for node in self._program.nodes if kinds[node] not in _CROSSING]
        return used_from(
            own,
            [port.tensor for port in ports],
            lambda node: kinds[node] is not _Kind.STATE and _calls_host(node),
        )

    def _crossing(self, applied: Sequence[Node]) -> list[Tensor]:
        """The values that the server takes from the worker, in the order in which they are
        computed."""
        taken = {t for node in applied for t in node.inputs}
        taken.update(port.tensor for port in self._program.new_state())
        kinds = self._kinds.tensors  # in program order
        return [t for t, kind in kinds.items() if kind in _CROSSING and t in taken]

    def _worker_nodes(self, crossing: list[Tensor]) -> tuple[Node, ...]:
        kinds = self._kinds.nodes
        return used_from(
            self._program.nodes,
            [*crossing, *(port.tensor for port in self._fetched(on_server=False))],
            lambda node: kinds[node] in _CROSSING and _calls_host(node),
        )

    def _check_host(self, both: set[Node]) -> None:
        for node in self._program.nodes:
            if node in both and _calls_host(node):
                raise GraphError(
                    f"run_workers: {node.op.name} {node.name!r} takes an updated value, and "
                    "gradients depend on its results, so it would be called twice in a step",
                    source=node.source,
                    hint="remove it, or run the two training steps one after the other",
                )

    def _worker(
        self, nodes: Sequence[Node], crossing: list[Tensor]
    ) -> tuple[Program, tuple[str, ...]]:
        ports = self._fetched(on_server=False)
        used = {t for node in nodes for t in node.inputs} | {*crossing, *(p.tensor for p in ports)}
        state = [p for p in self._program.ports("state") if p.tensor in used]
        drawn = [p._replace(kind="feed") for p in state if p.name in (RNG_KEY, RNG_COUNTER)]
        read = [p for p in state if p.name not in (RNG_KEY, RNG_COUNTER)]
        worker = self._program.replace(
            name=f"{self._program.name}_worker",
            inputs=(*self._program.ports("feed"), *drawn, *read),
            nodes=tuple(nodes),
            outputs=(*ports, *_ports("fetch", crossing)),
        )
        return worker, tuple(port.name for port in drawn)

    def _server(self, nodes: Sequence[Node], crossing: list[Tensor]) -> Program:
        """The server's half. It keeps the marks of the gradients, so that nodes after them are
        never computed in a narrow dtype."""
        kinds = self._kinds.tensors
        marked = {t: Tensor(t.type, t.name) for t in crossing if kinds[t] is _Kind.GRADIENT}
        marks = []
        for node in self._program.nodes:
            taken = tuple(t for t in node.outputs if t in marked)
            if taken:
                attrs = {**node.attrs, "accumulate": 1}
                inputs = tuple(marked[t] for t in taken)
                marks.append(node.replace(inputs=inputs, outputs=taken, attrs=attrs))
        ports = [*self._fetched(on_server=True), *self._program.new_state()]
        used = {t for node in nodes for t in node.inputs} | {p.tensor for p in ports}
        read = [p for p in self._program.ports("state") if p.tensor in used]
        return self._program.replace(
            name=f"{self._program.name}_server",
            inputs=(*_ports("feed", [marked.get(t, t) for t in crossing]), *read),
            nodes=(*marks, *nodes),
            outputs=tuple(ports),
            batch_axes={},
        )


def _calls_host(node: Node) -> bool:
    return bool(effects_of(node) & Effects.HOST)


def _ports(kind: str, tensors: list[Tensor]) -> list[Port]:
    return [Port(f"crossing/{i}", kind, tensor) for i, tensor in enumerate(tensors)]
