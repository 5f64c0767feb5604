"""A hash of a program's meaning, and the key under which its executable is cached.

Both are stable across processes and Python versions: they hash text, never Python's `hash`.
"""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from graphc.errors import AttributeValueError, VerifyError
from graphc.ir.dtypes import Array
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Effects
from graphc.ir.program import Program
from graphc.ir.types import TensorType
from graphc.ir.values import bytes_of, write_value

_RECIPE = "graphc fingerprint 1"  # increase the number when the hashed text changes


def fingerprint(program: Program) -> str:
    """The SHA-256 of a program's structure, as 64 hexadecimal digits.

    The hash covers operators (by name; users' operators by their content), operands, attributes
    with the contents of arrays, types, devices, regions, ports, equalities, batch axes and shards.
    It ignores program and node names, sources and control inputs.

    Raises:
        TextError: an attribute has a value without a written form.
        VerifyError: an operand is not defined before its use.
    """
    return _digest(_structure(program).lines)


def names_digest(program: Program) -> str:
    """A hash of the names of all nodes in order, including those of bodies.

    `fingerprint` ignores the names, so equal programs of different scripts share an executable.
    This hash distinguishes such programs."""
    return _digest([node.name for node in program.walk()])


def cache_key(
    program: Program, *, bindings: Mapping[str, int], options: Any, extra: Mapping[str, str]
) -> str | None:
    """The key of an executable. None if it must not be cached, because the program calls back to
    Python or has an operator whose content is unknown.

    Args:
        program: functional and not yet optimised.
        bindings: the bound sizes.
        options: the options that determine compilation: frozen dataclasses (options, passes) and
            containers of plain values, which may be nested.
        extra: everything else that determines it: sources of graphc, versions, flags, devices.

    Raises:
        AttributeValueError: `options` or `extra` contains a value without a stable written form.
    """
    if calls_back(program):
        return None
    structure = _structure(program)
    if structure.has_unknown:
        return None
    parts = [dict(bindings), options, dict(extra)]
    return _digest([_digest(structure.lines), *map(_option, parts)])


def calls_back(program: Program) -> bool:
    """Whether a node prints or calls a Python function, so that its executable cannot be cached."""
    return any(
        node.op.effects & Effects.HOST
        or any(attr.kind == "function" for attr in node.op.attrs.values())
        for node in program.walk()
    )


def _digest(lines: list[str]) -> str:
    return hashlib.sha256("\n".join([_RECIPE, *lines]).encode("utf-8", "surrogatepass")).hexdigest()


def _structure(program: Program) -> _Structure:
    writer = _Structure()
    try:
        writer.program(program)
    except KeyError as error:
        name = getattr(error.args[0], "name", "?")
        raise VerifyError(f"{program.name}: {name!r} is used before it is defined") from error
    return writer


class _Structure:
    """Writes a program as lines. Two programs have equal lines if and only if they have the same
    meaning.

    This does not hold if `has_unknown` is True: the program then has an operator whose content is
    unknown.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.has_unknown = False
        self._types: dict[TensorType, str] = {}

    def program(self, program: Program) -> None:
        numbers: dict[Tensor, str] = {}
        self.lines.append("{")
        for port in program.inputs:
            numbers[port.tensor] = str(len(numbers))
            self.lines.append(f"in {port.kind} {json.dumps(port.name)} {port.tensor.type}")
        for node in program.nodes:
            self._node(node, numbers)
        for port in program.outputs:
            self.lines.append(f"out {port.kind} {json.dumps(port.name)} {numbers[port.tensor]}")
        pairs = [" == ".join(sorted(map(str, pair))) for pair in program.equalities]
        self.lines += [f"size {pair}" for pair in sorted(pairs)]
        self.lines += [f"home {json.dumps(pair)}" for pair in sorted(program.homes.items())]
        axes = sorted(program.batch_axes.items())
        self.lines += [f"batch {json.dumps(name)} {axis}" for name, axis in axes]
        shards = sorted(program.shards.items())
        self.lines += [f"shard {json.dumps(name)} {write_value(spec)}" for name, spec in shards]
        self.lines.append("}")

    def _node(self, node: Node, numbers: dict[Tensor, str]) -> None:
        operands = ",".join([numbers[tensor] for tensor in node.inputs])
        results = []
        for tensor in node.outputs:
            results.append(self._type(tensor.type))
            numbers[tensor] = str(len(numbers))
        line = f"{node.op.name}({operands})"
        if node.attrs:
            line += write_value(node.attrs, array=_array_digest)
        line += f":{';'.join(results)}"
        if node.op.content is not None:
            content = node.op.content(node)
            self.has_unknown |= content is None
            line += f"={content}"
        if node.device:
            line += f"@{json.dumps(node.device)}"
        self.lines.append(line)
        for region in node.regions:
            self.program(region)

    def _type(self, type: TensorType) -> str:
        text = self._types.get(type)
        if text is None:
            text = self._types[type] = str(type)
        return text


def _array_digest(value: Array) -> str:
    return f"array({value.dtype}, {value.shape}, {hashlib.sha256(bytes_of(value)).hexdigest()})"


def _option(value: Any) -> str:
    """Options as text. Two texts are equal if and only if the options are equal."""
    if is_dataclass(value) and not isinstance(value, type):
        parts = [f"{f.name}={_option(getattr(value, f.name))}" for f in fields(value)]
        return f"{type(value).__qualname__}({', '.join(parts)})"
    if isinstance(value, enum.Enum):
        return f"{type(value).__qualname__}.{value.name}"
    if isinstance(value, Mapping):
        parts = sorted(f"{_option(key)}: {_option(item)}" for key, item in value.items())
        return f"{{{', '.join(parts)}}}"
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(_option, value))}]"
    if isinstance(value, (set, frozenset)):
        return f"set({', '.join(sorted(map(_option, value)))})"
    if value is None or type(value) in (bool, int, float, str):
        return write_value(value)
    raise AttributeValueError(
        f"an option of type {type(value).__name__} cannot enter a cache key: {value!r:.80}",
        hint="use frozen dataclasses, numbers, strings, and tuples and mappings of these",
    )
