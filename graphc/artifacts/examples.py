"""Examples of requests in an artifact: arrays for the inputs of an entry point."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from graphc.artifacts.container import Members
from graphc.artifacts.manifest import Examples, Value, corrupt
from graphc.errors import FeedError
from graphc.ir.dtypes import Array
from graphc.ir.node import Tensor
from graphc.ir.program import Port, Program
from graphc.ir.values import bytes_of
from graphc.runtime.feeds.feeds import FeedSpec, bind_feeds


def packed(
    name: str, inputs: Sequence[Value], examples: Sequence[Mapping[str, Any]]
) -> tuple[Examples | None, dict[str, bytes]]:
    """The record of the examples of a signature, and the member with their bytes.

    Raises:
        FeedError: an example does not fit the inputs.
    """
    if not examples:
        return None, {}
    ports = [Port(value.name, "feed", Tensor(value.type, value.name)) for value in inputs]
    program = Program(name, tuple(ports), (), ())
    shapes, pieces = [], []
    for number, example in enumerate(examples):
        arrays = _converted(program, f"signature {name!r}: examples[{number}]", example)
        shapes.append(tuple([array.shape for array in arrays]))
        pieces += [bytes_of(array) for array in arrays]
    member = f"examples/{name}"
    return Examples(member, tuple(shapes)), {member: b"".join(pieces)}


def _converted(program: Program, where: str, example: Mapping[str, Any]) -> list[Array]:
    ports = program.inputs
    for name in sorted(example.keys() ^ {port.name for port in ports}):
        what = "is not an input" if name in example else "is missing"
        raise FeedError(f"{where}: {name!r} {what}", hint="give a value for each input")
    try:
        arrays = [
            np.asarray(FeedSpec(port, None, copy=False).convert(example[port.name]))
            for port in ports
        ]
        sizes = bind_feeds(program, [array.shape for array in arrays], {})
    except FeedError as error:
        raise FeedError(f"{where}: {error.what}", details=error.details, hint=error.hint) from error
    if 0 in sizes.values():
        raise FeedError(f"{where}: an open size is 0", hint="give at least one row")
    return arrays


def unpacked(
    name: str, inputs: Sequence[Value], examples: Examples, members: Members
) -> Iterator[dict[str, Array]]:
    """The examples, read-only.

    Raises:
        ArtifactCorruptError: the member was altered, or has another size than the record says.
    """
    data, start = members[examples.member], 0
    sizes = [
        [math.prod(shape) * value.type.dtype.itemsize for shape, value in _rows(shapes, inputs)]
        for shapes in examples.shapes
    ]
    if sum(map(sum, sizes)) != len(data):
        raise corrupt(f"the examples of {name!r}", f"have {sum(map(sum, sizes))} bytes")
    for shapes, bytes in zip(examples.shapes, sizes, strict=True):
        found = {}
        for (shape, value), size in zip(_rows(shapes, inputs), bytes, strict=True):
            part = data[start : start + size]
            found[value.name] = np.frombuffer(part, value.type.dtype).reshape(shape)
            start += size
        yield found


def _rows(
    shapes: Sequence[tuple[int, ...]], inputs: Sequence[Value]
) -> list[tuple[tuple[int, ...], Value]]:
    return list(zip(shapes, inputs, strict=True))
