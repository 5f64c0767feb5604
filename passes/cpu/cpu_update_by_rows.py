"""CPU: large matrices are updated by blocks of rows, while their gradient is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphc.ir import dims
from graphc.ir.builder import Builder
from graphc.ir.dtypes import WIDE_FLOATS
from graphc.ir.node import Node, Tensor, is_among
from graphc.ir.program import Program, region
from graphc.ir.types import TensorType
from graphc.ops.arrays.shape import BROADCAST_TO
from graphc.ops.matrices.matrix_product import MATMUL
from graphc.ops.matrices.row_updates import UPDATE_BY_ROWS
from graphc.ops.structure.ordering import AFTER
from graphc.passes.core.base import Pass, PassResult
from graphc.passes.core.elementwise import is_elementwise
from graphc.passes.core.readers import Readers
from graphc.passes.core.state_updates import End, in_bodies, states
from graphc.passes.memory.update_order import needed, ordered


@dataclass(frozen=True)
class CpuUpdateByRows(Pass):
    """Computes the gradient of a large matrix by blocks of rows, if only its optimizer needs it,
    and updates the state with each block immediately.

    XLA first computes the whole gradient, writes it to memory that the system must clear page by
    page, and reads it again for each slot: 55 ms for [9216, 4096] and momentum at a batch of 32,
    instead of 20 ms. On CPU, XLA fuses no product with its users, and it does not know that rows of
    a product can be computed separately.

    Must not: change a gradient that is clipped by its norm, summed over replicas or fetched; change
    updates that need other rows, or the old value of a slot in addition to its new one; use blocks
    of few rows, if the number of rows is prime and allows no others. float32 and float64 only:
    bfloat16 products gained nothing.

    Attributes:
        smallest: the number of elements of the smallest matrix to which it applies.
        block: the approximate number of elements of a block of rows; half or twice as many take the
            same time.
    """

    smallest: int = 1 << 23
    block: int = 1 << 21

    def run(self, program: Program) -> PassResult:
        return self._run(program, states(program))

    def _run(self, program: Program, ends: Sequence[End]) -> PassResult:
        program, changed = in_bodies(program, self._run)
        for product in [node for node in program.nodes if self._is_large(node)]:
            height, width = (int(dim) for dim in product.outputs[0].type.shape)  # type: ignore[arg-type]
            rows = _rows(height, width, self.block)
            found = _find(program, product, ends) if rows else None
            if found is not None:
                program = _written(program, found, rows)
                changed += 1
        return PassResult(program, changed)

    def _is_large(self, node: Node) -> bool:
        if node.op is not MATMUL or not node.attrs["transpose_a"] or node.attrs["transpose_b"]:
            return False
        type = node.outputs[0].type
        size = dims.product(type.shape)
        large = isinstance(size, int) and size >= self.smallest
        return large and type.rank == 2 and type.dtype in WIDE_FLOATS


@dataclass(frozen=True)
class _Found:
    """A product whose rows update state immediately.

    Attributes:
        inner: the elementwise nodes between the product and the new state.
        ends: the new and old values of the state, in an order in which none needs a later one.
        others: operands of `inner` of the same shape, except the old values.
        scalars: the other operands of `inner`.
        readers: a result of each node that must read an old value first.
    """

    product: Node
    inner: Sequence[Node]
    ends: Sequence[tuple[Tensor, Tensor]]
    others: Sequence[Tensor]
    scalars: Sequence[Tensor]
    readers: Sequence[Tensor]


def _find(program: Program, product: Node, ends: Sequence[End]) -> _Found | None:
    """The users of the product, if they are elementwise and only update state; otherwise None."""
    (whole,) = product.outputs
    shape = whole.type.shape
    made: dict[Tensor, Node] = {}
    for node in program.nodes:
        if any(t is whole or t in made for t in node.inputs):
            if not is_elementwise(node) or node.outputs[0].type.shape != shape:
                return None
            made[node.outputs[0]] = node
    given = [port.tensor for port in program.outputs]
    own = [(e.new, e.old) for e in ends if e.new in made and e.old is not None]
    if is_among(whole, given) or not own or sum(t in made for t in given) != len(own):
        return None
    if any(new.type != old.type for new, old in own):
        return None
    old_values = {old for _, old in own}
    if not old_values.isdisjoint(product.inputs):  # its other rows would be needed
        return None
    made = _with_operands(program, product, made)
    inner = list(made.values())
    order = ordered(own, made)
    if order is None:
        return None
    operands = dict.fromkeys(t for node in inner for t in node.inputs)
    free = [t for t in operands if t is not whole and t not in made and t not in old_values]
    reading = Readers(program, [End(new, old) for new, old in own])
    readers: dict[Tensor, None] = {}
    for new, old in own:
        found = reading.of(old, new)
        if found is None:
            return None
        readers.update(dict.fromkeys(t for t in found if t not in made))
    others = [t for t in free if t.type.shape == shape]
    scalars = [t for t in free if t.type.shape != shape]
    return _Found(product, inner, order, others, scalars, list(readers))


def _with_operands(
    program: Program, product: Node, made: Mapping[Tensor, Node]
) -> dict[Tensor, Node]:
    """The elementwise nodes that use the product, and nodes that only these need."""
    producers, users = program.producers(), program.users()
    given = set(program.output_tensors())
    shape = product.outputs[0].type.shape
    inner = set(made.values())
    stack = list(made.values())
    while stack:
        for tensor in stack.pop().inputs:
            node = producers.get(tensor)
            if node is None or node is product or node in inner or tensor.type.shape != shape:
                continue
            spread = node.op is BROADCAST_TO and not node.inputs[0].type.shape
            alone = tensor not in given and inner.issuperset(users[tensor])
            if alone and (spread or is_elementwise(node)):
                inner.add(node)
                stack.append(node)
    return {node.outputs[0]: node for node in program.nodes if node in inner}


def _rows(height: int, width: int, block: int) -> int:
    """The rows of a block: the largest divisor with at most twice `block` elements; 0 if there is
    only one block, or if blocks are small, because each iteration has a cost."""
    most = min(height, max(1, 2 * block // width))
    rows = max(rows for rows in range(1, most + 1) if height % rows == 0)
    return rows if rows < height and 8 * rows * width >= block else 0


def _written(program: Program, found: _Found, rows: int) -> Program:
    """The program with one node for the product and all its users."""
    product, (a, b) = found.product, found.product.inputs
    builder = Builder(product)
    if found.readers:
        (b,) = builder.add(AFTER, (b, *found.readers)).outputs
    bodies = _bodies(found, rows)
    old = [old for _, old in found.ends]
    new = [new for new, _ in found.ends]
    operands = (a, b, *old, *found.others, *found.scalars)
    counts: dict[str, Any] = {"states": len(old), "rows": rows}
    made = builder.add(UPDATE_BY_ROWS, operands, counts, tuple(bodies)).outputs
    builder.define(*zip(made, new, strict=True))
    gone = {product, *found.inner}
    kept = [node for node in program.nodes if node not in gone]
    return program.replace(nodes=(*kept, *builder.nodes))


def _bodies(found: _Found, rows: int) -> list[Program]:
    """The product of a block of rows, and the update of each state with it."""

    def piece(tensor: Tensor, axis: int = 0) -> Tensor:
        shape = list(tensor.type.shape)
        shape[axis] = rows
        return Tensor(TensorType(tensor.type.dtype, tuple(shape)), tensor.name)

    product, (a, b) = found.product, found.product.inputs
    taken = [piece(a, 1), Tensor(b.type, b.name)]
    part = Builder(product).add(MATMUL, taken, product.attrs)
    bodies = [region("product", taken, [part], part.outputs)]
    made = {node.outputs[0]: node for node in found.inner}
    written: list[Tensor] = []
    for new, _ in found.ends:
        gradient = piece(part.outputs[0])
        values = {product.outputs[0]: gradient}
        states = []
        for other_new, old in found.ends:
            value = piece(old)
            states.append(value)
            values[other_new if is_among(other_new, written) else old] = value
        others = [piece(t) for t in found.others]
        scalars = [Tensor(t.type, t.name) for t in found.scalars]
        values.update(zip(found.others, others, strict=True))
        values.update(zip(found.scalars, scalars, strict=True))
        needs = set(needed(new, made, written))
        builder = Builder()
        for tensor, node in made.items():
            if tensor in needs and tensor not in values:
                sized = {"shape": gradient.type.shape} if node.op is BROADCAST_TO else {}
                operands = [values[t] for t in node.inputs]
                with builder.at(node):
                    inner = builder.add(node.op, operands, {**node.attrs, **sized})
                values[tensor] = inner.outputs[0]
        inputs = [gradient, *states, *others, *scalars]
        bodies.append(region("update", inputs, builder.nodes, [values[new]]))
        written.append(new)
    return bodies
