"""Models that are changed in place, or written byte by byte."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np

from graphc.importers.tflite.flatbuffer import File
from graphc.importers.tflite.schema import NAMES


def with_operator(model: bytes, codes: dict[str, int]) -> bytes:
    """The model with other codes for some operators."""
    data = bytearray(model)
    for table in File(model).root().tables(1):
        for field, code in ((0, "b"), (3, "i")):
            name = NAMES[max(table.number(0, "b"), table.number(3, "i"))]
            at = table._place(field)
            if name in codes and at is not None:
                value = codes[name] if code == "i" else min(codes[name], 127)
                struct.pack_into(f"<{code}", data, at, value)
    return bytes(data)


def named(custom: str) -> bytes:
    """A model of one custom operator, which takes no tensor and gives one."""
    parts = bytearray()

    def put(text: str, *values: object) -> int:
        parts.extend(bytes(-len(parts) % 4))
        at = len(parts)
        parts.extend(struct.pack("<" + text, *values))
        return at

    def table(*fields: tuple[int, str, int]) -> int:
        """A table with 4 bytes for each field; "@" is an offset to a place that is written."""
        count = 1 + max((field for field, _, _ in fields), default=-1)
        offsets = [0] * count
        for i, (field, _, _) in enumerate(fields):
            offsets[field] = 4 + 4 * i
        entry = put("HH" + "H" * count, 4 + 2 * count, 4 + 4 * len(fields), *offsets)
        at = put("i", 0)
        struct.pack_into("<i", parts, at, at - entry)
        for _, kind, value in fields:
            put("i", value - len(parts) if kind == "@" else value)
        return at

    # Offsets lead forwards: so tables with offsets are written first, with places to fill in.
    put("I", 0)
    parts.extend(b"TFL3")
    holes: dict[str, int] = {}

    def hole(name: str, *fields: tuple[int, str]) -> int:
        at = table(*((field, "i", 0) for field, _ in fields))
        for i, (_, key) in enumerate(fields):
            holes[f"{name}.{key}"] = at + 4 + 4 * i
        return at

    def fill(name: str, target: int) -> None:
        struct.pack_into("<I", parts, holes[name], target - holes[name])

    def vector(*values: int) -> int:
        return put("I" + "i" * len(values), len(values), *values)

    def tables(name: str, target: str) -> int:
        at = put("II", 1, 0)
        holes[f"{name}.{target}"] = at + 4
        return at

    root = hole("root", (0, "version"), (1, "codes"), (2, "graphs"), (4, "buffers"))
    struct.pack_into("<I", parts, 0, root)
    struct.pack_into("<I", parts, holes["root.version"], 3)
    for key in ("codes", "graphs", "buffers"):
        fill(f"root.{key}", tables(key, "item"))
    fill("codes.item", hole("code", (1, "name"), (3, "number")))
    struct.pack_into("<I", parts, holes["code.number"], NAMES.index("CUSTOM"))
    fill("code.name", put(f"I{len(custom)}s", len(custom), custom.encode()))
    fill("buffers.item", table())
    fill("graphs.item", hole("graph", (0, "tensors"), (2, "outputs"), (3, "operators")))
    for key in ("tensors", "operators"):
        fill(f"graph.{key}", tables(key, "item"))
    fill("graph.outputs", vector(0))
    fill("tensors.item", hole("tensor", (0, "shape"), (3, "name")))
    fill("tensor.shape", vector(2))
    fill("tensor.name", put("I5s", 5, b"boxes"))
    fill("operators.item", hole("operator", (2, "outputs")))
    fill("operator.outputs", vector(0))
    return bytes(parts)


def mutated_words(data: bytes, count: int, seed: int = 0) -> Iterator[bytes]:
    """`count` copies with other offsets, lengths and numbers, which are aligned in these files."""
    rng = np.random.default_rng(seed)
    values = [0, 1, 2, 3, 8, 127, 255, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32 - 4, len(data)]
    for _ in range(count):
        copy = bytearray(data)
        for _ in range(int(rng.integers(1, 4))):
            at, other = (int(place) * 4 for place in rng.integers((len(copy) - 4) // 4, size=2))
            kind = int(rng.integers(4))
            if kind == 0:
                copy[at : at + 4] = int(rng.choice(values)).to_bytes(4, "little")
            elif kind == 1:
                copy[at + int(rng.integers(4))] = int(rng.integers(256))
            elif kind == 2:
                copy[at : at + 4] = copy[other : other + 4]
            else:
                near = int.from_bytes(copy[at : at + 4], "little") + int(rng.integers(-8, 9))
                copy[at : at + 4] = (near % 2**32).to_bytes(4, "little")
        yield bytes(copy)
