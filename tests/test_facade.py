"""The public interface: lazy, complete, typed, and without names of submodules."""

import ast
import inspect
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from types import FunctionType, ModuleType
from typing import get_type_hints

import pytest

import graphc as gc
from graphc import exports, ops

PACKAGE = Path(gc.__file__).parent
HOMES = gc._HOMES | dict.fromkeys(ops.__all__, "ops")

# Those of the design; the files in the folder are added to them.
SUBMODULES = {
    *("artifacts", "autodiff", "build", "cli", "config", "data", "devices", "errors", "importers"),
    *("ir", "jaxpr", "lowering", "nn", "ops", "optim", "passes", "runtime", "serving", "train"),
} | {path.stem for path in PACKAGE.iterdir() if path.suffix in ("", ".py")}


# Namespaces of functions that are not in the package itself: gc.random.normal.
NAMESPACES = {"fft", "linalg", "random"}

# Modules that collect the public names of their families.
FACES = (ops, gc.linalg, gc.random, gc.nn)

# Functions that make nodes and take `name=` as public ones do, but serve other families, layers or
# methods of tensors.
INTERNAL = {
    "assign",
    "batch_norm_training",
    "emit",
    "emit_node",
    "gather_at",
    "igamma_grad_a",
    "local_batch_norm",
    "pad_with",
    "random_gamma_grad",
    "repeat",  # of `arrays.shape`, by one number
    "scatter_at",
    "sigmoid_cross_entropy",  # these three of `ops.nn.loss`; users have those of `gc.nn`
    "softmax_cross_entropy",
    "sparse_softmax_cross_entropy",
    "slice_",
    "take_for",
    "undifferentiable",
    "unique_rows",
    "with_gradient",
}


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
            if alias.name == "*":
                names |= dict.fromkeys(import_module(f"graphc.{home}").__all__, home)
                continue
            assert alias.asname == alias.name, f"write `{alias.name} as {alias.name}`"
            names[alias.name] = home
    return names


def families() -> Iterator[ModuleType]:
    """The modules of operators and layers that export public names to one of `FACES`."""
    for package in (ops, gc.nn):
        for info in walk_packages(package.__path__, package.__name__ + "."):
            module = import_module(info.name)
            if module not in (*FACES, gc.fft, gc.nn.initializers):  # these are separate namespaces
                yield module


def test_type_checkers_see_what_is_there() -> None:
    assert names_for_type_checkers() == HOMES


def test_type_checkers_take_no_more_names_from_the_operators() -> None:
    imports = [
        alias.asname or alias.name
        for node in ast.parse(inspect.getsource(ops)).body
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    ]
    public = {name for name in imports if not name.startswith("_")}
    assert public == {"*", *NAMESPACES, "log_softmax", "softmax"}


@pytest.mark.parametrize("name", HOMES)
def test_every_name_is_there(name: str) -> None:
    is_module = HOMES[name] == "." or name in NAMESPACES
    found = getattr(gc, name)
    assert isinstance(found, ModuleType) == is_module
    if is_module:
        assert found.__name__.startswith("graphc.")
    else:  # the object in the table's module
        assert found is getattr(import_module(f"graphc.{HOMES[name]}"), name)


def test_all_and_dir_name_the_public_surface() -> None:
    assert gc.__all__ == dir(gc) == sorted(["__version__", *HOMES])


@pytest.mark.parametrize("name", ops.__all__)
def test_type_hints_can_be_resolved(name: str) -> None:
    """Documentation tools and notebooks resolve type hints."""
    value = getattr(ops, name)
    if isinstance(value, FunctionType):
        assert "return" in get_type_hints(value)


def test_no_name_has_two_homes() -> None:
    assert not gc._HOMES.keys() & set(ops.__all__)


@pytest.mark.parametrize("name", HOMES)
def test_only_submodules_bear_the_name_of_a_submodule(name: str) -> None:
    assert (name in SUBMODULES) == (HOMES[name] == "."), (
        f"gc.{name} would be the function first and the module later"
    )


def test_every_operator_is_exported_by_one_family() -> None:
    exported = Counter(
        name
        for family in families()
        if f"from {family.__name__} import *" in inspect.getsource(ops)
        for name in family.__all__
    )
    taken = {"log_softmax", "softmax"}  # of a family of `gc.nn`, imported by name
    assert exported == Counter({*ops.__all__} - taken)


def test_a_family_exports_what_it_defines_to_one_face() -> None:
    for family in families():
        line = f"from {family.__name__} import *"
        faces = [face.__name__ for face in FACES if line in inspect.getsource(face)]
        exported = getattr(family, "__all__", [])
        for name in exported:
            home = getattr(getattr(family, name), "__module__", family.__name__)
            assert home == family.__name__, f"{name} of {family.__name__} is imported there"
        assert len(faces) == bool(exported), (
            f"{family.__name__} must be in one face: `{line}`, in {faces}"
        )


def test_no_public_function_is_forgotten() -> None:
    exported = {id(getattr(face, name)) for face in (*FACES, gc.fft) for name in face.__all__}
    forgotten = set()
    for family in families():
        for name, value in vars(family).items():
            own = isinstance(value, FunctionType) and value.__module__ == family.__name__
            if own and not name.startswith("_") and id(value) not in exported:
                parameter = inspect.signature(value).parameters.get("name")
                if parameter is not None and parameter.kind is parameter.KEYWORD_ONLY:
                    forgotten.add(name)
    assert forgotten == INTERNAL, "put it in `__all__` of its family, or in INTERNAL here"


@pytest.mark.parametrize(
    "module",
    [
        gc.data,
        gc.devices,
        gc.errors,
        gc.fft,
        gc.linalg,
        gc.nn,
        gc.nn.initializers,
        gc.random,
        gc.serving,
        gc.sklearn,
        gc.train,
    ],
    ids=lambda module: module.__name__,
)
def test_a_namespace_has_public_names_only(module: ModuleType) -> None:
    assert sorted(module.__all__) == dir(module)
    for name in module.__all__:
        value = getattr(module, name)
        assert not name.startswith("_")
        assert not isinstance(value, ModuleType) or name == "initializers"
        assert getattr(value, "__module__", "graphc").startswith("graphc"), name


def test_every_error_is_exported() -> None:
    kinds = {name for name, value in vars(gc.errors).items() if isinstance(value, type)}
    assert kinds - {"Any", "Iterable", "Mapping", "Sequence"} == {*gc.errors.__all__}


def test_private_names_and_modules_are_not_collected() -> None:
    assert exports.names({"b": 1, "a": print, "_c": 2, "__d__": 3, "ast": ast}) == ["a", "b"]


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'graphc' has no attribute 'matmull'") as info:
        _ = gc.matmull
    assert "did you mean 'matmul'?" in str(info.value)
    assert info.value.obj is None  # Python uses this to add a suggestion


@pytest.mark.parametrize(
    "name", ["methods", "arrays", "catalogue", "structure", "unique_rows", "_x"]
)
def test_what_is_not_public_in_the_operators_is_not_in_the_facade(name: str) -> None:
    with pytest.raises(AttributeError, match=f"no attribute '{name}'"):
        getattr(gc, name)


def run(script: str) -> None:
    subprocess.run([sys.executable, "-c", script], check=True, cwd=PACKAGE.parent)


@pytest.mark.parametrize(
    ("use", "loaded"),
    [
        ("", ""),
        ("hasattr(graphc, '__wrapped__')", ""),
        ("from graphc import copying", "copying errors"),
        ("graphc.errors.ShapeError", "errors"),
    ],
)
def test_importing_graphc_loads_nothing_else(use: str, loaded: str) -> None:
    run(f"""
import sys
before = set(sys.modules)
import graphc
{use}
new = set(sys.modules) - before
others = {{name for name in new if name.partition(".")[0] not in sys.stdlib_module_names}}
parts = {{f"graphc.{{name}}" for name in "_version {loaded}".split()}}
assert others == {{"graphc", *parts}}, others
""")


def test_a_star_import_brings_every_name() -> None:
    run("""
import sys
from graphc import *
assert matmul and Session and random.normal and nn.Dense and sklearn
assert "sklearn" not in sys.modules  # scikit-learn: its estimators are imported when they are used
""")


def test_estimators_without_scikit_learn_name_the_extra() -> None:
    run("""
import importlib.util, sys
import graphc as gc
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *given: None if name == "sklearn" else found(name, *given)
try:
    from graphc.sklearn import Classifier
except ImportError as error:
    assert isinstance(error, gc.errors.MissingExtraError), error
    assert "pip install 'graphc[sklearn]'" in str(error), error
else:
    raise SystemExit("no error")
""")


def test_a_namespace_is_there_before_anything_else_was_used() -> None:
    run("import graphc as gc; assert gc.random.normal.__name__ == 'normal'")


def test_a_name_is_looked_up_once() -> None:
    run("import graphc as gc; assert 'exp' not in vars(gc); assert gc.exp is vars(gc)['exp']")
