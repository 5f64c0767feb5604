"""Damaged copies of files: flipped, removed or repeated bytes, replaced numbers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np


def mutated(data: bytes, count: int, seed: int = 0) -> Iterator[bytes]:
    """`count` damaged copies."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        copy = bytearray(data)
        for _ in range(int(rng.integers(1, 5))):
            at = int(rng.integers(len(copy)))
            kind = int(rng.integers(6))
            if kind == 0:
                copy[at] ^= 1 << int(rng.integers(8))
            elif kind == 1:
                copy[at] = int(rng.choice([0, 1, 0x7F, 0x80, 0xFF]))
            elif kind == 2:
                del copy[at : at + int(rng.integers(1, 40))]
            elif kind == 3:
                copy[at:at] = copy[at : at + int(rng.integers(1, 40))]
            elif kind == 4:
                start = int(rng.integers(len(copy)))
                piece = copy[start : start + int(rng.integers(1, 60))]
                copy[at : at + len(piece)] = piece
            else:
                copy[at : at + 9] = b"\xff" * 8 + b"\x01"
            copy = copy or bytearray(b"\0")
        yield bytes(copy)


_NUMBERS = (0, 1, -1, 2, 3, 7, 2**31 - 1, -(2**31), 2**62, -(2**63))


def mutated_graphs(data: bytes, count: int, seed: int = 0) -> Iterator[bytes]:
    """`count` well-formed GraphDefs with wrong operators, inputs and attributes."""
    from graphc.train.tensorflow.schema import messages

    rng = np.random.default_rng(seed)

    def pick(items: object) -> object:
        return items[int(rng.integers(len(items)))]  # type: ignore[index,arg-type]

    for _ in range(count):
        graph = messages().GraphDef.FromString(data)
        bodies = [graph.node, *(f.node_def for f in graph.library.function)]
        for _ in range(int(rng.integers(1, 4))):
            nodes = pick([b for b in bodies if len(b)])
            node, other = pick(nodes), pick(nodes)
            kind = int(rng.integers(6))
            if kind == 0:
                node.op = other.op
            elif kind == 1 and len(node.input):
                node.input[int(rng.integers(len(node.input)))] = str(
                    pick([other.name, f"{other.name}:{pick(_NUMBERS)}", "^" + other.name, "none"])
                )
            elif kind == 2:
                node.input.extend([other.name] * int(rng.integers(1, 3)))
            elif kind == 3 and len(node.input):
                del node.input[int(rng.integers(len(node.input))) :]
            elif node.attr:
                key = pick(sorted(node.attr))
                if kind == 4:
                    node.attr[key].CopyFrom(pick([a for n in nodes for a in n.attr.values()]))
                else:
                    _spoil(node.attr[key], pick)
        yield graph.SerializeToString()


def _spoil(attr: object, pick: object) -> None:
    kind = attr.WhichOneof("value")  # type: ignore[attr-defined]
    number = pick(_NUMBERS)  # type: ignore[operator]
    if kind == "i":
        attr.i = number  # type: ignore[attr-defined]
    elif kind == "type":
        attr.type = number % 140  # type: ignore[attr-defined]
    elif kind == "shape":
        attr.shape.dim.add(size=number)  # type: ignore[attr-defined]
    elif kind == "tensor":
        tensor = attr.tensor  # type: ignore[attr-defined]
        if len(tensor.tensor_shape.dim):
            tensor.tensor_shape.dim[0].size = number
        elif tensor.tensor_content:
            tensor.tensor_content = bytes(len(tensor.tensor_content))
        else:
            tensor.int_val.append(number % 2**31)
            tensor.dtype = pick([1, 3, 9, 7, 20])  # type: ignore[operator]
    elif kind == "list":
        attr.list.i.append(number)  # type: ignore[attr-defined]
    elif kind == "s":
        attr.s = b"\xff\x00nothing"  # type: ignore[attr-defined]
    elif kind == "func":
        attr.func.name = "none"  # type: ignore[attr-defined]
