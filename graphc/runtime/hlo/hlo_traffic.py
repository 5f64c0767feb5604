"""The bytes that one kernel of an HLO program reads from memory and writes to it.

A kernel reads its operands and writes its results. Three rules apply to fusions. A slice reads only
the elements that it selects. An update in place reads and writes only the elements that it changes.
A value inside a fusion is computed only for the elements that are used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from graphc.runtime.hlo.hlo_flops import MOVES
from graphc.runtime.hlo.hlo_text import Computation, Instruction, Module, Shape

# Each element of a result needs several elements of an operand, or an element at another position.
_MIXES = frozenset(
    (
        *("all-gather", "all-reduce", "all-to-all", "cholesky", "collective-permute"),
        *("conditional", "convolution", "custom-call", "dot", "fft", "reduce"),
        *("reduce-scatter", "reduce-window", "scatter", "select-and-scatter", "sort"),
        *("triangular-solve", "while"),
    )
)
_TAKES = ("slice", "dynamic-slice", "gather")
_RENAMES = ("bitcast", "reshape")


class Traffic(NamedTuple):
    """The bytes that a computation reads of each parameter, by its number, and the bytes it writes.

    Attributes:
        transposes: whether it only copies, transposes and converts. Scalar computations are
            allowed, because they compute positions.
    """

    reads: Mapping[int, int]
    written: int
    transposes: bool


def traffic_of(module: Module, computation: Computation) -> Traffic:
    """The traffic of a computation that is one kernel: the body of a fusion."""
    needed: dict[str, int] = {}
    written, in_place = 0, set()
    leaves = _results(computation)
    for leaf in leaves:
        if leaf.opcode == "get-tuple-element":
            source = computation[leaf.operands[0]]
            if source.opcode == "custom-call" and _is_workspace(source, leaf.shape):
                continue
        maker = _behind(computation, leaf)
        if is_update(maker.opcode) and _is_parameter(computation, maker.operands[0]):
            in_place.add(maker.name)
            update = _update(computation, maker)
            needed[maker.name] = update.elements
            written += update.bytes
        else:
            needed[leaf.name] = leaf.shape.elements
            written += _written(leaf)
    reads: dict[int, int] = {}
    for instruction in reversed(computation.instructions):
        count = needed.get(instruction.name, 0)
        if instruction.opcode == "parameter":
            reads[int(instruction.literal)] = -(-count * instruction.shape.bits // 8)
        elif count:
            shares = _shares(module, computation, instruction, count, in_place)
            for name, share in zip(instruction.operands, shares, strict=True):
                most = computation[name].shape.elements
                needed[name] = min(most, needed.get(name, 0) + share)
    makers = [_behind(computation, leaf) for leaf in leaves]
    transposes = all(m.opcode in ("transpose", "copy") for m in makers) and all(
        part.opcode in MOVES or part.opcode == "convert" or part.shape.elements <= 1
        for part in computation.instructions
    )
    return Traffic(reads, written, transposes)


def is_update(opcode: str) -> bool:
    """Whether an instruction changes elements of its first operand."""
    return opcode in ("dynamic-update-slice", "scatter")


def kernel_bytes(instruction: Instruction, operands: list[Shape]) -> int:
    """The bytes that an instruction that is a kernel by itself reads and writes.

    Args:
        operands: the shapes of its operands, each value once.
    """
    opcode, shape = instruction.opcode, instruction.shape
    if opcode in _TAKES:
        return 2 * shape.bytes + sum(operand.bytes for operand in operands[1:])
    if opcode == "dynamic-update-slice":
        return 2 * operands[1].bytes + sum(operand.bytes for operand in operands[2:])
    if opcode == "scatter":
        return operands[-2].bytes + 3 * operands[-1].bytes
    return _written(instruction) + sum(operand.bytes for operand in operands)


def _written(instruction: Instruction) -> int:
    """The bytes of the results, without the workspaces of NVIDIA's libraries."""
    results = list(instruction.shape.leaves())
    if len(results) > 1 and _is_workspace(instruction, results[-1]):
        results.pop()
    return sum(part.bytes for part in results)


def _is_workspace(instruction: Instruction, last: Shape) -> bool:
    """Whether the last result of a custom call is scratch memory."""
    return (
        instruction.target.startswith("__cu") and len(last.dims) == 1 and last.dtype in ("s8", "u8")
    )


def _results(computation: Computation) -> list[Instruction]:
    root = computation.root
    return computation.operands(root) if root.opcode == "tuple" else [root]


def _behind(computation: Computation, instruction: Instruction) -> Instruction:
    """The producer of a value. Bitcasts are skipped."""
    while instruction.opcode in _RENAMES:
        instruction = computation[instruction.operands[0]]
    return instruction


def _is_parameter(computation: Computation, name: str) -> bool:
    return _behind(computation, computation[name]).opcode == "parameter"


def _update(computation: Computation, instruction: Instruction) -> Shape:
    """The new elements of an instruction that updates its first operand."""
    place = 1 if instruction.opcode == "dynamic-update-slice" else -1
    return computation[instruction.operands[place]].shape


def _shares(
    module: Module,
    computation: Computation,
    instruction: Instruction,
    count: int,
    in_place: set[str],
) -> list[int]:
    """The number of elements of each operand that `count` elements of a result need."""
    sizes = [operand.shape.elements for operand in computation.operands(instruction)]
    opcode = instruction.opcode
    if opcode == "fusion":
        body = module[instruction.callees[0]]
        reads, bits = traffic_of(module, body).reads, {}
        for parameter in body.instructions:
            if parameter.opcode == "parameter":
                bits[int(parameter.literal)] = max(parameter.shape.bits, 1)
        return [reads.get(place, 0) * 8 // bits.get(place, 8) for place in range(len(sizes))]
    if instruction.name in in_place:
        # A scatter reads the elements that it changes, a dynamic-update-slice does not.
        kept = 0 if opcode == "dynamic-update-slice" else _update(computation, instruction).elements
        return [kept, *sizes[1:]]
    if opcode in _MIXES:
        return sizes
    if opcode in _TAKES or opcode == "dynamic-update-slice":
        return [count, *sizes[1:]]
    return [min(count, size) for size in sizes]
