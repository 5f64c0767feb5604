"""Imports have one direction: a reader of all imports of graphc, and tests of this reader.

The direction is `ORDER`, as in docs/architecture.md. It applies to imports at any depth: in
functions, in branches, and for type checkers only. The latter may be part of a cycle, since they
never run.
"""

import ast
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ORDER = (
    "_version, errors, closing, collection, exports, interrupts, keyed, web "
    "<- copying, config, jax_internals "
    "<- store <- ir <- typing <- ops <- autodiff <- build <- jaxpr <- nn, optim <- metrics "
    "<- passes <- devices <- lowering <- runtime <- checkpoints, untrusted <- artifacts, data "
    "<- train, reports, jitted "
    "<- divergence <- importers, exporters, sklearn <- serving, cluster <- cli <- __main__"
)
# The order of folders and files within a layer. A folder may import only from earlier ones.
INNER_ORDERS = {
    "ops": (
        "core <- structure <- elementwise <- arrays <- reductions <- control <- matrices "
        "<- scipy_api <- numpy_api <- draws <- nn <- tasks "
        "<- fft, linalg, random, catalogue, methods"
    ),
    "passes": (
        "core <- simplify <- precision, rolling, memory, attention, sparse, frozen "
        "<- cpu, gpu <- manager <- pipelines, pass_filter"
    ),
    "runtime": (
        "core <- feeds <- buffers <- hlo <- targets <- pipeline <- state <- step <- tuning "
        "<- workers <- session <- freezing, largest_batch"
    ),
    "nn": "functional <- layers <- recurrent, transformer",
    "cluster": (
        "spec, progress, on_ray, remote_programs <- detection, parameter_servers, remote_tasks "
        "<- joining, processes <- launching <- jobs"
    ),
    "data": (
        "core, records, pump, batches, bucketing <- prefetching, sources, workers <- stages "
        "<- iterator <- pipeline <- readers"
    ),
    "importers": (
        "core <- onnx, stablehlo, torch <- tensorflow <- tflite <- files "
        "<- artifacts, originals, recorded"
    ),
    "exporters": "core <- iree, onnx, safetensors, saved_model, stablehlo",
    "serving": (
        "config_checks, time_limits <- config, failures <- protocol, batching <- models "
        "<- endpoints, streams <- transports <- client_sessions <- server, client"
    ),
}


def ranks(order: str) -> dict[str, int]:
    groups = enumerate(order.split("<-"))
    return {name.strip(): rank for rank, group in groups for name in group.split(",")}


RANK = ranks(ORDER)
INNER_RANKS = {layer: ranks(order) for layer, order in INNER_ORDERS.items()}
# Top-level folders that are also packages of graphc, through symlinks.
LINKED = ("passes", "devices")

REPOSITORY = Path(__file__).parents[1]


@dataclass(frozen=True)
class Import:
    """One imported name: `source` imports `target`, both modules by their full dotted names."""

    source: str
    target: str
    where: str  # file:line
    typing_only: bool = False

    def __str__(self) -> str:
        return f"{self.where}: {self.source} -> {self.target}"


def modules_of(root: Path) -> dict[str, Path]:
    """Every module of graphc under `root`, by its dotted name. Links are not followed."""
    folders = {"graphc": root / "graphc"} | {f"graphc.{name}": root / name for name in LINKED}
    modules = {}
    for package, folder in folders.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            if package == "graphc" and parts[0] in LINKED:
                continue
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            modules[".".join((package, *parts))] = path
    return modules


class _Reader(ast.NodeVisitor):
    """Collects the imports of one module."""

    def __init__(self, module: str, path: Path, root: Path, known: Iterable[str]) -> None:
        self.module = module
        self.package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        self.file = path.relative_to(root).as_posix()
        self.known = frozenset(known)
        self.typing_only = False
        self.imports: list[Import] = []

    def add(self, node: ast.AST, target: str) -> None:
        where = f"{self.file}:{node.lineno}"  # type: ignore[attr-defined]
        self.imports.append(Import(self.module, target, where, self.typing_only))

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            binds_root = alias.asname is None and alias.name.startswith("graphc.")
            self.add(node, "graphc" if binds_root else alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = node.module or ""
        if node.level:
            parents = self.package.split(".")[: 1 - node.level or None]
            base = ".".join([*parents, *filter(None, [base])])
        for alias in node.names:
            member = f"{base}.{alias.name}"
            self.add(node, member if member in self.known or member == "jax._src" else base)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if ast.unparse(node) == "jax._src":
            self.add(node, "jax._src")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        function = ast.unparse(node.func)
        if function in ("import_module", "importlib.import_module", "__import__") and node.args:
            argument = node.args[0]
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                self.add(node, argument.value)
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) not in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            self.generic_visit(node)
            return
        outside, self.typing_only = self.typing_only, True
        for statement in node.body:
            self.visit(statement)
        self.typing_only = outside
        for statement in node.orelse:
            self.visit(statement)


def imports_of(root: Path) -> Iterator[Import]:
    """Every import in a graphc module under `root`, at any depth."""
    modules = modules_of(root)
    for module, path in modules.items():
        reader = _Reader(module, path, root, modules)
        reader.visit(ast.parse(path.read_text(encoding="utf-8"), str(path)))
        yield from reader.imports


def layer_of(module: str) -> str:
    return module.split(".")[1]


def objection(edge: Import) -> str | None:
    """The error of a single import, or None."""
    top = edge.target.partition(".")[0]
    if top in LINKED:
        return f"the bare name `{top}`: import graphc.{top}"
    private = edge.target == "jax._src" or edge.target.startswith("jax._src.")
    if private and edge.source != "graphc.jax_internals":
        return "`jax._src` is private to JAX"
    if top != "graphc" or edge.source == "graphc":
        return None  # another library; or the facade, which imports everything
    if edge.target == "graphc":
        return "imports the root from inside the package: import the part that is meant"
    source, target = layer_of(edge.source), layer_of(edge.target)
    unknown = [layer for layer in (source, target) if layer not in RANK]
    if unknown:
        return f"`{unknown[0]}` has no place in ORDER of tests/test_layering.py"
    if source == target:
        return inner_objection(edge)
    if RANK[target] < RANK[source]:
        return None
    beside = "stands beside" if RANK[target] == RANK[source] else "comes after"
    return f"against the direction: `{target}` {beside} `{source}`"


def inner_objection(edge: Import) -> str | None:
    """The error of an import inside one layer, or None."""
    layer = layer_of(edge.source)
    rank = INNER_RANKS.get(layer)
    source, target = edge.source.split(".")[2:3], edge.target.split(".")[2:3]
    if rank is None or not source or not target or source == target:
        return None
    unknown = [name for name in (*source, *target) if name not in rank]
    if unknown:
        return f"`{layer}/{unknown[0]}` has no place in INNER_ORDERS of tests/test_layering.py"
    if rank[target[0]] < rank[source[0]]:
        return None
    beside = "stands beside" if rank[target[0]] == rank[source[0]] else "comes after"
    return f"against the direction in `{layer}`: `{target[0]}` {beside} `{source[0]}`"


def circles(edges: Iterable[Import]) -> list[list[Import]]:
    """Cycles of imports that run, one for each import that closes a cycle."""
    graph: dict[str, list[Import]] = {}
    for edge in edges:
        if not edge.typing_only and edge.source != edge.target:
            graph.setdefault(edge.source, []).append(edge)
    found: list[list[Import]] = []
    path: list[Import] = []
    done: set[str] = set()

    def visit(module: str) -> None:
        on_path = [edge.source for edge in path]
        if module in on_path:
            found.append(path[on_path.index(module) :])
        elif module not in done:
            for edge in graph.get(module, ()):
                path.append(edge)
                visit(edge.target)
                path.pop()
            done.add(module)

    for module in list(graph):
        visit(module)
    return found


def violations(root: Path) -> list[str]:
    """All wrong imports of graphc under `root`, with one text for each."""
    edges = list(dict.fromkeys(imports_of(root)))
    single = [f"{edge}: {text}" for edge in edges if (text := objection(edge))]
    return single + [
        "a circle of imports:" + "".join(f"\n    {edge}" for edge in circle)
        for circle in circles(edges)
    ]


def test_imports_point_one_way() -> None:
    found = violations(REPOSITORY)
    assert not found, "\n" + "\n".join(found)


def test_every_module_is_read() -> None:
    modules = modules_of(REPOSITORY)
    assert {"graphc", "graphc.errors", "graphc.passes", "graphc.devices"} <= modules.keys()
    for name in LINKED:
        assert (REPOSITORY / "graphc" / name).resolve() == REPOSITORY / name


def test_the_linked_folders_are_never_imported_by_their_bare_names() -> None:
    assert not sys.modules.keys() & {*LINKED}


def tree(root: Path, sources: dict[str, str]) -> None:
    """Writes each source to its path under `root`."""
    for name, source in sources.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)


@pytest.mark.parametrize(
    "source",
    [
        "from graphc.ops import add",
        "import graphc.ops as o",
        "from ..ops import add",
        "from .. import ops",
        "from graphc import ops",
        "def f():\n    from graphc.ops.elementwise.transcendental import add",
        "class C:\n    if x:\n        from graphc.ops import add",
        "try:\n    import graphc.ops.fft as m\nexcept ImportError:\n    pass",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from graphc.ops import add",
        "import importlib\nimportlib.import_module('graphc.ops')",
    ],
)
def test_an_import_against_the_direction_is_found(tmp_path: Path, source: str) -> None:
    tree(
        tmp_path,
        {
            "graphc/ir/node.py": source,
            "graphc/ops/__init__.py": "",
            "graphc/ops/elementwise/transcendental.py": "",
        },
    )
    (text,) = violations(tmp_path)
    line = next(i for i, row in enumerate(source.splitlines(), 1) if "ops" in row)
    assert text.startswith(f"graphc/ir/node.py:{line}: graphc.ir.node -> graphc.ops")
    assert text.endswith("against the direction: `ops` comes after `ir`")


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("import graphc", "imports the root"),
        ("import graphc as gc", "imports the root"),
        ("from graphc import Session", "imports the root"),
        ("import graphc.ir.graph", "imports the root"),
        ("import passes", "bare name `passes`"),
        ("import devices.placer", "bare name `devices`"),
        ("from devices import placer", "bare name `devices`"),
        ("from passes.base import Pass", "bare name `passes`"),
        ("from graphc.optim import minimize", "`optim` stands beside `nn`"),
        ("from graphc.tools import x", "`tools` has no place in ORDER"),
        ("import jax._src.core", "private to JAX"),
        ("import jax._src.core as c", "private to JAX"),
        ("from jax import _src", "private to JAX"),
        ("from jax._src import core", "private to JAX"),
        ("from jax._src.lib import xla", "private to JAX"),
        ("import jax\njax._src.core.x(1)", "private to JAX"),
    ],
)
def test_a_forbidden_import_is_found(tmp_path: Path, source: str, text: str) -> None:
    tree(tmp_path, {"graphc/nn/layers.py": source})
    (found,) = violations(tmp_path)
    assert found.startswith("graphc/nn/layers.py:")
    assert text in found


def test_one_file_may_import_what_is_private_to_jax(tmp_path: Path) -> None:
    tree(tmp_path, {"graphc/jax_internals.py": "from jax._src import distributed"})
    assert not violations(tmp_path)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("from graphc.ops.control.scan import scan", "`control` comes after `arrays`"),
        ("from graphc.ops.catalogue import FUNCTIONS", "`catalogue` comes after `arrays`"),
        ("from graphc.ops.attic.old import f", "`ops/attic` has no place in INNER_ORDERS"),
    ],
)
def test_an_import_against_the_order_inside_a_layer_is_found(
    tmp_path: Path, source: str, text: str
) -> None:
    tree(
        tmp_path,
        {
            "graphc/ops/arrays/shape.py": source,
            "graphc/ops/arrays/slicing.py": "from graphc.ops.arrays.shape import reshape",
        },
    )
    (found,) = violations(tmp_path)
    assert found.startswith("graphc/ops/arrays/shape.py:1:")
    assert text in found


def test_what_is_allowed_passes(tmp_path: Path) -> None:
    tree(
        tmp_path,
        {
            "graphc/__init__.py": "from graphc import errors\nfrom graphc.cli import main",
            "graphc/errors.py": "import jax\nfrom jax import numpy",
            "graphc/config.py": "from graphc.errors import GraphcError",
            "graphc/ir/graph.py": "from graphc.ir.node import Node\nfrom graphc import errors",
            "graphc/ir/node.py": (
                "from typing import TYPE_CHECKING\n"
                "if TYPE_CHECKING:\n    from graphc.ir.graph import Graph"
            ),
            "graphc/cli.py": "from graphc.passes.manager import X\nfrom graphc.ir import graph",
            "passes/core/base.py": "from graphc.ir.graph import Graph",
            "devices/placer.py": "from graphc.passes.core.base import Pass",
        },
    )
    assert violations(tmp_path) == []


def test_linked_folders_are_read_where_they_lie(tmp_path: Path) -> None:
    tree(
        tmp_path,
        {
            "graphc/__init__.py": "",
            "passes/core/base.py": "\nfrom graphc.devices.placer import place",
        },
    )
    (tmp_path / "graphc" / "passes").symlink_to("../passes")
    (text,) = violations(tmp_path)
    assert text.startswith(
        "passes/core/base.py:2: graphc.passes.core.base -> graphc.devices.placer"
    )


def test_a_circle_is_found(tmp_path: Path) -> None:
    tree(
        tmp_path,
        {
            "graphc/ir/a.py": "from graphc.ir.b import x",
            "graphc/ir/b.py": "def f():\n    from graphc.ir import c",
            "graphc/ir/c.py": "import graphc.ir.a as a",
        },
    )
    (text,) = violations(tmp_path)
    assert text.splitlines() == [
        "a circle of imports:",
        "    graphc/ir/a.py:1: graphc.ir.a -> graphc.ir.b",
        "    graphc/ir/b.py:2: graphc.ir.b -> graphc.ir.c",
        "    graphc/ir/c.py:1: graphc.ir.c -> graphc.ir.a",
    ]


def test_a_module_that_imports_its_own_package_makes_a_circle(tmp_path: Path) -> None:
    tree(
        tmp_path,
        {
            "graphc/ir/__init__.py": "from graphc.ir.node import Node",
            "graphc/ir/node.py": "from graphc.ir import Graph",
        },
    )
    (text,) = violations(tmp_path)
    assert "graphc/ir/node.py:1: graphc.ir.node -> graphc.ir" in text
