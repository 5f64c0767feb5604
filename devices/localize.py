"""The program that one replica runs, written from the layouts of the global program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphc.devices.layout_flow import LayoutFlow
from graphc.devices.uneven import is_uneven, piece_type
from graphc.ir.dtypes import INT32
from graphc.ir.layouts import (
    REPLICATED,
    Fill,
    Layout,
    LayoutPlan,
    Partial,
    Replicated,
    Sharded,
)
from graphc.ir.node import EMPTY, Node, Tensor, same_items
from graphc.ir.opdef import OpDef
from graphc.ir.program import Port, Program
from graphc.ir.source import Source
from graphc.ir.types import TensorType
from graphc.ops.arrays.shape import BROADCAST_TO
from graphc.ops.arrays.slicing import SLICE
from graphc.ops.core.emit import CONSTANT
from graphc.ops.draws.random_keys import FOLD_IN
from graphc.ops.structure.collective import (
    ALL_GATHER,
    ALL_REDUCE,
    ON_REPLICA_ZERO,
    REDUCE_SCATTER,
    REPLICA_INDEX,
    SHARD_SLICE,
)
from graphc.ops.structure.uneven import FILL_PADDING, PADDED_PIECE, neutral


@dataclass(frozen=True, eq=False)
class Local:
    """A program as each replica runs it.

    Attributes:
        program: has local types, and collectives where the replicas must agree.
        inputs, outputs: the layouts of its ports, in order.
        notes: one line for each tensor that is gathered, which costs time, with its user.
        collectives: the number of nodes that exchange data, including those in regions.
    """

    program: Program
    inputs: tuple[Layout, ...]
    outputs: tuple[Layout, ...]
    notes: tuple[str, ...]
    collectives: int


class Localizer:
    """Writes one local program.

    Args:
        flow: the layouts.
        required: for each output the layout that it must have; None accepts any layout.
        replicas: the number of replicas.
        regions: the `Local` of each local region in the plans.
        fault: creates the error to raise if a node fails.
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
        # global tensor -> the local tensor in the layout that its users receive
        self._local: dict[Tensor, Tensor] = {}
        self._converted: dict[tuple[Tensor, Layout], Tensor] = {}
        self._keys: dict[Tensor, Tensor] = {}  # random key -> this replica's own
        # (piece, padding value) -> the piece with this value in its padding
        self._with_fill: dict[tuple[Tensor, Tensor | str], Tensor] = {}
        self._zeros: set[Tensor] = set()  # tensors of zeros, whole on each replica
        self._index: Tensor | None = None
        self._notes: dict[str, None] = {}
        self._collectives = 0

    def run(self) -> Local:
        """The local program.

        Raises:
            PassError: the answer of a layout rule cannot be applied.
        """
        flow, program = self._flow, self._flow.program
        layouts = tuple(flow.entering(t) for t in program.input_tensors())
        inputs = tuple(
            port._replace(tensor=self._define(port.tensor, layout))
            for port, layout in zip(program.inputs, layouts, strict=True)
        )
        for tensor, layout in zip(program.input_tensors(), layouts, strict=True):
            self._cut_inside(tensor, layout)
            self._make_settled(tensor)
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
        """Copies a node whose operands are replicated: each replica computes the whole value."""
        local = self._local
        inputs = tuple([local[t] for t in node.inputs])
        self._nodes.append(node if same_items(inputs, node.inputs) else node.replace(inputs=inputs))
        for tensor in node.outputs:
            local[tensor] = tensor
        spread = node.op is BROADCAST_TO and inputs[0] in self._zeros
        if spread or (node.op is CONSTANT and not np.any(node.attrs["value"])):
            self._zeros.update(node.outputs)

    def _rewrite(self, node: Node, plan: LayoutPlan) -> None:
        inputs = [
            self._as(tensor, wanted, node)
            for tensor, wanted in zip(node.inputs, plan.operands, strict=True)
        ]
        for position in plan.fold_replica:
            inputs[position] = self._own_key(inputs[position])
        fills: Mapping[int, Fill] = plan.fill or {}
        for position, fill in fills.items():
            lies = plan.operands[position]
            if type(lies) is Sharded and is_uneven(lies):
                tensor, local = node.inputs[position], inputs[position]
                inputs[position] = self._filled(tensor, lies, local, fill, inputs)
        outputs = [
            self._define(tensor, layout)
            for tensor, layout in zip(node.outputs, plan.results, strict=True)
        ]
        planned = plan.local(node, inputs, outputs)
        self._nodes.append(planned)
        for region in planned.regions:
            if region in self._regions:
                self._notes.update(dict.fromkeys(self._regions[region].notes))
                self._collectives += self._regions[region].collectives
        for tensor in node.outputs:
            self._sources[tensor] = node.source
            self._make_settled(tensor)

    def _define(self, tensor: Tensor, layout: Layout) -> Tensor:
        """The local tensor for a new tensor; the tensor itself if its type is unchanged."""
        local = tensor
        if type(layout) is Sharded:
            local = Tensor(piece_type(tensor.type, layout, self._replicas), tensor.name)
        self._local[tensor] = local
        return local

    def _make_settled(self, tensor: Tensor) -> None:
        """Converts a partial value to the layout that its users expect."""
        have, wanted = self._flow.made[tensor], self._flow.settled.get(tensor)
        if type(have) is not Partial or wanted is None:
            return
        if isinstance(wanted, Sharded):
            self._local[tensor] = self._scattered(tensor, wanted)
        else:
            self._local[tensor] = self._reduced(tensor, have)

    def _cut_inside(self, tensor: Tensor, entering: Layout) -> None:
        """The piece of an input that is replicated, and is split before its first use."""
        have = self._flow.made[tensor]
        if have != entering:
            whole = self._converted[tensor, entering] = self._local[tensor]
            self._local[tensor] = self._from_whole(tensor, whole, have)

    # -- conversions ------------------------------------------------------------------------

    def _as(self, tensor: Tensor, wanted: Layout, user: Node | Port) -> Tensor:
        """The local tensor for `tensor` in the layout that `user` wants, converted only once."""
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
                found = self._gathered(tensor, have, user)
            else:
                found = self._reduced(tensor, have)
            self._converted[tensor, wanted] = found
        return found

    def _from_whole(self, tensor: Tensor, whole: Tensor, wanted: Layout) -> Tensor:
        if type(wanted) is Sharded:
            type_ = piece_type(tensor.type, wanted, self._replicas)
            attrs = {"axis": wanted.axis, "replicas": self._replicas}
            if is_uneven(wanted):
                attrs["piece"] = int(type_.shape[wanted.axis])  # type: ignore[arg-type]
                return self._emit(PADDED_PIECE, (whole,), type_, tensor, "piece", attrs)
            return self._emit(SHARD_SLICE, (whole,), type_, tensor, "piece", attrs)
        if wanted == Partial("sum"):
            if whole in self._zeros:  # the gradient of a lookup begins with zeros
                return whole
            return self._emit(ON_REPLICA_ZERO, (whole,), tensor.type, tensor, "term")
        return whole  # the maximum, or minimum, of equal values is the value

    def _reduced(self, tensor: Tensor, have: Partial) -> Tensor:
        self._collectives += 1
        local = self._local[tensor]
        return self._emit(ALL_REDUCE, (local,), tensor.type, tensor, "whole", {"op": have.op})

    def _scattered(self, tensor: Tensor, wanted: Sharded) -> Tensor:
        self._collectives += 1
        type = piece_type(tensor.type, wanted, self._replicas)
        attrs = {"axis": wanted.axis, "replicas": self._replicas}
        return self._emit(REDUCE_SCATTER, (self._local[tensor],), type, tensor, "piece", attrs)

    def _gathered(self, tensor: Tensor, have: Sharded, user: Node | Port) -> Tensor:
        self._collectives += 1
        if not self._flow.is_asked_for(user):
            self._notes[_gather_note(tensor, have, user)] = None
        axis, local, type = have.axis, self._local[tensor], tensor.type
        attrs = {"axis": axis, "replicas": self._replicas}
        if not is_uneven(have):
            return self._emit(ALL_GATHER, (local,), type, tensor, "whole", attrs)
        padded = list(type.shape)
        padded[axis] = local.type.shape[axis] * self._replicas
        type = TensorType(type.dtype, tuple(padded))
        every = self._emit(ALL_GATHER, (local,), type, tensor, "padded", attrs)
        rank = len(padded)
        real = {"starts": (0,) * rank, "limits": tensor.type.shape, "strides": (1,) * rank}
        return self._emit(SLICE, (every,), tensor.type, tensor, "whole", real)

    def _filled(
        self, tensor: Tensor, lies: Sharded, local: Tensor, fill: Fill, inputs: Sequence[Tensor]
    ) -> Tensor:
        """A piece whose padding does not affect the result: see `LayoutPlan.fill`."""
        key = (local, inputs[fill] if isinstance(fill, int) else fill)
        if key not in self._with_fill:
            value = inputs[fill] if isinstance(fill, int) else self._neutral(fill, tensor)
            attrs = {"axis": lies.axis, "size": tensor.type.shape[lies.axis]}
            self._with_fill[key] = self._emit(
                FILL_PADDING, (local, value), local.type, tensor, "real", attrs
            )
        return self._with_fill[key]

    def _neutral(self, reduction: str, like: Tensor) -> Tensor:
        value = neutral(reduction, like.type.dtype)
        value.flags.writeable = False
        type = TensorType(like.type.dtype, ())
        return self._emit(CONSTANT, (), type, like, f"neutral_{reduction}", {"value": value})

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
        """Adds a node that the pass creates, named after the tensor `of`."""
        base = "" if of is None else of.name.removesuffix(":0").replace(":", "/") + "/"
        name = base + suffix
        result = Tensor(type, f"{name}:0")
        source = None if of is None else self._sources.get(of)
        self._nodes.append(Node(op, inputs, (result,), attrs, name=name, source=source))
        return result


def _gather_note(tensor: Tensor, have: Sharded, user: Node | Port) -> str:
    name, axis = tensor.name.removesuffix(":0"), have.axis
    if isinstance(user, Port):
        what = "variable" if user.kind == "state" else "output"
        why = "it must be whole" if have.rows is None else "its rows do not divide by the replicas"
        return f"gathered {name} for {what} {user.name!r}: {why}"
    where = f" at {user.source}" if user.source is not None else ""
    why = f"it needs the whole of axis {axis}"
    if not user.op.layout:
        why = "operator without a layout rule"
    elif have.rows is not None:
        why += f", or its rows to divide by the replicas: {tensor.type}"
    return f"gathered {name} for {user.op.name}{where}: {why}"
