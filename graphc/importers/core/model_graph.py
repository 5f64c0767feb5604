"""`ModelGraph`: a graph that holds one imported model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from graphc.artifacts.signature import Signature
from graphc.artifacts.vocabulary import Vocabulary
from graphc.ir.graph import Graph
from graphc.ir.names import Names
from graphc.ir.node import Node, Tensor
from graphc.ir.variable import Variable

ORIGINS = "imported_values"
"""The collection of a graph with (name of a value in the framework, its tensor)."""


@dataclass(frozen=True)
class ModelGraph:
    """A graph that holds one imported model. `ImportedModel.to_graph` returns it.

    Attributes:
        graph: the graph, for `gc.Session` and `gc.compile`.
        inputs: the placeholders by the model's names.
        outputs: the results by the model's names.
        updates: the assignments that the model makes in training, such as those of moving averages.
        variables: the variables by the names that the model's framework gives them.
        origins: tensors by the names that values have in the framework, if they were recorded.
        input_vocabularies, output_vocabularies: the words of inputs and outputs that are strings in
            the framework.

    Examples:
        >>> x = gc.placeholder((2,), name="x")
        >>> alone = gc.ModelGraph(x.graph, {"x": x}, {"twice.1": x * 2}, (), {})
        >>> run(alone.outputs["twice.1"], {alone.inputs["x"]: [1.0, 3.0]})
        Array([2., 6.], dtype=float32)
        >>> list(alone.signature().outputs)
        ['twice_1']
    """

    graph: Graph
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    updates: tuple[Node | Tensor, ...]
    variables: Mapping[str, Variable]
    origins: Mapping[str, Tensor] = field(default_factory=dict)
    input_vocabularies: Mapping[str, Vocabulary] = field(default_factory=dict)
    output_vocabularies: Mapping[str, Vocabulary] = field(default_factory=dict)

    def signature(self, *, freeze: bool = False) -> Signature:
        """The signature of the model, for `gc.save`. Names that Python cannot use as arguments are
        changed: "input.1" becomes "input_1".

        Args:
            freeze: whether variables are constants, as `gc.freeze` makes them.
        """
        inputs = _identifiers(self.inputs)
        words = _renamed(self.input_vocabularies, self.inputs, inputs)
        # A signature has one vocabulary for a name.
        outputs = _identifiers(self.outputs, taken=words)
        words |= _renamed(self.output_vocabularies, self.outputs, outputs)
        return Signature(inputs, outputs, freeze=freeze, vocabularies=words)


def _renamed(
    vocabularies: Mapping[str, Vocabulary], old: Iterable[str], new: Iterable[str]
) -> dict[str, Vocabulary]:
    names = zip(old, new, strict=True)
    return {name: vocabularies[was] for was, name in names if was in vocabularies}


def _identifiers(tensors: Mapping[str, Tensor], taken: Iterable[str] = ()) -> dict[str, Tensor]:
    """The tensors by names that are identifiers, and not among those that are taken."""
    names, found = Names(), dict[str, Tensor]()
    for name in taken:
        names.reserve(name)
    for name, tensor in tensors.items():
        base = re.sub(r"\W", "_", name)
        found[names.unique(base if base.isidentifier() else f"_{base}")] = tensor
    return found
