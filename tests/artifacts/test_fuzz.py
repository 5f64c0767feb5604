"""A thousand mutated artifacts: each returns the right outputs or raises a documented error.

Some are damaged as storage damages files. In the others every checksum fits, so that the code
behind the checksums is tested: hostile or meaningless manifests, directories, weights, graphs and
StableHLO. Those may contain other programs and weights, and so return other outputs.
"""

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

import graphc as gc
from graphc.artifacts import ways
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
from tests.artifacts.forge import forge, member
from tests.artifacts.mutations import (
    GRAPH,
    STABLEHLO,
    WEIGHTS,
    X,
    edit,
    scramble,
    with_other_fields,
    write_model,
)

# The errors of loading and running; the last two if a name or a type has changed.
DOCUMENTED = (ArtifactError, DeviceError, ExecutionError, FeedError, UnknownNameError)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A small model with a layer, a loop, a random stream and an open size."""
    path = tmp_path_factory.mktemp("whole") / "model.gcx"
    write_model(path)
    return path


@pytest.fixture(autouse=True)
def quick(monkeypatch) -> None:
    """Compiles each program only once, and shortens the time to wait for a reader."""
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
    arrays = [*results.values(), state["b"], state["w"]]  # the results may have other names
    return np.concatenate([np.ravel(array) for array in arrays])


def play(
    whole: Path,
    tmp_path: Path,
    count: int,
    mutate: Callable[[random.Random, Path], None],
    *,
    same: bool,
) -> Counter[str]:
    """Tries mutations; returns how often each outcome occurred."""
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
    data = whole.read_bytes()
    seen = play(
        whole,
        tmp_path,
        150,
        lambda rng, path: path.write_bytes(with_other_fields(rng, data)),
        same=True,
    )
    assert seen["refused"] > 50


# -- correct checksums ----------------------------------------------------------------------


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
    """StableHLO is read first in a separate process, which some of these programs crash."""
    members = {name: member(whole, name) for name in (WEIGHTS, STABLEHLO)}

    def mutate(rng: random.Random, path: Path) -> None:
        name = WEIGHTS if rng.random() < 0.2 else STABLEHLO
        forge(whole, path, replaced={name: scramble(rng, members[name])})

    seen = play(whole, tmp_path, 150, mutate, same=False)
    assert seen["loaded"] > 50  # programs with broken StableHLO run from the graph
