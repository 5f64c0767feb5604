"""A reader of XLA's HLO text: `compiled.as_text()` as computations and instructions.

It reads what a cost model needs: names, opcodes, shapes, operands and attributes. Literals and
metadata remain text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from graphc.errors import ExecutionError

_HEADER = re.compile(r"(ENTRY\s+)?%?([\w.\-$]+)\s*(?:\(.*\)\s*->.*)?\{\s*")
_INSTRUCTION = re.compile(r"\s+(ROOT\s+)?%?([\w.\-$]+) = ")
_ARRAY = re.compile(r"([a-z]\w*)\[([^\]]*)\](?:\{([^}]*)\})?")
_COMMENT = re.compile(r"/\*.*?\*/")
_MARK = re.compile(r'"(?:[^"\\]|\\.)*"|[(){}\[\],]')  # a string, or a structural character
_NAME = re.compile(r"%?([\w.\-$]+)\s*$")
_WIDTH = re.compile(r"(?:bf|[fsuc])(\d+)")
_CALLEES = ("calls", "to_apply", "body", "condition", "branch_computations", "true_computation")
_HOST_SPACE = "S(5)"


class Shape(NamedTuple):
    """The shape of a value.

    Attributes:
        dtype: XLA's name, such as "bf16"; "" for a tuple.
        dims: sizes; a dynamic dimension counts with its bound.
        host: whether it is in host memory.
        parts: the shapes in a tuple.
    """

    dtype: str
    dims: tuple[int, ...] = ()
    host: bool = False
    parts: tuple[Shape, ...] = ()

    @property
    def elements(self) -> int:
        """The number of elements of an array, or of all arrays in a tuple."""
        if not self.dtype:
            return sum(part.elements for part in self.parts)
        return math.prod(self.dims) if self.bits else 0

    @property
    def bits(self) -> int:
        """The width of one element; 0 for tokens and opaque values."""
        if self.dtype == "pred":
            return 8
        found = _WIDTH.match(self.dtype)
        return int(found[1]) if found else 0

    @property
    def bytes(self) -> int:
        """The size in memory without padding."""
        if not self.dtype:
            return sum(part.bytes for part in self.parts)
        return -(-self.elements * self.bits // 8)

    def leaves(self) -> Iterator[Shape]:
        """The arrays in it, in order."""
        if self.dtype:
            yield self
        for part in self.parts:
            yield from part.leaves()


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    Attributes:
        operands: the names of its operands.
        literal: the text between the parentheses: the number of a parameter, the value of a
            constant.
        attributes: texts by name: "calls", "window", "backend_config", ...
    """

    name: str
    opcode: str
    shape: Shape
    operands: tuple[str, ...]
    literal: str
    attributes: Mapping[str, str]

    def attribute(self, name: str) -> str:
        """The text of an attribute, "" if there is none."""
        return self.attributes.get(name, "")

    def numbers(self, name: str) -> tuple[int, ...]:
        """The integers in an attribute such as `dimensions={0,2}`."""
        return tuple(map(int, re.findall(r"\d+", self.attribute(name))))

    def configured(self, name: str) -> str | None:
        """The value of a field in the JSON text of `backend_config`, without the quotes of a
        string or of the items of a list; None if there is no such field."""
        found = re.search(
            rf'"{name}"\s*:\s*(\[[^\]]*\]|"[^"]*"|[^,}}]+)', self.attribute("backend_config")
        )
        return found[1].strip('[]" ').replace('"', "") if found else None

    @property
    def target(self) -> str:
        """The target of a custom call."""
        return self.attribute("custom_call_target").strip('"')

    @property
    def callees(self) -> tuple[str, ...]:
        """The names of the computations that it calls, in the order of branches."""
        found = [self.attribute(name) for name in (*_CALLEES, "false_computation")]
        return tuple(re.findall(r"[\w.\-$]+", " ".join(found)))


@dataclass(frozen=True)
class Computation:
    """A computation: its instructions in the order of the text, which is the schedule."""

    name: str
    instructions: tuple[Instruction, ...]
    root: Instruction

    @cached_property
    def _by_name(self) -> Mapping[str, Instruction]:
        return {instruction.name: instruction for instruction in self.instructions}

    def __getitem__(self, name: str) -> Instruction:
        return self._by_name[name]

    def operands(self, instruction: Instruction) -> list[Instruction]:
        """The instructions that produce its operands."""
        return [self[name] for name in instruction.operands]


@dataclass(frozen=True)
class Module:
    """A module: computations by name.

    Attributes:
        entry: the computation that a run executes.
        scheduled: whether the order of instructions is the order in which they start.
        devices: the number of devices that run it together.
    """

    computations: Mapping[str, Computation]
    entry: Computation
    scheduled: bool
    devices: int

    def __getitem__(self, name: str) -> Computation:
        if name not in self.computations:
            raise _malformed(f"it calls {name!r} and does not define it")
        return self.computations[name]


def parse(text: str) -> Module:
    """Reads a module.

    Raises:
        ExecutionError: the text is not HLO.
    """
    computations: dict[str, Computation] = {}
    entry = header = name = root = None
    body: list[Instruction] = []
    known: set[str] = set()
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("HloModule"):
            if header is not None:
                raise _malformed("a second module begins; read each by itself", number)
            header = line
        elif name is None:
            found = _HEADER.fullmatch(_COMMENT.sub("", line)) if line.endswith("{") else None
            if found is not None:
                name, root, body, known = found[2], None, [], set()
                entry = name if found[1] else entry
        elif line.startswith("}"):
            if not body:
                raise _malformed(f"computation {name!r} is empty", number)
            computations[name] = Computation(name, tuple(body), root or body[-1])
            name = None
        elif line.strip():
            try:
                is_root, instruction = _instruction(_COMMENT.sub("", line))
            except ValueError as error:
                raise _malformed(f"cannot read {line.strip()[:80]!r}: {error}", number) from None
            unknown = [operand for operand in instruction.operands if operand not in known]
            if unknown:
                raise _malformed(
                    f"{instruction.name!r} uses {unknown[0]!r} before it exists", number
                )
            body.append(instruction)
            known.add(instruction.name)
            root = instruction if is_root else root
    if name is not None:
        raise _malformed(f"it ends within computation {name!r}")
    if header is None or entry is None:
        raise _malformed("it has no module header or no ENTRY computation")
    count = [int(n) for n in re.findall(r"(?:num_partitions|replica_count)=(\d+)", header)]
    return Module(
        computations, computations[entry], "is_scheduled=true" in header, math.prod(count)
    )


def _instruction(line: str) -> tuple[bool, Instruction]:
    found = _INSTRUCTION.match(line)
    if found is None:
        raise ValueError("it is not an instruction")
    start = found.end()
    end = _closing(line, start) + 1 if line.startswith("(", start) else line.index(" ", start)
    shape = parse_shape(line[start:end])
    opening = line.index("(", end)
    closing = _closing(line, opening)
    opcode, literal = line[end:opening].strip(), line[opening + 1 : closing]
    attributes = {}
    for part in _split(line[closing + 1 :]):
        key, equals, value = part.partition("=")
        if equals:
            attributes[key.strip()] = value.strip()
    operands = []
    if opcode not in ("parameter", "constant"):
        operands = [match[1] for part in _split(literal) if (match := _NAME.search(part))]
    return bool(found[1]), Instruction(
        found[2], opcode, shape, tuple(operands), literal.strip(), attributes
    )


def parse_shape(text: str) -> Shape:
    """Reads a shape such as `(bf16[4,8]{1,0}, s32[])`.

    Raises:
        ValueError: the text is not a shape.
    """
    text = text.strip()
    if text.startswith("("):
        parts = tuple(parse_shape(part) for part in _split(text[1:-1]) if part.strip())
        return Shape("", parts=parts)
    found = _ARRAY.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a shape")
    dims = tuple(int(dim.strip().removeprefix("<=")) for dim in found[2].split(",") if dim.strip())
    return Shape(found[1], dims, _HOST_SPACE in (found[3] or ""))


def _closing(text: str, start: int) -> int:
    """The position of the bracket that closes the one at `start`."""
    depth = 0
    for mark in _MARK.finditer(text, start):
        if mark[0] in "([{":
            depth += 1
        elif mark[0] in ")]}":
            depth -= 1
            if depth == 0:
                return mark.start()
    raise ValueError("a bracket is not closed")


def _split(text: str) -> list[str]:
    """The parts between the commas that are not in brackets or strings."""
    parts, depth, start = [], 0, 0
    for mark in _MARK.finditer(text):
        if mark[0] in "([{":
            depth += 1
        elif mark[0] in ")]}":
            depth -= 1
        elif mark[0] == "," and depth == 0:
            parts.append(text[start : mark.start()])
            start = mark.end()
    return [part for part in (*parts, text[start:]) if part.strip()]


def _malformed(what: str, line: int | None = None) -> ExecutionError:
    where = "" if line is None else f" in line {line}"
    return ExecutionError(f"the HLO text is malformed{where}: {what}")
