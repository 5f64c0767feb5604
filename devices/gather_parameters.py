"""GatherParameters: parameters that are stored in pieces are whole only where they are used.

Each replica keeps a piece of each parameter, as of the optimizer's slots (`devices.state_pieces`).
A layer gathers its parameters when it needs them, in the forward pass and again in the backward
pass, and XLA frees the whole values in between. Gradients are reduced and scattered. So a step
sends three times the bytes of the parameters, where a sum of gradients sends twice as many.

Source: S. Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter
Models, SC 2020, section 5.3 (the third stage).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from graphc.devices.state_pieces import inside, pieces_behind
from graphc.ir.layouts import Layout, Sharded
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program, region
from graphc.ir.rewrite import substitute
from graphc.ops.control.bodies import parts_of
from graphc.ops.control.mapping import MAP
from graphc.ops.control.scan import SCAN
from graphc.ops.structure.collective import WHOLE
from graphc.ops.structure.ordering import AFTER
from graphc.passes.core.base import Pass, PassResult
from graphc.passes.core.building import node_of
from graphc.passes.core.elementwise import is_elementwise


@dataclass(frozen=True)
class GatherParameters(Pass):
    """Puts a `Whole` before each use of a parameter that is stored in pieces.

    Updates, and casts of a parameter alone, use the pieces. A value that was gathered for the layer
    before, or for the same one, is used again; otherwise it is gathered again. A gather may start
    when the layer before has its input, so XLA can hide it behind that layer, and not earlier, so
    that few parameters are whole at once. The slices that a loop of repeated blocks takes are
    gathered in its body.

    Must not: run after the program is local; see a program whose sizes are not bound.

    Attributes:
        cut: the layouts of state by name, before and after the step.
        kept: names of state that is gathered once, since many small variables share it.
    """

    cut: Mapping[str, Sharded] = field(hash=False)
    kept: frozenset[str] = frozenset()

    def run(self, program: Program) -> PassResult:
        state = program.ports("state")
        pieces = {port.tensor: self.cut[port.name] for port in state if port.name in self.cut}
        required = [
            self.cut.get(port.name) if port.kind == "state" else None for port in program.outputs
        ]
        kept = {port.tensor for port in state if port.name in self.kept}
        writer = _Writer(program, pieces, required, kept)
        nodes = writer.run()
        return PassResult(program.replace(nodes=tuple(nodes)), writer.gathers)


class _Writer:
    """Writes the nodes of one program or body.

    Args:
        pieces: the inputs that are stored in pieces.
        required: for each output its layout, if it must be in pieces.
        kept: the pieces that are gathered once.

    Attributes:
        gathers: the number of gathers, including those in bodies.
    """

    def __init__(
        self,
        program: Program,
        pieces: Mapping[Tensor, Sharded],
        required: Sequence[Layout | None],
        kept: set[Tensor],
    ) -> None:
        self._program = program
        self._pieces = dict(pieces)
        self._updated = pieces_behind(program, required)
        self._kept = kept
        self._nodes: list[Node] = []
        self._whole: dict[Tensor, tuple[Tensor, int]] = {}  # and the gather of its last use
        self._token: Tensor | None = None  # computed where the last gathered value is used
        self._computed: set[Tensor] = set()
        self.gathers = 0

    def run(self) -> list[Node]:
        """The nodes, with gathers."""
        for node in self._program.nodes:
            taken = [t for t in dict.fromkeys(node.inputs) if t in self._pieces]
            if taken and self._stays_cut(node):
                self._nodes.append(node)
            elif taken and node.op is SCAN:
                self._loop(node)
            elif taken and node.op is MAP:
                self._map(node)
            elif taken:
                self._nodes.append(self._gathered(node, taken))
            else:
                self._nodes.append(node)
            self._computed.update(node.outputs)
        return self._nodes

    def _stays_cut(self, node: Node) -> bool:
        """Whether a node computes with pieces: an update, or a value of parameters alone."""
        if not is_elementwise(node):
            return False
        (result,) = node.outputs
        if result in self._updated:
            return True
        whole = [t for t in node.inputs if t.type.shape == result.type.shape]
        layouts = {self._pieces.get(t) for t in whole}
        if len(layouts) != 1 or None in layouts:
            return False
        self._pieces[result] = self._pieces[whole[0]]
        return True

    def _gathered(self, node: Node, taken: Sequence[Tensor]) -> Node:
        """The node on whole values."""
        whole = {tensor: self._whole_of(tensor, node) for tensor in taken}
        others = [t for t in node.inputs if t in self._computed and t not in self._pieces]
        if others:
            self._token = others[0]
        (changed,) = substitute([node], whole)
        return changed

    def _whole_of(self, tensor: Tensor, user: Node) -> Tensor:
        found = self._whole.get(tensor)
        if found is not None and (tensor in self._kept or self.gathers - found[1] <= 1):
            self._whole[tensor] = (found[0], self.gathers)
            return found[0]
        piece = tensor
        if self._token is not None and tensor not in self._kept:
            waiting = node_of(AFTER, (tensor, self._token), like=user, name="piece")
            self._nodes.append(waiting)
            (piece,) = waiting.outputs
        gather = node_of(WHOLE, (piece,), like=user, name="whole")
        self._nodes.append(gather)
        self.gathers += 1
        self._whole[tensor] = (gather.outputs[0], self.gathers)
        return gather.outputs[0]

    def _loop(self, node: Node) -> None:
        """A loop. Its carries, and the slices that it takes, stay in pieces; they are gathered in
        its body."""
        body = node.regions[0]
        outer, inner = parts_of(node, node.inputs), parts_of(node, body.input_tensors())
        pieces = self._slices(outer.xs, inner.xs)
        required: list[Layout | None] = [None] * len(body.outputs)
        for place, (given, tensor) in enumerate(zip(outer.carries, inner.carries, strict=True)):
            layout = self._pieces.get(given)
            if layout is not None:
                pieces[tensor] = self._pieces[node.outputs[place]] = required[place] = layout
        self._with_body(node, pieces, required)

    def _map(self, node: Node) -> None:
        """A `Map`: the slices that it takes stay in pieces."""
        mapped = node.attrs["mapped"]
        pieces = self._slices(node.inputs[:mapped], node.regions[0].input_tensors()[:mapped])
        self._with_body(node, pieces, [inside(self._updated.get(t)) for t in node.outputs])

    def _slices(self, outer: Sequence[Tensor], inner: Sequence[Tensor]) -> dict[Tensor, Sharded]:
        """The slices that are in pieces."""
        layouts = [inside(self._pieces.get(given)) for given in outer]
        found = zip(inner, layouts, strict=True)
        return {tensor: layout for tensor, layout in found if layout is not None}

    def _with_body(
        self, node: Node, pieces: Mapping[Tensor, Sharded], required: Sequence[Layout | None]
    ) -> None:
        """Adds a node whose body takes these inputs in pieces; it takes all others whole."""
        body, *others = node.regions
        inputs = list(node.inputs)
        for place, (given, tensor) in enumerate(
            zip(node.inputs, body.input_tensors(), strict=True)
        ):
            if given in self._pieces and tensor not in pieces:
                inputs[place] = self._whole_of(given, node)
        writer = _Writer(body, pieces, required, set())
        nodes = writer.run()
        self.gathers += writer.gathers
        made = region(body.name, body.input_tensors(), nodes, body.output_tensors())
        self._nodes.append(node.replace(inputs=tuple(inputs), regions=(made, *others)))
