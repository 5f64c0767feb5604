"""Replaces repeated nodes by loops, with the stacks that each loop takes and returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from graphc.ir.builder import Builder
from graphc.ir.node import Node, Tensor, is_among
from graphc.ir.program import Program, region
from graphc.ir.rewrite import substitute
from graphc.ops.arrays.joining import concatenate
from graphc.ops.arrays.shape import moveaxis, reshape
from graphc.ops.arrays.slicing import flip, slice_
from graphc.ops.arrays.stacking import STACK, UNSTACK, stack, unstack
from graphc.ops.control.bodies import stacked_type
from graphc.ops.control.scan import SCAN
from graphc.ops.core.emit import CONSTANT
from graphc.passes.core.patterns import common_name, scope_of
from graphc.passes.rolling.loop_sources import (
    Entering,
    Found,
    Join,
    Kept,
    Loop,
    Source,
    Sources,
    Tensors,
)
from graphc.passes.rolling.recurrence import Carried, Inner, Invariant, Operand, Recurrence, Stacked
from graphc.passes.rolling.single_values import stack_of

# Slices of a stack are single nodes if the stack has at least this many times as many, else one
# `Unstack`.
_FEW = 8


class Loops:
    """The loops of one program, built from recurrences, and the program that contains them.

    Args:
        found: the recurrences, each with the number of iterations compiled as one.
    """

    def __init__(self, program: Program, found: Iterable[tuple[Recurrence, int]]) -> None:
        self._program = program
        self._loops = [
            Loop(each, unroll) for each, unroll in sorted(found, key=lambda pair: pair[0].begin)
        ]
        self._homes: dict[Tensor, tuple[Loop, int, Inner]] = {}
        self._sources = Sources()
        self._joins: dict[Node, Join] = {}

    def rewrite(self, first: Sequence[Node], row: Sequence[Node]) -> Program:
        """The program of the nodes `first` followed by `row`, with the loops in it."""
        inside = {node for loop in self._loops for turn in loop.found.turns for node in turn}
        alone = [node for node in (*first, *row) if node not in inside]
        for node in alone:
            if node.op is UNSTACK:
                self._sources.add(Source(node.outputs, apart=node))
        for loop in self._loops:
            self._plan(loop)
        self._join_stacks(alone)
        self._ask_for_slices(alone)
        writer = _Writer(alone, self._joins)
        writer.extend(first)
        place = 0
        for loop in self._loops:
            writer.extend(row[place : loop.found.begin])
            writer.write(loop)
            place = loop.found.begin + loop.turns * loop.found.period
        writer.extend(row[place:])
        return substitute(self._program.replace(nodes=tuple(writer.nodes)), writer.instead)

    def _join_stacks(self, alone: Iterable[Node]) -> None:
        """Finds the `Stack`s whose operands loops stack in any case."""
        for node in alone:
            if node.op is not STACK:
                continue
            parts = self._sources.parts(node.inputs)
            makers = [p.source.maker for p in parts if isinstance(p, Found)]
            if 2 * len(parts) > len(node.inputs) or None in makers:
                continue
            for maker in makers:
                if maker is not None:
                    maker[0].kept[maker[1]] = None
            self._joins[node] = parts

    def _plan(self, loop: Loop) -> None:
        """Finds the loop's direction and stacks, and registers the stacks that it can return."""
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
        """Marks the values of single iterations that other nodes or loops use as results of
        loops."""
        joins = self._joins
        wanted = [t for node in alone if node not in joins for t in node.inputs]
        wanted += [t for parts in joins.values() for t in parts if isinstance(t, Tensor)]
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
                continue  # the final value of the carry
            loop.kept[made] = None
            loop.loose.setdefault(made, set()).add(turn)


class _Writer:
    """Writes the nodes of the new program.

    Attributes:
        instead: tensor -> its replacement.
    """

    def __init__(self, alone: Iterable[Node], joins: Mapping[Node, Join]) -> None:
        self.nodes: list[Node] = []
        self.instead: dict[Tensor, Tensor] = {}
        self._joins = joins
        self._constants = {node.outputs[0]: node for node in alone if node.op is CONSTANT}
        self._stacks: dict[Source | tuple[Loop, Kept], Tensor] = {}

    def extend(self, nodes: Iterable[Node]) -> None:
        """Adds nodes that are in no loop."""
        for node in nodes:
            if node in self._joins:
                self._join(node, self._joins[node])
            else:
                self.nodes.append(node)

    def write(self, loop: Loop) -> None:
        """Writes the stacks that the loop takes, the loop, and the slices of its results."""
        found = loop.found
        xs = [self._stacked(known, found.turns[0][0]) for known in loop.xs]
        body, names = _body(loop)
        finals = self._finals(loop)
        results = [
            Tensor(stacked_type(loop.made(kept)[0].type, loop.turns), names[kept])
            for kept in loop.kept
        ]
        operands = (*found.invariants, *(carry.initial for carry in found.carries), *xs)
        attrs = {
            "consts": len(found.invariants),
            "carries": len(found.carries),
            "length": loop.turns,
            "reverse": loop.reverse,
            "unroll": loop.unroll,
        }
        with Builder(found.turns[0][0], "") as builder:
            node = builder.add(SCAN, operands, attrs, (body,), body.name)
            builder.define(*zip(node.outputs, (*finals, *results), strict=True))
        self.nodes += builder.nodes
        defined = set(finals)
        for kept, result in zip(loop.kept, results, strict=True):
            self._stacks[loop, kept] = result
            if kept in loop.loose:
                self._unstack(result, loop, kept, defined)

    def _unstack(self, whole: Tensor, loop: Loop, kept: Kept, defined: set[Tensor]) -> None:
        """Defines the original tensors of single iterations as slices of the stack."""
        slices, turns = loop.made(kept), loop.loose[kept]
        places = sorted(loop.turns - 1 - k if loop.reverse else k for k in turns)
        model = loop.found.turns[0][0]
        with Builder(model, whole.name) as builder:
            if _FEW * len(places) <= len(slices):
                for tensor, place in [(slices[place], place) for place in places]:
                    if tensor not in defined:
                        piece = reshape(_part(whole, place, 1), tensor.type.shape)
                        builder.define((piece, tensor))
            else:
                pairs = zip(unstack(whole), slices, strict=True)
                builder.define(*[(new, old) for new, old in pairs if old not in defined])
        self.nodes += builder.nodes

    def _join(self, node: Node, parts: Join) -> None:
        """Writes a `Stack` whose operands are results of loops."""
        found = {i: self._stacked(p, node) for i, p in enumerate(parts) if isinstance(p, Found)}
        with Builder(node) as builder:
            rows = [found[i] if i in found else stack([p]) for i, p in enumerate(parts)]
            result = concatenate(rows, 0) if len(rows) > 1 else rows[0]
            if node.attrs["axis"]:
                result = moveaxis(result, 0, node.attrs["axis"])
            self.instead[node.outputs[0]] = result
        self.nodes += builder.nodes

    def _finals(self, loop: Loop) -> list[Tensor]:
        """The final carries: the tensors that the last iteration defined, each once."""
        finals: list[Tensor] = []
        for index, carry in enumerate(loop.found.carries):
            tensor = loop.last(index)
            # The final value of a carry from two iterations back is defined by a slice, if needed.
            known = isinstance(carry.following, Carried) or is_among(tensor, finals)
            finals.append(Tensor(tensor.type, tensor.name) if known else tensor)
        return finals

    def _stacked(self, known: Found, model: Node) -> Tensor:
        """The tensor for a needed stack; adds the nodes that compute it."""
        source = known.source
        key = source.maker or source
        with Builder(model, "") as builder:
            if key not in self._stacks:
                self._stacks[key] = self._whole(source)
            whole = self._stacks[key]
            with builder.at(model, whole.name):
                if known.length < len(source.tensors):
                    whole = _part(whole, known.start, known.length)
                if known.backwards:
                    whole = flip(whole, 0)
        self.nodes += builder.nodes
        return whole

    def _whole(self, source: Source) -> Tensor:
        """A stack that no loop computes."""
        if source.apart is not None:
            axis = source.apart.attrs["axis"]
            (x,) = source.apart.inputs
            return moveaxis(x, axis, 0, name=f"{x.name}/Transpose") if axis else x
        return stack_of(source.tensors, self._constants)


def _part(x: Tensor, start: int, size: int) -> Tensor:
    """Some slices of a stack."""
    rest = x.type.shape[1:]
    return slice_(x, (start, *[0] * len(rest)), (start + size, *rest))


def _body(loop: Loop) -> tuple[Program, dict[Kept, str]]:
    """The body of the scan, and the names of its stacked results."""
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
    following = [operand(c.following) for c in found.carries]
    kept = [
        made[k.place][k.result] if isinstance(k, Inner) else carries[k.index] for k in loop.kept
    ]
    body = region(scope_of(names), [*consts, *carries, *xs], nodes, [*following, *kept])
    return body, {k: t.name for k, t in zip(loop.kept, kept, strict=True)}
