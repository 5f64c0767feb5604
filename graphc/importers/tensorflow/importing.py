"""From a graph that has been read to an `ImportedModel`: inputs, weights, the trial build."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from graphc.artifacts.vocabulary import Vocabulary
from graphc.build.context import add_to_collection, control_dependencies
from graphc.build.specs import TensorSpec
from graphc.errors import GraphError, ModelImportError
from graphc.importers.core.model import ImportedModel, ModelSource
from graphc.importers.core.refusals import Refusal, refuse_all
from graphc.importers.core.weights import Trainable, Weight, with_trainable
from graphc.importers.core.words import WordList, Words, together
from graphc.importers.tensorflow.choosing import takes_strings
from graphc.importers.tensorflow.evaluation import (
    Build,
    Scope,
    Tables,
    called_functions,
    effects_of,
)
from graphc.importers.tensorflow.functions import IGNORED
from graphc.importers.tensorflow.graph import Edge, TFGraph, TFNode
from graphc.importers.tensorflow.registry import Call, Unsupported
from graphc.importers.tensorflow.restoring import variable_weights
from graphc.importers.tensorflow.rules.table import TABLES
from graphc.importers.tensorflow.values import Value, is_strings
from graphc.ir.node import Tensor
from graphc.nn.layers.normalization import UPDATES
from graphc.ops.core.emit import CONSTANT, constant
from graphc.ops.structure.state import identity

HINT = "choose outputs before these nodes, or give their results as inputs: inputs=[...]"


@dataclass
class Imported:
    """A graph with what is chosen of it.

    Attributes:
        importer: the public function, for errors.
        name: of the model.
        graph: TensorFlow's graph.
        outputs: the results by name.
        inputs: the edges that are fed, by name, with their specs.
        weights: the weights by name.
        variables: the names of the weights by the node that is their variable.
        constants: the nodes of constants that are weights.
        updates: the names of nodes that are evaluated for their assignments.
        missing: the operators that have no rule.
        assets: the files of a SavedModel by the node that has their name.
        input_words, output_words: the words of inputs and outputs that are strings, once the graph
            was built.
        tables: the rules of operators.
        hint: what helps if there are operators without a rule.
    """

    importer: str
    name: str
    graph: TFGraph
    outputs: dict[str, Edge]
    inputs: dict[str, tuple[Edge, TensorSpec]]
    weights: dict[str, Weight] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    constants: frozenset[str] = frozenset()
    updates: tuple[str, ...] = ()
    missing: list[Refusal] = field(default_factory=list)
    assets: Mapping[str, Path] = field(default_factory=dict)
    input_words: dict[str, Vocabulary] = field(default_factory=dict)
    output_words: dict[str, Vocabulary] = field(default_factory=dict)
    tables: Tables = TABLES
    hint: str = HINT

    def model(self, trainable: Trainable | None, name: str | None) -> ImportedModel:
        """The layer.

        Raises:
            ModelImportError: a part of the graph cannot be imported.
        """
        self.missing = self._without_rule()
        source = ModelSource(
            importer=self.importer,
            name=self.name,
            inputs=tuple(
                TensorSpec(spec.shape, spec.dtype, label)
                for label, (_, spec) in self.inputs.items()
            ),
            outputs=tuple(self.outputs),
            weights=with_trainable(self.importer, self.weights, trainable),
            build=lambda model, inputs: self.build(model, inputs, checking=False),
            input_vocabularies=self.input_words,
            output_vocabularies=self.output_words,
        )
        model = ImportedModel(source, name)
        self._try(source)
        return model

    def take_variables(
        self, checkpoint: Any, keys: Mapping[str, str], trainable: Mapping[str, bool]
    ) -> None:
        """Reads the variables that the outputs need; see `variable_weights`."""
        found, self.variables = variable_weights(
            self.importer, self.reachable(), checkpoint, keys, trainable
        )
        self.weights |= found

    def _try(self, source: ModelSource) -> None:
        """Builds the graph once, so that what is wrong is found at import."""
        trial = ImportedModel(
            ModelSource(
                **{**source.__dict__, "build": lambda m, x: self.build(m, x, checking=True)}
            )
        )
        try:
            trial.to_graph()
        except RecursionError:
            raise ModelImportError.here(
                f"{self.importer}: functions or loops of the graph are nested too deeply"
            ) from None
        except ModelImportError as error:
            if self.missing and self.missing[0].what not in str(error):
                refuse_all(self.importer, self.missing, self.hint)
            raise

    def _without_rule(self) -> list[Refusal]:
        """The operators that have no rule."""
        refusals = []
        tables = self.tables
        for node in self.reachable():
            known = node.op in tables.rules or node.op in tables.special or node.op in tables.host
            if not known and node.op not in _STRUCTURE and node.op not in self.graph.library:
                refusals.append(Refusal(node.op, node.refusal, f"the node {node.name}"))
        return refusals

    def reachable(self) -> list[TFNode]:
        """The nodes that the outputs need, also in functions; not what is before an input."""
        cut = {edge.node for edge, _ in self.inputs.values()}
        found: list[TFNode] = []
        bodies: dict[int, TFGraph] = {}
        wanted = [edge.node for edge in self.outputs.values()] + list(self.updates)
        main = needed(self.graph, wanted, cut, self.tables)
        stack = [(self.graph, main)]
        while stack:
            graph, nodes = stack.pop()
            found.extend(nodes)
            for node in nodes:
                for body in called_functions(graph, node):
                    if id(body) not in bodies:
                        bodies[id(body)] = body
                        effects = effects_of(body, self.tables.writes)
                        own = [edge.node for edge in body.results]
                        own += [name for name in body.control_results if name in effects]
                        stack.append((body, needed(body, own, set(body.parameters), self.tables)))
        return found

    def build(
        self, model: ImportedModel, inputs: Sequence[Tensor], *, checking: bool
    ) -> list[Tensor]:
        """Adds the nodes to the graph being built."""
        build = Build(model, self.tables, self.constants, self.variables, checking, self.assets)
        edges = [edge for edge, _ in self.inputs.values()]
        given = [self._given(edge, x) for edge, x in zip(edges, inputs, strict=True)]
        scope = Scope(build, self.graph, dict(zip(edges, given, strict=True)))
        effects = {e.node for e in self.outputs.values() if self._has_no_result(e)}
        values = scope.get(
            [e for e in self.outputs.values() if e.node not in effects], [*effects, *self.updates]
        )
        refuse_all(self.importer, [*self.missing, *build.refusals], self.hint)
        for update in build.updates():
            add_to_collection(UPDATES, update)
        remaining = iter(values)
        results = [
            _done(scope, edge)
            if edge.node in effects
            else self._result(scope, name, next(remaining))
            for name, edge in self.outputs.items()
        ]
        for label, value in zip(self.inputs, given, strict=True):
            if isinstance(value, Words):
                self.input_words[label] = value.words.vocabulary()
        return results

    def _given(self, edge: Edge, value: Tensor) -> Value:
        """The value of an input: words if it is of strings."""
        if takes_strings(self.graph.node(edge.node)):
            return Words(value, WordList(is_open=True))
        return _if_known(value)

    def _has_no_result(self, edge: Edge) -> bool:
        """Whether an output is a node that is run for its effects, such as a training step."""
        node = self.graph.node(edge.node)
        return node.op == "NoOp" or (
            node.op in self.tables.writes and node.op.startswith("Resource")
        )

    def _result(self, scope: Scope, name: str, value: Value) -> Tensor:
        call = Call(self.graph.node(self.outputs[name].node), scope)
        is_fixed = isinstance(value, Words) and not value.words.is_open
        if is_fixed or is_strings(value):
            (value,), words = together([value], is_strings)
            self.output_words[name] = words.vocabulary()
        try:
            tensor = call.tensor(value)
        except Unsupported as error:
            raise ModelImportError.here(
                f"{self.importer}: the output {name!r} is no tensor of numbers or known words",
                details=[str(error)],
            ) from None
        return identity(tensor) if tensor.graph is None else tensor


def _if_known(tensor: Tensor) -> Value:
    """The value of a constant scalar, such as a flag of training: it decides branches at import."""
    if tensor.ndim == 0 and tensor.graph is not None:
        with suppress(GraphError):  # an input of a body has no producer
            node = tensor.graph.producer(tensor)
            if node.op is CONSTANT:
                return np.array(node.attrs["value"])
    return tensor


def _done(scope: Scope, edge: Edge) -> Tensor:
    """True, when the assignments of a node are made."""
    with control_dependencies(scope.writes.get(edge.node, [])):
        return identity(constant(True))


_STRUCTURE = ("_Arg", "Placeholder", "NextIteration", "RefNextIteration")


def needed(
    graph: TFGraph, names: Iterable[str], cut: set[str], tables: Tables = TABLES
) -> list[TFNode]:
    """The nodes that the named ones need, up to those in `cut`: by data, and what they run after if
    it assigns a variable."""
    effects = effects_of(graph, tables.writes)
    found: dict[str, TFNode] = {}
    open_names = list(names)
    while open_names:
        name = open_names.pop()
        if name in found or name in cut:
            continue
        node = found[name] = graph.node(name)
        if node.op not in IGNORED:
            open_names.extend(edge.node for edge in node.inputs)
        open_names.extend(name for name in node.controls if name in effects)
    return list(found.values())


def take_constants(imported: Imported) -> None:
    """Makes the floating constants that the outputs need weights, except small ones of a graph with
    variables."""
    cut = {edge.node for edge, _ in imported.inputs.values()}
    constants = constant_weights(imported.graph, imported.outputs.values(), cut)
    if (
        imported.weights
    ):  # the model's own variables: constants are constants, unless they are large
        constants = [node for node in constants if node.attr("value").size > _LARGE]
    imported.weights |= {node.name: Weight(node.attr("value")) for node in constants}
    imported.constants = frozenset(node.name for node in constants)


_LARGE = 4096  # elements; larger constants in a program make its compilation slow


def constant_weights(graph: TFGraph, outputs: Iterable[Edge], cut: set[str]) -> list[TFNode]:
    """The constants of a frozen graph that are weights: floating, with at least one axis."""
    reached = {node.name for node in needed(graph, [edge.node for edge in outputs], cut)}
    constants = [n for n in graph.nodes.values() if n.op == "Const" and n.name in reached]
    return [node for node in constants if _is_weight(node)]


def _is_weight(node: TFNode) -> bool:
    proto = node.proto.attr["value"].tensor if "value" in node.proto.attr else None
    if proto is None or not len(proto.tensor_shape.dim):
        return False
    value = node.attr("value")
    return isinstance(value, np.ndarray) and value.dtype.kind in "fcV" and value.size > 1
