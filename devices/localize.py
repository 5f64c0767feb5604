"""The program that one replica runs, written out from the layouts of the global one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphc.devices.layout_flow import LayoutFlow
from graphc.errors import LayoutError
from graphc.ir.dtypes import INT32
from graphc.ir.layouts import REPLICATED, Layout, LayoutPlan, Partial, Replicated, Sharded
from graphc.ir.node import EMPTY, Node, Tensor
from graphc.ir.opdef import OpDef
from graphc.ir.program import Port, Program
from graphc.ir.source import Source
from graphc.ir.types import TensorType
from graphc.ops.collective import (
    ALL_GATHER,
    ALL_REDUCE,
    ON_REPLICA_ZERO,
    REPLICA_INDEX,
    SHARD_SLICE,
)
from graphc.ops.random_keys import FOLD_IN


@dataclass(frozen=True, eq=False)
class Local:
    """A program as each replica runs it.

    Attributes:
        program: of local types; collectives stand where replicas must agree.
        inputs, outputs: the layouts of its ports, in order.
        notes: what was gathered, which costs time, and for whom.
        collectives: how many nodes exchange data, those in regions too.
    """

    program: Program
    inputs: tuple[Layout, ...]
    outputs: tuple[Layout, ...]
    notes: tuple[str, ...]
    collectives: int


class Localizer:
    """Writes out one local program.

    Args:
        flow: the layouts.
        required: for each output the layout it must leave in; None takes what comes.
        replicas: how many there are.
        regions: what is known of the local regions that the plans hold.
        fault: makes the error to raise for what fails at a node.
    """

    def __init__(
        self,
        flow: LayoutFlow,
        required: Sequence[Layout | None],
        replicas: int,
        regions: Mapping[Program, Local],
        fault: Callable[[Node, Exception], Exception],
    ) -> None:
        self._flow = flow
        self._required = required
        self._replicas = replicas
        self._regions = regions
        self._fault = fault
        self._sources: dict[Tensor, Source | None] = {}
        self._nodes: list[Node] = []
        # global tensor -> the local one in the layout that its users find it in
        self._local: dict[Tensor, Tensor] = {}
        self._converted: dict[tuple[Tensor, Layout], Tensor] = {}
        self._keys: dict[Tensor, Tensor] = {}  # random key -> this replica's own
        self._index: Tensor | None = None
        self._notes: dict[str, None] = {}
        self._collectives = 0

    def run(self) -> Local:
        """The local program.

        Raises:
            PassError: what a layout rule answered cannot be done.
        """
        flow, program = self._flow, self._flow.program
        layouts = tuple(flow.made[t] for t in program.input_tensors())
        inputs = tuple(
            port._replace(tensor=self._define(port.tensor, layout))
            for port, layout in zip(program.inputs, layouts, strict=True)
        )
        for tensor in program.input_tensors():
            self._make_whole(tensor)
        for node, plan in zip(program.nodes, flow.plans, strict=True):
            try:
                if plan is None:
                    self._copy(node)
                else:
                    self._rewrite(node, plan)
            except Exception as error:
                raise self._fault(node, error) from error
        leaving = tuple(
            flow.leaving(port.tensor, required)
            for port, required in zip(program.outputs, self._required, strict=True)
        )
        outputs = tuple(
            port._replace(tensor=self._as(port.tensor, layout, port))
            for port, layout in zip(program.outputs, leaving, strict=True)
        )
        local = program.replace(inputs=inputs, nodes=tuple(self._nodes), outputs=outputs)
        return Local(local, layouts, leaving, tuple(self._notes), self._collectives)

    # -- nodes ------------------------------------------------------------------------------

    def _copy(self, node: Node) -> None:
        """A node whose operands are whole: each replica does what one device would."""
        local = self._local
        inputs = tuple([local[t] for t in node.inputs])
        self._nodes.append(node if inputs == node.inputs else node.replace(inputs=inputs))
        for tensor in node.outputs:
            local[tensor] = tensor

    def _rewrite(self, node: Node, plan: LayoutPlan) -> None:
        inputs = [
            self._as(tensor, wanted, node)
            for tensor, wanted in zip(node.inputs, plan.operands, strict=True)
        ]
        for position in plan.fold_replica:
            inputs[position] = self._own_key(inputs[position])
        outputs = [
            self._define(tensor, layout)
            for tensor, layout in zip(node.outputs, plan.results, strict=True)
        ]
        regions = node.regions if plan.regions is None else tuple(plan.regions)
        self._nodes.append(
            Node(
                node.op, tuple(inputs), tuple(outputs),
                {**node.attrs, **plan.attrs} if plan.attrs else node.attrs,
                regions, node.name, node.source, node.device, node.control_inputs,
            )
        )  # fmt: skip
        for region in regions:
            if region in self._regions:
                self._notes.update(dict.fromkeys(self._regions[region].notes))
                self._collectives += self._regions[region].collectives
        for tensor in node.outputs:
            self._sources[tensor] = node.source
            self._make_whole(tensor)

    def _define(self, tensor: Tensor, layout: Layout) -> Tensor:
        """The local tensor for one just made; itself where its type stays."""
        local = tensor
        if type(layout) is Sharded:
            local = Tensor(self._piece(tensor.type, layout.axis), tensor.name)
        self._local[tensor] = local
        return local

    def _make_whole(self, tensor: Tensor) -> None:
        if tensor in self._flow.whole:
            have = self._flow.made[tensor]
            if type(have) is Partial:
                self._local[tensor] = self._reduced(tensor, have)

    def _piece(self, type: TensorType, axis: int) -> TensorType:
        """The type of one replica's piece."""
        size = type.shape[axis]
        if not isinstance(size, int) or size % self._replicas:
            raise LayoutError(
                f"{type} cannot be cut into {self._replicas} equal pieces along axis {axis}"
            )
        local = size // self._replicas
        return TensorType(type.dtype, (*type.shape[:axis], local, *type.shape[axis + 1 :]))

    # -- conversions ------------------------------------------------------------------------

    def _as(self, tensor: Tensor, wanted: Layout, user: Node | Port) -> Tensor:
        """The local tensor for `tensor` in the layout that `user` wants; converted once for all."""
        have = self._flow.layout(tensor)
        if have == wanted:
            return self._local[tensor]
        found = self._converted.get((tensor, wanted))
        if found is None:
            if isinstance(have, Replicated):
                found = self._from_whole(tensor, self._local[tensor], wanted)
            elif type(wanted) is not Replicated:
                found = self._from_whole(tensor, self._as(tensor, REPLICATED, user), wanted)
            elif isinstance(have, Sharded):
                found = self._gathered(tensor, have.axis, user)
            else:
                found = self._reduced(tensor, have)
            self._converted[tensor, wanted] = found
        return found

    def _from_whole(self, tensor: Tensor, whole: Tensor, wanted: Layout) -> Tensor:
        if type(wanted) is Sharded:
            type_ = self._piece(tensor.type, wanted.axis)
            attrs = {"axis": wanted.axis, "replicas": self._replicas}
            return self._emit(SHARD_SLICE, (whole,), type_, tensor, "piece", attrs)
        if wanted == Partial("sum"):
            return self._emit(ON_REPLICA_ZERO, (whole,), tensor.type, tensor, "term")
        return whole  # the maximum, or minimum, of equal values is the value

    def _reduced(self, tensor: Tensor, have: Partial) -> Tensor:
        self._collectives += 1
        local = self._local[tensor]
        return self._emit(ALL_REDUCE, (local,), tensor.type, tensor, "whole", {"op": have.op})

    def _gathered(self, tensor: Tensor, axis: int, user: Node | Port) -> Tensor:
        self._collectives += 1
        self._notes[_gather_note(tensor, axis, user)] = None
        attrs = {"axis": axis, "replicas": self._replicas}
        local = self._local[tensor]
        return self._emit(ALL_GATHER, (local,), tensor.type, tensor, "whole", attrs)

    def _own_key(self, key: Tensor) -> Tensor:
        """A random key with the replica's number folded in."""
        own = self._keys.get(key)
        if own is None:
            if self._index is None:
                self._index = self._emit(REPLICA_INDEX, (), TensorType(INT32, ()), None, "replica")
            own = self._emit(FOLD_IN, (key, self._index), key.type, key, "replica_key")
            self._keys[key] = own
        return own

    def _emit(
        self,
        op: OpDef,
        inputs: tuple[Tensor, ...],
        type: TensorType,
        of: Tensor | None,
        suffix: str,
        attrs: Mapping[str, Any] = EMPTY,
    ) -> Tensor:
        """A node of the pass's own, named after the tensor that it is about."""
        base = "" if of is None else of.name.removesuffix(":0").replace(":", "/") + "/"
        name = base + suffix
        result = Tensor(type, f"{name}:0")
        source = None if of is None else self._sources.get(of)
        self._nodes.append(Node(op, inputs, (result,), attrs, name=name, source=source))
        return result


def _gather_note(tensor: Tensor, axis: int, user: Node | Port) -> str:
    name = tensor.name.removesuffix(":0")
    if isinstance(user, Port):
        what = "variable" if user.kind == "state" else "output"
        return f"gathered {name} for {what} {user.name!r}: it must be whole"
    where = f" at {user.source}" if user.source is not None else ""
    why = (
        f"it needs the whole of axis {axis}" if user.op.layout else "operator without a layout rule"
    )
    return f"gathered {name} for {user.op.name}{where}: {why}"
