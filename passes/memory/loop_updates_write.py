"""Updates of stacked state written into the loop that computes the gradients."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from graphc.ir.costs import bytes_of
from graphc.ir.dims import Shape
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program, is_pure, region
from graphc.ir.rewrite import sort_nodes, substitute, used_from
from graphc.ir.types import TensorType
from graphc.ops.arrays.dynamic_slicing import DYNAMIC_SLICE, DYNAMIC_UPDATE_SLICE
from graphc.ops.arrays.shape import BROADCAST_TO, RESHAPE
from graphc.ops.control.bodies import slice_type, split
from graphc.ops.control.scan import SCAN
from graphc.ops.elementwise.arithmetic import ADD, SUBTRACT
from graphc.ops.matrices.contraction import DOT_GENERAL
from graphc.ops.matrices.matrix_product import MATMUL
from graphc.ops.structure.ordering import AFTER
from graphc.passes.core.building import constant_of, node_of
from graphc.passes.core.readers import Readers
from graphc.passes.core.state_updates import End
from graphc.passes.memory.loop_cells import Cell
from graphc.passes.memory.loop_updates import Update
from graphc.passes.memory.update_order import needed


def written(program: Program, loop: Node, updates: Sequence[Update]) -> Program:
    """The program with the updates in the loop."""
    first = loop.attrs["length"] - 1 if loop.attrs["reverse"] else 0
    front = [constant_of(first, "uint32", like=loop, name="first")]
    readers = dict.fromkeys(t for update in updates for t in update.readers)
    if readers:
        front.append(node_of(AFTER, (front[0].outputs[0], *readers), like=loop))
    new = _Writer(loop, updates, front[-1].outputs[0]).loop()
    cells = [cell for update in updates for cell in update.cells]
    gone = {t for cell in cells for t in cell.at.outputs}
    owners = {cell.owner for cell in cells}
    stacks = {old for update in updates for _, old in update.ends}
    nodes: list[Node] = []
    for node in program.nodes:
        if node is loop:
            nodes += [*front, new]
        elif node not in owners:
            nodes.append(_in_loop(node, stacks))
        elif not gone.issuperset(node.outputs):
            assert node.op.prune_outputs is not None
            nodes.append(node.op.prune_outputs(node, set(node.outputs) - gone))
    return program.replace(nodes=sort_nodes(nodes))


def _in_loop(node: Node, stacks: set[Tensor]) -> Node:
    """A loop over the same stacks (the forward pass) compiled as a loop: slices of all iterations
    at once would be copies of the stacks."""
    if node.op is not SCAN or stacks.isdisjoint(node.inputs) or node.attrs["unroll"] == 1:
        return node
    return node.replace(attrs={**node.attrs, "unroll": 1})


class _Put(NamedTuple):
    """A write: the old slice, the new one, and the stack after it."""

    old: Tensor
    new: Tensor
    whole: Tensor


class _Writer:
    """Writes one loop with its updates.

    Slices keep a leading axis of size 1: with a reshape between the read and the write of a
    stack, XLA makes an array of the slice first. The loop carries the number of the slice. XLA
    computes numbers from a stack of numbers, but not in programs over several devices: there it
    looks them up in each kernel, and no longer fuses the read of a slice with its write.

    Args:
        first: the number of the first slice.
    """

    def __init__(self, loop: Node, updates: Sequence[Update], first: Tensor) -> None:
        self._loop, self._updates, self._first = loop, updates, first
        (self._body,) = loop.regions
        consts, carries = loop.attrs["consts"], loop.attrs["carries"]
        outer = split(loop.inputs, consts, carries)
        inner = split(self._body.input_tensors(), consts, carries)
        self._consts = list(zip(outer.consts, inner.consts, strict=True))
        self._carries = list(zip(outer.carries, inner.carries, strict=True))
        self._xs = list(zip(outer.xs, inner.xs, strict=True))
        self._index = Tensor(first.type, "index")
        zero = constant_of(0, "uint32", like=loop, name="zero")
        self._zero = zero.outputs[0]
        self._puts: list[_Put] = []
        self.nodes: list[Node] = [zero]

    def loop(self) -> Node:
        """The loop with the updates in it."""
        loop, body, count = self._loop, self._body, self._loop.attrs["carries"]
        ends = [end for update in self._updates for end in update.ends]
        stacks = {old: Tensor(old.type, old.name) for _, old in ends}
        slices = {old: self._slice(stack) for old, stack in stacks.items()}
        instead = {
            inner: self._reshaped(slices[outer], inner.type.shape)
            for outer, inner in self._xs
            if outer in slices
        }
        self._xs = [(outer, inner) for outer, inner in self._xs if outer not in slices]
        self.nodes += substitute(body.nodes, instead)
        results = [instead.get(t, t) for t in body.output_tensors()]
        gradients = dict(zip(loop.outputs[count:], results[count:], strict=True))
        for update in self._updates:
            self._write(update, gradients, stacks, slices)
        used = {t for update in self._updates for cell in update.cells for t in cell.at.inputs}
        kept = [t for t in gradients if t not in used]
        given = [gradients[t] for t in kept]
        self._wait([*results[:count], *given], [gradients[t] for t in gradients if t in used])
        news = {put.old: put.whole for put in self._puts}
        index = (self._first, self._index)
        inputs = [*self._consts, *self._carries, *stacks.items(), index, *self._xs]
        wholes = [news[slices[old]] for _, old in ends]
        outputs = [*results[:count], *wholes, self._next(), *given]
        nodes = used_from(self.nodes, outputs, keep=lambda node: not is_pure(node))
        return loop.replace(
            inputs=tuple(outer for outer, _ in inputs),
            outputs=(
                *loop.outputs[:count],
                *(new for new, _ in ends),
                Tensor(self._index.type, "end"),
                *kept,
            ),
            attrs={
                **loop.attrs,
                "consts": len(self._consts),
                "carries": count + len(stacks) + 1,
                "unroll": 1,
            },
            regions=(region(body.name, [i for _, i in inputs], nodes, outputs),),
        )

    def _next(self) -> Tensor:
        """The number of the next slice."""
        one = constant_of(1, "uint32", like=self._loop, name="one")
        step = SUBTRACT if self._loop.attrs["reverse"] else ADD
        self.nodes += [one, node_of(step, (self._index, *one.outputs), like=self._loop)]
        return self.nodes[-1].outputs[0]

    def _write(
        self,
        update: Update,
        gradients: Mapping[Tensor, Tensor],
        stacks: Mapping[Tensor, Tensor],
        slices: Mapping[Tensor, Tensor],
    ) -> None:
        """Adds the nodes that write new slices.

        Those of each stack are computed apart, and take of other stacks what was written: an
        array of a new slice that two stacks need would be written twice.
        """
        made = {t: cell.at for cell in update.cells for t in cell.at.outputs}
        values: dict[Tensor, Tensor] = {}
        for value in dict.fromkeys(t for cell in update.cells for t in cell.at.inputs):
            if value in slices:
                values[value] = slices[value]
            elif value in gradients:
                values[value] = self._leading(gradients[value])
            elif value in made:
                continue
            elif value in update.sliced:
                inner = self._input(self._xs, value, slice_type(value.type))
                values[value] = self._leading(inner)
            else:
                values[value] = self._input(self._consts, value, value.type)
        done: list[Tensor] = []
        for new, old in update.ends:
            known = dict(values)
            needs = set(needed(new, made, done))
            for cell in update.cells:
                if not needs.isdisjoint(cell.at.outputs) and known.keys().isdisjoint(
                    cell.at.outputs
                ):
                    self._copy(cell, known, update.sliced)
            starts = self._starts(stacks[old])
            write = (stacks[old], known[new], *starts)
            node = node_of(DYNAMIC_UPDATE_SLICE, write, like=self._loop)
            self.nodes.append(node)
            self._puts.append(_Put(slices[old], known[new], node.outputs[0]))
            values[new] = self._slice(node.outputs[0])
            done.append(new)

    def _copy(self, cell: Cell, known: dict[Tensor, Tensor], sliced: Collection[Tensor]) -> None:
        """Adds the node of a cell for slices with a leading axis."""
        inputs = [known[t] for t in cell.at.inputs]
        attrs = dict(cell.node.attrs)
        if cell.is_sliced and cell.node.op is BROADCAST_TO:
            shape = cell.node.outputs[0].type.shape
            attrs["shape"] = (1, *(shape if cell.is_inner else shape[1:]))
        elif cell.is_sliced:
            inputs = [
                self._leading(inner) if inner.type.shape and value not in sliced else inner
                for inner, value in zip(inputs, cell.at.inputs, strict=True)
            ]
        self.nodes.append(node_of(cell.node.op, inputs, like=cell.node, **attrs))
        known.update(zip(cell.at.outputs, self.nodes[-1].outputs, strict=True))

    def _wait(self, results: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
        """Has each write wait for what reads the old slice, and each gradient too."""
        inputs = [i for _, i in (*self._consts, *self._carries, *self._xs)]
        wholes = [put.whole for put in self._puts]
        body = region(self._body.name, inputs, self.nodes, [*results, *wholes])
        reading = Readers(body, [End(put.new, put.old) for put in self._puts])
        nodes = {node.outputs[0]: node for node in self.nodes}
        before: dict[Tensor, None] = {}
        for put in self._puts:
            readers = reading.of(put.old, put.new)
            if readers:
                before.update(dict.fromkeys(readers))
                after = node_of(AFTER, (put.new, *readers), like=nodes[put.new])
                stack, _, *starts = nodes[put.whole].inputs
                place = self.nodes.index(nodes[put.whole])
                write = nodes[put.whole].replace(inputs=(stack, after.outputs[0], *starts))
                self.nodes[place : place + 1] = [after, write]
        self._delay(gradients, list(before))
        self.nodes = list(sort_nodes(self.nodes))

    def _delay(self, gradients: Sequence[Tensor], readers: Sequence[Tensor]) -> None:
        """Has the products that make gradients wait for what reads the old slices.

        XLA copies the old slice for a product. Without an order it may compute the gradient, which
        is as large, while it holds the copy. A gradient that replicas exchange does not wait: the
        exchange is to begin early.
        """
        made = {t: node for node in self.nodes for t in node.outputs}
        needed = _ancestors(made, readers)
        for gradient in gradients:
            node = made.get(gradient)
            if node is None or node in needed or node.op not in (MATMUL, DOT_GENERAL):
                continue
            smallest = min(node.inputs, key=bytes_of)
            if readers and 2 * bytes_of(smallest) <= bytes_of(gradient):
                after = node_of(AFTER, (smallest, *readers), like=node)
                place = self.nodes.index(node)
                late = substitute([node], {smallest: after.outputs[0]})
                self.nodes[place : place + 1] = [after, *late]

    def _input(self, known: list[tuple[Tensor, Tensor]], outer: Tensor, type: TensorType) -> Tensor:
        """The input of the body for an operand of the loop, which may be new."""
        for there, inner in known:
            if there is outer:
                return inner
        known.append((outer, Tensor(type, outer.name)))
        return known[-1][1]

    def _starts(self, stack: Tensor) -> list[Tensor]:
        return [self._index, *[self._zero] * (stack.type.rank - 1)]

    def _slice(self, stack: Tensor) -> Tensor:
        """The slice of this iteration, with its leading axis."""
        sizes = (1, *stack.type.shape[1:])
        starts = self._starts(stack)
        self.nodes.append(
            node_of(DYNAMIC_SLICE, (stack, *starts), like=self._loop, sizes=sizes, inside=True)
        )
        return self.nodes[-1].outputs[0]

    def _leading(self, tensor: Tensor) -> Tensor:
        return self._reshaped(tensor, (1, *tensor.type.shape))

    def _reshaped(self, tensor: Tensor, shape: Shape) -> Tensor:
        self.nodes.append(node_of(RESHAPE, (tensor,), like=self._loop, shape=shape))
        return self.nodes[-1].outputs[0]


def _ancestors(made: Mapping[Tensor, Node], tensors: Sequence[Tensor]) -> set[Node]:
    """The nodes that make the tensors, and all that these need."""
    found, waiting = set[Node](), list(tensors)
    while waiting:
        node = made.get(waiting.pop())
        if node is not None and node not in found:
            found.add(node)
            waiting += node.inputs
    return found
