"""The attack "forged files": artifacts changed in many ways, most with correct checksums.

Each round changes one file with its own random numbers, and loads and runs it in a worker process,
so that a crash of that process is counted and its round is reported. Outcomes:

- `refused`: one of graphc's errors that `gc.load` and entry points document;
- `same`: it loaded and returned the results of the original file;
- `another`: it loaded and consistently returned something else. A file with other weights, another
  program or another manifest, and with correct checksums, is a valid file of another model;
- `late`: XLA's own error when the results are read (a device out of memory);
- `silent`: it loaded and returned a wrong result: another result although all that it ran is
  unchanged (the change was in bytes without checksums, in a form that did not run, or in the
  container), or values without the names, dtypes and shapes that the file states;
- `undocumented`: another exception;
- `crash`, `hang`: the process ended, or did not answer.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import selectors
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np
import safetensors.numpy

import graphc as gc
from graphc.artifacts import container, ways
from graphc.artifacts.lowering import compiled_program
from graphc.errors import (
    ArtifactError,
    DeviceError,
    ExecutionError,
    FeedError,
    UnknownNameError,
)
from graphc.ir.serial import from_bytes
from graphc.untrusted import safe_reading
from tests.artifacts import hostile, mutations
from tests.artifacts.forge import forge, member, write_zip
from tests.artifacts.mutations import GRAPH, STABLEHLO, WEIGHTS, edit, scramble

# The errors that loading and running may raise; the last two if a name or a type has changed.
DOCUMENTED = (ArtifactError, DeviceError, ExecutionError, FeedError, UnknownNameError)
LIMITS = gc.Limits(operations=5_000, memory=2**28)
_ROOT = Path(__file__).parents[2]
_SECONDS = 180.0  # for one round, and for the start of a worker
_OUTCOMES = ("refused", "same", "another", "late", "silent", "undocumented", "crash", "hang")


@dataclass
class Tally:
    """Counts of an attack.

    Attributes:
        rounds: the number of tried files.
        outcomes: how often each outcome occurred.
        kinds: the same for each kind of change.
        told: one line for each failed round.
    """

    rounds: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    kinds: dict[str, Counter[str]] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)

    def add(self, kind: str, outcome: str, why: str) -> None:
        self.rounds += 1
        self.outcomes[outcome] += 1
        self.kinds.setdefault(kind, Counter())[outcome] += 1
        if outcome in ("silent", "undocumented", "crash", "hang"):
            self.told.append(f"{why} ({kind}): {outcome}")


def attack(rounds: int, seed: int) -> Tally:
    """Tries `rounds` files. Equal numbers make equal files."""
    tally = Tally()
    first, end = seed * 1_000_000, seed * 1_000_000 + rounds
    with tempfile.TemporaryDirectory() as folder:
        while first < end:
            worker = _Worker(Path(folder), first, end)
            while first < end:
                reply = worker.reply()
                if reply is None:
                    outcome = worker.stop()
                    kind = KINDS[first % len(KINDS)][0]
                    tally.add(kind, outcome, f"round {first}")
                    first += 1
                    break
                tally.add(reply["kind"], reply["outcome"], f"round {first}: {reply['why']}")
                first += 1
            else:
                worker.stop()
    return tally


class _Worker:
    """A process that runs rounds one after the other and reports each outcome."""

    def __init__(self, folder: Path, first: int, end: int) -> None:
        path = [str(_ROOT), *filter(None, sys.path)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(folder), str(first), str(end)],
            cwd=_ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        )
        self._rest = b""

    def reply(self) -> dict[str, Any] | None:
        """The report of the next round; None if the process ended or does not answer."""
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if not selector.select(_SECONDS):
                    return None
                piece = os.read(self._process.stdout.fileno(), 1 << 16)
                if not piece:
                    return None
                self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def stop(self) -> str:
        """Ends the process; returns whether it had crashed or was hanging."""
        assert self._process.stdout is not None
        self._process.stdout.close()
        try:
            self._process.wait(timeout=10.0)
            return "crash"
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return "hang"


# -- changes: each writes a file, and returns what must stay equal ----------------------------

Change = Callable[[random.Random, Path, Path], str]
"""Makes a changed file from a whole one. Returns what a run must give: "same" if any form runs;
"same from stablehlo" or "same from graph" if that form runs; or "any"."""


def damaged(rng: random.Random, whole: Path, path: Path) -> str:
    path.write_bytes(scramble(rng, whole.read_bytes()))
    return "same"


def damaged_directory(rng: random.Random, whole: Path, path: Path) -> str:
    path.write_bytes(mutations.with_other_fields(rng, whole.read_bytes()))
    return "same"


def container_tricks(rng: random.Random, whole: Path, path: Path) -> str:
    """Links, folders, compressed members, names that lead outside, duplicate members."""
    manifest, members = container.read(whole)
    contents = {name: bytes(data) for name, data in members.items()}
    text = json.dumps(manifest).encode()
    match rng.randrange(7):
        case 0:
            path.symlink_to(rng.choice([whole, path, path.parent, Path("/dev/zero")]))
        case 1:
            path.mkdir()
            with zipfile.ZipFile(whole) as archive:
                archive.extractall(path)
        case 2:  # a bomb: small in the file, large after extraction
            contents[rng.choice([*contents, "bomb"])] = bytes(rng.choice([10, 10**7]))
            write_zip(path, text, contents)
            with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
                archive.writestr(rng.choice(["bomb", WEIGHTS]), bytes(10**7))
        case 3:
            contents[rng.choice(["../x", "/etc/x", "a/../../x", "a\\x", "x/", "."])] = b"x"
            write_zip(path, text, contents)
        case 4:  # a member that is marked as a link
            write_zip(path, text, contents)
            with zipfile.ZipFile(path, "a") as archive:
                info = zipfile.ZipInfo(rng.choice([*contents, "link"]))
                info.external_attr = 0o120777 << 16
                archive.writestr(info, "/etc/passwd")
        case 5:
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
                for name in zipfile.ZipFile(whole).namelist():
                    archive.writestr(name, zipfile.ZipFile(whole).read(name))
        case 6:
            names = [*contents]
            rng.shuffle(names)
            write_zip(path, text, {name: contents[name] for name in names})
            path.write_bytes(rng.randbytes(rng.choice([0, 1, 30])) + path.read_bytes())
    return "same"


def edited_manifest(rng: random.Random, whole: Path, path: Path) -> str:
    forge(whole, path, lambda manifest: edit(rng, manifest))
    return "any"


def edited_graph(rng: random.Random, whole: Path, path: Path) -> str:
    program, arrays = from_bytes(member(whole, GRAPH))
    edit(rng, program)
    text = np.frombuffer(json.dumps(program).encode(), np.uint8)
    data = safetensors.numpy.save({**arrays, "manifest": text})
    if rng.random() < 0.2:
        data = scramble(rng, data)
    by_graph = rng.random() < 0.7
    forge(whole, path, _by_graph if by_graph else lambda manifest: None, {GRAPH: data})
    return "any" if by_graph else "same from stablehlo"


def _by_graph(manifest: dict[str, Any]) -> None:
    manifest["signatures"]["f"]["convention"] = 99


def damaged_program(rng: random.Random, whole: Path, path: Path) -> str:
    """Changes the model without a loop, as `edited_program` does."""
    whole = whole.with_name("straight.gcx")
    forge(whole, path, replaced={STABLEHLO: scramble(rng, member(whole, STABLEHLO))})
    return "same from graph"


def damaged_weights(rng: random.Random, whole: Path, path: Path) -> str:
    data = scramble(rng, member(whole, WEIGHTS))
    if rng.random() < 0.5:
        forge(whole, path, replaced={WEIGHTS: data})  # each value's checksum is correct too
        return "any"
    manifest, members = container.read(whole)
    contents = {name: bytes(part) for name, part in members.items()} | {WEIGHTS: data}
    rows = {row["name"]: dict(row) for row in manifest["variables"]}

    def keep(changed: dict[str, Any]) -> None:
        for row in changed["variables"]:
            row.update(rows[row["name"]])

    forge(whole, path, keep, contents)
    return "same"


def swapped_members(rng: random.Random, whole: Path, path: Path) -> str:
    names = [WEIGHTS, STABLEHLO, GRAPH]
    other = rng.choice(names)
    name = rng.choice([n for n in names if n != other])
    replaced = {name: member(whole, other)}
    if rng.random() < 0.5:
        replaced[other] = member(whole, name)
    try:
        forge(whole, path, replaced=replaced)
    except (ValueError, KeyError):  # other members have no checksums to repair
        contents = {n: bytes(d) for n, d in container.read(whole)[1].items()} | replaced
        write_zip(path, json.dumps(container.read(whole)[0]).encode(), contents)
    if WEIGHTS in replaced:
        return "any"
    kept = {"stablehlo": STABLEHLO, "graph": GRAPH}
    forms = [form for form, member in kept.items() if member not in replaced]
    return f"same from {forms[0]}" if forms else "any"


def hostile_program(rng: random.Random, whole: Path, path: Path) -> str:
    """A valid but hostile program, in a separate file."""
    plain = whole.with_name("plain.gcx")
    while True:
        try:
            hostile.forge_program(plain, path, hostile.random_program(rng))
            return "same from graph"
        except Exception:  # MLIR refuses this text: try another
            continue


def edited_program(rng: random.Random, whole: Path, path: Path) -> str:
    """A model's own program with changed words, or with another record of it by JAX.

    The model has no loop: a changed loop may never end, and this test does not prevent that.
    """
    whole = whole.with_name("straight.gcx")
    record: dict[str, Any] = {}
    if rng.random() < 0.3:
        lies = [
            ("nr_devices", rng.choice([0, 2, 4])),
            ("module_kept_var_idx", tuple(rng.sample(range(5), rng.randrange(4)))),
            ("out_tree", jax.tree.structure(rng.choice([0, (0, 0), {"a": 0}, [[0], 0]]))),
            ("in_tree", jax.tree.structure(((0,) * rng.randrange(5), {}))),
            ("platforms", rng.choice([("cuda",), ("cpu", "cuda"), ()])),
            ("uses_global_constants", rng.random() < 0.5),
            ("calling_convention_version", rng.choice([0, 9, 10, 99])),
            ("fun_name", rng.choice(["", "main", "a b", "f" * 1000])),
        ]
        record = dict(rng.sample(lies, rng.choice([1, 1, 2])))
    text = jax.export.deserialize(bytearray(member(whole, STABLEHLO))).mlir_module()
    for tried in itertools.count():
        try:
            changed = hostile.with_other_words(rng, text)
            hostile.forge_program(whole, path, changed, **(record if tried < 30 else {}))
            break
        except Exception:  # MLIR refuses this text, or JAX this record: try another
            continue
    return "same from graph"


KINDS: list[tuple[str, Change]] = [
    ("bytes of the file", damaged),
    ("hostile StableHLO", hostile_program),
    ("manifest", edited_manifest),
    ("graph", edited_graph),
    ("zip directory", damaged_directory),
    ("edited StableHLO", edited_program),
    ("bytes of StableHLO", damaged_program),
    ("links, bombs, names", container_tricks),
    ("bytes of weights", damaged_weights),
    ("members swapped", swapped_members),
]


# -- one round, in the worker ---------------------------------------------------------------


@dataclass
class _Run:
    """The outcome of a run: each result and new weight by name, and the form that ran."""

    values: dict[str, np.ndarray[Any, Any]]
    way: str
    consistent: bool


def _run(path: Path) -> _Run:
    model = gc.load(path, limits=LIMITS)
    point = model.signatures["f"]
    x = mutations.X if "batch" in str(next(iter(point.inputs.values()))) else np.ones((2, 2), "f4")
    if point.updates_state:
        results, state = point(model.state(), x=x)
    else:
        results, state = point(x=x), model.state()
    values = {f"result {name}": np.asarray(value) for name, value in results.items()}
    values |= {name: np.asarray(state[name]) for name in state}
    types = {f"result {name}": type for name, type in point.outputs.items()}
    types |= dict(model.variables)
    consistent = values.keys() == types.keys() and all(
        value.dtype == types[name].dtype
        and len(value.shape) == len(types[name].shape)
        and all(
            a == b for a, b in zip(value.shape, types[name].shape, strict=True) if type(b) is int
        )
        for name, value in values.items()
    )
    return _Run(values, point.way, consistent)


def _outcome(change: Change, rng: random.Random, whole: Path, path: Path) -> tuple[str, str]:
    expected = change(rng, whole, path)
    try:
        found = _run(path)
    except DOCUMENTED as error:
        return ("refused", "") if error.what and "\n" not in error.what else ("undocumented", "")
    except jax.errors.JaxRuntimeError as error:
        return ("late", "") if "RESOURCE_EXHAUSTED" in str(error) else ("undocumented", str(error))
    except Exception as error:
        return "undocumented", repr(error)
    names = {
        hostile_program: "plain.gcx",
        edited_program: "straight.gcx",
        damaged_program: "straight.gcx",
    }
    original = _ORIGINAL[names.get(change, "whole.gcx")]
    same = found.values.keys() == original.keys() and all(
        np.array_equal(found.values[name], value, equal_nan=True)
        for name, value in original.items()
    )
    if not found.consistent:
        return "silent", "values do not have the types that the file states"
    if same:
        return "same", ""
    must = expected == "same" or expected == f"same from {found.way}"
    return (
        ("silent", f"{expected}, and {found.way} gave something else") if must else ("another", "")
    )


_ORIGINAL: dict[str, dict[str, np.ndarray[Any, Any]]] = {}


def _work(folder: Path, first: int, end: int) -> None:
    """Runs rounds, and reports each in a line of JSON."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries is no reply
    whole = folder / "whole.gcx"
    if not whole.exists():
        hostile.plain_model(folder / "plain.gcx")
        mutations.write_model(folder / "straight.gcx", loops=False)
        mutations.write_model(whole)
    for one in ("whole.gcx", "plain.gcx", "straight.gcx"):
        _ORIGINAL[one] = _run(folder / one).values
    _compile_once()
    for seed in range(first, end):
        kind, change = KINDS[seed % len(KINDS)]
        path = folder / "model.gcx"
        _remove(path)  # left by a round that ended its worker
        outcome, why = _outcome(change, random.Random(seed), whole, path)
        print(json.dumps({"kind": kind, "outcome": outcome, "why": why[:300]}), file=replies)
        replies.flush()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _compile_once() -> None:
    """Compiles each program once, and shortens the time to wait for unreadable programs."""
    known: dict[str, Any] = {}

    def compiled(key: dict[str, str], *arguments: Any) -> Any:
        text = json.dumps(key)
        if text not in known:
            known[text] = compiled_program(key, *arguments)
        return known[text]

    ways.compiled_program = compiled  # type: ignore[attr-defined]
    safe_reading._SECONDS = 2.0


if __name__ == "__main__":
    _work(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
