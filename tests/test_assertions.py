"""Every test asserts something, itself or through a function of the tests."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
# Calls outside the tests that raise an error if something is wrong.
CHECKS = {"raises", "warns", "fail", "verify"}
# `subprocess.run(..., check=True)`: the script in the subprocess asserts.
KEYWORD = "check"
# Functions of the benchmarks that check results before they measure.
BY_BENCHMARKS = [
    "benchmarks/test_peers.py: test_same_losses",
    "benchmarks/test_transformer.py: test_all_forms_give_the_same_losses",
]


def asserts(node: ast.AST) -> bool:
    if isinstance(node, (ast.Assert, ast.Raise)):
        return True
    if not isinstance(node, ast.Call):
        return False
    if any(k.arg == KEYWORD and getattr(k.value, "value", None) is True for k in node.keywords):
        return True
    return name_of(node) in CHECKS or name_of(node).startswith("assert_")


def name_of(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def without_assertion(root: Path) -> list[str]:
    """The tests below `root` that assert nothing, directly or through other functions."""
    used: dict[tuple[str, str], set[tuple[str, str]]] = {}  # (file, name) -> the names it uses
    strong: set[tuple[str, str]] = set()
    for path in sorted(root.rglob("*.py")):
        file, tree = path.relative_to(root).as_posix(), ast.parse(path.read_text())
        homes = dict(imported(tree))
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                inside = list(ast.walk(node))
                names = {n.id for n in inside if isinstance(n, ast.Name)}
                used[file, node.name] = {(homes.get(name, file), name) for name in names}
                if any(map(asserts, inside)):
                    strong.add((file, node.name))
    while more := {key for key, uses in used.items() if uses & strong} - strong:
        strong |= more
    tests = [key for key in used if key[1].startswith("test_")]
    return [f"{file}: {name}" for file, name in tests if (file, name) not in strong]


def imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Each name that a file imports from another test file, and that file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests."):
            file = (node.module or "").removeprefix("tests.").replace(".", "/") + ".py"
            yield from ((alias.asname or alias.name, file) for alias in node.names)


def test_every_test_asserts() -> None:
    assert without_assertion(TESTS) == BY_BENCHMARKS


def test_the_reader_follows_helpers_and_finds_tests_that_only_run(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "def deep(x):\n    assert x\n"
        "def helper(x):\n    deep(x)\n"
        "def test_by_helper():\n    helper(1)\n"
        "def test_near():\n    assert_near(1, 1)\n"
        "def test_runs():\n    print(1)\n"
    )
    assert without_assertion(tmp_path) == ["test_it.py: test_runs"]
