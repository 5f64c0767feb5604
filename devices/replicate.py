"""Replicate: turns a program for a whole batch into the program that each of several replicas
runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from graphc.devices.layout_flow import LayoutFlow
from graphc.devices.localize import Local, Localizer
from graphc.devices.state_pieces import pieces_behind
from graphc.devices.uneven import batch_layout
from graphc.errors import AttributeValueError, LayoutError
from graphc.ir.layouts import REPLICATED, Layout, Partial, Sharded
from graphc.ir.node import Node
from graphc.ir.opdef import OpDef
from graphc.ir.program import Port, Program
from graphc.ops.catalogue import CATALOGUE
from graphc.passes.core.base import Pass, PassResult
from graphc.passes.simplify.drop_marks import DropGradientRules


@dataclass(frozen=True)
class Replicate(Pass):
    """Creates the local program of a data-parallel run, which computes exactly what the global
    program computes.

    Feeds with a batch axis are split along it. Other feeds and variables are replicated. From
    these, each operator's layout rule determines the layout of its results. A slice or a collective
    is inserted only where an operator needs an operand in another layout. So gradients are summed
    over replicas, batch statistics are those of the whole batch, and a mean divides by the global
    count, without special cases. XLA cannot do this for `jax.pmap`, because it sees one replica's
    program only.

    Must not: run before sizes are bound, or twice.

    Attributes:
        replicas: the number of replicas.
        input_layouts: layouts of feeds by name, which replace the layouts that follow from their
            batch axes.
        sources: the user's lines of feeds by name, for errors.
        state_layouts: layouts of state by name, before and after the step, for state that is not
            replicated.
    """

    replicas: int
    input_layouts: Mapping[str, Layout] = field(default_factory=dict, hash=False)
    sources: Mapping[str, object] = field(default_factory=dict, compare=False, repr=False)
    state_layouts: Mapping[str, Sharded] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if type(self.replicas) is not int or self.replicas < 1:
            raise AttributeValueError(f"replicas must be a positive int, got {self.replicas!r}")

    def run(self, program: Program) -> PassResult:
        local = self.replicate(program)
        return PassResult(local.program, max(1, local.collectives))

    def replicate(self, program: Program) -> Local:
        """The local program, with the layouts of its ports and notes on inserted exchanges that
        cost time.

        New values of variables are replicated, except those in `state_layouts`. Fetches are
        replicated or split along an axis.

        Raises:
            LayoutError: there are feeds, and none has a batch axis.
            PassError: a layout rule failed. The error names the node and the user's line.
        """
        cut = [self._input_layout(program, port) for port in program.inputs]
        shared = [
            port.kind == "feed" and isinstance(layout, Sharded)
            for port, layout in zip(program.inputs, cut, strict=True)
        ]
        # Without feeds, every replica runs the whole program: values and resets of metrics.
        if not self.input_layouts and not any(shared) and any(program.ports("feed")):
            raise self._no_batch(program)
        inputs = [
            self._lies(port, layout) for port, layout in zip(program.inputs, cut, strict=True)
        ]
        required = [
            self.state_layouts.get(port.name, REPLICATED) if port.kind == "state" else None
            for port in program.outputs
        ]
        program = DropGradientRules().run(program).program
        local = Regions(self).local(program, inputs, required, partial_leaves=False)
        overridden = next((node for node in program.walk() if node.device), None)
        return local if not overridden else _with_note(local, overridden)

    def _input_layout(self, program: Program, port: Port) -> Layout:
        if port.kind != "feed":
            return self.state_layouts.get(port.name, REPLICATED)
        layout = self.input_layouts.get(port.name)
        if layout is None:
            axis = program.batch_axes.get(port.name)
            layout = REPLICATED if axis is None else Sharded(axis)
        if isinstance(layout, Partial):
            raise LayoutError(f"feed {port.name!r} cannot be {layout}: the caller feeds it whole")
        return layout

    def _lies(self, port: Port, layout: Layout) -> Layout:
        """The layout of an input that is to be split in this way."""
        if not isinstance(layout, Sharded):
            return layout
        size = port.tensor.type.shape[layout.axis]
        if not isinstance(size, int):
            raise LayoutError(
                f"feed {port.name!r}: size {size} of its batch axis {layout.axis} is not bound yet",
                source=self.sources.get(port.name),
                hint="bind sizes first; a program is replicated for given sizes",
            )
        return batch_layout(layout.axis, size, self.replicas)

    def _no_batch(self, program: Program) -> LayoutError:
        rows = [
            f"{port.name}  {port.tensor.type}  {self.sources.get(port.name, '')}".rstrip()
            for port in program.ports("feed")
        ]
        return LayoutError(
            f"{program.name}: no feed has a batch axis, so there is nothing to split over "
            f"{self.replicas} replicas",
            details=rows,
            hint="mark it: gc.placeholder(shape, dtype, batch_axis=0), or let its leading size be "
            "None or 'batch'; or run these fetches without a strategy",
        )


class Regions:
    """The context that layout rules query: see `ir.layouts.LayoutContext`."""

    catalogue: Mapping[str, OpDef] = CATALOGUE

    def __init__(self, replicate: Replicate) -> None:
        self.replicas = replicate.replicas
        self._fault = replicate.fault
        self._in_pieces = bool(replicate.state_layouts)
        self._known: dict[tuple[Program, tuple[Layout, ...], tuple[Layout | None, ...]], Local] = {}
        self._by_program: dict[Program, Local] = {}

    def replicate_region(
        self, region: Program, inputs: Sequence[Layout], required: Sequence[Layout | None]
    ) -> tuple[Program, list[Layout]]:
        key = (region, tuple(inputs), tuple(required))
        local = self._known.get(key)
        if local is None:
            local = self._known[key] = self.local(region, inputs, required, partial_leaves=True)
            self._by_program[local.program] = local
        return local.program, list(local.outputs)

    def local(
        self,
        program: Program,
        inputs: Sequence[Layout],
        required: Sequence[Layout | None],
        partial_leaves: bool,
    ) -> Local:
        pieces = pieces_behind(program, required) if self._in_pieces else {}
        flow = LayoutFlow(program, inputs, required, partial_leaves, self, self._fault, pieces)
        return Localizer(flow, required, self.replicas, self._by_program, self._fault).run()


def _with_note(local: Local, node: Node) -> Local:
    where = f" (first at {node.source})" if node.source is not None else ""
    note = f"the strategy overrides requested devices: {node.device}{where}"
    return replace(local, notes=(*local.notes, note))
