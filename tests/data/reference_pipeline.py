"""Pipelines in plain Python over lists, and random pipelines of both kinds.

`REFERENCE[name](items of an epoch, epoch, ...)` defines what a stage means. Each random pipeline is
a list of (name, arguments), which JSON can represent, so that a new process can build it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import count as numbers
from itertools import islice
from typing import Any

import numpy as np
from hypothesis import strategies as st

import graphc as gc

Epoch = Callable[[int], Iterator[Any]]  # the items of an epoch

ENOUGH = 60  # the number of compared items of an endless pipeline


# -- functions that other processes can import -------------------------------------------------


def value(item: Any) -> int:
    """Maps any item to a number."""
    if isinstance(item, dict):
        return sum(value(each) for each in item.values())
    return int(np.asarray(item).sum()) if not isinstance(item, list) else sum(map(value, item))


def plus_one(item: Any) -> Any:
    if isinstance(item, dict):
        return {key: plus_one(each) for key, each in item.items()}
    return [plus_one(each) for each in item] if isinstance(item, list) else np.asarray(item) + 1


def noisy(item: Any, rng: np.random.Generator) -> Any:
    noise = int(rng.integers(0, 1000))
    return (
        {key: np.asarray(each) + noise for key, each in item.items()}
        if isinstance(item, dict)
        else np.asarray(item) + noise
    )


def not_third(item: Any) -> bool:
    return value(item) % 3 != 0


def few(item: Any) -> list[int]:
    return [value(item) * 10 + i for i in range(value(item) % 4)]


def small_pipeline(item: Any) -> gc.data.Pipeline:
    return gc.data.from_iterable(few(item))


def length(item: Any) -> int:
    return value(item) % 7 + 1


# -- sources ------------------------------------------------------------------------------------


def source(kind: str, n: int, folder: str) -> gc.data.Pipeline:
    if kind == "arrays":
        return gc.data.from_arrays(np.arange(n))
    if kind == "dicts":
        return gc.data.from_arrays({"a": np.arange(n), "b": 2 * np.arange(n)})
    if kind == "generator":
        return gc.data.from_generator(lambda: iter(range(n)))
    if kind == "batches":
        return gc.data.from_iterable(Numbers(n))
    if kind == "list":
        return gc.data.from_iterable(list(range(n)))
    return gc.data.from_text(text_files(n, folder)).map(int)


class Numbers:
    """An iterable without len."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.n))


def text_files(n: int, folder: str) -> list[str]:
    """n lines in three files; one file has no newline at its end."""
    paths = []
    for number, rows in enumerate(np.array_split(np.arange(n), 3)):
        path = os.path.join(folder, f"{n}-{number}.txt")
        if not os.path.exists(path):
            with open(path, "w", encoding="ascii") as file:
                file.write("\n".join(map(str, rows)) + ("\n" if number != 1 and len(rows) else ""))
        paths.append(path)
    return paths


def reference_source(kind: str, n: int) -> Epoch:
    if kind == "dicts":
        return lambda epoch: iter({"a": i, "b": 2 * i} for i in range(n))
    return lambda epoch: iter(range(n))


# -- stages -------------------------------------------------------------------------------------


def _slots(key: tuple[int, ...]) -> Iterator[int]:
    for block in numbers():
        yield from np.random.default_rng((*key, block)).integers(0, 1 << 62, 1024).tolist()


def shuffle(before: Epoch, buffer: int | None, seed: int, salt: int) -> Epoch:
    def epoch_of(epoch: int) -> Iterator[Any]:
        items, key = before(epoch), (seed, epoch, salt)
        if buffer is None:
            every = list(items)
            return iter([every[i] for i in np.random.default_rng(key).permutation(len(every))])
        return buffered(items, _slots(key))

    def buffered(items: Iterator[Any], slots: Iterator[int]) -> Iterator[Any]:
        kept = list(islice(items, buffer))
        for item in items:
            place = next(slots) % len(kept)
            yield kept[place]
            kept[place] = item
        while kept:
            place = next(slots) % len(kept)
            yield kept[place]
            kept[place] = kept[-1]
            kept.pop()

    return epoch_of


def batch(before: Epoch, size: int, drop: bool) -> Epoch:
    def epoch_of(epoch: int) -> Iterator[Any]:
        items = before(epoch)
        while (rows := list(islice(items, size))) and not (drop and len(rows) < size):
            yield rows

    return epoch_of


def repeat(before: Epoch, n: int | None) -> Epoch:
    def epoch_of(epoch: int) -> Iterator[Any]:
        for i in numbers() if n is None else range(n):
            yield from before(epoch * (n or 0) + i)

    return epoch_of


def mapped(before: Epoch, seed: int | None) -> Epoch:
    def epoch_of(epoch: int) -> Iterator[Any]:
        for number, item in enumerate(before(epoch)):
            if seed is None:
                yield plus_one(item)
            else:
                yield noisy(item, np.random.default_rng((seed, epoch, number)))

    return epoch_of


def interleave(before: Epoch, cycle: int, block: int) -> Epoch:
    def epoch_of(epoch: int) -> Iterator[Any]:
        items = before(epoch)
        parts: list[Iterator[int]] = []
        turn = 0
        while True:
            if turn == len(parts):
                fresh = list(islice(items, 1)) if len(parts) < cycle else []
                if fresh:
                    parts.append(iter(few(fresh[0])))
                elif parts:
                    turn = 0
                else:
                    return
                continue
            rows = list(islice(parts[turn], block))
            yield from rows
            if len(rows) == block:
                turn += 1
                continue
            fresh = list(islice(items, 1))
            parts[turn : turn + 1] = [iter(few(each)) for each in fresh]

    return epoch_of


def bucket(before: Epoch, bounds: list[int], size: int, drop: bool) -> Epoch:
    def epoch_of(epoch: int) -> Iterator[Any]:
        waiting: list[list[Any]] = [[] for _ in bounds]
        for item in before(epoch):
            row = next(w for w, b in zip(waiting, bounds, strict=True) if length(item) <= b)
            row.append(item)
            if len(row) == size:
                yield row.copy()
                row.clear()
        yield from (row for row in waiting if row and not drop)

    return epoch_of


# -- random pipelines ----------------------------------------------------------------------------

Plan = list[list[Any]]

_SEEDS = st.integers(0, 5)
_STAGES = st.one_of(
    st.tuples(st.just("shuffle"), st.none() | st.integers(1, 9), _SEEDS),
    st.tuples(st.just("take"), st.integers(0, 30)),
    st.tuples(st.just("skip"), st.integers(0, 6)),
    st.tuples(st.just("shard"), st.integers(0, 1), st.integers(2, 3)),
    st.tuples(st.just("repeat"), st.none() | st.integers(0, 3)),
    st.tuples(st.just("map"), st.sampled_from([0, 0, 1, 3]), st.none() | _SEEDS),
    st.tuples(st.just("filter")),
    st.tuples(st.just("interleave"), st.integers(1, 4), st.integers(1, 3)),
    st.tuples(st.just("prefetch"), st.integers(1, 3)),
)
_LAST = st.one_of(
    st.tuples(st.just("batch"), st.integers(1, 5), st.booleans()),
    st.tuples(st.just("bucket"), st.just([3, 7]), st.integers(1, 3), st.booleans()),
)
_AFTER = st.one_of(
    st.tuples(st.just("repeat"), st.none() | st.integers(0, 3)),
    st.tuples(st.just("take"), st.integers(0, 9)),
    st.tuples(st.just("shuffle"), st.integers(1, 4), _SEEDS),
    st.tuples(st.just("prefetch"), st.integers(1, 3)),
)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    kinds = ["arrays", "dicts", "generator", "batches", "list", "text"]
    plan: Plan = [[draw(st.sampled_from(kinds)), draw(st.integers(0, 25))]]
    plan += map(list, draw(st.lists(_STAGES, max_size=4)))
    if draw(st.booleans()):
        plan += [list(draw(_LAST)), *map(list, draw(st.lists(_AFTER, max_size=2)))]
    endless = False
    kept = plan[:1]
    for stage in plan[1:]:  # some stages need an end, or something to repeat
        if endless and stage[0] in ("repeat", "filter", "interleave"):  # might never yield an item
            continue
        if endless and stage[0] == "shuffle" and stage[1] is None:
            continue
        names = {name for name, *_ in kept}
        if (
            stage == ["repeat", None]
            and names & {"filter", "interleave"}
            and names & {"map", "shuffle"}
        ):
            continue  # by chance, many epochs may be empty
        if stage[0] == "repeat" and stage[1] is None and next(reference(kept)(0), None) is None:
            continue
        endless |= stage[0] == "repeat" and stage[1] is None
        kept.append(stage)
    return kept


def build(plan: Plan, folder: str) -> gc.data.Pipeline:
    (kind, n), *stages = plan
    made = source(kind, n, folder)
    for name, *given in stages:
        if name == "shuffle":
            made = made.shuffle(given[0], seed=given[1])
        elif name == "map":
            if given[1] is None:
                made = made.map(plus_one, workers=given[0])
            else:
                made = made.map(noisy, workers=given[0], seed=given[1])
        elif name == "filter":
            made = made.filter(not_third)
        elif name == "interleave":
            made = made.interleave(small_pipeline, cycle=given[0], block=given[1])
        elif name == "prefetch":
            made = made.prefetch("/cpu:0", size=given[0])
        elif name == "batch":
            made = made.batch(given[0], drop_remainder=given[1])
        elif name == "bucket":
            made = made.bucket(given[0], given[1], length=length, drop_remainder=given[2])
        else:
            made = getattr(made, name)(*given)
    return made


def reference(plan: Plan) -> Epoch:
    (kind, n), *stages = plan
    made = reference_source(kind, n)
    shuffles = 0
    for name, *given in stages:
        if name == "shuffle":
            made = shuffle(made, *given, shuffles)
            shuffles += 1
        elif name == "take":
            made = (lambda m, k: lambda e: islice(m(e), k))(made, *given)
        elif name == "skip":
            made = (lambda m, k: lambda e: islice(m(e), k, None))(made, *given)
        elif name == "shard":
            made = (lambda m, i, k: lambda e: islice(m(e), i, None, k))(made, *given)
        elif name == "map":
            made = mapped(made, given[1])
        elif name == "filter":
            made = (lambda m: lambda e: filter(not_third, m(e)))(made)
        elif name != "prefetch":
            made = {"repeat": repeat, "interleave": interleave, "batch": batch, "bucket": bucket}[
                name
            ](made, *given)
    return made


def plain(item: Any) -> Any:
    """An item of a pipeline as numbers in dicts and lists; batches as in the reference."""
    if isinstance(item, dict):
        leaves = {key: plain(each) for key, each in item.items()}
        if all(isinstance(each, list) for each in leaves.values()):
            return [
                dict(zip(leaves, row, strict=True)) for row in zip(*leaves.values(), strict=True)
            ]
        return leaves
    if isinstance(item, list):
        return [plain(each) for each in item]
    return np.asarray(item).tolist()
