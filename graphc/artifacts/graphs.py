"""Programs in graphc's own format, which stay readable when no JAX can read the StableHLO any
more."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from graphc.artifacts.manifest import Entry, Value, corrupt
from graphc.artifacts.manifest_read import fits_memory
from graphc.artifacts.stablehlo import check_program
from graphc.config import CompileOptions
from graphc.errors import ArtifactVersionError, GraphcError, SerialError
from graphc.ir.node import Node
from graphc.ir.program import Port, Program
from graphc.ir.rewrite import bind_sizes
from graphc.ir.serial import dump_program, from_bytes, load_program, to_bytes
from graphc.ir.types import TensorType
from graphc.ir.verify import verify
from graphc.ops.catalogue import CATALOGUE
from graphc.ops.structure.lowered import LOWERED, accept, digest_of
from graphc.passes.core.target import Target
from graphc.runtime.targets.prepare import late_manager
from graphc.untrusted.safe_reading import UnreadableError, read_program

_LARGEST = 1 << 28  # bytes of a program's file; the parsed program takes about ten times as much


def to_data(program: Program) -> bytes:
    """A functional program with its ports in order, without devices. Source lines name the files
    without their folders.

    Raises:
        SerialError: an attribute has a value that cannot be serialised.
    """
    return to_bytes(*dump_program(_portable(program)))


def _portable(program: Program) -> Program:
    return program.replace(nodes=tuple([_portable_node(node) for node in program.nodes]))


def _portable_node(node: Node) -> Node:
    regions = tuple([_portable(region) for region in node.regions])
    return node.replace(device="", regions=regions)


def from_data(
    name: str, data: memoryview, entry: Entry, variables: Mapping[str, TensorType]
) -> Program:
    """The program that `to_data` wrote, with the ports in the manifest.

    Raises:
        ArtifactVersionError: this graphc does not have one of its operators, or cannot read it.
        ArtifactCorruptError: its inputs or outputs differ.
    """
    try:
        if len(data) > _LARGEST:
            raise SerialError(f"it has {len(data)} bytes, but at most {_LARGEST} are allowed")
        program = load_program(*from_bytes(bytes(data)), CATALOGUE)
        verify(program, "functional")
        _accept_lowered(program)
    except (GraphcError, UnreadableError, MemoryError, RecursionError) as error:
        raise ArtifactVersionError(
            f"graph {name!r} cannot be read by this graphc",
            details=[_reason(error)],
            hint="install the graphc it was written with or a newer one, or save it again",
        ) from error
    taken = [("state", Value(n, variables[n])) for n in (*entry.written, *entry.read)]
    taken += [("feed", value) for value in entry.inputs]
    _match(name, "take", taken, program.inputs)
    count = len(entry.assigned)
    if len(program.outputs) != count + entry.fetches:
        raise corrupt(f"graph {name!r}", f"give {count + entry.fetches} values")
    assigned = [("state", Value(n, variables[n])) for n in entry.assigned]
    _match(name, "give", assigned, program.outputs[:count])
    for output in entry.outputs:
        port = program.outputs[count + output.index]
        if port.kind != "fetch" or port.tensor.type != output.value.type:
            raise corrupt(f"graph {name!r}", f"give {output.value}, not {port.tensor.type}")
    return program


def _reason(error: BaseException) -> str:
    if isinstance(error, GraphcError):
        return error.what
    return str(error) if isinstance(error, UnreadableError) else type(error).__name__


def _accept_lowered(program: Program) -> None:
    """Allows the lowered programs in a program to run, if every artifact may contain them.

    Raises:
        UnreadableError, ArtifactCorruptError: one of them is not allowed.
    """
    for node in program.walk():
        if node.op is LOWERED:
            inner = node.attrs["program"]
            if check_program(read_program(inner.tobytes(), digest_of(inner)), 1):
                raise UnreadableError(f"the sizes of {node.name!r} must be known to check it")
            accept(inner)


def _match(
    name: str, verb: str, values: Sequence[tuple[str, Value]], ports: Sequence[Port]
) -> None:
    for (kind, value), port in zip(values, ports, strict=False):
        if (kind, value) != (port.kind, Value(port.name, port.tensor.type)):
            other = f"{port.name}: {port.tensor.type}"
            raise corrupt(f"graph {name!r}", f"{verb} {value}, not {other}")
    if len(values) != len(ports):
        raise corrupt(f"graph {name!r}", f"{verb} {len(values)} values, not {len(ports)}")


def bound(
    name: str,
    program: Program,
    bindings: Mapping[str, int],
    options: CompileOptions,
    target: Target,
) -> Program:
    """The program with every size an int, after the passes for such programs.

    Raises:
        ArtifactCorruptError: one of its tensors would be too large for any memory.
    """
    program = bind_sizes(program, bindings) if bindings else program
    for node in program.walk():
        for tensor in node.outputs:
            if not fits_memory(tensor.type):
                raise corrupt(f"graph {name!r}", f"have tensors that fit into memory: {tensor}")
    return late_manager(options, target, program).run(program)[0]


def largest(program: Program) -> int:
    """Elements of the largest tensor of a program whose sizes are all known."""
    sizes = [
        [dim for dim in tensor.type.shape if isinstance(dim, int)]  # all are
        for node in program.walk()
        for tensor in node.outputs
    ]
    return max(map(math.prod, sizes), default=1)
