"""`from_torch`: a module of PyTorch as a layer."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from graphc.build.specs import TensorSpec
from graphc.errors import ModelImportError
from graphc.importers.core.model import ImportedModel, ModelSource, try_build
from graphc.importers.core.model_graph import ORIGINS
from graphc.importers.core.refusals import Refusal, refuse_all
from graphc.importers.core.weights import Trainable, Weight, with_trainable
from graphc.importers.torch.call import Call, Refused
from graphc.importers.torch.dtypes import dtype_of
from graphc.importers.torch.exported import MUTATIONS, Exported, Result
from graphc.importers.torch.exporting import Exporting, exported
from graphc.importers.torch.importer import UNKNOWN, Importer
from graphc.importers.torch.result_names import result_names
from graphc.importers.torch.symbols import Symbols
from graphc.ir.node import Tensor
from graphc.ir.scopes import control_inputs, current_graph
from graphc.nn.layers.normalization import UPDATES
from graphc.ops.core.emit import constant
from graphc.ops.structure.state import identity
from graphc.typing import ArrayTree

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.nn import Module

_HINT = "write these parts with other operators of PyTorch, or replace them by gc operators"
_HINT_OF_FILES = (
    "PyTorch may replace them by others: torch.export.save(program.run_decompositions(), path)"
)


def from_torch(
    model: Module | ExportedProgram | str | os.PathLike[str],
    args: Sequence[ArrayTree] | None = None,
    kwargs: Mapping[str, ArrayTree] | None = None,
    *,
    dynamic_shapes: ArrayTree = None,
    trainable: Trainable | None = None,
    training: bool = False,
    name: str | None = None,
) -> ImportedModel:
    """A module of PyTorch as a layer: the operators of its graph become nodes (extra `torch`).

    `torch.export` makes the graph for example inputs. Files of `torch.export.save` (.pt2, torch 2.9
    and newer) are read without PyTorch, and nothing in them is executed. Parameters and buffers
    become variables under the names of `state_dict`. With `training`, dropout draws from the
    graph's streams, and buffers that the module changes, such as the moving averages of batch norm,
    are assigned by a step of `gc.minimize`. Nodes carry the lines of the model's source.
    Results have the keys of the dict that the module returns as names, and otherwise `output_0`,
    `output_1`, and so on.

    Args:
        model: a module, a program of `torch.export.export`, or the path of a .pt2 file.
        args, kwargs: example inputs, tensors of PyTorch, for a module.
        dynamic_shapes: see `torch.export.export`. Sizes have the names of their `Dim`s.
        trainable: which weights `gc.minimize` updates: True, or patterns of names. None: those with
            `requires_grad`.
        training: whether the module is exported in training mode.
        name: the name scope of the variables; None for none.

    Raises:
        ModelImportError: the module cannot be exported, or has operators that cannot be imported;
            it names all of them with the lines of the model.
        ModelFileError: the file cannot be read, is damaged, or is of an older version.
        MissingExtraError: PyTorch is not installed, and the model is not a file.

    Source: https://docs.pytorch.org/docs/stable/export.html

    Examples:
        >>> import torch  # doctest: +SKIP
        >>> module = torch.nn.Linear(3, 2)  # doctest: +SKIP
        >>> layer = gc.from_torch(module, (torch.zeros(4, 3),))  # doctest: +SKIP
        >>> layer(gc.ones((4, 3))).shape  # doctest: +SKIP
        (4, 2)
    """
    source = exported(model, Exporting(args, kwargs, dynamic_shapes, training))
    plan = Plan(source)
    weights = with_trainable("from_torch", plan.weights, trainable)

    def build(layer: ImportedModel, tensors: Sequence[Tensor]) -> list[Tensor]:
        return plan.build(layer.weight, tensors, assign=True)

    arrays = {key: weight.array for key, weight in plan.weights.items()}
    try_build(plan.inputs, arrays, lambda weight, given: plan.build(weight, given, assign=False))
    record = ModelSource(
        "from_torch", source.name, plan.inputs, plan.outputs, weights, build, plan.wrap
    )
    return ImportedModel(record, name)


class Plan:
    """The inputs, weights and results of an exported program.

    Attributes:
        inputs: the tensors that a caller passes.
        outputs: the names of the results that are tensors.
        weights: parameters and buffers that the program uses or changes, by name.
    """

    def __init__(self, source: Exported) -> None:
        self._source = source
        self._symbols = Symbols(source.sizes)
        self._held, self._constants = source.held, source.constants
        self._placeholders = [n for n in source.module.graph.nodes if n.op == "placeholder"]
        self._changed = {r.weight for r in source.results if r.kind in MUTATIONS}
        self._shared: dict[str, str] = {}
        self.weights = self._weights()
        self._feeds = [n for n in self._placeholders if self._is_input(n)]
        self.inputs = tuple(self._spec(n) for n in self._feeds)
        nodes = list(source.module.graph.nodes)[-1].args[0]
        results = list(zip(source.results, nodes, strict=True))
        self._returned = [value for result, value in results if result.kind == "USER_OUTPUT"]
        self._renewed = self._renewed_parameters(results)
        taken = {spec.name for spec in self.inputs}
        self.outputs = result_names(sum(map(_is_tensor, self._returned)), self._nest, taken)

    def _is_input(self, node: Any) -> bool:
        own = node.name in self._held or node.name in self._constants
        return not own and hasattr(node.meta.get("val"), "dtype")

    def _weights(self) -> dict[str, Weight]:
        found, seen = dict[str, Weight](), dict[Any, str]()
        for node in self._placeholders:
            fqn = self._held.get(node.name)
            if fqn is None or not self._is_needed(node):
                continue
            tensor = self._source.tensors(fqn)
            if tensor.key in seen:
                self._shared[fqn] = seen[tensor.key]  # tied
                continue
            seen[tensor.key] = fqn
            try:
                found[fqn] = Weight(tensor.read(), trainable=tensor.trainable)
            except Refused as refused:
                raise ModelImportError.here(f"from_torch: {fqn!r} {refused}") from refused
        return found

    def _is_needed(self, node: Any) -> bool:
        """Whether the program uses or changes the weight of a placeholder."""
        return bool(node.users) or self._held.get(node.name) in self._changed

    def _renewed_parameters(self, results: Sequence[tuple[Result, Any]]) -> dict[Any, Any]:
        """The nodes that compute new values of trainable parameters -> their placeholders."""
        places = {self._held.get(node.name): node for node in self._placeholders}
        return {
            value: places[result.weight]
            for result, value in results
            if result.kind in MUTATIONS and self._source.tensors(result.weight).trainable
        }

    def _spec(self, node: Any) -> TensorSpec:
        value = node.meta["val"]
        dims = [self._symbols.dim(size) for size in value.shape]
        return TensorSpec(dims, dtype_of(value.dtype), node.name)

    def build(self, weight: Any, tensors: Sequence[Tensor], *, assign: bool) -> list[Tensor]:
        """Adds the nodes; returns the results that are tensors."""
        given = iter(tensors)
        values = [self._value(node, weight, given) for node in self._placeholders]
        importer = Importer(self._source.name, self._renewed)
        results = importer.run(self._source.module, values)
        hint = _HINT_OF_FILES if self._source.is_file else _HINT
        refuse_all("from_torch", importer.refusals, hint)
        origins: Any = importer.made.items()
        for item in origins:
            current_graph().add_to_collection(ORIGINS, item)
        found: list[Tensor] = []
        assigned: list[str] = []
        call = Call((), lambda module, values: [])
        for (kind, changed), value in zip(self._source.results, results, strict=True):
            if kind in MUTATIONS and assign:
                assigned += self._assign(weight, changed, value)
            elif kind == "USER_OUTPUT" and _is_tensor(value):
                found.append(call.tensor(value))
            elif kind == "USER_INPUT_MUTATION":
                refuse_all("from_torch", [Refusal("the model", "changes one of its inputs")], _HINT)
        with control_inputs(tuple(assigned)):  # a forward pass changes them, as in PyTorch
            return [identity(t) for t in found] if assigned else found

    def _value(self, node: Any, weight: Any, given: Any) -> Any:
        fqn = self._held.get(node.name)
        if fqn is not None:
            needed = self._is_needed(node)
            return weight(self._shared.get(fqn, fqn)).read() if needed else UNKNOWN
        constant_name = self._constants.get(node.name)
        if constant_name is not None:
            return constant(self._source.tensors(constant_name).read())
        return next(given) if self._is_input(node) else node.meta.get("val")

    def _assign(self, weight: Any, fqn: str, value: Any) -> list[str]:
        """Assigns a weight; returns the name of the node. In the body of a loop it does nothing."""
        graph = current_graph()
        if graph.parent is not None:
            return []
        assigned = weight(self._shared.get(fqn, fqn)).assign(value)
        graph.add_to_collection(UPDATES, assigned)
        return [assigned.node.name]

    def wrap(self, names: Sequence[str], results: Sequence[Tensor]) -> Any:
        """The nest that the module returns."""
        try:
            return self._nest(results)
        except Exception:  # a class that checks what it holds
            return list(results)

    def _nest(self, results: Sequence[Any]) -> Any:
        rest = iter(results)
        return self._source.nest([next(rest) if _is_tensor(v) else v for v in self._returned])


def _is_tensor(value: Any) -> bool:
    """Whether a result of the program is a tensor, or a number, which becomes one."""
    return value is not None and not isinstance(value, str)
