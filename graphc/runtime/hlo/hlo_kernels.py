"""The kernels that one run of an optimised HLO program launches, and their costs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from graphc.runtime.hlo.hlo_flops import Flops, flops_of
from graphc.runtime.hlo.hlo_loops import trip_count
from graphc.runtime.hlo.hlo_text import Computation, Instruction, Module, Shape
from graphc.runtime.hlo.hlo_traffic import kernel_bytes, traffic_of

# For each kind, with n devices in a ring: the bytes that each device sends per byte of its operand,
# the bytes of its result per byte of its operand, and the number of sends, one after the other.
COLLECTIVES: Mapping[str, Callable[[int], tuple[float, float, int]]] = {
    "all-reduce": lambda n: (2 * (n - 1) / n, 1, 2 * (n - 1)),
    "all-gather": lambda n: (n - 1, n, n - 1),
    "reduce-scatter": lambda n: ((n - 1) / n, 1 / n, n - 1),
    "all-to-all": lambda n: ((n - 1) / n, 1, 1),
    "ragged-all-to-all": lambda n: ((n - 1) / n, 1, 1),
    "collective-permute": lambda n: (1, 1, 1),
    "collective-broadcast": lambda n: (1, 1, 1),
}
# Instructions that launch nothing.
_FREE = frozenset(
    (
        *("add-dependency", "after-all", "async-update", "bitcast", "constant", "domain"),
        *("get-tuple-element", "opt-barrier", "parameter", "partition-id", "replica-id"),
        *("reshape", "tuple"),
    )
)
_TO_HOST = ("infeed", "outfeed", "send", "recv")
_FLOPS_A_BYTE = 200  # roughly, for a GPU; used to compare the branches of a conditional


@dataclass(frozen=True)
class Kernel:
    """One kernel launch, or `times` equal ones in a loop. Figures are those of one launch.

    Attributes:
        matrix_flops, vector_flops, bytes: as in `HloCost`.
        link_bytes: the bytes that the device sends to others.
        hops: the number of its sends, one after the other.
        beside: for a collective, the number of following launches in the list that may run at the
            same time, before the device waits for it.
        host: whether it transfers data between host and device.
        transposes: whether it only copies or transposes.
    """

    name: str
    opcode: str
    matrix_flops: Mapping[str, float] = field(default_factory=dict)
    vector_flops: float = 0.0
    bytes: int = 0
    target: str = ""
    operand_bytes: int = 0
    link_bytes: float = 0.0
    hops: int = 0
    beside: int = 0
    host: bool = False
    transposes: bool = False
    times: int = 1


class Walk:
    """The kernels of a module's computations."""

    def __init__(self, module: Module, replicas: int) -> None:
        self.module = module
        self.devices = max(replicas, module.devices)
        self.notes: list[str] = []
        self._done: dict[str, list[Kernel] | None] = {}

    def kernels(self, computation: Computation) -> list[Kernel]:
        """The kernels that a computation launches, in order."""
        if computation.name in self._done:
            found = self._done[computation.name]
            if found is None:
                raise ValueError(f"computation {computation.name} calls itself")
            return found
        self._done[computation.name] = None
        launched = [self._launched(computation, each) for each in computation.instructions]
        if self.module.scheduled:
            self._mark_asynchronous(computation, launched)
        found = [kernel for kernels in launched for kernel in kernels]
        self._done[computation.name] = found
        return found

    def _mark_asynchronous(self, computation: Computation, launched: list[list[Kernel]]) -> None:
        """Counts the kernels that are launched between the start of a collective and its end."""
        begun: dict[str, int] = {}
        for place, instruction in enumerate(computation.instructions):
            if instruction.opcode.endswith("-start"):
                if instruction.configured("is_sync") == "true":
                    continue
                begun[instruction.name] = place
            elif instruction.opcode.endswith(("-done", "-update")):
                start = begun.get(instruction.operands[0])
                if start is None:
                    continue
                begun[instruction.name] = start
                between = sum(map(len, launched[start + 1 : place]))
                launched[start] = [
                    replace(kernel, beside=between + len(launched[start]) - number)
                    if kernel.opcode in COLLECTIVES
                    else kernel
                    for number, kernel in enumerate(launched[start], 1)
                ]

    def _launched(self, computation: Computation, instruction: Instruction) -> list[Kernel]:
        opcode = instruction.opcode
        if opcode in _FREE or opcode.endswith("-done"):
            return []
        if opcode in ("call", "async-start"):
            return self.kernels(self.module[instruction.callees[0]])
        if opcode == "while":
            trips = trip_count(self.module, computation, instruction)
            if trips is None:
                self.notes.append(
                    f"the number of iterations of {instruction.name} is not known: counted once"
                )
            bodies = [self.kernels(self.module[name]) for name in instruction.callees]
            turns = 1 if trips is None else trips
            return [replace(k, times=k.times * turns) for kernels in bodies for k in kernels]
        if opcode == "conditional":
            branches = [self.kernels(self.module[name]) for name in instruction.callees]
            return max(branches, key=_weight, default=[])
        return [self._kernel(computation, instruction)]

    def _kernel(self, computation: Computation, instruction: Instruction) -> Kernel:
        """The kernel of an instruction that is neither free nor control flow."""
        opcode = instruction.opcode.removesuffix("-start")
        values = dict.fromkeys(instruction.operands)
        operands = [computation[name].shape for name in values]
        if opcode in COLLECTIVES:
            size = sum(operand.bytes for operand in operands)
            sent, given, hops = COLLECTIVES[opcode](max(self._group(instruction), 1))
            return Kernel(
                instruction.name,
                opcode,
                bytes=size + round(given * size),
                operand_bytes=size,
                link_bytes=sent * size,
                hops=hops,
            )
        instruction = replace(instruction, opcode=opcode, shape=_result(instruction))
        body = self.module[instruction.callees[0]] if opcode == "fusion" else None
        for part in body.instructions if body is not None else ():
            if body is not None and part.opcode in COLLECTIVES:  # includes the slices that it uses
                return self._kernel(body, part)
        flops = self._flops(computation, instruction)
        if body is not None:
            traffic = traffic_of(self.module, body)
            size = sum(traffic.reads.values()) + traffic.written
        else:
            size = kernel_bytes(instruction, operands)
        target = instruction.target if body is None else _target(body)
        if not flops.known:
            self.notes.append(f"the FLOPs of the custom call {target} are not known")
        leaves = [leaf for shape in (*operands, instruction.shape) for leaf in shape.leaves()]
        return Kernel(
            instruction.name,
            opcode,
            flops.matrix,
            flops.vector,
            size,
            target=target,
            host=opcode in _TO_HOST or "callback" in target or any(leaf.host for leaf in leaves),
            transposes=traffic.transposes if body else opcode in ("copy", "transpose"),
        )

    def _flops(self, computation: Computation, instruction: Instruction) -> Flops:
        if instruction.opcode != "fusion":
            shapes = [operand.shape for operand in computation.operands(instruction)]
            return flops_of(instruction, shapes)
        matrix: dict[str, float] = {}
        vector, known = 0.0, True
        body = self.module[instruction.callees[0]]
        for part in body.instructions:
            flops = self._flops(body, part)
            vector, known = vector + flops.vector, known and flops.known
            for dtype, count in flops.matrix.items():
                matrix[dtype] = matrix.get(dtype, 0.0) + count
        return Flops(matrix, vector, known)

    def _group(self, instruction: Instruction) -> int:
        """The number of devices that a collective joins."""
        text = instruction.attribute("replica_groups")
        if text.startswith("mesh"):
            axes = dict(re.findall(r"'([^']+)'=(\d+)", text))
            names = (text + instruction.attribute("device_ids")).rpartition("{")[2]
            size = 1
            for name, part in re.findall(r"'([^']+)'(?::\(\d+\)(\d+))?", names):
                size *= int(part or axes[name])
            return size
        found = re.match(r"\[\d+,(\d+)\]", text)
        if found is not None:
            return int(found[1])
        found = re.match(r"\{\{([\d,]+)\}", text)
        return len(found[1].split(",")) if found else self.devices


def _result(instruction: Instruction) -> Shape:
    """The shape of what a kernel writes. An asynchronous start returns a tuple of the operands, the
    result and a context; for a copy, the tuple begins with the result."""
    shape = instruction.shape
    if not instruction.opcode.endswith("-start") or len(shape.parts) < 2:
        return shape
    return shape.parts[0 if instruction.opcode == "copy-start" else 1]


def _target(body: Computation) -> str:
    """The target of the custom call that a fusion wraps, "" if there is none."""
    calls = (part.target for part in body.instructions if part.opcode == "custom-call")
    return next(calls, "")


def _weight(kernels: list[Kernel]) -> float:
    return sum(
        k.times * (k.bytes + (sum(k.matrix_flops.values()) + k.vector_flops) / _FLOPS_A_BYTE)
        for k in kernels
    )
