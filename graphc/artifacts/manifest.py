"""The description of an artifact: typed records and their JSON. `manifest_read` reads it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from graphc.errors import ArtifactCorruptError
from graphc.ir.dtypes import short_name
from graphc.ir.types import TensorType


def corrupt(where: str, must: str) -> ArtifactCorruptError:
    """The error for a part of an artifact that is not valid."""
    return ArtifactCorruptError(
        f"the artifact is inconsistent: {where} must {must}", hint="save it again"
    )


@dataclass(frozen=True)
class Value:
    """A named value and its type. Open sizes appear by name."""

    name: str
    type: TensorType

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"

    def to_json(self) -> dict[str, Any]:
        shape = [dim if isinstance(dim, int) else str(dim) for dim in self.type.shape]
        return {"name": self.name, "dtype": short_name(self.type.dtype), "shape": shape}


@dataclass(frozen=True)
class VariableRow:
    """A variable, and the position of its bytes in the weights.

    Attributes:
        key: the name of the bytes in the weights.
        offset: the offset of the bytes in the member; None in a file of version 1, where the
            member's own header contains it.
        sha256: the hash of the bytes; "" in a file of version 1, which has one for the whole
            member.
    """

    value: Value
    key: str
    offset: int | None = None
    sha256: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(dim for dim in self.value.type.shape if isinstance(dim, int))  # all are

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.value.type.dtype.itemsize

    def to_json(self) -> dict[str, Any]:
        place = {"key": self.key, "offset": self.offset, "sha256": self.sha256}
        return {**self.value.to_json(), **place}


@dataclass(frozen=True)
class Output:
    """A result, and its index among the fetches of the program."""

    value: Value
    index: int

    def to_json(self) -> dict[str, Any]:
        return {**self.value.to_json(), "index": self.index}


@dataclass(frozen=True)
class Native:
    """Machine code for one environment: `store.environment` of the devices it was compiled for.

    Attributes:
        targets: the targets of its custom calls, see `runtime.custom_calls`; None in a file that
            was written before graphc recorded them.
    """

    member: str
    environment: Mapping[str, str]
    targets: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Examples:
    """Examples of requests.

    Attributes:
        member: the member that holds the bytes of all arrays, one after the other.
        shapes: for each example, the shape of each input.
    """

    member: str
    shapes: tuple[tuple[tuple[int, ...], ...], ...]


@dataclass(frozen=True)
class VocabularyRow:
    """The vocabulary of an input or output.

    Attributes:
        member: the member that holds the words: their lengths, then the words.
        count: the number of words.
        default: the number that stands for all others; None if they are refused.
    """

    member: str
    count: int
    default: int | None


@dataclass(frozen=True)
class Entry:
    """One entry point.

    Every form of its program takes the variables `written` (donated) and `read`, then `inputs`. It
    returns the new values of `assigned`, those of `written` first, then its fetches.

    Attributes:
        stablehlo: the member that holds the program as JAX exported it.
        graph: the member that holds it as a program of graphc; None in a file of version 1.
        native: the program as machine code, if requested.
        convention: the version of the StableHLO's calling convention, which decides which JAX
            versions read it; None in a file of version 1.
        devices: the number of devices that it runs on.
        splits: for each input, the axis along which it is split over the devices, or None.
        fetches: the number of its fetches.
        wide: whether it contains 64-bit values, which must be enabled in JAX.
        memory_limit: how many bytes a run may use on each device. The graph is compiled with this
            limit. None sets no limit.
        buckets: open size -> the values to which a server pads it.
        examples: requests that a server runs before it takes others.
        vocabularies: name of an input or output -> its words. The program has their numbers.
    """

    stablehlo: str
    graph: str | None
    native: Native | None
    convention: int | None
    devices: int
    splits: tuple[int | None, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Output, ...]
    written: tuple[str, ...]
    read: tuple[str, ...]
    assigned: tuple[str, ...]
    fetches: int
    wide: bool
    memory_limit: int | None = None
    buckets: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    examples: Examples | None = None
    vocabularies: Mapping[str, VocabularyRow] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        rows = {
            "inputs": [value.to_json() for value in self.inputs],
            "outputs": [output.to_json() for output in self.outputs],
            "native": None if self.native is None else vars(self.native),
            "buckets": dict(self.buckets),
            "examples": None if self.examples is None else vars(self.examples),
            "vocabularies": {name: vars(row) for name, row in self.vocabularies.items()},
        }
        return plain | rows


@dataclass(frozen=True)
class Manifest:
    """The full description of an artifact.

    Attributes:
        graphc, jax: the versions with which it was written.
        graph: the name of the graph.
        platforms: the platforms for which its programs were lowered.
        variables: the variables that its entry points read or assign, including hidden state.
        signatures: the entry points by name.
        call: how a function of `gc.jit` is called, if the file holds one: see `jitted.saving`,
            which checks it.
    """

    graphc: str
    jax: str
    graph: str
    platforms: tuple[str, ...]
    variables: tuple[VariableRow, ...]
    signatures: Mapping[str, Entry]
    call: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        call = {} if self.call is None else {"call": self.call}
        return call | {
            "graphc": self.graphc,
            "jax": self.jax,
            "graph": self.graph,
            "platforms": list(self.platforms),
            "variables": [row.to_json() for row in self.variables],
            "signatures": {name: entry.to_json() for name, entry in self.signatures.items()},
        }
