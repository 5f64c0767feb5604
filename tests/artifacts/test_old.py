"""Old files still load and return the same results: see `old/make.py`."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import jax
import pytest

import graphc as gc
from graphc.artifacts import container
from graphc.errors import ArtifactVersionError
from tests.artifacts.forge import forge
from tests.near import assert_near

OLD = Path(__file__).parent / "old"
FILES = sorted(OLD.glob("*.gcx"))
HERE = tuple(int(part) for part in jax.__version__.split(".")[:2])


def written_by(path: Path) -> tuple[int, ...]:
    """The version of JAX in a file's name."""
    return tuple(int(part) for part in path.stem.partition("jax")[2].split("."))


@pytest.fixture(scope="module")
def make() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_old_artifacts", OLD / "make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check(make: ModuleType, path: Path, results: Path) -> gc.artifacts.Model:
    model = gc.load(path)
    expected = json.loads(results.read_text())
    found = make.play(model)
    assert found.keys() == expected.keys()
    for name, value in found.items():
        assert_near(value, expected[name], rtol=1e-4, atol=1e-6, err_msg=name)
    return model


def test_there_are_files_of_every_version() -> None:
    found = {container.read(path)[0]["version"] for path in FILES}
    assert found == set(range(1, container.VERSION + 1))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_old_file_gives_what_it_gave(make: ModuleType, path: Path) -> None:
    if path.stem.startswith("v1") and written_by(path) > HERE:
        with pytest.raises(ArtifactVersionError, match="none of its forms can be used") as info:
            make.play(gc.load(path))
        assert "written by graphc 0.1.0, jax 0.12" in str(info.value)
        return
    model = check(make, path, path.with_suffix(".json"))
    ways = {point.way for point in model.signatures.values()}
    if written_by(path) <= HERE:
        assert ways == {"stablehlo"} and model.notes == []
    else:  # an older JAX reads some programs of a newer one, but none with open sizes
        assert model.signatures["predict"].way == "graph" and model.notes


@pytest.mark.parametrize("path", [p for p in FILES if p.stem[:2] > "v1"], ids=lambda p: p.stem)
def test_the_graph_in_an_old_file_gives_the_same(
    make: ModuleType, path: Path, tmp_path: Path
) -> None:
    """This applies when no JAX can read its StableHLO any more."""

    def age(manifest: dict) -> None:
        for entry in manifest["signatures"].values():
            entry["convention"] = 1

    forge(path, tmp_path / "aged.gcx", age)
    model = check(make, tmp_path / "aged.gcx", path.with_suffix(".json"))
    assert {point.way for point in model.signatures.values()} == {"graph"}
