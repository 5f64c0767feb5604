"""Processes are killed (SIGKILL) at random moments while they write: what the next process finds.

    python -m tests.reliability.kills ROUNDS SEED FOLDER     writes FOLDER/tally.json

There are three kinds of victims, each with a folder that several processes share:

- store: two processes put entries with known bytes into the cache, one after the other;
- process: two processes compile programs with calls of LAPACK into the cache, and run them;
- save: one process saves an artifact repeatedly at one path, each time with other weights.

After each kill, a new process checks: each cache entry is either whole with the right content, or
missing; the program runs and returns the right numbers; the artifact is whole and was saved by the
victim.

Victims and checking processes are forks of one process that has imported JAX and has no device yet,
so that 200 rounds do not take too long. They share only the folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

import graphc as gc
from graphc.store.folder import ExecutableCache

KEYS = [hashlib.sha256(str(i).encode()).hexdigest() for i in range(4)]
ROOM = 1 << 20  # bytes of the cache, so small that entries are removed all the time
WEIGHTS = 1 << 18  # float32 numbers of the artifact, 1 MiB
X = np.array([[4.0, 2.0], [2.0, 3.0]], np.float32)


# -- the victims --------------------------------------------------------------------------------


def _payload(seed: int) -> bytes:
    """Up to 200 kB that depend only on the seed."""
    rng = random.Random(seed)
    return rng.randbytes(rng.randrange(1, 200_000))


def _put(folder: Path, seed: int) -> None:
    cache = ExecutableCache(folder / "cache", ROOM)
    (folder / "begun").touch()
    for number in range(seed, seed + 10_000):
        cache.put(KEYS[number % len(KEYS)], {"seed": number}, _payload(number))


def _graph(size: int) -> tuple[gc.Graph, Any]:
    with gc.Graph() as graph:
        x = gc.placeholder((2, 2), name="x")
        total = gc.reduce_sum(gc.linalg.cholesky(x)) * size
    return graph, total


def _compile(folder: Path, seed: int) -> None:
    for size in count(1):  # endless: sizes of earlier rounds come quickly from the cache
        if size == 2:
            (folder / "begun").touch()
        graph, total = _graph(size)
        options = gc.CompileOptions(cache=folder / "compiled")
        gc.Session(graph, options=options).run(total, {"x": X})


def _save(folder: Path, seed: int) -> None:
    with gc.Graph() as graph:
        x = gc.placeholder((), name="x")
        w = gc.variable(np.zeros(WEIGHTS, np.float32), name="w")
        ends = gc.concatenate([w[:1], w[-1:]]) * x
        middle = gc.reduce_sum(w)
    session = gc.Session(graph, options=gc.CompileOptions(cache=None))
    signatures = {"ends": gc.Signature({"x": x}, {"ends": ends, "sum": middle})}
    for number in count(1):
        session.set("w", np.full(WEIGHTS, number, np.float32))
        gc.save(session, folder / "m.gcx", signatures=signatures, platforms=("cpu",))
        (folder / "saved").touch()  # from here on, the artifact exists
        (folder / "begun").touch()


# -- the checks afterwards ----------------------------------------------------------------------


def _entries_are_whole(folder: Path) -> str:
    cache = ExecutableCache(folder / "cache", ROOM)
    names = [item.name for item in (folder / "cache").glob("*.executable")]
    for key in KEYS:
        entry = cache.get(key)
        if entry is None and f"{key}.executable" in names:
            return "torn"  # the reader refused the entry
        if entry is not None and entry.payload != _payload(entry.metadata["seed"]):
            return "wrong"
    if not cache.put(KEYS[0], {"seed": 0}, _payload(0)) or cache.get(KEYS[0]) is None:
        return "blocked"
    return "whole" if names else "nothing"


def _programs_run(folder: Path) -> str:
    wanted = float(np.linalg.cholesky(X).sum())
    hits = 0
    for size in range(1, 4):
        graph, total = _graph(size)
        session = gc.Session(graph, options=gc.CompileOptions(cache=folder / "compiled"))
        if not np.isclose(session.run(total, {"x": X}), wanted * size, rtol=1e-5):
            return "wrong"
        hits += session.executables[0].cached
    return "whole" if hits else "nothing"


def _artifact_is_whole(folder: Path) -> str:
    path = folder / "m.gcx"
    if not path.exists():
        return "lost" if (folder / "saved").exists() else "nothing"
    results = gc.load(path).signatures["ends"](x=np.float32(1))
    first, last = np.asarray(results["ends"])
    fits = first == last >= 1 and np.isclose(results["sum"], WEIGHTS * float(first), rtol=1e-5)
    return "whole" if fits else "wrong"


# -- rounds -------------------------------------------------------------------------------------

# For each kind: its share of all rounds, the number of concurrent victims, the seconds until they
# are killed after one has started to write, their work, and the check.
KINDS: dict[str, tuple[float, int, float, Callable[[Path, int], None], Callable[[Path], str]]] = {
    "store": (0.7, 2, 0.1, _put, _entries_are_whole),
    "process": (0.15, 2, 1.0, _compile, _programs_run),
    "save": (0.15, 1, 1.0, _save, _artifact_is_whole),
}


def _forked(work: Callable[[], object], answer: Path | None = None) -> int:
    child = os.fork()
    if child == 0:
        try:
            found = work()
            if answer is not None:
                answer.write_text(str(found))
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
    return child


def _round(folder: Path, kind: str, rng: random.Random) -> Counter[str]:
    _, victims_at_once, within, work, look = KINDS[kind]
    found: Counter[str] = Counter()
    seeds = [rng.randrange(1 << 30) for _ in range(victims_at_once)]
    begun = folder / "begun"
    begun.unlink(missing_ok=True)
    victims = [_forked(lambda seed=seed: work(folder, seed)) for seed in seeds]  # type: ignore[misc]
    end = time.monotonic() + 300
    while not begun.exists() and time.monotonic() < end:
        time.sleep(0.005)
    time.sleep(rng.random() * within)
    for victim in victims:
        os.kill(victim, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(victim, 0)[1])
        found["killed" if status == -signal.SIGKILL else "victims that failed"] += 1
    left = [*(folder / "cache").glob(".writing-*"), *folder.glob(".m.gcx.*")]
    found["killed in mid-write"] += bool(left)
    answer = folder / "answer"
    answer.unlink(missing_ok=True)
    child = _forked(lambda: look(folder), answer)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    found[answer.read_text() if status == 0 else "crashed"] += 1
    for path in left:  # the cache would do so after an hour
        path.unlink(missing_ok=True)
    return found


def attack(rounds: int, seed: int, folder: Path) -> dict[str, dict[str, int]]:
    """Kills victims in this number of rounds; returns the counts by kind.

    Counts:
        killed: victims that were killed.
        killed in mid-write: rounds that left a partly written file.
        whole, nothing: rounds after which the next process found whole files, or no file.
        torn, wrong, lost, blocked, crashed: rounds after which it found anything else.
    """
    rng = random.Random(seed)
    tally: dict[str, Counter[str]] = {}
    for kind, (part, *_) in KINDS.items():
        place = folder / kind
        place.mkdir(mode=0o700)
        tally[kind] = Counter()
        for _ in range(max(1, round(rounds * part))):
            tally[kind] += Counter({"rounds": 1}) + _round(place, kind, rng)
    return {kind: dict(counts) for kind, counts in tally.items()}


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # about forking: JAX runs no thread in this process
    where = Path(sys.argv[3])
    (where / "tally.json").write_text(json.dumps(attack(int(sys.argv[1]), int(sys.argv[2]), where)))
