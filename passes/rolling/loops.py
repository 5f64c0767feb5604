"""Loops in place of repeated nodes: what each takes stacked from where, and what it gives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from graphc.ir.node import Node, Tensor, is_among, same_items
from graphc.ir.opdef import OpDef
from graphc.ir.program import Program, region
from graphc.ir.types import TensorType
from graphc.ops.arrays.slicing import REVERSE, SLICE
from graphc.ops.arrays.stacking import STACK, UNSTACK
from graphc.ops.control.bodies import stacked_type
from graphc.ops.control.scan import SCAN
from graphc.ops.core.emit import CONSTANT
from graphc.passes.core.patterns import common_name, scope_of
from graphc.passes.rolling.recurrence import Carried, Inner, Invariant, Operand, Recurrence, Stacked

Tensors = tuple[Tensor, ...]


@dataclass(frozen=True)
class Entering:
    """Carry `index` as each turn takes it."""

    index: int


# What a loop can stack for others: a value made in a turn, or a carry as it enters one.
Kept = Inner | Entering


@dataclass(eq=False)
class Loop:
    """A recurrence to become a `Scan`.

    Attributes:
        unroll: how many turns are compiled as one.
        reverse: the first turn takes the last slice of every stack.
        kept: what the loop stacks, in the order of the results.
        loose: of what it stacks, what somebody needs single slices of.
        xs: where each of its stacks comes from, set when it is known.
    """

    found: Recurrence
    unroll: int = 1
    reverse: bool = False
    kept: dict[Kept, None] = field(default_factory=dict)
    loose: set[Kept] = field(default_factory=set)
    xs: list[Found] = field(default_factory=list)

    @property
    def turns(self) -> int:
        return len(self.found.turns)

    def stored(self, tensors: Tensors) -> Tensors:
        """The tensors of the turns in the order in which the loop stacks them."""
        return tensors[::-1] if self.reverse else tensors

    def made(self, what: Kept) -> Tensors:
        """The tensors that `what` is in the turns, in the order in which they are stacked."""
        turns = self.found.turns
        if isinstance(what, Inner):
            return self.stored(tuple([t[what.place].outputs[what.result] for t in turns]))
        carry = self.found.carries[what.index]
        made = carry.following
        later = [turn[made.place].outputs[made.result] for turn in turns[:-1]]
        return self.stored((carry.initial, *later))


@dataclass(eq=False)
class Source:
    """A stack of tensors: what the loop `maker` stacks, or, with none, made by a `Stack`."""

    tensors: Tensors
    maker: tuple[Loop, Kept] | None = None


class Found(NamedTuple):
    """A stack found as a part of a source, in its order or backwards."""

    source: Source
    start: int
    length: int
    backwards: bool


class Sources:
    """The stacks there are, found by what is in them."""

    def __init__(self) -> None:
        self._places: dict[Tensor, list[tuple[Source, int]]] = {}

    def add(self, source: Source) -> None:
        for i, tensor in enumerate(source.tensors):
            self._places.setdefault(tensor, []).append((source, i))

    def find(self, tensors: Tensors) -> Found | None:
        """Where these stand side by side, in this order."""
        for source, i in self._places.get(tensors[0], ()):
            if same_items(source.tensors[i : i + len(tensors)], tensors):
                return Found(source, i, len(tensors), False)
        return None

    def find_either(self, tensors: Tensors) -> Found | None:
        """The same, or else where they stand side by side backwards."""
        found = self.find(tensors)
        if found is None:
            backwards = self.find(tensors[::-1])
            found = backwards and backwards._replace(backwards=True)
        return found


class Loops:
    """The loops of one program, made of recurrences, and the program with them.

    Args:
        found: with how many turns of each are compiled as one.
    """

    def __init__(self, program: Program, found: Iterable[tuple[Recurrence, int]]) -> None:
        self._program = program
        self._loops = [
            Loop(each, unroll) for each, unroll in sorted(found, key=lambda pair: pair[0].begin)
        ]
        self._homes: dict[Tensor, tuple[Loop, int, Inner]] = {}
        self._sources = Sources()

    def rewrite(self, first: Sequence[Node], row: Sequence[Node]) -> Program:
        """The program of the nodes `first` and then `row`, with the loops in it."""
        for loop in self._loops:
            self._plan(loop)
        inside = {node for loop in self._loops for turn in loop.found.turns for node in turn}
        alone = [node for node in (*first, *row) if node not in inside]
        self._ask_for_slices(alone)
        writer = _Writer(alone)
        writer.nodes.extend(first)
        place = 0
        for loop in self._loops:
            writer.nodes.extend(row[place : loop.found.begin])
            writer.write(loop)
            place = loop.found.begin + loop.turns * loop.found.period
        writer.nodes.extend(row[place:])
        return self._program.replace(nodes=tuple(writer.nodes))

    def _plan(self, loop: Loop) -> None:
        """Finds the loop's direction and stacks; what it makes may then be found by others."""
        for k, turn in enumerate(loop.found.turns):
            for place, node in enumerate(turn):
                for result, tensor in enumerate(node.outputs):
                    self._homes[tensor] = loop, k, Inner(place, result)
        votes = 0
        for tensors in loop.found.stacks:
            known = self._sources.find_either(tensors)
            if known is not None:
                votes += -1 if known.backwards else 1
        loop.reverse = votes < 0
        for tensors in loop.found.stacks:
            stored = loop.stored(tensors)
            known = self._sources.find_either(stored)
            if known is None:
                source = Source(stored)
                self._sources.add(source)
                known = Found(source, 0, len(stored), False)
            elif known.source.maker is not None:
                maker, kept = known.source.maker
                maker.kept[kept] = None
            loop.xs.append(known)
        for index in range(len(loop.found.carries)):
            self._offer(loop, Entering(index))
        for place, node in enumerate(loop.found.turns[0]):
            for result in range(len(node.outputs)):
                self._offer(loop, Inner(place, result))

    def _offer(self, loop: Loop, kept: Kept) -> None:
        self._sources.add(Source(loop.made(kept), (loop, kept)))

    def _ask_for_slices(self, alone: Iterable[Node]) -> None:
        """Has the loops give what is used of single turns: by other nodes, or at the ends."""
        wanted = [t for node in alone for t in node.inputs]
        wanted += self._program.output_tensors()
        for loop in self._loops:
            wanted += [carry.initial for carry in loop.found.carries]
            wanted += loop.found.invariants
            wanted += [t for x in loop.xs if x.source.maker is None for t in x.source.tensors]
        for tensor in dict.fromkeys(wanted):
            home = self._homes.get(tensor)
            if home is None:
                continue
            loop, turn, made = home
            last = turn == loop.turns - 1
            if last and any(carry.following == made for carry in loop.found.carries):
                continue  # the loop's last carry
            loop.kept[made] = None
            loop.loose.add(made)


class _Writer:
    """Writes the nodes of the new program."""

    def __init__(self, alone: Iterable[Node]) -> None:
        self.nodes: list[Node] = []
        self._constants = {node.outputs[0]: node for node in alone if node.op is CONSTANT}
        self._stacks: dict[Source | tuple[Loop, Kept], Tensor] = {}

    def write(self, loop: Loop) -> None:
        """The loop, the stacks that it takes before it, and the slices of what it makes after."""
        found = loop.found
        xs = [self._stacked(loop, known) for known in loop.xs]
        body, names = _body(loop)
        finals = self._finals(loop)
        results = [
            Tensor(stacked_type(loop.made(kept)[0].type, loop.turns), names[kept])
            for kept in loop.kept
        ]
        model = found.turns[0][0]
        self.nodes.append(
            Node(
                SCAN,
                (*found.invariants, *(carry.initial for carry in found.carries), *xs),
                (*finals, *results),
                SCAN.complete(
                    {
                        "consts": len(found.invariants),
                        "carries": len(found.carries),
                        "length": loop.turns,
                        "reverse": loop.reverse,
                        "unroll": loop.unroll,
                    }
                ),
                (body,),
                name=body.name,
                source=model.source,
                device=model.device,
            )
        )
        defined = set(finals)
        for kept, stack in zip(loop.kept, results, strict=True):
            self._stacks[loop, kept] = stack
            if kept in loop.loose:
                self._unstack(stack, loop.made(kept), defined, model)

    def _unstack(self, stack: Tensor, slices: Tensors, defined: set[Tensor], model: Node) -> None:
        """Defines the tensors of single turns that were there before, as slices of the stack."""
        outputs = tuple([Tensor(t.type, t.name) if t in defined else t for t in slices])
        attrs = UNSTACK.complete()
        name = f"{stack.name}/unstack"
        self.nodes.append(Node(UNSTACK, (stack,), outputs, attrs, name=name, source=model.source))

    def _finals(self, loop: Loop) -> list[Tensor]:
        """The last carries: the tensors that the last turn defined, each once."""
        finals: list[Tensor] = []
        for carry in loop.found.carries:
            made = carry.following
            tensor = loop.found.turns[-1][made.place].outputs[made.result]
            known = is_among(tensor, finals)
            finals.append(Tensor(tensor.type, tensor.name) if known else tensor)
        return finals

    def _stacked(self, loop: Loop, known: Found) -> Tensor:
        """The tensor for one of the loop's stacks, with the nodes that make it."""
        source = known.source
        key = source.maker or source
        if key not in self._stacks:
            self._stacks[key] = self._stack(source.tensors, loop)
        stack = self._stacks[key]
        model = loop.found.turns[0][0]
        if known.length < len(source.tensors):
            rank = stack.type.rank
            type = TensorType(stack.type.dtype, (known.length, *stack.type.shape[1:]))
            attrs = {
                "starts": (known.start, *[0] * (rank - 1)),
                "limits": (known.start + known.length, *stack.type.shape[1:]),
                "strides": (1,) * rank,
            }
            stack = self._one(SLICE, stack, type, attrs, model)
        if known.backwards:
            stack = self._one(REVERSE, stack, stack.type, {"axes": (0,)}, model)
        return stack

    def _one(
        self, op: OpDef, operand: Tensor, type: TensorType, attrs: dict[str, Any], model: Node
    ) -> Tensor:
        result = Tensor(type, f"{operand.name}/{op.name}")
        node = Node(op, (operand,), (result,), op.complete(attrs), name=result.name)
        self.nodes.append(node.replace(source=model.source))
        return result

    def _stack(self, tensors: Tensors, loop: Loop) -> Tensor:
        model = loop.found.turns[0][0]
        result = Tensor(
            stacked_type(tensors[0].type, len(tensors)), common_name([t.name for t in tensors])
        )
        constants = [self._constants.get(t) for t in tensors]
        values = [node.attrs["value"] for node in constants if node is not None]
        if len(values) == len(tensors):
            inputs: Tensors = ()
            op, attrs = CONSTANT, CONSTANT.complete({"value": np.stack(values)})
        else:
            inputs = tensors
            op, attrs = STACK, STACK.complete()
        self.nodes.append(Node(op, inputs, (result,), attrs, name=result.name, source=model.source))
        return result


def _body(loop: Loop) -> tuple[Program, dict[Kept, str]]:
    """The body of the scan, and what its stacked results are called."""
    found = loop.found
    names = [
        common_name([turn[i].name for turn in found.turns]) for i in range(len(found.operands))
    ]
    consts = [Tensor(t.type, t.name) for t in found.invariants]
    carries = [Tensor(c.initial.type, f"carry{i}") for i, c in enumerate(found.carries)]
    xs = [Tensor(s[0].type, common_name([t.name for t in s])) for s in found.stacks]
    made: list[Tensors] = []

    def operand(what: Operand) -> Tensor:
        match what:
            case Inner(place, result):
                return made[place][result]
            case Carried(index):
                return carries[index]
            case Invariant(index):
                return consts[index]
            case Stacked(index):
                return xs[index]

    nodes = []
    for i, (operands, name) in enumerate(zip(found.operands, names, strict=True)):
        node, source = found.turns[0][i], found.turns[0][i].source
        if source is not None:
            turns = [(turn[i].name, turn[i].source) for turn in found.turns]
            source = source._replace(turns=tuple(turns))
        outputs = tuple([Tensor(t.type, f"{name}:{k}") for k, t in enumerate(node.outputs)])
        made.append(outputs)
        inputs = tuple([operand(what) for what in operands])
        nodes.append(
            node.replace(
                inputs=inputs, outputs=outputs, name=name, source=source, control_inputs=()
            )
        )
    following = [made[c.following.place][c.following.result] for c in found.carries]
    kept = [
        made[k.place][k.result] if isinstance(k, Inner) else carries[k.index] for k in loop.kept
    ]
    body = region(scope_of(names), [*consts, *carries, *xs], nodes, [*following, *kept])
    return body, {k: t.name for k, t in zip(loop.kept, kept, strict=True)}
