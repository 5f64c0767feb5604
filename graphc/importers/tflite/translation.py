"""Writes a subgraph of TensorFlow Lite as a graph of TensorFlow's operators.

A tensor that is quantised is a tensor of integers in the graph. An operator computes with the real
values of its operands in floating point, and rounds its result to the scale of its output.
Operators that only move elements take the integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from graphc.importers.tensorflow.graph import Edge, Library, TFGraph, TFNode
from graphc.importers.tflite.flatbuffer import broken
from graphc.importers.tflite.reading import LiteModel, LiteTensor, Operator, Subgraph
from graphc.importers.tflite.schema import ACTIVATIONS
from graphc.ir.dtypes import Array
from graphc.train.tensorflow.tensors import FunctionName

_DEEPEST = 24  # subgraphs inside each other, as in TensorFlow's importer
CALLS = ("cond", "body", "then", "else", "subgraph", "decomposition")
"""The options that are numbers of subgraphs."""
_FUNCTION = "subgraph "  # before the number, the name of a subgraph as a function
_STRING, _HALF = 5, 1  # dtypes in the schema


class Refused(Exception):
    """An operator cannot be imported. The text goes on after its name."""


class LiteNode(TFNode):
    """A node that was made of an operator of TensorFlow Lite. `proto` is a dict of attributes."""

    def attr(self, name: str, default: Any = None) -> Any:
        value = self.proto.get(name)
        return default if value is None else value

    @property
    def refusal(self) -> str:
        return str(self.proto.get("refusal", "is not imported"))


Translate = Callable[["Body", Operator], "Edge | Sequence[Edge]"]


class Subgraphs(Library):
    """The subgraphs of a model as functions.

    Attributes:
        model: the file.
        weights: the constants that are weights, by name.
        operators: what translates each operator.
    """

    def __init__(self, model: LiteModel, operators: dict[str, Translate], moves: frozenset[str]):
        super().__init__((), lambda op, argument: None)
        self.model, self.operators, self.moves = model, operators, moves
        self.weights: dict[str, Array] = {}
        self._names = Names()

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.startswith(_FUNCTION)

    def function(self, name: str) -> TFGraph:
        if name not in self._graphs:
            self._graphs[name] = self.graph(int(name.removeprefix(_FUNCTION)), name)
        return self._graphs[name]

    def graph(self, index: int, name: str = "") -> TFGraph:
        """A subgraph. That of the name "" is the main one.

        Raises:
            ModelFileError: it is inconsistent, or calls itself.
        """
        self._check_calls(index, (), {})
        return Body(self, self.model.subgraph(index), name).graph

    def _check_calls(self, index: int, above: tuple[int, ...], seen: dict[int, int]) -> int:
        """The height of the tree of calls."""
        if index in above or len(above) > _DEEPEST:
            raise broken("subgraphs call themselves, or are nested too deeply")
        if index not in seen:
            called = {i for op in self.model.subgraph(index).operators for i in called_by(op)}
            heights = [self._check_calls(i, (*above, index), seen) for i in called]
            seen[index] = 1 + max(heights, default=0)
        if len(above) + seen[index] > _DEEPEST:
            raise broken("subgraphs are nested too deeply")
        return seen[index]

    def add_weight(self, name: str, array: Array) -> str:
        """Notes a weight. Returns its name, which no other has."""
        unique = self._names.fresh(name)
        self.weights[unique] = array
        return unique

    @cached_property
    def variables(self) -> dict[str, Array]:
        """The first values of variables, which subgraphs assign that run once."""
        found: dict[str, Array] = {}
        for index in range(self.model.count):
            for op in self.model.subgraph(index).operators:
                if op.name == "CALL_ONCE":
                    found |= self._assigned(self.model.subgraph(op.options["init_subgraph"]))
        return found

    def _assigned(self, graph: Subgraph) -> dict[str, Array]:
        names: dict[int, str] = {}
        found = {}
        for op in graph.operators:
            if op.name == "VAR_HANDLE" and op.outputs:
                names[op.outputs[0]] = variable_of(op)
            elif op.name == "ASSIGN_VARIABLE" and len(op.inputs) == 2 and op.inputs[0] in names:
                value = graph.tensors[op.inputs[1]]
                if self.model.is_constant(value):
                    found[names[op.inputs[0]]] = self.model.constant(value)
        return found


def variable_of(op: Operator) -> str:
    """The name of the variable of VAR_HANDLE."""
    return "/".join(filter(None, (op.options["container"], op.options["shared_name"])))


def called_by(op: Operator) -> list[int]:
    """The subgraphs that an operator runs."""
    return [int(op.options[key]) for key in CALLS if key in op.options]


class Names:
    """Names that are given once."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def fresh(self, name: str) -> str:
        """The name, with a number behind it if it was given."""
        unique = name = name or "unnamed"
        while unique in self._counts:
            self._counts[name] += 1
            unique = f"{name}_{self._counts[name]}"
        self._counts[unique] = 0
        return unique


class Body:
    """The nodes of one subgraph.

    Attributes:
        graph: the result.
        makers: the operators that compute tensors, as far as they are translated.
        assigning: the nodes that may assign variables, in order.
    """

    def __init__(self, library: Subgraphs, subgraph: Subgraph, name: str) -> None:
        self.library, self.model, self._tensors = library, library.model, subgraph.tensors
        self._edges: dict[int, Edge] = {}
        self._real: dict[int, Edge] = {}
        self._name, self._names = "", Names()
        self._moves = False
        self._nodes: dict[str, TFNode] = {}
        self._reads: list[Edge] = []
        self.makers: dict[int, Operator] = {}
        self.assigning: list[str] = []
        kind = "_Arg" if name else "Placeholder"
        parameters = []
        for index in subgraph.inputs:
            tensor = self.tensor(index)
            if index in self._edges:
                raise broken(f"the input {tensor.name[:100]!r} is listed twice")
            self._name = tensor.name
            self._edges[index] = self.node(kind, dtype=tensor.dtype)
            parameters.append(self._edges[index].node)
        for op in subgraph.operators:
            self._translate(op)
        self._name = "result"
        results = tuple(self.edge(index) for index in subgraph.outputs)
        self.graph = TFGraph(
            name, self._nodes, library, tuple(parameters), results, tuple(self.assigning)
        )

    # What the translations of operators use.

    def tensor(self, index: int) -> LiteTensor:
        """The tensor of a number."""
        return self._tensors[index]

    def result(self, op: Operator, i: int = 0) -> LiteTensor:
        """The tensor of a result of an operator."""
        if i >= len(op.outputs):
            raise broken(f"{op.name} has {len(op.outputs)} results")
        return self._tensors[op.outputs[i]]

    def has(self, op: Operator, i: int) -> bool:
        """Whether an operator has an input."""
        return i < len(op.inputs) and op.inputs[i] >= 0

    def takes_integers(self, op: Operator) -> bool:
        """Whether an operator takes its operands as they are in the file."""
        return self._moves or all(self._tensors[i].quantization is None for i in op.outputs)

    def input(self, op: Operator, i: int) -> Edge:
        """An input of an operator, of a quantised tensor its real value."""
        if not self.has(op, i):
            raise broken(f"{op.name} has no input {i}")
        return self.edge(op.inputs[i]) if self._moves else self.real(op.inputs[i])

    def inputs(self, op: Operator) -> list[Edge]:
        """All inputs of an operator; those that are left out are nodes without a value."""
        found = [self.input(op, i) if index >= 0 else None for i, index in enumerate(op.inputs)]
        return [self.node("LiteNothing") if edge is None else edge for edge in found]

    def node(self, op: str, *inputs: Edge, **attrs: Any) -> Edge:
        """A node. Returns its first result."""
        return self._add(op, inputs, (), attrs)

    def _add(
        self, op: str, inputs: Sequence[Edge], after: Sequence[str], attrs: dict[str, Any]
    ) -> Edge:
        name = self._names.fresh(self._name)
        self._nodes[name] = LiteNode(name, op, tuple(inputs), tuple(after), attrs)
        return Edge(name, 0)

    def const(self, value: Any, dtype: Any = np.int32) -> Edge:
        """A constant."""
        return self.node("Const", value=np.asarray(value, dtype))

    def several(self, first: Edge, op: Operator) -> list[Edge]:
        """The results of a node, as many as the operator has."""
        return [Edge(first.node, i) for i in range(len(op.outputs))]

    def function(self, index: int) -> FunctionName:
        """The name of a subgraph as a function."""
        return FunctionName(f"{_FUNCTION}{index}")

    def read(self, variable: Edge) -> Edge:
        """The value of a variable behind the assignments before this."""
        edge = self._add("ReadVariableOp", [variable], self.assigning, {})
        self._reads.append(edge)
        return edge

    def effect(self, op: str, *inputs: Edge, **attrs: Any) -> Edge:
        """A node that may assign variables, behind what reads and assigns them before this."""
        edge = self._add(op, [*inputs, *self._reads], self.assigning, attrs)
        own = [] if op == "LiteAssign" else self.assigning  # it runs after all before it
        self._reads, self.assigning = [], [*own, edge.node]
        return edge

    # Tensors.

    def edge(self, index: int) -> Edge:
        """The result that is a tensor; integers if it is quantised."""
        if index not in self._edges:
            tensor = self._tensors[index]
            self._check(tensor)
            if not self.model.is_constant(tensor):
                if not tensor.is_variable:
                    raise broken(f"the tensor {tensor.name[:100]!r} is used before it is computed")
                self._edges[index] = self.node("LiteNothing")
            else:
                self._edges[index] = self._constant(tensor, self.model.constant(tensor))
        return self._edges[index]

    def real(self, index: int) -> Edge:
        """The real value of a tensor."""
        tensor = self._tensors[index]
        if tensor.quantization is None and tensor.kind != _HALF:
            return self.edge(index)
        if index not in self._real:
            self._check(tensor)
            if index not in self._edges and self.model.is_constant(tensor):
                array = self.model.constant(tensor, real=True)
                self._real[index] = self._constant(tensor, array)
            elif tensor.quantization is None or tensor.is_variable:
                return self.edge(index)
            else:
                scale, zero = tensor.quantization.arrays(len(tensor.shape))
                edge = self.edge(index)
                self._real[index] = self.node("LiteDequantize", edge, scale=scale, zero=zero)
        return self._real[index]

    def _check(self, tensor: LiteTensor) -> None:
        if tensor.is_sparse:
            raise Refused(f"takes the sparse constant {tensor.name[:100]!r}")
        if tensor.kind == _STRING:
            raise Refused("takes strings")

    def _constant(self, tensor: LiteTensor, array: Array) -> Edge:
        own, self._name = self._name, tensor.name
        try:
            if array.dtype.kind in "fcV" and array.ndim and array.size > 1:
                label = self.library.add_weight(tensor.name, array)
                return self.node("LiteWeight", name=label)
            return self.node("Const", value=array)
        finally:
            self._name = own

    # Operators.

    def _translate(self, op: Operator) -> None:
        if any(index in self._edges for index in op.outputs):
            raise broken(f"{op.name} computes a tensor that has a value already")
        self._name = self._tensors[op.outputs[0]].name if op.outputs else op.name
        self._moves = op.name in WHOLE or (
            op.name in self.library.moves and self._has_one_scale(op)
        )
        try:
            translate = self.library.operators.get(op.name)
            if translate is None:
                raise Refused("is not imported")
            made = translate(self, op)
            results = [made] if isinstance(made, Edge) else list(made)
            results = self._finished(op, results)
        except Refused as error:
            inputs = [self._edges[i] for i in op.inputs if i in self._edges]  # which are listed too
            results = self.several(self.node(op.name, *inputs, refusal=str(error)), op)
        if len(results) < len(op.outputs):
            raise broken(f"{op.name} has {len(op.outputs)} results, where {len(results)} are known")
        self._edges.update(zip(op.outputs, results, strict=False))
        self.makers.update(dict.fromkeys(op.outputs, op))

    def _has_one_scale(self, op: Operator) -> bool:
        own = [self._tensors[i].quantization for i in (*op.inputs, *op.outputs) if i >= 0]
        scales = [(q.scale, q.zero) for q in own if q is not None]
        is_copy = op.name in COPYING and len(scales) == 1 + len(op.outputs)
        fits = is_copy or len(set(scales)) == 1
        return fits and all(len(scale) == 1 for scale, _ in scales)

    def _finished(self, op: Operator, results: list[Edge]) -> list[Edge]:
        """The results behind a fused activation, rounded to the scales of the outputs."""
        number = op.options.get("activation", 0)
        if number and op.name not in ACTIVATED and results:
            results = [self.activation(results[0], number), *results[1:]]
        found = []
        for index, edge in zip(op.outputs, results, strict=False):
            tensor = self._tensors[index]
            if tensor.quantization is None or self._moves:
                found.append(edge)
                continue
            scale, zero = tensor.quantization.arrays(len(tensor.shape))
            if not scale.all():
                raise broken(f"the tensor {tensor.name[:100]!r} has the scale 0")
            dtype = tensor.dtype
            found.append(self.node("LiteQuantize", edge, scale=scale, zero=zero, dtype=dtype))
        return found

    def activation(self, x: Edge, number: int) -> Edge:
        """An activation by its number."""
        if not 0 <= number < len(ACTIVATIONS):
            raise broken(f"there is no activation {number}")
        name = ACTIVATIONS[number]
        if name == "SignBit":
            raise Refused("has the activation SIGN_BIT")
        if name == "ReluN1To1":
            return self.node("LiteClip", x, low=-1.0, high=1.0)
        return self.node(name, x) if name else x


ACTIVATED = frozenset(
    (
        "UNIDIRECTIONAL_SEQUENCE_LSTM", "BIDIRECTIONAL_SEQUENCE_LSTM",
        "UNIDIRECTIONAL_SEQUENCE_RNN", "BIDIRECTIONAL_SEQUENCE_RNN",
    )
)  # fmt: skip
"""Operators that apply their activation inside."""

COPYING = frozenset(
    (
        "BATCH_TO_SPACE_ND", "BROADCAST_TO", "DEPTH_TO_SPACE", "EXPAND_DIMS", "GATHER", "GATHER_ND",
        "RESHAPE", "REVERSE_SEQUENCE", "REVERSE_V2", "SLICE", "SPACE_TO_DEPTH", "SPLIT", "SPLIT_V",
        "SQUEEZE", "STRIDED_SLICE", "TILE", "TRANSPOSE", "UNPACK",
    )
)  # fmt: skip
"""Operators that copy the integers of one operand, also into tensors of another scale. The
converter writes such ones behind a layer that runs backwards."""

WHOLE = frozenset(
    (
        "CALL", "IF", "WHILE", "STABLEHLO_COMPOSITE", "READ_VARIABLE", "ASSIGN_VARIABLE",
        "VAR_HANDLE", "CALL_ONCE",
    )
)  # fmt: skip
"""Operators that hand on tensors as they are, integers if they are quantised."""
