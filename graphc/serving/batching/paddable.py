"""Which sizes of an entry point may be padded, and along which one requests may be joined.

The proof is `devices.row_proof`. This module applies it to each open size of an entry point.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from graphc.artifacts.entry_point import EntryPoint
from graphc.devices.row_proof import Refusal, RowProof, Rows, prove_rows
from graphc.ir.dims import as_symbol, symbols_of
from graphc.ir.program import Program
from graphc.ir.types import TensorType, shown_size


@dataclass(frozen=True)
class OpenSize:
    """What is proved about one open size.

    Attributes:
        name: its name.
        inputs: input -> its axis with this size.
        outputs: output -> where its rows are. Outputs that do not depend on the rows are absent.
        refusal: why it cannot be padded; None if it can.
        alone: why rows of several requests cannot be joined along it, although it can be padded;
            None if they can.
    """

    name: str
    inputs: Mapping[str, int] = field(default_factory=dict)
    outputs: Mapping[str, Rows] = field(default_factory=dict)
    refusal: Refusal | None = None
    alone: Refusal | None = None

    @property
    def padded(self) -> bool:
        """Whether rows may be appended."""
        return self.refusal is None

    @property
    def joined(self) -> bool:
        """Whether rows of several requests may be put one after the other."""
        return self.padded and self.alone is None

    def __str__(self) -> str:
        return self.shown({})

    def shown(self, inputs: Mapping[str, TensorType]) -> str:
        """The answer as a sentence.

        Args:
            inputs: the inputs, which describe a size without a name.
        """
        name = shown_size(self.name, inputs).removeprefix("size ")
        reason = str(self.refusal or self.alone).replace(repr(self.name), name)
        if self.refusal is not None:
            return f"{name} cannot be padded: {reason}"
        if self.alone is not None:
            return f"{name} can be padded, but requests cannot be joined: {reason}"
        return f"{name} can be padded, and requests can be joined"


@dataclass(frozen=True)
class Paddable:
    """The answer for an entry point.

    Attributes:
        inputs: input -> its type, with open sizes by name.
        outputs: output -> its type.
        sizes: name -> what is proved about this open size.
        batch: the size along which requests are joined; None if they run one by one.
    """

    inputs: Mapping[str, TensorType]
    outputs: Mapping[str, TensorType]
    sizes: Mapping[str, OpenSize]
    batch: OpenSize | None

    def __str__(self) -> str:
        rows = [size.shown(self.inputs) for size in self.sizes.values()]
        return "\n".join(rows) or "all sizes are fixed"


def paddable(entry: EntryPoint) -> Paddable:
    """What is proved about the open sizes of an entry point of an artifact.

    Raises:
        ArtifactError: its program cannot be read.

    Examples:
        >>> import os, tempfile
        >>> with gc.Graph() as graph:
        ...     x = gc.placeholder(("batch", 3), name="x")
        ...     signature = gc.Signature({"x": x}, {"y": gc.softmax(x, axis=1)})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "model.gcx")
        ...     gc.save(gc.Session(graph), path, signatures={"predict": signature})
        ...     print(paddable(gc.load(path).signatures["predict"]))
        'batch' can be padded, and requests can be joined
    """
    if entry.devices > 1:
        return _refused(entry, f"the program is for {entry.devices} devices")
    program = entry.program()
    if program is None:
        return _refused(entry, "the file does not contain the graph: save it again")
    return paddable_program(program, entry.program_inputs, entry.program_outputs)


def paddable_program(
    program: Program, inputs: Mapping[str, TensorType], outputs: Mapping[str, TensorType]
) -> Paddable:
    """The same for a functional program, whose feeds and fetches have these names and types."""
    names = list(outputs)
    sizes = {}
    for name in _open_sizes(inputs):
        proof = prove_rows(program, name)
        alone = prove_rows(program, name, anywhere=True).refusal if proof.holds else None
        sizes[name] = OpenSize(name, proof.inputs, _places(proof, names), proof.refusal, alone)
    return Paddable(inputs, outputs, sizes, _batch(sizes))


def _open_sizes(inputs: Mapping[str, TensorType]) -> list[str]:
    """The names of the open sizes, those of the first axes first."""
    found: dict[str, None] = {}
    for type in inputs.values():
        if type.shape and as_symbol(type.shape[0]) is not None:
            found.setdefault(str(type.shape[0]))
    for type in inputs.values():
        for dim in type.shape:
            found.update(dict.fromkeys(sorted(symbols_of(dim))))
    return list(found)


def _places(proof: RowProof, names: list[str]) -> dict[str, Rows]:
    if not proof.holds:
        return {}
    places = zip(names, proof.outputs, strict=True)
    return {name: place for name, place in places if place is not None}


def _batch(sizes: Mapping[str, OpenSize]) -> OpenSize | None:
    """The first size along which requests can be joined, and which all inputs have first."""
    for size in sizes.values():
        if size.joined and set(size.inputs.values()) == {0}:
            return size
    return None


def _refused(entry: EntryPoint, reason: str) -> Paddable:
    refusal = Refusal(reason)
    sizes = {name: OpenSize(name, refusal=refusal) for name in _open_sizes(entry.inputs)}
    return Paddable(entry.program_inputs, entry.program_outputs, sizes, None)
