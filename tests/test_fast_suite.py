"""`make test` excludes slow tests. Still, it tests every operator, pass, example and
strategy."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphc.ops.catalogue import CATALOGUE
from tests.laws.test_laws import BY_OP, ELSEWHERE

ROOT = Path(__file__).parent.parent
STRATEGIES = ("DataParallel", "Mesh", "AsyncDataParallel")
IMPORTED = {"sources", "several_devices", "digits"}  # by the examples
DEMO = (ROOT / "examples" / "demo.py").read_text()


def is_slow(decorated: ast.FunctionDef) -> bool:
    return any(ast.unparse(d) == "pytest.mark.slow" for d in decorated.decorator_list)


def fast_source(path: Path) -> str:
    """A test file without its slow tests; "" if it has no others."""
    tree = ast.parse(path.read_text())
    tests = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name.startswith("test_")]
    if "pytest.mark.slow" in "".join(ast.unparse(n) for n in tree.body if is_pytestmark(n)):
        return ""
    if all(map(is_slow, tests)):
        return ""
    return "\n".join(ast.unparse(n) for n in tree.body if not (n in tests and is_slow(n)))


def is_pytestmark(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"


def fast_sources(folder: str) -> Iterator[str]:
    for path in sorted((ROOT / "tests" / folder).rglob("test_*.py")):
        yield fast_source(path)


def test_every_operator() -> None:
    """The law of values runs each operator that a user function can make."""
    assert "def test_values_types_and_round_trips" in fast_source(ROOT / "tests/laws/test_laws.py")
    assert CATALOGUE.keys() <= BY_OP.keys() | ELSEWHERE.keys()


@pytest.mark.parametrize(
    "example",
    sorted(p.stem for p in (ROOT / "examples").glob("*.py") if p.stem not in IMPORTED),
)
def test_every_example(example: str) -> None:
    example = "demo" if example in DEMO else example  # the demo runs it
    used = [s for s in fast_sources("examples") if example in s.split("def test_", 1)[-1]]
    assert used, f"no test without @pytest.mark.slow runs examples/{example}.py"


def passes() -> list[str]:
    """The classes of all passes."""
    trees = (ast.parse(path.read_text()) for path in (ROOT / "passes").glob("*.py"))
    return sorted(
        node.name
        for tree in trees
        for node in tree.body
        if isinstance(node, ast.ClassDef) and "Pass" in map(ast.unparse, node.bases)
    )


@pytest.mark.parametrize("name", passes())
def test_every_pass(name: str) -> None:
    folders = ("passes", "runtime", "devices")
    used = any(name in source for folder in folders for source in fast_sources(folder))
    assert used, f"no test without @pytest.mark.slow names the pass {name}"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy(strategy: str) -> None:
    used = [s for s in fast_sources("runtime") if f"{strategy}(" in s]
    assert used, f"no test without @pytest.mark.slow runs {strategy}"


def test_what_conftest_marks_one_jax_exists(request: pytest.FixtureRequest) -> None:
    conftest = request.config.pluginmanager.get_plugin(str(ROOT / "conftest.py"))
    assert conftest is not None
    assert [path for path in conftest._ONE_JAX if not (ROOT / path).exists()] == []


@pytest.mark.xdist_group("probe of groups")
def test_a_group_stays_in_one_process(request: pytest.FixtureRequest) -> None:
    """pytest-xdist 3.8 ignores groups with pytest 9.2 (its issue 1386): then each worker computes
    the fixtures that a group should share."""
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("needs --dist loadgroup")
    assert request.node.nodeid.endswith("@probe of groups")
