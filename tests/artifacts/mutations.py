"""Random changes to artifacts, and a model to change. Equal random numbers make equal changes."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np

import graphc as gc

X = np.array([[1.0, 2.0, 3.0], [0.5, -1.0, 2.0]], np.float32)
WEIGHTS, STABLEHLO, GRAPH = "weights.safetensors", "programs/f.stablehlo", "programs/f.graph"


def write_model(path: Path, *, loops: bool = True) -> None:
    """Writes a small model with a layer, an open size, a loop, and a random stream in a loop."""
    graph = gc.Graph(seed=1, name="fuzz")
    with graph:
        x = gc.placeholder(("batch", 3), name="x")
        w = gc.variable(np.arange(6, dtype=np.float32).reshape(3, 2), name="w")
        b = gc.variable(np.ones(2, np.float32), name="b")
        h = gc.tanh(x @ w * 0.1) + b
        y = gc.reduce_sum(h, axis=0) + h
        if loops:
            _, sums = gc.scan(lambda c, row: (c + row, c * row), gc.zeros((2,)), gc.ones((3, 2)))
            y = gc.nn.dropout(h, 0.5) + gc.reduce_sum(sums)
        step = b.assign_add(gc.reduce_mean(y, axis=0))
    signature = gc.Signature({"x": x}, {"y": y}, updates=[step])
    gc.save(gc.Session(graph), path, signatures={"f": signature}, platforms=["cpu"])


def scramble(rng: random.Random, data: bytes) -> bytes:
    """Flips bits, or overwrites, removes, repeats or cuts off bytes."""
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 3])):
        start = rng.randrange(max(len(changed), 1))
        length = rng.choice([1, 2, 8, 100])
        match rng.randrange(6):
            case 0 | 1:
                changed[start : start + 1] = bytes([changed[start] ^ 1 << rng.randrange(8)])
            case 2:
                changed[start : start + length] = rng.randbytes(length)
            case 3:
                del changed[start : start + length]
            case 4:
                changed[start:start] = changed[start : start + length]
            case 5:
                del changed[start:]
        changed = changed or bytearray(b"\0")
    return bytes(changed)


def with_other_fields(rng: random.Random, data: bytes) -> bytes:
    """Sets a field of a zip file's directory or of a member's header to a plausible value."""
    start = data.rindex(b"PK\x01\x02")
    while (earlier := data.rfind(b"PK\x01\x02", 0, start)) >= 0:
        start = earlier
    heads = [i for i in range(len(data)) if data[i : i + 4] == b"PK\x03\x04"]
    changed = bytearray(data)
    first = rng.choice([start, rng.choice(heads)])
    position = min(first + rng.randrange(0, 90), len(changed) - 4)
    value = rng.choice([0, 1, 0xFFFF, len(data), len(data) // 2, 2**31, 0xFFFFFFFF])
    form = rng.choice(["<I", "<H"])
    struct.pack_into(form, changed, position, value & (0xFFFFFFFF if form == "<I" else 0xFFFF))
    return bytes(changed)


STRANGE = [
    *(None, True, -1, 0, 1, 2, 3, 2**31, 2**63, 10**40, 0.5, float("nan"), float("inf")),
    *("", "x", "batch", "b", "w", "f32", "f64", "i4", "../x", "n*n*n", "9" * 300),
    *(GRAPH, STABLEHLO, WEIGHTS, [], {}, [[]], [0], [1, 2], ["w"], {"a": 1}),
]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, inner in items:
        found.append((*path, key))
        if isinstance(inner, (dict, list)):
            found += places(inner, (*path, key))
    return found


def edit(rng: random.Random, value: Any) -> None:
    """Changes, removes, copies or swaps something inside a JSON value."""
    for _ in range(rng.choice([1, 1, 2])):
        all_places = places(value)
        if not all_places:
            return
        *outer, last = rng.choice(all_places)
        holder = value
        for key in outer:
            holder = holder[key]
        match rng.randrange(5):
            case 0:
                del holder[last]
            case 1:
                *other, key = rng.choice(all_places)
                source = value
                try:
                    for step in other:
                        source = source[step]
                    holder[last] = json.loads(json.dumps(source[key]))
                except (KeyError, IndexError, TypeError):
                    holder[last] = None
            case 2 if isinstance(holder, list):
                holder.append(json.loads(json.dumps(holder[last])))
            case 3 if type(holder[last]) is int:
                holder[last] += rng.choice([-1, 1, 7, 2**32])
            case _:
                holder[last] = rng.choice(STRANGE)
