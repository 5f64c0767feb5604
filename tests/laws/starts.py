"""Runs the programs of the second-start law in separate processes.

    python -m tests.laws.starts first FOLDER NAME...    compiles, stores and runs each program
    python -m tests.laws.starts second FOLDER NAME...   runs each from the stored form

The second process forks for each program, before JAX has a device or has lowered anything. Thus
each run is the first action of its process, but does not need to import JAX. A program that calls
external functions gets a process for each way. The results are JSON in FOLDER, by program and by
way: see `programs.Ready.ways`.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np

import graphc as gc
from graphc.ir.node import Node
from graphc.runtime.core.counters import COUNTERS
from graphc.runtime.hlo.custom_calls import targets_of
from graphc.runtime.targets.numerics import checked
from graphc.runtime.targets.scripts import CompiledPartition
from tests.artifacts.forge import entry, forge
from tests.laws.programs import CACHE, Ready, names_of, programs

_LOWERING = "/jax/core/compile/jaxpr_to_mlir_module_duration"
lowered: list[Any] = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, seconds, **facts: (
        event == _LOWERING
        # A `Lowered` node is lowered when it is imported, in every process.
        and facts["fun_name"] != "jit(graphc_lowered)"
        and lowered.append(facts)
    )
)


def digests(results: Any) -> list[str]:
    """A digest of each array in a nest: equal only for equal dtypes, shapes and bytes."""
    arrays = [np.asarray(leaf) for leaf in jax.tree.leaves(results)]
    return [
        f"{a.dtype.name} {a.shape} {hashlib.sha256(np.ascontiguousarray(a).tobytes()).hexdigest()}"
        for a in arrays
    ]


def session_of(ready: Ready, folder: Path) -> gc.Session:
    options = gc.CompileOptions(cache=folder / "cache", **ready.options)
    return gc.Session(ready.graph, strategy=ready.strategy, options=options)


def run(ready: Ready, session: gc.Session) -> list[str]:
    """The results of one call, and the state after it."""

    def call() -> Any:
        if ready.steps is not None:
            return session.run_steps(ready.fetches, ready.feeds, ready.steps)
        return session.run(ready.fetches, ready.feeds)

    if ready.aside:
        with ThreadPoolExecutor(1) as thread:
            results = thread.submit(call).result()
    else:
        results = call()
    return digests([results, session.values()])


def run_file(ready: Ready, folder: Path, name: str, way: str) -> list[str]:
    """The results of one call of the form `way` of the program in a file."""
    path = path_of(folder, name, "graph" if way == "graph" else "whole")
    model = gc.load(path, trust_native=way == "native", strategy=ready.strategy)
    point = model.signatures["run"]
    feeds = {tensor.node.name: array for tensor, array in ready.feeds.items()}
    results = point(model.state(), **feeds)[0] if point.updates_state else point(**feeds)
    if point.way != way:
        raise AssertionError(f"run as {point.way}: {point.notes}")
    return digests(results)


def path_of(folder: Path, name: str, kind: str = "whole") -> Path:
    return folder / f"{name.replace('/', '-')}-{kind}.gcx"


def save(ready: Ready, session: gc.Session, folder: Path, name: str) -> None:
    signature = gc.Signature(
        {tensor.node.name: tensor for tensor in ready.feeds},
        {f"y{i}": t for i, t in enumerate(ready.fetches) if not isinstance(t, Node)},
        updates=[node for node in ready.fetches if isinstance(node, Node)],
        replicated=ready.strategy is not None,
    )
    path = path_of(folder, name)
    gc.save(session, path, signatures={"run": signature}, platforms=("cpu",), native=True)

    def without_stablehlo(manifest: dict[str, Any]) -> None:
        entry(manifest, "run")["convention"] = 10**6  # no JAX reads this version

    if "graph" in ready.ways:
        forge(path, path_of(folder, name, "graph"), without_stablehlo)


def first(ready: Ready, folder: Path, name: str) -> dict[str, Any]:
    """The results of the first process."""
    session = session_of(ready, folder)
    if ready.ways != CACHE:
        save(ready, session, folder, name)
    found: dict[str, Any] = {"cache": run(ready, session)}
    for way in ready.ways:
        if way != "cache":
            found[way] = run_file(ready, folder, name, way)
    (step,) = session.executables
    compiled = step.stages.compiled
    parts = compiled.executables if isinstance(compiled, CompiledPartition) else [compiled]
    return found | {
        "ways": ready.ways,
        "kept": step.cache_key is not None,
        "targets": sorted({target for part in parts for target in targets_of(part)}),
        "operators": sorted({*ready.operators, *names_of(lowered_nodes(step))}),
    }


def lowered_nodes(step: gc.Executable) -> list[Node]:
    """The nodes that devices run after all passes: some operators are made only by the compiler."""
    if step.partition is not None:
        return [node for cluster in step.partition.clusters for node in cluster.program.nodes]
    local, _ = checked(step.stages.local, step.stages.compilation.options, "local")
    return list(local.nodes)


def second(ready: Ready, folder: Path, name: str, way: str) -> dict[str, Any]:
    """The results of a process that has done nothing before."""
    if lowered:
        raise AssertionError(f"{lowered[0]} was lowered before")
    if way != "cache":
        return {"results": run_file(ready, folder, name, way)}
    session = session_of(ready, folder)
    results = run(ready, session)
    (step,) = session.executables
    return {"results": results, "cached": step.cached, "compiles": COUNTERS.compiles}


def in_a_process(
    make: Callable[[], Ready], folder: Path, name: str, ways: Sequence[str]
) -> dict[str, Any]:
    """Runs `second` in a fork for each of `ways`; returns the results or the fork's exit status.
    The fork also makes the program, since JAX lowers some at import, in its own threads."""
    answer = folder / "answer"
    answer.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        try:
            ready = make()
            found = {way: second(ready, folder, name, way) for way in ways}
            answer.write_text(json.dumps(found))
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return json.loads(answer.read_text()) if status == 0 else {w: {"ended": status} for w in ways}


def runs(ways: Sequence[str], targets: Sequence[str]) -> list[Sequence[str]]:
    """The ways for each process: only programs with external calls need a process for each way."""
    return [[way] for way in ways] if targets else [ways]


def main() -> None:
    mode, folder, names = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
    makers = programs()
    found: dict[str, Any] = {}
    if mode == "first":
        for name in names:
            found[name] = first(makers[name](), folder, name)
    else:
        warnings.simplefilter("ignore")  # about forking: JAX has no threads yet
        was = json.loads((folder / "first.json").read_text())
        for name in names:
            found[name] = {}
            for ways in runs(was[name]["ways"], was[name]["targets"]):
                found[name] |= in_a_process(makers[name], folder, name, ways)
    (folder / f"{mode}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
