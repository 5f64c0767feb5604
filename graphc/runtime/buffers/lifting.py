"""Joins the updates of many small variables: elementwise operators on raveled, joined operands.

An optimizer updates each parameter with the same few elementwise operators. If the parameters and
the optimizer's slots are stored in flat buffers in the same order, the operators work on whole
buffers. Then only gradients have to be joined. Otherwise XLA would compile and run a kernel for
each variable.
"""

from __future__ import annotations

from collections.abc import Mapping

from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ops.arrays.joining import concatenate
from graphc.ops.arrays.shape import reshape
from graphc.ops.arrays.slicing import slice_
from graphc.ops.core.emit import emit_one
from graphc.passes.core.elementwise import is_elementwise
from graphc.passes.core.keys import attrs_key
from graphc.runtime.buffers.layout import elements
from graphc.runtime.buffers.update_signatures import STATE, Role, Roles


class Lifting:
    """Ravels tensors and joins them one after the other, with as few nodes as possible. The nodes
    are added to the current builder.

    Args:
        places: the value of the flat buffer and the first element, for each tensor stored in one.
    """

    def __init__(self, program: Program, places: Mapping[Tensor, tuple[Tensor, int]]) -> None:
        self._roles = Roles(program)
        self._places = places
        self._known: dict[tuple[Tensor, ...], Tensor] = {}

    def role(self, tensor: Tensor) -> Role:
        """See `Roles`."""
        return self._roles.of(tensor)

    def flat(self, tensors: tuple[Tensor, ...]) -> Tensor:
        """The tensors raveled and joined: `[sum of sizes]`."""
        found = self._known.get(tensors)
        if found is None:
            for way in (self._in_place, self._lifted):
                found = way(tensors) if found is None else found
            found = self._joined(tensors) if found is None else found
            self._known[tensors] = found
        return found

    def _in_place(self, tensors: tuple[Tensor, ...]) -> Tensor | None:
        """The piece of a flat buffer that already contains the tensors in this order."""
        value, first = self._places.get(tensors[0], (None, 0))
        stop = first
        for tensor in tensors:
            home, start = self._places.get(tensor, (None, -1))
            if value is None or home is not value or start != stop:
                return None
            stop += elements(tensor.type)
        if value is None or (stop - first,) == value.type.shape:
            return value
        return slice_(value, (first,), (stop,))

    def _alike(self, tensors: tuple[Tensor, ...]) -> list[Node] | None:
        """The nodes that produce the tensors, if one node on joined operands can replace them."""
        role = self.role(tensors[0])
        if role == STATE or len(tensors) < 2 or any(self.role(t) != role for t in tensors):
            return None
        nodes = [node for t in tensors if (node := self._roles.producers.get(t)) is not None]
        if len(nodes) < len(tensors):
            return None
        if role is None:  # not from state: useful only if no more has to be joined
            if len({(n.op, attrs_key(n.op, n.attrs)) for n in nodes}) > 1:
                return None
            if not all(map(is_elementwise, nodes)):
                return None
            if any(sum(t.type.shape != () for t in n.inputs) != 1 for n in nodes):
                return None
        return nodes

    def _lifted(self, tensors: tuple[Tensor, ...]) -> Tensor | None:
        """The operator that produces each of the tensors, applied once to joined operands."""
        nodes = self._alike(tensors)
        if nodes is None:
            return None
        operands: list[Tensor | tuple[Tensor, ...]] = []
        for column in zip(*[node.inputs for node in nodes], strict=True):
            if all(t.type.shape == r.type.shape for t, r in zip(column, tensors, strict=True)):
                same = column[0].type.shape == () and len({*column}) == 1
                operands.append(column[0] if same else tuple(column))
            elif column[0].type.shape == () and all(t is column[0] for t in column):
                operands.append(column[0])
            else:
                return None  # broadcast in another way
        if all(isinstance(operand, Tensor) for operand in operands):
            return None
        joined = [o if isinstance(o, Tensor) else self.flat(o) for o in operands]
        return emit_one(nodes[0].op, joined, **nodes[0].attrs)

    def _joined(self, tensors: tuple[Tensor, ...]) -> Tensor:
        pieces = [
            tensor if tensor.type.rank == 1 else reshape(tensor, (elements(tensor.type),))
            for tensor in tensors
        ]
        return pieces[0] if len(pieces) == 1 else concatenate(pieces)
