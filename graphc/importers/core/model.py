"""`ImportedModel`: a model of another framework as a layer that owns its weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from graphc.artifacts.vocabulary import Vocabulary
from graphc.build.placeholders import placeholder
from graphc.build.specs import TensorSpec
from graphc.build.variable_definition import variable
from graphc.errors import ArgumentError, DTypeError, ShapeError, UnknownNameError, nearest
from graphc.importers.core.model_graph import ORIGINS, ModelGraph
from graphc.importers.core.weights import Weight, variable_name
from graphc.ir.dims import Dim, as_multiple, floor_division
from graphc.ir.dtypes import Array
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor
from graphc.ir.operand import Operand
from graphc.ir.scopes import AMBIENT, current_graph
from graphc.ir.variable import Variable
from graphc.nn.layers.layer import Layer
from graphc.nn.layers.normalization import UPDATES
from graphc.ops.core.emit import convert
from graphc.typing import TensorLike, TensorTree

Build = Callable[["ImportedModel", Sequence[Tensor]], Sequence[Tensor]]
"""Adds the nodes of a model to the graph being built: (model, inputs) -> outputs."""


def try_build(
    inputs: Sequence[TensorSpec],
    weights: Mapping[str, Any],
    build: Callable[[Callable[[str], Variable], Sequence[Tensor]], object],
) -> None:
    """Builds a model in a graph that is thrown away, so that errors are raised now.

    Args:
        weights: their values by name.
        build: adds the nodes: (gives the variable of a weight, inputs).
    """
    made: dict[str, Variable] = {}

    def weight(name: str) -> Variable:
        if name not in made:
            made[name] = variable(weights[name], name=variable_name(name))
        return made[name]

    with Graph():
        build(
            weight,
            [placeholder(s.shape, s.dtype, name=variable_name(str(s.name))) for s in inputs],
        )


def _by_name(names: Sequence[str], results: Sequence[Tensor]) -> Any:
    """The only result, or the results by their names."""
    return results[0] if len(results) == 1 else dict(zip(names, results, strict=True))


@dataclass(frozen=True)
class ModelSource:
    """What an importer has read and checked. Nothing in it belongs to a graph.

    Attributes:
        importer: the public function, such as "from_onnx"; errors start with it.
        name: of the model, such as that of its file or class.
        inputs: the arguments, each with a name.
        outputs: the names of the results.
        weights: the weights by the names that their framework gives them.
        build: adds the nodes. It gets weights by `ImportedModel.weight`.
        wrap: (names, results) -> the nest that a call returns; by default the only result, or a
            dict.
        input_vocabularies, output_vocabularies: the words of inputs and outputs that are strings in
            the framework. The model has their numbers.
    """

    importer: str
    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[str, ...]
    weights: Mapping[str, Weight]
    build: Build
    wrap: Callable[[Sequence[str], Sequence[Tensor]], Any] = _by_name
    input_vocabularies: Mapping[str, Vocabulary] = field(default_factory=dict)
    output_vocabularies: Mapping[str, Vocabulary] = field(default_factory=dict)

    @property
    def input_names(self) -> tuple[str, ...]:
        return tuple(spec.name or f"input_{i}" for i, spec in enumerate(self.inputs))


class ImportedModel(Layer):
    """A model of another framework as a layer. `gc.from_torch` and other importers return it.

    A call adds the model's nodes to the graph being built. The first call makes its variables: one
    for each weight, by the name that its framework uses, such as "layer1.0.conv1.weight". Later
    calls share them. `to_graph` makes a graph of the model alone.

    Args:
        source: what the importer has read.
        name: the name scope of its variables; None for none, so that they have the names of the
            weights.

    Calling it takes the inputs in their order, or by their names, and returns what the model
    returns: a tensor, or a nest of tensors.

    Raises:
        ArgumentError: the arguments of a call are not the inputs of the model.
        DTypeError, ShapeError: an argument does not have the dtype, rank or size of the input.

    Examples:
        >>> from graphc.importers.core.model import ModelSource  # which the importers fill in
        >>> from graphc.importers.core.weights import Weight
        >>> source = ModelSource(
        ...     importer="from_example",
        ...     name="scale",
        ...     inputs=(gc.TensorSpec(("batch",), "float32", "x"),),
        ...     outputs=("y",),
        ...     weights={"factor": Weight(np.float32(2.0), trainable=True)},
        ...     build=lambda model, inputs: [inputs[0] * model.weight("factor")],
        ... )
        >>> model = gc.ImportedModel(source)
        >>> run(model([1.0, 3.0])), model.variables
        (Array([2., 6.], dtype=float32), [<Variable factor f32[]>])
    """

    def __init__(self, source: ModelSource, name: str | None = None) -> None:
        super().__init__(name or "model")
        self._has_scope = name is not None
        self._source = source

    def _new_scope(self, graph: Graph) -> str:
        return super()._new_scope(graph) if self._has_scope else AMBIENT.name_scope

    @property
    def inputs(self) -> Mapping[str, TensorSpec]:
        """The shapes and dtypes of the inputs by name, in the order of the arguments."""
        return dict(zip(self._source.input_names, self._source.inputs, strict=True))

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs."""
        return self._source.outputs

    @property
    def input_vocabularies(self) -> Mapping[str, Vocabulary]:
        """The words of inputs that are strings in the framework: the layer takes their numbers.
        Artifacts of the model take strings."""
        return MappingProxyType(dict(self._source.input_vocabularies))

    @property
    def output_vocabularies(self) -> Mapping[str, Vocabulary]:
        """The words of outputs that are strings in the framework: the layer returns their numbers.
        Artifacts of the model return strings."""
        return MappingProxyType(dict(self._source.output_vocabularies))

    if not TYPE_CHECKING:  # for type checkers, Layer has no such attribute

        @property
        def weights(self) -> Mapping[str, Array]:
            """The values that the weights had in the file or module, by name."""
            found = {name: weight.array for name, weight in self._source.weights.items()}
            return MappingProxyType(found)

    def weight(self, name: str) -> Variable:
        """The variable of a weight. The first use makes it. For use by importers, inside `scope`.

        Raises:
            UnknownNameError: the model has no such weight.
        """
        if name in self._own:
            return self._own[name]
        weight = self._source.weights.get(name)
        if weight is None:
            raise UnknownNameError.here(
                f"{self}: it has no weight {name!r}",
                hint=nearest(name, self._source.weights, "list(model.weights)"),
            )
        made = variable(weight.array, trainable=weight.trainable, name=variable_name(name))
        self._own[name] = made
        return made

    def __call__(self, *args: TensorLike, **kwargs: TensorLike) -> TensorTree:
        operands = [
            self._operand(name, spec, value)
            for (name, spec), value in zip(
                self.inputs.items(), self._arguments(args, kwargs), strict=True
            )
        ]
        with self.scope(*operands):
            results = self._source.build(self, [convert(x) for x in operands])
            return self._source.wrap(self._source.outputs, results)

    def _arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        names = self._source.input_names
        given = dict(zip(names, args, strict=False))
        wrong = [name for name in kwargs if name not in names or name in given]
        missing = [name for name in names if name not in given and name not in kwargs]
        if wrong or missing or len(args) > len(names):
            got = f"{len(args)} arguments" + "".join(f", {name}=" for name in kwargs)
            raise ArgumentError.here(
                f"{self}: its inputs are {', '.join(names) or 'none'}; got {got}",
                details=[f"{name}  {spec}" for name, spec in self.inputs.items()],
                hint="pass each input once, in this order or by its name",
            )
        return [given[name] if name in given else kwargs[name] for name in names]

    def _operand(self, name: str, spec: TensorSpec, value: Any) -> Tensor:
        """The argument as a tensor that fits the input."""
        known = isinstance(value, Operand)
        tensor = convert(value) if known else convert(value, dtype=spec.dtype)
        if tensor.dtype != spec.dtype:
            raise DTypeError.here(
                f"{self}: the input {name!r} is {spec.dtype.name}, got {tensor.dtype.name}",
                details=[f"{name}  {tensor.type}"],
                hint=f'convert it: gc.cast(x, "{spec.dtype.name}")',
            )
        sizes = zip(tensor.shape, spec.shape, strict=False)
        if len(tensor.shape) != len(spec.shape) or any(
            isinstance(size, int) and isinstance(wanted, int) and size != wanted
            for size, wanted in sizes
        ):
            wanted = ", ".join("?" if d is None else str(d) for d in spec.shape)
            raise ShapeError.here(
                f"{self}: the input {name!r} has the shape ({wanted})",
                details=[f"{name}  {tensor.type}"],
                hint="import the model with a named size where sizes may differ",
            )
        for axis, (size, wanted_size) in enumerate(zip(tensor.shape, spec.shape, strict=True)):
            self._check_multiple(f"input {name!r}, axis {axis}", size, wanted_size, tensor)
        return tensor

    def _check_multiple(self, where: str, size: Dim, wanted: Dim | None, tensor: Tensor) -> None:
        """Checks that a size is a multiple, as that of the input. One that is known only in a run
        is checked there."""
        multiple = None if wanted is None else as_multiple(wanted)
        if multiple is None:
            return
        whole = multiple[1] * floor_division(size, multiple[1])
        if not current_graph().constraints.unify(size, whole):
            raise ShapeError.here(
                f"{self}: {where}: the size must be a multiple of {multiple[1]}, got {size}",
                details=[f"{tensor.name}  {tensor.type}"],
                hint=f"the input has the size {wanted} there",
            )

    def to_graph(self, *, seed: int = 0) -> ModelGraph:
        """A graph of the model alone: a placeholder for each input, and its outputs.

        The graph has its own variables with the values of the file; calls of this model in other
        graphs are not affected.

        Args:
            seed: of the graph's random numbers.

        Raises:
            GraphcError: as a call of the model.
        """
        graph = Graph(seed=seed)
        model = ImportedModel(self._source, self._base if self._has_scope else None)
        with graph:
            inputs = {
                name: placeholder(spec.shape, spec.dtype, name=variable_name(name))
                for name, spec in self.inputs.items()
            }
            with model.scope(*inputs.values()):
                results = self._source.build(model, list(inputs.values()))
        return ModelGraph(
            graph=graph,
            inputs=inputs,
            outputs=dict(zip(self._source.outputs, results, strict=True)),
            updates=tuple(graph.collection(UPDATES)),
            variables=dict(model._own),
            origins=dict(graph.collection(ORIGINS)),
            input_vocabularies=self.input_vocabularies,
            output_vocabularies=self.output_vocabularies,
        )

    def __str__(self) -> str:
        return f"{self._source.importer} model {self._source.name!r}"
