"""Move transposes: chains of operators compute in the order of axes that needs fewer transposes."""

from __future__ import annotations

from dataclasses import dataclass

from graphc.ir.builder import Builder
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ops.arrays.shape import TRANSPOSE, reshape, transpose
from graphc.passes.core.base import Pass, PassResult, redirect, run_all_bodies
from graphc.passes.simplify.axis_orders import (
    Order,
    Reordered,
    compose,
    inverse,
    is_free,
    is_identity,
    lengthened,
    reordered_type,
)
from graphc.passes.simplify.transposed_regions import Region, Search, expanded


@dataclass(frozen=True)
class MoveTransposes(Pass):
    """Computes chains of elementwise operators, reductions, slices and concatenations with another
    order of axes, where fewer elements are transposed then.

    Models from PyTorch and ONNX have the channels first, and convolutions here have them last, so
    each convolution is between two transposes. After this pass the operators between convolutions
    have the channels last too, forward and backward. XLA moves transposes only inside fusions: on
    CPUs, the forward pass of a residual network takes 1.35 of the time without this pass. Other
    passes for CPUs look for channels in the last axis.

    Must not: add transposes. A chain changes as a whole, and only if fewer elements are moved, by
    no more transposes than before.
    """

    def run(self, program: Program) -> PassResult:
        program, inside = run_all_bodies(self, program)
        chosen = Search(program).run()
        if not chosen.forms:
            return PassResult(program, inside)
        node = None
        try:
            with _Writer(program, chosen) as writer:
                for node in program.nodes:
                    writer.write(node)
        except Exception as error:
            raise self.fault(node, error) from error
        outputs = redirect(program.outputs, writer.instead)
        changed = program.replace(nodes=tuple(writer.nodes), outputs=outputs)
        return PassResult(changed, inside + len(chosen.forms))


class _Writer(Builder):
    """The program with the nodes of a region reordered.

    Attributes:
        instead: result of a transpose -> the tensor that replaces it.
    """

    def __init__(self, program: Program, region: Region) -> None:
        super().__init__()
        self.instead: dict[Tensor, Tensor] = {}
        self._region = region
        self._made = program.producers()
        self._outputs = frozenset(program.output_tensors())
        self._users = program.users()
        self._stored: dict[Tensor, Tensor] = {}
        self._ordered: dict[tuple[Tensor, Order], Tensor] = {}

    def write(self, node: Node) -> None:
        self.like = node
        form = self._region.forms.get(node)
        if form is not None:
            self._write_reordered(node, form)
        elif node.op is TRANSPOSE and self._is_held(node):
            self.instead[node.outputs[0]] = self._in_order(node.inputs[0], node.attrs["perm"])
        else:
            if not self.instead.keys().isdisjoint(node.inputs):
                node = node.replace(inputs=tuple([self.instead.get(t, t) for t in node.inputs]))
            self.append(node)

    def _is_held(self, node: Node) -> bool:
        origin, _ = self._region.origin(self._made, node.inputs[0], node.attrs["perm"])
        return origin in self._region.held

    def _write_reordered(self, node: Node, form: Reordered) -> None:
        pairs = zip(node.inputs, form.operands, strict=True)
        inputs = tuple([self._in_order(tensor, order) for tensor, order in pairs])
        outputs = tuple(map(_stored, node.outputs, form.results))
        self.append(node.replace(inputs=inputs, outputs=outputs, attrs=form.attrs))
        for tensor, stored in zip(node.outputs, outputs, strict=True):
            self._stored[tensor] = stored
            if stored is not tensor and self._is_needed(tensor):
                self.define((_transposed(stored, inverse(self._region.held[tensor])), tensor))

    def _is_needed(self, tensor: Tensor) -> bool:
        """Whether something needs the result of a reordered node in its own order."""
        users = self._users.get(tensor, ())
        outside = any(n.op is not TRANSPOSE and n not in self._region.forms for n in users)
        return outside or tensor in self._outputs

    def _in_order(self, tensor: Tensor, order: Order) -> Tensor:
        """A tensor, as the program before has it, stored in an order."""
        tensor, order = self._region.origin(self._made, tensor, order)
        held = self._region.held.get(tensor)
        if held is not None:
            undone = inverse(lengthened(held, len(order)))
            tensor, order = self._stored[tensor], compose(undone, order)
        if is_identity(order) and len(order) == tensor.type.rank:
            return tensor
        found = self._ordered.get((tensor, order))
        if found is None:
            found = self._ordered[tensor, order] = _transposed(tensor, order)
        return found


def _stored(tensor: Tensor, order: Order) -> Tensor:
    """A new tensor for `tensor` in an order; `tensor` itself if its axes stay where they are.

    It has another name, because values of one name are compared with each other (`gc.compare`).
    """
    if is_identity(order):
        return tensor
    return Tensor(reordered_type(tensor.type, order), f"{tensor.name}/reordered")


def _transposed(tensor: Tensor, order: Order) -> Tensor:
    """`tensor` with leading axes of size 1 for a longer order, and then its axes in this order."""
    whole = expanded(tensor.type, len(order))
    if is_free(whole, order):
        return reshape(tensor, reordered_type(whole, order).shape)
    return transpose(tensor if whole == tensor.type else reshape(tensor, whole.shape), order)
