"""Programs of other packages (the extra `zoo`): they equal JAX, can be saved, and start again.

`test_it_equals_jax` compiles each program, compares it with JAX, and writes a file and an entry of
the executable cache. `test_it_starts_again` checks what a new process made of these.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

import graphc as gc
from tests.near import assert_near
from tests.zoo.programs import MODULES, Prepared, Program, all_programs, prepared_cache, words

REPOSITORY = Path(__file__).parents[2]
PROGRAMS = all_programs()

pytestmark = [
    pytest.mark.slow,
    pytest.mark.zoo,
    pytest.mark.filterwarnings("ignore"),
]


@cache
def missing(package: str) -> str:
    """Why a package cannot be imported; "" if it can."""
    try:
        importlib.import_module(package)
    except Exception as error:  # absent, or not yet for this JAX
        return f"{package}: {error}"
    return ""


def by_module(test: Any) -> Any:
    """Runs a test for each program. The programs of a module run in one process, in order."""
    rows = [
        pytest.param(p, id=p.name, marks=pytest.mark.xdist_group(f"zoo_{p.module}"))
        for p in sorted(PROGRAMS, key=lambda p: MODULES.index(p.module))
    ]
    return pytest.mark.parametrize("program", rows)(test)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of files and compiled programs. Afterwards JAX has no cache again: graphc does not
    store what comes from JAX's cache, so other tests would miss their entries."""
    found = tmp_path_factory.mktemp("zoo")
    settings = prepared_cache(found)
    yield found
    for name, value in settings.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@by_module
def test_it_equals_jax(program: Program, folder: Path) -> None:
    if why := missing(program.package):
        pytest.skip(why)
    prepared = Prepared(program)
    want = jax.tree.map(np.asarray, prepared.want())
    graph, xs, ys = prepared.graph()
    session = gc.Session(graph, options=gc.CompileOptions(cache=folder / "cache"))
    feeds = dict(zip(xs, prepared.values, strict=True))
    got = [np.asarray(y) for y in session.run(ys, feeds)]
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        assert a.dtype == b.dtype
        # Some gradients are zero except for rounding: that of the bias of an attention's keys.
        assert_near(a, b, program.rtol, 1e-5, err_msg=f"result {i} of {len(want)}")

    signature = gc.Signature(
        {x.node.name: x for x in xs if needed(x, graph, ys)},
        {f"y{i}": y for i, y in enumerate(ys)},
    )
    path = folder / f"{program.name}.gcx"
    if not program.saved:
        with pytest.raises(gc.errors.ArtifactError, match="calls a Python function"):
            gc.save(session, path, signatures={"run": signature}, platforms=["cpu"])
        return
    gc.save(session, path, signatures={"run": signature}, platforms=["cpu"])
    np.savez(folder / f"{program.name}.npz", **{f"y{i}": y for i, y in enumerate(got)})


def needed(x: Any, graph: gc.Graph, ys: list[Any]) -> bool:
    from graphc.ir.capture import choose

    return graph.producer(x) in choose(graph, ys, set())


@cache
def answers(folder: Path, module: str) -> dict[str, Any]:
    """The output of a new process for the programs of a module that this process has compiled."""
    names = [p.name for p in PROGRAMS if p.module == module and (folder / f"{p.name}.npz").exists()]
    subprocess.run(
        [sys.executable, "-m", "tests.zoo.restart", str(folder), *names],
        cwd=REPOSITORY,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        check=True,
    )
    found: dict[str, Any] = json.loads((folder / "answers.json").read_text())
    return found


@by_module
def test_it_starts_again(program: Program, folder: Path) -> None:
    if not (folder / f"{program.name}.npz").exists():
        pytest.skip("it was not compiled")
    answer = answers(folder, program.module)[program.name]
    assert "error" not in answer, answer["error"]
    assert answer["way"] == "stablehlo"
    assert answer["loaded"] <= program.rtol
    if program.ordered:
        assert answer["cached"] and answer["compiles"] == 0
        assert answer["imported"] == 0.0
    else:
        assert answer["imported"] <= program.rtol


@by_module
def test_gc_jit_equals_jax(program: Program, folder: Path) -> None:
    """The inputs and outputs are the same pytrees. JAX also takes its gradient."""
    if why := missing(program.package):
        pytest.skip(why)
    fn, args = program.make()
    jitted = gc.jit(fn, options=gc.CompileOptions(cache=folder / "cache"))
    want = jax.jit(fn)(*args)
    for _ in range(2):
        got = jitted(*args)
        assert jax.tree.structure(got) == jax.tree.structure(want)
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            assert a.dtype == b.dtype
            assert_near(words(a), words(b), program.rtol, 1e-5)
    assert jitted.notes == []
