"""Which updates of stacked state can be moved into the loop that computes the gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graphc.ir.node import Node, Tensor, is_among
from graphc.ir.program import Program, is_pure
from graphc.ops.bodies import split
from graphc.ops.collective import EXCHANGES
from graphc.ops.joining import SPLIT
from graphc.ops.mapping import MAP
from graphc.ops.shape import BROADCAST_TO, RESHAPE, TRANSPOSE
from graphc.ops.slicing import SLICE
from graphc.ops.stacking import UNSTACK
from graphc.passes.elementwise import is_elementwise
from graphc.passes.ends import End
from graphc.passes.peak import bytes_of
from graphc.passes.update_order import ordered

# XLA computes these where they are used, if at all: what uses them reads the operand.
_MOVES = (RESHAPE, TRANSPOSE, SLICE, SPLIT, UNSTACK)


@dataclass(frozen=True)
class Update:
    """The update of some stacks by gradients of one loop.

    Attributes:
        map: the node that computes it.
        nodes: those of its body that take part, in order.
        ends: the new slices and the old ones, as values of its body, in the order of writing.
        mapped: what it takes slices of.
        outer: a value that the body takes or gives -> the value outside.
        readers: a result of each node that must have read an old stack before the loop runs.
    """

    map: Node
    nodes: Sequence[Node]
    ends: Sequence[tuple[Tensor, Tensor]]
    mapped: frozenset[Tensor]
    outer: Mapping[Tensor, Tensor]
    readers: Sequence[Tensor]


def find(
    program: Program, loop: Node, ends: Sequence[End], smallest: int
) -> tuple[list[Update], list[str]]:
    """The updates to move into `loop`, and for each that must stay outside a sentence that says why."""
    gradients = {
        t for t in loop.outputs[loop.attrs["carries"] :] if bytes_of(t) >= smallest
    }
    if not gradients:
        return [], []
    around = _Around(program, loop, gradients, ends)
    found, reasons = [], list[str]()
    for node in program.nodes:
        if node.op is MAP and not gradients.isdisjoint(node.inputs[: node.attrs["mapped"]]):
            for nodes, taken in _apart(node):
                result = around.update(node, nodes, taken)
                if isinstance(result, Update):
                    found.append(result)
                elif result:
                    reasons.append(result)
    reasons += [
        f"the update of {_names([t])} stays after the loop: gradients are exchanged between devices first"
        for t in loop.outputs
        if t in gradients and around.is_exchanged(t)
    ]
    return found, reasons


def _names(tensors: Sequence[Tensor]) -> str:
    return ", ".join(t.name or "a value without a name" for t in tensors)


def _apart(node: Node) -> list[tuple[list[Node], list[Tensor]]]:
    """The parts of a map that share no slices: their nodes, and the mapped inputs that they take.

    What is computed from shared operands alone belongs to every part that needs it.
    """
    (body,), count = node.regions, node.attrs["mapped"]
    mapped = body.input_tensors()[:count]
    part_of: dict[Tensor, list[Tensor]] = {t: [t] for t in mapped}
    for inner in body.nodes:
        parts = [part_of[t] for t in inner.inputs if t in part_of]
        if not parts:
            continue
        joined = parts[0]
        for part in parts[1:]:
            if part is not joined:
                joined += part
                part_of.update(dict.fromkeys(part, joined))
        joined += inner.outputs
        part_of.update(dict.fromkeys(inner.outputs, joined))
    found = []
    for part in {id(part): part for part in part_of.values()}.values():
        members = set(part)
        nodes = list[Node]()
        needed = set[Tensor]()
        for inner in reversed(body.nodes):
            if not members.isdisjoint(inner.outputs) or not needed.isdisjoint(inner.outputs):
                nodes.insert(0, inner)
                needed.update(t for t in inner.inputs if t not in part_of)
        found.append((nodes, [t for t in mapped if t in members]))
    return found


class _Around:
    """What a program does before, beside and after a loop.

    Args:
        gradients: results of the loop.
        ends: what the program writes over.
    """

    def __init__(
        self, program: Program, loop: Node, gradients: set[Tensor], ends: Sequence[End]
    ) -> None:
        self._loop, self._gradients = loop, gradients
        self._users = program.users()
        self._outputs = program.output_tensors()
        self._given = set(self._outputs)
        self._old = {end.new: end.old for end in ends if end.old is not None}
        producers = program.producers()
        self._before: set[Node] = set()
        stack = list(loop.inputs)
        while stack:
            node = producers.get(stack.pop())
            if node is not None and node not in self._before:
                self._before.add(node)
                stack += node.inputs
        self._after = set(loop.outputs)  # values that depend on the loop
        for node in program.nodes:
            if not self._after.isdisjoint(node.inputs):
                self._after.update(node.outputs)

    def update(self, node: Node, nodes: Sequence[Node], taken: Sequence[Tensor]) -> Update | str:
        """One part of a map as an update; else why it is none, empty where it is none at all."""
        (body,), count = node.regions, node.attrs["mapped"]
        outer = dict(zip(body.input_tensors(), node.inputs, strict=True))
        results = dict(zip(body.output_tensors(), node.outputs, strict=True))
        made = {t: inner for inner in nodes for t in inner.outputs}
        given = [t for t in results if t in made]
        states = [t for t in given if results[t] in self._old]
        gradients = [t for t in taken if outer[t] in self._gradients]
        if not states or not gradients:
            return ""
        what = f"the update of {_names([results[t] for t in states])} stays after the loop: "
        inside = {outer[t]: t for t in taken}
        own = [(t, inside.get(self._old[results[t]])) for t in states]
        ends = [(new, old) for new, old in own if old is not None and old.type == new.type]
        if len(states) != len(given):
            return what + "it also computes values that are not state"
        if len(ends) != len(states):
            return what + "a new value does not depend on the old one"
        for t in gradients:
            users = self._users[outer[t]]
            if outer[t] in self._given or any(user is not node for user in users):
                return what + f"the gradient {_names([outer[t]])} is used elsewhere"
        shared = {t for inner in nodes for t in inner.inputs if t in outer}
        others = [outer[t] for t in {*shared, *taken} if not is_among(t, gradients)]
        late = [t for t in others if t in self._after]
        if late:
            return what + f"it needs {_names(late[:1])}, which is known only after the loop"
        mapped = _from_mapped(nodes, body.input_tensors()[:count])
        odd = [n for n in nodes if n in mapped and not is_elementwise(n)]
        odd += [n for n in nodes if n not in mapped and not (n.op is BROADCAST_TO or is_elementwise(n))]
        if odd:
            return what + f"{odd[0].op.name} {odd[0].name!r} is not elementwise"
        order = ordered(ends, made)
        if order is None:
            return what + "each new value needs the old value of the other"
        readers: dict[Tensor, None] = {}
        for _, old in order:
            reading = self._readers(outer[old], node)
            if reading is None:
                return what + f"{_names([outer[old]])} is read after the loop"
            readers.update(dict.fromkeys(reading))
        return Update(node, nodes, order, frozenset(taken), {**outer, **results}, list(readers))

    def _readers(self, old: Tensor, update: Node) -> list[Tensor] | None:
        """What the loop must wait for before it writes over `old`; None if the old value is
        needed later."""
        consts = self._loop.attrs["consts"]
        fixed = split(self._loop.inputs, consts, self._loop.attrs["carries"])
        if is_among(old, (*fixed.consts, *fixed.carries)):
            return None
        found: dict[Tensor, None] = {}
        stack, seen = [old], {old}
        while stack:
            tensor = stack.pop()
            if tensor in self._given:
                return None
            for node in self._users.get(tensor, ()):
                if node is self._loop or (node is update and tensor is old):
                    continue
                if not self._after.isdisjoint(node.outputs) or not is_pure(node):
                    return None
                if node.op in _MOVES or is_elementwise(node):
                    stack += [t for t in node.outputs if t not in seen]
                    seen.update(node.outputs)
                elif node not in self._before:
                    found[node.outputs[0]] = None
        return list(found)

    def is_exchanged(self, gradient: Tensor) -> bool:
        """Whether the stack of gradients goes to other devices before it is used."""
        stack, seen = [gradient], set[Tensor]()
        while stack:
            tensor = stack.pop()
            for node in self._users.get(tensor, ()):
                if node.op in EXCHANGES:
                    return True
                if node.op is not MAP and tensor not in seen and not node.regions:
                    stack += node.outputs
            seen.add(tensor)
        return False


def _from_mapped(nodes: Sequence[Node], mapped: Sequence[Tensor]) -> set[Node]:
    """The nodes that depend on a mapped input."""
    known, found = set(mapped), set[Node]()
    for node in nodes:
        if not known.isdisjoint(node.inputs):
            known.update(node.outputs)
            found.add(node)
    return found
