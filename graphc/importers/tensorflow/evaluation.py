"""Walks a TensorFlow graph from the wanted results, and applies the rule of each node."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from graphc.build.context import control_dependencies
from graphc.errors import GraphcError, ModelFileError, ModelImportError
from graphc.importers.core.refusals import Refusal
from graphc.importers.core.weights import variable_name
from graphc.importers.tensorflow.graph import Edge, TFGraph, TFNode
from graphc.importers.tensorflow.registry import Call, Rule, Unsupported
from graphc.importers.tensorflow.values import REFUSED, Value, WeightValue, is_host
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.ir.scopes import AMBIENT, absolute_scope
from graphc.ir.variable import Variable
from graphc.ops.structure.state import identity
from graphc.train.tensorflow.tensors import broken

if TYPE_CHECKING:
    from graphc.importers.core.model import ImportedModel

_MOST_NODES = 1_000_000  # evaluated for one model: functions may call functions twice, and so on
_DEEPEST = 24  # functions, loops and branches inside each other


class Special(Protocol):
    """An operator whose inputs are not simply evaluated before it: those of control flow."""

    def needs(self, scope: Scope, node: TFNode) -> Iterable[Edge]:
        """What must be evaluated before."""
        return node.inputs

    def evaluate(self, scope: Scope, node: TFNode) -> Sequence[Value]:
        """The results."""


class Tables(Protocol):
    """The rules of all operators."""

    rules: Mapping[str, Rule]
    host: Mapping[str, Any]
    special: Mapping[str, Special]
    writes: frozenset[str]

    def results_of_strings(
        self, call: Call, rule: Rule, values: Sequence[Value]
    ) -> list[Value] | None:
        """The results of a node that takes strings which are known only in a run, or None."""


class Build:
    """What all scopes of one call of a model share.

    Attributes:
        model: whose variables the graph uses.
        tables: the rules.
        weights: the names of the constants that are weights.
        arrays: the values of all weights.
        variables: the names of the weights by the node that is their variable.
        assets: files by the node that has their name.
        tables_found: the lookup tables by name.
        refusals: what cannot be imported, as far as found.
        assigned: what was assigned, in order, each with the graph or body that it is in.
        depth: how many functions, loops and branches are open.
    """

    def __init__(
        self,
        model: ImportedModel,
        tables: Tables,
        weights: Collection[str],
        variables: Mapping[str, str],
        checking: bool,
        assets: Mapping[str, Path] | None = None,
    ) -> None:
        self.model = model
        self.tables = tables
        self.weights = weights
        self.arrays: Mapping[str, Any] = model.weights
        self.variables = variables
        self.assets = assets or {}
        self.tables_found: dict[str, Any] = {}
        self.refusals: list[Refusal] = []
        self.assigned: list[tuple[Graph, Tensor]] = []
        self.depth = 0
        self._checking = checking
        self._base = AMBIENT.name_scope
        self._left = _MOST_NODES

    def variable(self, name: str) -> Variable:
        """The variable of a weight."""
        with absolute_scope(self._base):
            return self.model.weight(name)

    def scope_of(self, prefix: str, node: TFNode) -> Any:
        """The name scope of a node's operators."""
        return absolute_scope(f"{self._base}{variable_name(prefix + node.name)}/")

    def note_update(self, assigned: Tensor) -> None:
        """Notes an assignment, or a result of a body that assigns."""
        self.assigned.append((AMBIENT.graphs[-1], assigned))

    def updates(self) -> list[Tensor]:
        """What was assigned outside of bodies."""
        return [tensor for graph, tensor in self.assigned if graph.parent is None]

    def count(self) -> None:
        """Counts an evaluated node.

        Raises:
            ModelImportError: there are too many.
        """
        self._left -= 1
        if self._left < 0:
            raise ModelImportError.here(
                f"the functions of the graph expand to more than {_MOST_NODES} nodes"
            )

    def failed(self, node: TFNode, error: Exception) -> Exception:
        """The error of a rule, with TensorFlow's node."""
        if isinstance(error, (ModelFileError, ModelImportError)):
            return error
        if isinstance(error, GraphcError) and not self._checking:
            place = f"TensorFlow node {node}"
            if not any(line.startswith("TensorFlow node") for line in error.details):
                error.details = (*error.details, place)
            return error
        lines = str(error).splitlines() or [""]
        details = [line.strip()[:200] for line in lines[:3]]
        return ModelImportError.here(
            f"the TensorFlow node {node} cannot be imported: {type(error).__name__}",
            details=details,
            hint=getattr(error, "hint", None),
        )


class Scope:
    """The values of the nodes of one body: the main graph, a function, an iteration, a branch.

    Args:
        bound: the results that are given: inputs, arguments of functions, carried values.
        prefix: of the names of nodes.
    """

    def __init__(
        self, build: Build, graph: TFGraph, bound: Mapping[Edge, Value], prefix: str = ""
    ) -> None:
        self.build = build
        self.graph = graph
        self.bound = dict(bound)
        self.prefix = prefix
        self.results: dict[str, Sequence[Value]] = {}
        self.writes: dict[str, list[Tensor]] = {}  # what a node, or what it runs after, assigns

    def inside(self, graph: TFGraph, bound: Mapping[Edge, Value], prefix: str) -> Scope:
        """A scope of a body that this one calls."""
        return Scope(self.build, graph, bound, prefix)

    def get(self, edges: Sequence[Edge], after: Sequence[str] = ()) -> list[Value]:
        """The values of edges.

        Args:
            after: the names of nodes to evaluate for their effects, after the edges.

        Raises:
            ModelFileError: the nodes form a cycle, or one is missing.
        """
        self._evaluate([e.node for e in edges if e not in self.bound])
        self._evaluate(
            [name for name in after if name in effects_of(self.graph, self.build.tables.writes)]
        )
        return [self.value(edge) for edge in edges]

    def value(self, edge: Edge) -> Value:
        """The value of an edge whose node is evaluated."""
        if edge in self.bound:
            return self.bound[edge]
        found = self.results[edge.node]
        if found is _REFUSED_NODE:
            return REFUSED
        if edge.index >= len(found):
            raise broken(f"a node takes {edge}, which has {len(found)} results")
        return found[edge.index]

    def _evaluate(self, names: Iterable[str]) -> None:
        """Evaluates nodes and what they need, without recursion: graphs may be deep."""
        stack = list(names)[::-1]
        waiting: set[str] = set()
        while stack:
            name = stack[-1]
            if name in self.results:
                stack.pop()
                continue
            node = self.graph.node(name)
            if name not in waiting:
                waiting.add(name)
                missing = [n for n in self._needed(node) if n not in self.results]
                if missing:
                    cycle = next((n for n in missing if n in waiting), None)
                    if cycle is not None:
                        raise broken(f"the nodes {cycle!r} and {name!r} need each other")
                    stack.extend(missing[::-1])
                    continue
            missing = [n for n in self._needed(node) if n not in self.results]
            if missing:
                raise broken(f"the nodes {missing[0]!r} and {name!r} need each other")
            stack.pop()
            self.results[name] = self._apply(node)

    def _special(self, node: TFNode) -> Special | None:
        if node.op in self.graph.library:
            return self.build.tables.special["PartitionedCall"]
        return self.build.tables.special.get(node.op)

    def _needed(self, node: TFNode) -> list[str]:
        special = self._special(node)
        try:
            edges = node.inputs if special is None else special.needs(self, node)
        except Unsupported:  # `evaluate` raises it, too
            edges = ()
        effects = effects_of(self.graph, self.build.tables.writes)
        names = [name for name in node.controls if name in effects]
        names += [edge.node for edge in edges if edge not in self.bound]
        return list(dict.fromkeys(names))

    def _apply(self, node: TFNode) -> Sequence[Value]:
        self.build.count()
        try:
            return self._ordered_results(node)
        except Unsupported as error:
            where = f"the node {self.prefix}{node.name}"
            self.build.refusals.append(Refusal(node.op, str(error), where))
            return _REFUSED_NODE
        except Exception as error:
            raise self.build.failed(node, error) from error

    def _ordered_results(self, node: TFNode) -> Sequence[Value]:
        """The results, which run after the assignments that the node runs after."""
        before = [t for name in node.controls for t in self.writes.get(name, ())]
        start = len(self.build.assigned)
        with control_dependencies(before) if before else nullcontext():
            results = self._results(node)
            if before and results is not _REFUSED_NODE:
                results = [identity(v) if isinstance(v, Tensor) else v for v in results]
        own = self.build.assigned[start:]
        here = [tensor for graph, tensor in own if graph is AMBIENT.graphs[-1]]
        if len(here) < len(own):  # a body assigns
            here += [v for v in results if isinstance(v, Tensor)][:1]
            for tensor in here[-1:]:
                self.build.note_update(tensor)
        if before or here:
            self.writes[node.name] = [*before, *here]
        return results

    def _results(self, node: TFNode) -> Sequence[Value]:
        tables = self.build.tables
        if node.name in self.build.weights and not self.graph.name:
            return [WeightValue(node.name, self.build.arrays[node.name])]
        special = self._special(node)
        with self.build.scope_of(self.prefix, node):
            if special is not None:
                return special.evaluate(self, node)
            values = [self.value(edge) for edge in node.inputs]
            if any(value is REFUSED for value in values):
                return _REFUSED_NODE
            call = Call(node, self)
            if values and all(map(is_host, values)) and node.op in tables.host:
                known = tables.host[node.op](call, *values)
                if known is not None:
                    return known if isinstance(known, list) else [known]
            rule = tables.rules.get(node.op)
            if rule is None:
                call.refuse(node.refusal)
            of_strings = tables.results_of_strings(call, rule, values)
            return rule.apply(call, values) if of_strings is None else of_strings


class _RefusedNode(list[Value]):
    """The results of a refused node, of which nobody knows how many there are."""


_REFUSED_NODE = _RefusedNode()


@contextmanager
def deeper(build: Build) -> Iterator[None]:
    """A context in which one more body is open.

    Raises:
        Unsupported: too many are open.
    """
    if build.depth >= _DEEPEST:
        raise Unsupported(f"is nested more than {_DEEPEST} deep: functions may not recurse")
    build.depth += 1
    try:
        yield
    finally:
        build.depth -= 1


def effects_of(graph: TFGraph, writes: frozenset[str]) -> frozenset[str]:
    """The nodes whose evaluation assigns a variable, themselves or by what they run after.

    Args:
        writes: the operators that assign.
    """
    if "effects" not in graph.cache:
        graph.cache["effects"] = frozenset()  # for functions that call themselves
        graph.cache["effects"] = _find_effects(graph, writes)
    found: frozenset[str] = graph.cache["effects"]
    return found


def _find_effects(graph: TFGraph, writes: frozenset[str]) -> frozenset[str]:
    following: dict[str, list[str]] = {}
    for node in graph.nodes.values():
        for name in (*(edge.node for edge in node.inputs), *node.controls):
            following.setdefault(name, []).append(node.name)
    reached: set[str] = set()
    open_names = [node.name for node in graph.nodes.values() if _writes(graph, node, writes)]
    while open_names:
        name = open_names.pop()
        if name not in reached:
            reached.add(name)
            open_names.extend(following.get(name, ()))
    return frozenset(reached)


def _writes(graph: TFGraph, node: TFNode, writes: frozenset[str]) -> bool:
    if node.op in writes:
        return True
    return any(bool(effects_of(body, writes)) for body in called_functions(graph, node))


def called_functions(graph: TFGraph, node: TFNode) -> list[TFGraph]:
    """The functions of the library that a node calls."""
    names = [node.op] if node.op in graph.library else []
    if node.op in _CALLING:
        for key in _CALLING[node.op]:
            value = node.attr(key)
            names.extend(value if isinstance(value, list) else [value])
    return [graph.library.function(str(name)) for name in names if str(name) in graph.library]


_CALLING: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("PartitionedCall", "StatefulPartitionedCall"), ("f",)),
    **dict.fromkeys(("If", "StatelessIf"), ("then_branch", "else_branch")),
    **dict.fromkeys(("While", "StatelessWhile"), ("cond", "body")),
    **dict.fromkeys(("Case", "StatelessCase"), ("branches",)),
}
"""The attributes of operators that name functions."""
