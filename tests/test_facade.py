"""The public face: lazy, complete, typed, and free of names that a submodule bears."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import graphc as gc

PACKAGE = Path(gc.__file__).parent
HOMES = gc._HOMES

# Those of the design; what lies in the folder is added to them.
SUBMODULES = {
    *("artifacts", "autodiff", "build", "cli", "config", "data", "devices", "errors", "importers"),
    *("ir", "jaxpr", "lowering", "nn", "ops", "optim", "passes", "runtime", "serving", "train"),
} | {path.stem for path in PACKAGE.iterdir() if path.suffix in ("", ".py")}


# Namespaces of functions whose home is not the package itself: gc.random.normal.
NAMESPACES = {"fft", "linalg", "random"}


def names_for_type_checkers() -> dict[str, str]:
    """The imports under `if TYPE_CHECKING:` in the facade, in the form of its table."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    (block,) = (
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    names = {}
    for statement in block.body:
        assert isinstance(statement, ast.ImportFrom), ast.unparse(statement)
        home = (statement.module or "").removeprefix("graphc").removeprefix(".") or "."
        for alias in statement.names:
            assert alias.asname == alias.name, f"write `{alias.name} as {alias.name}`"
            names[alias.name] = home
    return names


def test_type_checkers_see_the_table() -> None:
    assert names_for_type_checkers() == HOMES


@pytest.mark.parametrize("name", HOMES)
def test_every_name_is_there(name: str) -> None:
    is_module = HOMES[name] == "." or name in NAMESPACES
    found = getattr(gc, name)
    assert isinstance(found, ModuleType) == is_module
    if is_module:
        assert found.__name__.startswith("graphc.")
    else:  # what the table's home has under this name
        assert found is getattr(import_module(f"graphc.{HOMES[name]}"), name)


def test_all_and_dir_name_the_public_surface() -> None:
    assert sorted(gc.__all__) == dir(gc) == sorted(["__version__", *HOMES])


@pytest.mark.parametrize("name", HOMES)
def test_only_submodules_bear_the_name_of_a_submodule(name: str) -> None:
    assert (name in SUBMODULES) == (HOMES[name] == "."), (
        f"gc.{name} would be the function first and the module later"
    )


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'graphc' has no attribute 'matmull'") as info:
        _ = gc.matmull
    assert info.value.obj is gc  # Python's "Did you mean: 'matmul'?" looks here


def test_importing_graphc_loads_nothing_else() -> None:
    script = """
import sys
from importlib import import_module
before = set(sys.modules)
import graphc
new = set(sys.modules) - before
others = {name for name in new if name.partition(".")[0] not in sys.stdlib_module_names}
assert others == {"graphc", "graphc._version"}, others
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=PACKAGE.parent)


def test_a_namespace_is_there_before_anything_else_was_used() -> None:
    script = "import graphc as gc; print(gc.random.normal.__name__)"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, check=True, cwd=PACKAGE.parent, capture_output=True, text=True)
    assert done.stdout == "normal\n"
