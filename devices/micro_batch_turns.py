"""Unrolls loops over micro-batches whose body is on several devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphc.devices.placed_nodes import devices_of
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ir.rewrite import substitute
from graphc.ops.arrays.stacking import STACK, UNSTACK
from graphc.ops.control.loop_view import LoopView
from graphc.ops.control.scan import SCAN
from graphc.ops.structure.state import IDENTITY
from graphc.passes.core.building import node_of


def unrolled(
    program: Program, at: Mapping[Tensor, str], base: str, turns: dict[Node, int]
) -> Program:
    """The program in which loops whose body names several devices are unrolled.

    All iterations have identical nodes, because slices are taken, and sums are initialised, before
    the first iteration. So each stage of a pipeline is compiled once for all micro-batches.

    Args:
        at: the devices that hold the state inputs.
        base: the default device.
        turns: receives the iteration of each node that is created.
    """
    if not any(_is_spread(node) for node in program.nodes):
        return program
    places = dict(at)
    nodes: list[Node] = []
    instead: dict[Tensor, Tensor] = {}
    for node in program.nodes:
        if _is_spread(node):
            new = _Turns(node, places, base, turns)
            nodes += new.nodes
            instead.update(zip(node.outputs, new.results, strict=True))
            places.update({t: places[r] for t, r in instead.items() if r in places})
        else:
            devices_of([node], places, base)
            nodes.append(node)
    return substitute(program.replace(nodes=tuple(nodes)), instead)


def _is_spread(node: Node) -> bool:
    if node.op is not SCAN or type(node.attrs["length"]) is not int:
        return False
    return len({inner.device for inner in node.regions[0].nodes if inner.device}) > 1


class _Turns:
    """One unrolled loop.

    Attributes:
        nodes: the nodes that replace the loop.
        results: the tensors that replace its results.
    """

    def __init__(
        self, loop: Node, at: dict[Tensor, str], base: str, turns: dict[Node, int]
    ) -> None:
        self.nodes: list[Node] = []
        self._loop, self._turns = loop, turns
        (body,), view = loop.regions, LoopView.of(loop)
        pairs = zip(view.inner.consts, view.outer.consts, strict=True)
        inside = {own: at[outer] for own, outer in pairs if outer in at}
        devices_of(body.nodes, inside, base)
        self._first_user = _first_users(body, inside)
        held = [
            self._start(tensor, inside.get(last))
            for tensor, last in zip(view.outer.carries, view.following, strict=True)
        ]
        slices = [*map(self._slices, view.outer.xs, view.inner.xs)]
        carries = len(held)
        stacked: list[list[Tensor]] = [[] for _ in view.ys]
        order = view.order()
        for turn in order:
            operands = [*view.outer.consts, *held, *(pieces[turn] for pieces in slices)]
            results = self._turn(body, operands, turn)
            held = results[:carries]
            for stack, piece in zip(stacked, results[carries:], strict=True):
                stack.append(piece)
        if loop.attrs["reverse"]:
            stacked = [stack[::-1] for stack in stacked]
        self.results = [*held, *(self._add(node_of(STACK, s, axis=0), None)[0] for s in stacked)]

    def _start(self, tensor: Tensor, device: str | None) -> Tensor:
        """A value that is computed before the first iteration."""
        return self._add(node_of(IDENTITY, (tensor,), name="micro_batches/start"), device)[0]

    def _slices(self, stack: Tensor, own: Tensor) -> Sequence[Tensor]:
        """The slice of a stack for each iteration, taken on the device that uses it first."""
        device = self._first_user.get(own)
        held = self._start(stack, device)  # also for constants, so that only one copy is sliced
        return self._add(node_of(UNSTACK, (held,), name="micro_batches/slices", axis=0), device)

    def _turn(self, body: Program, operands: Sequence[Tensor], turn: int) -> list[Tensor]:
        copies = dict(zip(body.input_tensors(), operands, strict=True))
        for node in body.nodes:
            outputs = tuple([Tensor(t.type, t.name) for t in node.outputs])
            copies.update(zip(node.outputs, outputs, strict=True))
            new = node.replace(inputs=tuple([copies[t] for t in node.inputs]), outputs=outputs)
            self._turns[new] = turn
            self.nodes.append(new)
        return [copies[t] for t in body.output_tensors()]

    def _add(self, node: Node, device: str | None) -> tuple[Tensor, ...]:
        node = node.replace(source=self._loop.source, device=device or "")
        self.nodes.append(node)
        return node.outputs


def _first_users(body: Program, at: Mapping[Tensor, str]) -> dict[Tensor, str]:
    """The device of the first node that uses each of the body's inputs. For a node without a
    device, its own users count."""
    found: dict[Tensor, str] = {}
    for node in reversed(body.nodes):
        places = [at[t] for t in node.outputs if t in at] or [
            found[t] for t in node.outputs if t in found
        ]
        if places:
            found.update(dict.fromkeys(node.inputs, places[0]))
    return found
