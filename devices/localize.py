"""The program that one replica runs, written from the layouts of the global program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from graphc.devices.layout_flow import LayoutFlow
from graphc.devices.plan_writer import PlanWriter
from graphc.devices.uneven import is_uneven, piece_type
from graphc.ir.builder import Builder
from graphc.ir.layouts import REPLICATED, Fill, Layout, LayoutPlan, Partial, Replicated, Sharded
from graphc.ir.node import Node, Tensor, same_items
from graphc.ir.program import Port, Program
from graphc.ir.types import TensorType
from graphc.ops.arrays.shape import BROADCAST_TO
from graphc.ops.arrays.slicing import slice_
from graphc.ops.core.emit import CONSTANT, constant
from graphc.ops.structure.collective import (
    all_gather,
    all_reduce,
    on_replica_zero,
    reduce_scatter,
    replica_index,
    shard_slice,
)
from graphc.ops.structure.uneven import fill_padding, neutral, padded_piece


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


class Localizer(PlanWriter):
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
        super().__init__(Builder())
        self._flow = flow
        self._required = required
        self._replicas = replicas
        self._regions = regions
        self._fault = fault
        self._makers: dict[Tensor, Node] = {}
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
        local = program.replace(inputs=inputs, nodes=tuple(self._body.nodes), outputs=outputs)
        return Local(local, layouts, leaving, tuple(self._notes), self._collectives)

    # -- nodes ------------------------------------------------------------------------------

    def _copy(self, node: Node) -> None:
        """Copies a node whose operands are replicated: each replica computes the whole value."""
        local = self._local
        inputs = tuple([local[t] for t in node.inputs])
        copy = node if same_items(inputs, node.inputs) else node.replace(inputs=inputs)
        self._body.append(copy)
        for tensor in node.outputs:
            local[tensor] = tensor
        spread = node.op is BROADCAST_TO and inputs[0] in self._zeros
        if spread or (node.op is CONSTANT and not np.any(node.attrs["value"])):
            self._zeros.update(node.outputs)

    def _rewrite(self, node: Node, plan: LayoutPlan) -> None:
        for region in self._write(node, plan).regions:
            if region in self._regions:
                self._notes.update(dict.fromkeys(self._regions[region].notes))
                self._collectives += self._regions[region].collectives
        for tensor in node.outputs:
            self._makers[tensor] = node
            self._make_settled(tensor)

    def _piece(self, type: TensorType, layout: Sharded) -> TensorType:
        return piece_type(type, layout, self._replicas)

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

    @contextmanager
    def _after(self, tensor: Tensor) -> Iterator[None]:
        """Inside the context, operator functions write nodes that belong to `tensor`."""
        scope = tensor.name.removesuffix(":0").replace(":", "/")
        with self._body.at(self._makers.get(tensor), scope), self._body:
            yield

    def _convert(self, tensor: Tensor, wanted: Layout, user: Node | Port) -> Tensor:
        have = self._flow.layout(tensor)
        if have == wanted:
            return self._local[tensor]
        if isinstance(have, Replicated):
            return self._from_whole(tensor, self._local[tensor], wanted)
        if type(wanted) is not Replicated:
            return self._from_whole(tensor, self._as(tensor, REPLICATED, user), wanted)
        if isinstance(have, Sharded):
            return self._gathered(tensor, have, user)
        return self._reduced(tensor, have)

    def _from_whole(self, tensor: Tensor, whole: Tensor, wanted: Layout) -> Tensor:
        with self._after(tensor):
            if type(wanted) is Sharded:
                if not is_uneven(wanted):
                    return shard_slice(whole, wanted.axis, self._replicas)
                size = self._piece(tensor.type, wanted).shape[wanted.axis]
                return padded_piece(whole, wanted.axis, self._replicas, size)
            # The gradient of a lookup begins with zeros, which need no change.
            if wanted == Partial("sum") and whole not in self._zeros:
                return on_replica_zero(whole)
        return whole  # the maximum, or minimum, of equal values is the value

    def _reduced(self, tensor: Tensor, have: Partial) -> Tensor:
        self._collectives += 1
        with self._after(tensor):
            return all_reduce(self._local[tensor], have.op)

    def _scattered(self, tensor: Tensor, wanted: Sharded) -> Tensor:
        self._collectives += 1
        with self._after(tensor):
            return reduce_scatter(self._local[tensor], wanted.axis, self._replicas)

    def _gathered(self, tensor: Tensor, have: Sharded, user: Node | Port) -> Tensor:
        self._collectives += 1
        if not self._flow.is_asked_for(user):
            self._notes[_gather_note(tensor, have, user)] = None
        with self._after(tensor):
            whole = all_gather(self._local[tensor], have.axis, self._replicas)
            if is_uneven(have):
                whole = slice_(whole, (0,) * whole.type.rank, tensor.type.shape)
        return whole

    def _with_padding(self, node: Node, plan: LayoutPlan, inputs: list[Tensor]) -> list[Tensor]:
        padded = list(inputs)
        for position, fill in (plan.fill or {}).items():
            lies = plan.operands[position]
            if type(lies) is Sharded and is_uneven(lies):
                tensor, local = node.inputs[position], padded[position]
                padded[position] = self._filled(tensor, lies, local, fill, padded)
        return padded

    def _filled(
        self, tensor: Tensor, lies: Sharded, local: Tensor, fill: Fill, inputs: Sequence[Tensor]
    ) -> Tensor:
        """A piece whose padding does not affect the result: see `LayoutPlan.fill`."""
        key = (local, inputs[fill] if isinstance(fill, int) else fill)
        if key not in self._with_fill:
            dtype, size = tensor.type.dtype, tensor.type.shape[lies.axis]
            with self._after(tensor):
                value = inputs[fill] if isinstance(fill, int) else constant(neutral(fill, dtype))
                self._with_fill[key] = fill_padding(local, value, lies.axis, size)
        return self._with_fill[key]

    def _number(self) -> Tensor:
        if self._index is None:
            self._index = replica_index()
        return self._index


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
