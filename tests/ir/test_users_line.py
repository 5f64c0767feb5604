"""`GraphcError.here` finds the user's line with `graphc.ir.source`, which must be loaded then."""

import ast
import functools
from collections.abc import Iterable, Iterator

import pytest

from tests.test_layering import REPOSITORY, modules_of

MODULES = modules_of(REPOSITORY)


def imported(body: Iterable[ast.stmt]) -> Iterator[str]:
    """What is imported when the module is."""
    for node in body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Try):
            yield from imported(node.body)


@functools.cache
def imports_of(module: str) -> tuple[str, ...]:
    return tuple(imported(ast.parse(MODULES[module].read_text()).body))


def loaded(module: str) -> set[str]:
    """The modules that are loaded with a module, and the folders that they are in."""
    found: set[str] = set()
    todo = [module]
    while todo:
        name = todo.pop()
        if name in found or name not in MODULES:
            continue
        found.add(name)
        todo += [name.rpartition(".")[0], *imports_of(name)]
    return found


@pytest.mark.slow
def test_modules_that_raise_errors_at_the_users_line_load_what_finds_it() -> None:
    users = [name for name, path in MODULES.items() if "Error.here(" in path.read_text()]
    assert len(users) > 100
    without = [
        name for name in users if name != "graphc.errors" and "graphc.ir.source" not in loaded(name)
    ]
    assert not without, "pass source=current_source() there"
