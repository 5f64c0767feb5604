"""A thousand mutated artifacts: each gives the right outputs, or the documented error.

Some are damaged as files get damaged. In the others every checksum fits, so that what lies behind
the checksums is tried: manifests, directories, weights, graphs and StableHLO that mean harm or
nothing. Those may hold other programs and other weights, and so give other outputs.
"""

import json
import random
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

import graphc as gc
from graphc.artifacts import safe_reading, ways
from graphc.artifacts.lowering import compiled_program
from graphc.errors import (
    ArtifactError,
    DeviceError,
    ExecutionError,
    FeedError,
    UnknownNameError,
)
from graphc.ir.serial import from_bytes
from tests.artifacts.forge import forge, member

X = np.array([[1.0, 2.0, 3.0], [0.5, -1.0, 2.0]], np.float32)
# What loading and running may raise; the last two where another name or type is wanted now.
DOCUMENTED = (ArtifactError, DeviceError, ExecutionError, FeedError, UnknownNameError)
WEIGHTS, STABLEHLO, GRAPH = "weights.safetensors", "programs/f.stablehlo", "programs/f.graph"


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A layer, a loop and a random stream; an open size; nothing large."""
    graph = gc.Graph(seed=1, name="fuzz")
    with graph:
        x = gc.placeholder(("batch", 3), name="x")
        w = gc.variable(np.arange(6, dtype=np.float32).reshape(3, 2), name="w")
        b = gc.variable(np.ones(2, np.float32), name="b")
        h = gc.tanh(x @ w * 0.1) + b
        _, sums = gc.scan(lambda c, row: (c + row, c * row), gc.zeros((2,)), gc.ones((3, 2)))
        y = gc.nn.dropout(h, 0.5) + gc.reduce_sum(sums)
        step = b.assign_add(gc.reduce_mean(y, axis=0))
    path = tmp_path_factory.mktemp("whole") / "model.gcx"
    signature = gc.Signature({"x": x}, {"y": y}, updates=[step])
    gc.save(gc.Session(graph), path, signatures={"f": signature}, platforms=["cpu"])
    return path


@pytest.fixture(autouse=True)
def quick(monkeypatch) -> None:
    """Programs of one checksum are compiled once; one that is never read does not hold us up."""
    known: dict[str, Any] = {}

    def compiled(key: dict[str, str], *arguments: Any) -> Any:
        text = json.dumps(key)
        if text not in known:
            known[text] = compiled_program(key, *arguments)
        return known[text]

    monkeypatch.setattr(ways, "compiled_program", compiled)
    monkeypatch.setattr(safe_reading, "_SECONDS", 0.5)


def outputs(path: Path) -> np.ndarray:
    """The output of a step and the new weights, as one array."""
    model = gc.load(path)
    results, state = model.signatures["f"](model.state(), x=X)
    arrays = [*results.values(), state["b"], state["w"]]  # whatever the results are called
    return np.concatenate([np.ravel(array) for array in arrays])


def play(
    whole: Path,
    tmp_path: Path,
    count: int,
    mutate: Callable[[random.Random, Path], None],
    *,
    same: bool,
) -> Counter[str]:
    """Tries mutations; gives how often each outcome was seen."""
    expected = outputs(whole)
    path = tmp_path / "model.gcx"
    seen: Counter[str] = Counter()
    for seed in range(count):
        mutate(random.Random(seed), path)
        try:
            found = outputs(path)
        except DOCUMENTED as error:
            assert error.what and "\n" not in error.what, seed
            seen["refused"] += 1
        except Exception as error:
            raise AssertionError(f"mutation {seed}: {error!r}") from error
        else:
            if same:
                np.testing.assert_array_equal(found, expected, err_msg=f"mutation {seed}")
            seen["loaded"] += 1
    return seen


# -- bytes ----------------------------------------------------------------------------------


def scramble(rng: random.Random, data: bytes) -> bytes:
    """Flips bits, overwrites, removes, repeats, or cuts off."""
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


def test_damaged_files(whole: Path, tmp_path: Path) -> None:
    data = whole.read_bytes()
    seen = play(
        whole,
        tmp_path,
        400,
        lambda rng, path: path.write_bytes(scramble(rng, data)),
        same=True,
    )
    assert seen["refused"] > 250


def test_damaged_directories(whole: Path, tmp_path: Path) -> None:
    """Where the zip file says what lies where: fields of records, with likely values."""
    data = whole.read_bytes()
    start = data.rindex(b"PK\x01\x02")
    while (earlier := data.rfind(b"PK\x01\x02", 0, start)) >= 0:
        start = earlier
    heads = [i for i in range(len(data)) if data[i : i + 4] == b"PK\x03\x04"]

    def mutate(rng: random.Random, path: Path) -> None:
        changed = bytearray(data)
        first = rng.choice([start, rng.choice(heads)])
        position = min(first + rng.randrange(0, 90), len(changed) - 4)
        value = rng.choice([0, 1, 0xFFFF, len(data), len(data) // 2, 2**31, 0xFFFFFFFF])
        form = rng.choice(["<I", "<H"])
        struct.pack_into(form, changed, position, value & (0xFFFFFFFF if form == "<I" else 0xFFFF))
        path.write_bytes(changed)

    seen = play(whole, tmp_path, 150, mutate, same=True)
    assert seen["refused"] > 50


# -- with checksums that fit ----------------------------------------------------------------

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


def test_edited_manifests(whole: Path, tmp_path: Path) -> None:
    seen = play(
        whole,
        tmp_path,
        400,
        lambda rng, path: forge(whole, path, lambda manifest: edit(rng, manifest)),
        same=False,
    )
    assert seen["refused"] > 100 and seen["loaded"] > 10


def by_graph(manifest: dict[str, Any]) -> None:
    manifest["signatures"]["f"]["convention"] = 99


@pytest.mark.slow
def test_edited_graphs(whole: Path, tmp_path: Path) -> None:
    program, arrays = from_bytes(member(whole, GRAPH))

    def mutate(rng: random.Random, path: Path) -> None:
        changed = json.loads(json.dumps(program))
        edit(rng, changed)
        text = json.dumps(changed).encode()
        data = safetensors.numpy.save({**arrays, "manifest": np.frombuffer(text, np.uint8)})
        if rng.random() < 0.2:
            data = scramble(rng, data)
        forge(whole, path, by_graph, {GRAPH: data})

    seen = play(whole, tmp_path, 150, mutate, same=False)
    assert seen["refused"] > 75 and seen["loaded"] > 5


@pytest.mark.slow
def test_damaged_programs_and_weights(whole: Path, tmp_path: Path) -> None:
    """StableHLO comes first to a process of its own, which some of these end."""
    members = {name: member(whole, name) for name in (WEIGHTS, STABLEHLO)}

    def mutate(rng: random.Random, path: Path) -> None:
        name = WEIGHTS if rng.random() < 0.2 else STABLEHLO
        forge(whole, path, replaced={name: scramble(rng, members[name])})

    seen = play(whole, tmp_path, 150, mutate, same=False)
    assert seen["loaded"] > 50  # those whose StableHLO is broken run from the graph
