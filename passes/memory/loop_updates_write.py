"""Updates of stacked state written into the loop that computes the gradients."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from graphc.ir.builder import Builder
from graphc.ir.costs import bytes_of
from graphc.ir.node import Node, Tensor, is_among, position_of
from graphc.ir.program import Program, ancestors, is_pure, region
from graphc.ir.rewrite import sort_nodes, substitute, used_from
from graphc.ops.arrays.dynamic_slicing import DYNAMIC_SLICE, DYNAMIC_UPDATE_SLICE
from graphc.ops.arrays.shape import BROADCAST_TO, reshape
from graphc.ops.control.bodies import slice_type
from graphc.ops.control.loop_view import LoopView
from graphc.ops.control.scan import SCAN
from graphc.ops.core.emit import constant
from graphc.ops.matrices.contraction import DOT_GENERAL
from graphc.ops.matrices.matrix_product import MATMUL
from graphc.ops.structure.ordering import AFTER
from graphc.passes.core.readers import Readers
from graphc.passes.core.state_updates import End
from graphc.passes.memory.loop_cells import Cell
from graphc.passes.memory.loop_updates import Update
from graphc.passes.memory.update_order import needed


def written(program: Program, loop: Node, updates: Sequence[Update]) -> Program:
    """The program with the updates in the loop."""
    readers = dict.fromkeys(t for update in updates for t in update.readers)
    with Builder(like=loop) as front:
        first = constant(loop.attrs["length"] - 1 if loop.attrs["reverse"] else 0, "uint32")
        if readers:
            (first,) = front.add(AFTER, (first, *readers)).outputs
    new = _Writer(loop, updates, first).loop()
    cells = [cell for update in updates for cell in update.cells]
    gone = {t for cell in cells for t in cell.at.outputs}
    owners = {cell.owner for cell in cells}
    stacks = {old for update in updates for _, old in update.ends}
    nodes: list[Node] = []
    for node in program.nodes:
        if node is loop:
            nodes += [*front.nodes, new]
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
    """A write: the old slice, the new slice, and the stack after the write."""

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
        self._view = LoopView.of(loop)
        self._updates, self._first = updates, first
        self._reverse = loop.attrs["reverse"]
        self._index = Tensor(first.type, "index")
        self._puts: list[_Put] = []
        self._builder = Builder(like=loop)
        with self._builder:
            self._zero = constant(0, "uint32")

    def loop(self) -> Node:
        """The loop with the updates in it."""
        with self._builder:
            return self._loop()

    def _loop(self) -> Node:
        view = self._view
        ends = [end for update in self._updates for end in update.ends]
        stacks = {old: Tensor(old.type, old.name) for _, old in ends}
        slices = {old: self._slice(stack) for old, stack in stacks.items()}
        pairs = list(zip(view.outer.xs, view.inner.xs, strict=True))
        instead = {
            inner: reshape(slices[outer], inner.type.shape)
            for outer, inner in pairs
            if outer in slices
        }
        view = view.without_xs([i for i, (outer, _) in enumerate(pairs) if outer in slices])
        self._view = view = view.substituted(instead)
        self._builder.nodes += view.nodes
        gradients = dict(zip(view.stacks, view.ys, strict=True))
        for update in self._updates:
            self._write(update, gradients, stacks, slices)
        view = self._view
        used = {t for update in self._updates for cell in update.cells for t in cell.at.inputs}
        view = view.only_stacks(gradients.keys() - used)
        self._wait(view.given(), [gradients[t] for t in gradients if t in used])
        wholes = {put.old: put.whole for put in self._puts}
        carries = [(old, stacks[old], wholes[slices[old]], new) for new, old in ends]
        end = Tensor(self._index.type, "end")
        carries.append((self._first, self._index, self._next(), end))
        view = view.with_carries(carries)
        nodes = used_from(self._builder.nodes, view.given(), keep=lambda node: not is_pure(node))
        loop = view.with_nodes(nodes).write()
        return loop.replace(attrs={**loop.attrs, "unroll": 1})

    def _next(self) -> Tensor:
        """The number of the next slice."""
        one = constant(1, "uint32")
        return self._index - one if self._reverse else self._index + one

    def _write(
        self,
        update: Update,
        gradients: Mapping[Tensor, Tensor],
        stacks: Mapping[Tensor, Tensor],
        slices: Mapping[Tensor, Tensor],
    ) -> None:
        """Adds the nodes that write new slices.

        The new slice of each stack is computed separately. If it needs the new slice of another
        stack, it reads the written stack: an array of a new slice that two stacks need would be
        written twice.
        """
        made = {t: cell.at for cell in update.cells for t in cell.at.outputs}
        values: dict[Tensor, Tensor] = {}
        for value in dict.fromkeys(t for cell in update.cells for t in cell.at.inputs):
            if value in slices:
                values[value] = slices[value]
            elif value in gradients:
                values[value] = _leading(gradients[value])
            elif value in made:
                continue
            elif value in update.sliced:
                values[value] = _leading(self._slice_of_operand(value))
            else:
                values[value] = self._constant_operand(value)
        done: list[Tensor] = []
        for new, old in update.ends:
            known = dict(values)
            needs = set(needed(new, made, done))
            for cell in update.cells:
                if not needs.isdisjoint(cell.at.outputs) and known.keys().isdisjoint(
                    cell.at.outputs
                ):
                    self._copy(cell, known, update.sliced)
            write = (stacks[old], known[new], *self._starts(stacks[old]))
            (whole,) = self._builder.add(DYNAMIC_UPDATE_SLICE, write).outputs
            self._puts.append(_Put(slices[old], known[new], whole))
            values[new] = self._slice(whole)
            done.append(new)

    def _copy(self, cell: Cell, known: dict[Tensor, Tensor], sliced: Collection[Tensor]) -> None:
        """Adds a cell's node for slices with a leading axis."""
        inputs = [known[t] for t in cell.at.inputs]
        attrs = dict(cell.node.attrs)
        if cell.is_sliced and cell.node.op is BROADCAST_TO:
            shape = cell.node.outputs[0].type.shape
            attrs["shape"] = (1, *(shape if cell.is_inner else shape[1:]))
        elif cell.is_sliced:
            inputs = [
                _leading(inner) if inner.type.shape and value not in sliced else inner
                for inner, value in zip(inputs, cell.at.inputs, strict=True)
            ]
        with self._builder.at(cell.node):
            node = self._builder.add(cell.node.op, inputs, attrs)
        known.update(zip(cell.at.outputs, node.outputs, strict=True))

    def _wait(self, results: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
        """Makes each write, and each gradient, wait for the nodes that read the old slice."""
        builder = self._builder
        wholes = [put.whole for put in self._puts]
        inputs = self._view.inner.all()
        body = region("body", inputs, builder.nodes, [*results, *wholes])
        reading = Readers(body, [End(put.new, put.old) for put in self._puts])
        nodes = {node.outputs[0]: node for node in builder.nodes}
        before: dict[Tensor, None] = {}
        for put in self._puts:
            readers = reading.of(put.old, put.new)
            if readers:
                before.update(dict.fromkeys(readers))
                self._put_off(nodes[put.whole], put.new, readers, nodes[put.new])
        self._delay(gradients, list(before))
        builder.nodes = list(sort_nodes(builder.nodes))

    def _delay(self, gradients: Sequence[Tensor], readers: Sequence[Tensor]) -> None:
        """Makes the products that compute gradients wait for the nodes that read the old slices.

        XLA copies the old slice for a product. Without an order it may compute the gradient, which
        is as large, while it holds the copy. A gradient that replicas exchange does not wait: the
        exchange is to begin early.
        """
        made = {t: node for node in self._builder.nodes for t in node.outputs}
        needed = ancestors(made, readers)
        for gradient in gradients:
            node = made.get(gradient)
            if node is None or node in needed or node.op not in (MATMUL, DOT_GENERAL):
                continue
            smallest = min(node.inputs, key=bytes_of)
            if readers and 2 * bytes_of(smallest) <= bytes_of(gradient):
                self._put_off(node, smallest, readers, node)

    def _put_off(self, node: Node, operand: Tensor, others: Sequence[Tensor], like: Node) -> None:
        """Makes a node take an operand only after `others` are computed."""
        nodes = self._builder.nodes
        with Builder(like=like) as front:
            (late,) = front.add(AFTER, (operand, *others)).outputs
        place = nodes.index(node)
        nodes[place : place + 1] = [*front.nodes, *substitute([node], {operand: late})]

    def _slice_of_operand(self, stack: Tensor) -> Tensor:
        """The body's input for the slices of a stack; adds the stack to the loop if needed."""
        outer, inner = self._view.outer, self._view.inner
        if not is_among(stack, outer.xs):
            new = Tensor(slice_type(stack.type), stack.name)
            self._view = self._view.with_xs([(stack, new)])
            return new
        found: Tensor = inner.xs[position_of(stack, outer.xs)]
        return found

    def _constant_operand(self, value: Tensor) -> Tensor:
        """The body's input for a value that all iterations share; adds it to the loop if needed."""
        outer, inner = self._view.outer, self._view.inner
        if not is_among(value, outer.consts):
            new = Tensor(value.type, value.name)
            self._view = self._view.with_consts([(value, new)])
            return new
        found: Tensor = inner.consts[position_of(value, outer.consts)]
        return found

    def _starts(self, stack: Tensor) -> list[Tensor]:
        return [self._index, *[self._zero] * (stack.type.rank - 1)]

    def _slice(self, stack: Tensor) -> Tensor:
        """The slice of this iteration, with its leading axis."""
        attrs = {"sizes": (1, *stack.type.shape[1:]), "inside": True}
        return self._builder.add(DYNAMIC_SLICE, (stack, *self._starts(stack)), attrs).outputs[0]


def _leading(tensor: Tensor) -> Tensor:
    return reshape(tensor, (1, *tensor.type.shape))
