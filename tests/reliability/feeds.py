"""Attacks on feeds: values that may not fit, and memory that is changed after the call.

Each attack takes the number of rounds and a seed, and returns its counts.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import jax
import ml_dtypes
import numpy as np

import graphc as gc
from graphc.errors import FeedError
from graphc.ir.dtypes import SHORT, is_integer
from graphc.ir.node import Tensor
from graphc.ir.program import Port
from graphc.ir.types import TensorType
from graphc.runtime.feeds.feeds import FeedSpec


@dataclass
class ValueTally:
    """Counts of `attack_values`. `silent`: values that became other numbers; `raw`: errors that are
    not graphc's; `needless`: refused values that fit."""

    rounds: int = 0
    kept: int = 0
    refused: int = 0
    silent: int = 0
    raw: int = 0
    needless: int = 0


def attack_values(rounds: int, seed: int) -> ValueTally:
    """Feeds random integers in random containers, with random integer dtypes."""
    rng = random.Random(seed)
    tally = ValueTally()
    dtypes = [dtype for dtype in SHORT if is_integer(dtype)]
    specs = {
        d: FeedSpec(Port("x", "feed", Tensor(TensorType(d, (3,)))), None, True) for d in dtypes
    }
    for _ in range(rounds):
        dtype = rng.choice(dtypes)
        values = [_integer(rng) for _ in range(3)]
        limits = ml_dtypes.iinfo(dtype)
        fits = all(int(limits.min) <= n <= int(limits.max) for n in values)
        tally.rounds += 1
        try:
            got = np.asarray(specs[dtype].convert(_contained(values, rng)))
        except FeedError:
            tally.refused += 1
            tally.needless += fits
        except Exception:
            tally.raw += 1
        else:
            same = [int(n) for n in got] == values and got.dtype == dtype
            tally.kept += same
            tally.silent += not same
    return tally


def _integer(rng: random.Random) -> int:
    """An integer near a limit of some dtype's range, or a small one."""
    bits = rng.choice([0, 0, 3, 4, 7, 8, 15, 16, 31, 32, 63, 64, 70])
    return rng.choice([-1, 1]) * (1 << bits) + rng.randint(-2, 2)


def _contained(values: list[int], rng: random.Random) -> Any:
    """The values in a container that can hold them."""
    holds = [d for d in SHORT if is_integer(d) and _holds(d, values)]
    if not holds or rng.random() < 0.2:
        return rng.choice([list, tuple])(values)
    array = np.array(values, rng.choice(holds))
    kind = rng.randrange(7)
    if kind == 0:
        return list(array)
    if kind == 1:
        with jax.enable_x64(True):
            return jax.device_put(array)
    if kind == 2:
        return array.astype(array.dtype.newbyteorder())
    if kind == 3:
        return np.stack([array, array])[1:][0][::1]
    if kind == 4:
        return [array[i : i + 1][0] for i in range(3)]
    if kind == 5:
        return np.asfortranarray(array)
    return array


def _holds(dtype: Any, values: list[int]) -> bool:
    limits = ml_dtypes.iinfo(dtype)
    return all(int(limits.min) <= n <= int(limits.max) for n in values)


@dataclass
class MemoryTally:
    """Counts of `attack_memory`. `wrong`: results that changed with a write after the call."""

    rounds: int = 0
    wrong: int = 0


def attack_memory(rounds: int, seed: int) -> MemoryTally:
    """Feeds memory that is overwritten as soon as `run` has returned."""
    rng = random.Random(seed)
    tally = MemoryTally()
    size = 1 << 14
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((size,), "float32", name="x")
        y = gc.reduce_sum(x + 0.0 * gc.sin(gc.exp(x)))
    session = gc.Session(graph)
    owner = np.zeros(size + 64, np.float32)
    memory = bytearray(4 * (size + 64))
    for number in range(rounds):
        start = rng.randrange(16) * 4
        if rng.random() < 0.5:
            owner.flags.writeable = True
            value = owner[start : start + size]
            write = value
        else:
            write = np.frombuffer(memory, np.float32, size, 4 * start)
            value = np.frombuffer(memoryview(memory).toreadonly(), np.float32, size, 4 * start)
        write[:] = number % 7
        fed: Any = value[:]
        fed.flags.writeable = False
        got = session.run(y, {"x": rng.choice([fed, fed.reshape(2, -1).reshape(-1)])})
        write[:] = -1
        tally.rounds += 1
        tally.wrong += float(got) != size * (number % 7)
    return tally
