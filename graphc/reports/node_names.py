"""Which nodes each instruction of an executable computes.

Lowering puts the name of each node into the names of the operations (`jax.named_scope`), and XLA
keeps it in the metadata of instructions: `op_name="jit(graph)/hidden/MatMul/dot_general"`. A fused
instruction computes several nodes. It is shared by the work of the instructions inside.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from graphc.errors import ExecutionError
from graphc.ir.node import Node
from graphc.ir.program import Program
from graphc.runtime.hlo.hlo_flops import flops_of
from graphc.runtime.hlo.hlo_readers import readers_in
from graphc.runtime.hlo.hlo_text import Computation, Instruction, Module, parse

_OP_NAME = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_HEADER = re.compile(r"^HloModule (\S+?),", re.MULTILINE)
_INSTRUCTION = re.compile(r"^ +(?:ROOT )?%?([\w.\-]+) = ", re.MULTILINE)
_WRAPPED = re.compile(r"[\w.\-]+\((.*)\)")  # such as vmap(NAME)
_CONTAINERS = frozenset(("while", "conditional", "call"))  # whose parts run by themselves
# These call a function for each element: their own names are enough.
_WITH_FUNCTION = frozenset(
    (
        *("reduce", "reduce-window", "scatter", "select-and-scatter", "sort", "map"),
        *("all-reduce", "reduce-scatter"),
    )
)
_FREE = frozenset(
    (
        *("parameter", "constant", "broadcast", "bitcast", "tuple", "get-tuple-element"),
        *("reshape", "iota", "after-all"),
    )
)
# How many simple operations one operation of a kind takes, about.
_HEAVY = {
    **dict.fromkeys(("divide", "sqrt", "rsqrt"), 4),
    **dict.fromkeys(("cbrt", "exponential", "log", "remainder"), 8),
    "logistic": 10,
    **dict.fromkeys(("tanh", "erf", "sine", "cosine"), 12),
    "power": 16,
}

_FARTHEST = 50  # how many neighbours of an instruction without a name are looked at

_Neighbourhood = Callable[[Instruction], Iterable[Instruction]]


class Owner(NamedTuple):
    """What an instruction is for.

    Attributes:
        name: the name of the node.
        node: the node of the program; None if there is no program to look it up in.
    """

    name: str
    node: Node | None


Shares = Mapping[Owner, float]
"""Owner -> the part of an instruction's time that it takes. The sum is 1, or 0 if none is known."""


class Instructions(NamedTuple):
    """The instructions of one HLO module.

    Attributes:
        shares: of each instruction that can run by itself, by its name. For a loop, a branch or a
            call: of the time in which nothing inside it runs.
        containers: of each loop, branch and call, the names of the instructions inside, which run
            by themselves as a rule.
        whole: of each of these, if what is inside does not run by itself.
        readers: of each instruction, those that read its result.
        named: how many instructions have the name of an operation within the program.
        known: how many of them belong to a node of the program.
    """

    shares: Mapping[str, Shares]
    containers: Mapping[str, frozenset[str]]
    whole: Mapping[str, Shares]
    readers: Mapping[str, frozenset[str]]
    named: int
    known: int

    def joined(self, other: Instructions) -> Instructions:
        """Two modules of the same name. The profile does not say which of them an instruction is
        of: if both have it, each gets half. Nodes of one name count as one."""
        own = {owner.name: owner for row in self.shares.values() for owner in row}

        def taken(rows: Mapping[str, Shares]) -> dict[str, Shares]:
            return {
                name: {own.get(owner.name, owner): share for owner, share in row.items()}
                for name, row in rows.items()
            }

        shares = {**self.shares, **taken(other.shares)}
        for name in self.shares.keys() & other.shares.keys():
            both: dict[Owner, float] = {}
            for row in (self.shares[name], shares[name]):
                for owner, share in row.items():
                    both[owner] = both.get(owner, 0.0) + share / 2
            shares[name] = both
        return Instructions(
            shares,
            {**self.containers, **other.containers},
            {**self.whole, **taken(other.whole)},
            # The runs of the two modules cannot be told apart.
            {n: r for n, r in self.readers.items() if other.readers.get(n, r) == r}
            | {n: r for n, r in other.readers.items() if self.readers.get(n, r) == r},
            self.named + other.named,
            self.known + other.known,
        )


def instructions_of(text: str, program: Program | None) -> Mapping[str, Instructions]:
    """The instructions of each HLO module in the text of an executable, by the module's name.

    Args:
        text: as `Executable.hlo()` gives it; a program on several devices has several modules.
        program: the program that was lowered. Without it, the names in the text are the nodes.

    Raises:
        ExecutionError: the text is not HLO.
    """
    starts = [found.start() for found in _HEADER.finditer(text)]
    if not starts:
        raise ExecutionError("the executable has no HLO text")
    finder = _Finder(program)
    tables: dict[str, Instructions] = {}
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        header = _HEADER.match(text, start)
        name = "" if header is None else header[1]
        part = re.sub(r"^//.*\n?", "", text[start:end], flags=re.MULTILINE)
        made = _Reader(parse(part), finder).table()
        tables[name] = tables[name].joined(made) if name in tables else made
    return tables


def instruction_names(text: str) -> list[str]:
    """The names of all instructions of an executable's HLO text, in order."""
    return _INSTRUCTION.findall(text)


class _Finder:
    """Finds the node that an operation's name is of."""

    def __init__(self, program: Program | None) -> None:
        self._program = program
        self._levels: dict[int, dict[str, Node]] = {}  # by the identity of a program
        self._known: dict[str, Owner | None] = {}

    def owner(self, name: str) -> Owner | None:
        """The innermost node in a name such as "jit(graph)/loop/while/body/MatMul/dot_general"."""
        if name not in self._known:
            parts = name.split("/")
            if self._program is None:
                scopes = [part for part in parts[:-1] if not _WRAPPED.fullmatch(part)]
                self._known[name] = Owner("/".join(scopes), None) if scopes else None
            else:
                node = self._find(self._program, parts)
                self._known[name] = None if node is None else Owner(node.name or node.op.name, node)
        return self._known[name]

    def _find(self, program: Program, parts: Sequence[str]) -> Node | None:
        level, found, i = self._level(program), None, 0
        while i < len(parts):
            node, end = self._longest(level, parts, i)
            if node is None:
                i += 1
                continue
            found, i = node, end
            if not node.regions:
                break
            level = {}
            for region in node.regions:
                level |= self._level(region)
        return found

    def _longest(
        self, level: Mapping[str, Node], parts: Sequence[str], start: int
    ) -> tuple[Node | None, int]:
        """The longest name of a node that begins here. The last part is JAX's operation."""
        for end in range(len(parts) - 1, start, -1):
            joined = "/".join(parts[start:end])
            node = level.get(joined)
            if node is None and (wrapped := _WRAPPED.fullmatch(joined)) is not None:
                node = level.get(wrapped[1])
            if node is not None:
                return node, end
        return None, start

    def _level(self, program: Program) -> dict[str, Node]:
        level = self._levels.get(id(program))
        if level is None:
            level = {node.name or node.op.name: node for node in program.nodes}
            self._levels[id(program)] = level
        return level


class _Reader:
    """Reads the shares of one module's instructions."""

    def __init__(self, module: Module, finder: _Finder) -> None:
        self._module, self._finder = module, finder
        self._named = self._known = 0

    def table(self) -> Instructions:
        shares: dict[str, Shares] = {}
        containers: dict[str, frozenset[str]] = {}
        whole: dict[str, Shares] = {}
        readers: dict[str, frozenset[str]] = {}
        for computation, around in self._running():
            readers |= readers_in(computation)
            neighbours = _Neighbours(computation, self._finder)
            for instruction in computation.instructions:
                inside: dict[Owner, float] = {}
                if instruction.callees and instruction.opcode not in _WITH_FUNCTION:
                    self._add_inside(instruction, inside)
                alone = self._alone(instruction, neighbours) or around
                found = _normalised(inside) or alone
                if instruction.opcode in _CONTAINERS:
                    containers[instruction.name] = self._names_inside(instruction)
                    whole[instruction.name], found = found, alone
                shares[instruction.name] = found
        return Instructions(shares, containers, whole, readers, self._named, self._known)

    def _running(self) -> Iterator[tuple[Computation, Shares]]:
        """The computations whose instructions run by themselves, with the owner of the loop or
        branch that they are in."""
        waiting: list[tuple[Computation, Shares]] = [(self._module.entry, {})]
        seen = {self._module.entry.name}
        while waiting:
            computation, around = waiting.pop()
            yield computation, around
            for instruction in computation.instructions:
                if instruction.opcode in _CONTAINERS or instruction.opcode.endswith("-start"):
                    owner = self._owner(instruction)
                    inside = around if owner is None else {owner: 1.0}
                    for name in instruction.callees:
                        if name not in seen and name in self._module.computations:
                            seen.add(name)
                            waiting.append((self._module[name], inside))

    def _names_inside(self, instruction: Instruction) -> frozenset[str]:
        """The instructions directly in the computations that it calls."""
        called = [self._module.computations.get(name) for name in instruction.callees]
        return frozenset(i.name for c in called if c is not None for i in c.instructions)

    def _alone(self, instruction: Instruction, neighbours: _Neighbours) -> Shares:
        """The node that the name of an instruction says, or else that of a neighbour."""
        owner = self._owner(instruction) or neighbours.nearest(instruction)
        return {} if owner is None else {owner: 1.0}

    def _add_inside(self, instruction: Instruction, work: dict[Owner, float]) -> None:
        """Adds the work of the instructions in the computations that it calls, at any depth."""
        for name in instruction.callees:
            computation = self._module.computations.get(name)
            for inner in () if computation is None else computation.instructions:
                if inner.callees and inner.opcode not in _WITH_FUNCTION:
                    self._add_inside(inner, work)
                    continue
                owner = self._owner(inner)
                if owner is not None and computation is not None:
                    work[owner] = work.get(owner, 0.0) + _work(inner, computation)

    def _owner(self, instruction: Instruction) -> Owner | None:
        name = op_name(instruction)
        if name is None or "/" not in name:
            return None
        owner = self._finder.owner(name)
        self._named += 1
        self._known += owner is not None
        return owner


def _normalised(work: Mapping[Owner, float]) -> Shares:
    total = sum(work.values())
    return {owner: part / total for owner, part in work.items()} if total else {}


def op_name(instruction: Instruction) -> str | None:
    """The name of the operation that an instruction is part of."""
    found = _OP_NAME.search(instruction.attribute("metadata"))
    if found is None:
        return None
    if "\\" not in found[1]:
        return found[1]

    def plain(match: re.Match[bytes]) -> bytes:
        code = match[1]
        return bytes([int(code, 8) & 255]) if len(code) == 3 else code

    return _ESCAPED.sub(plain, found[1].encode()).decode(errors="replace")


def _work(instruction: Instruction, computation: Computation) -> float:
    """About how many simple operations an instruction within a fused one takes."""
    if instruction.opcode in _FREE:
        return 1e-6  # it counts only if the others are free too
    try:
        operands = [operand.shape for operand in computation.operands(instruction)]
        flops = flops_of(instruction, operands)
    except (IndexError, KeyError, ValueError):
        return float(instruction.shape.elements)
    work = sum(flops.matrix.values()) / 2 + _HEAVY.get(instruction.opcode, 1) * flops.vector
    return work or float(instruction.shape.elements) or 1e-6


class _Neighbours:
    """For an instruction without a name: the node that it is a part of, or a copy for.

    Where XLA replaces an operation by several, the last one keeps the name. So the nearest user
    with a name comes before the nearest operand with one.
    """

    def __init__(self, computation: Computation, finder: _Finder) -> None:
        self._computation, self._finder = computation, finder

    def nearest(self, instruction: Instruction) -> Owner | None:
        """The owner of the nearest user, or else of the nearest producer of its operands."""
        after = self._search(instruction, lambda i: self._users.get(i.name, ()))
        return after if after is not None else self._search(instruction, self._operands)

    def _operands(self, instruction: Instruction) -> Iterable[Instruction]:
        """Those that give its value. What a loop takes is not what it gives."""
        if instruction.opcode in ("tuple", "while"):
            return ()
        return self._computation.operands(instruction)

    @cached_property
    def _users(self) -> Mapping[str, Sequence[Instruction]]:
        users: dict[str, list[Instruction]] = {}
        for instruction in self._computation.instructions:
            for name in instruction.operands:
                users.setdefault(name, []).append(instruction)
        return users

    def _search(self, start: Instruction, step: _Neighbourhood) -> Owner | None:
        waiting, seen = [start], {start.name}
        while waiting and len(seen) < _FARTHEST:
            following = []
            for instruction in waiting:
                for other in step(instruction):
                    if other.name in seen:
                        continue
                    seen.add(other.name)
                    name = op_name(other)
                    owner = self._finder.owner(name) if name and "/" in name else None
                    if owner is not None:
                        return owner
                    following.append(other)
            waiting = following
        return None
