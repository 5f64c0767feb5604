"""Damaged copies of .pt2 files: well-formed archives whose JSON is changed at random."""

from __future__ import annotations

import copy
import io
import json
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np

_JUNK: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 7, 2**31, 2**62, -(2**63), 2**70, 0.5, 1e300, float("nan")),
    *("", "x", "relu", "torch.ops.aten.add.Tensor", "torch.ops.aten.split.Tensor", "../../x"),
    *("__import__('os').abort()", "Symbol('s0')", "s0**s0", "Infinity", "\ud800", "a" * 3000),
    *([], {}, [[]], {"as_int": 2**62}, {"as_none": True}, {"as_tensor": {"name": "x"}}, [1] * 70),
)


def members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {member.filename: archive.read(member) for member in archive.infolist()}


def packed(parts: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    return buffer.getvalue()


def _places(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """All (container, key) of a nest."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        found.append((value, key))
        if isinstance(item, (dict, list)):
            _places(item, found)
    return found


def restructured(data: bytes, count: int, seed: int = 0) -> Iterator[bytes]:
    """`count` copies in which values of the JSON are deleted, doubled, swapped or replaced."""
    rng = np.random.default_rng(seed)
    parts = members(data)
    texts = [name for name in parts if name.endswith(".json")]
    programs = [name for name in texts if "/models/" in name]

    def pick(items: Any) -> Any:
        return items[int(rng.integers(len(items)))]

    for _ in range(count):
        name = pick([*texts, *programs * 4])
        program = json.loads(parts[name])
        for _ in range(int(rng.integers(1, 4))):
            places = _places(program, [])
            holder, key = pick(places)
            other, other_key = pick(places)
            kind = int(rng.integers(5))
            if isinstance(holder, list) and not 0 <= key < len(holder):
                continue
            if kind == 0:
                del holder[key]
            elif kind == 1 and isinstance(holder, list):
                holder.insert(key, copy.deepcopy(holder[key]))
            elif kind == 2:
                try:
                    holder[key] = copy.deepcopy(other[other_key])
                except (IndexError, KeyError):
                    continue
            else:
                holder[key] = copy.deepcopy(pick(_JUNK))
            if not program:
                break
        yield packed({**parts, name: json.dumps(program).encode()})
