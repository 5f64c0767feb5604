"""`Call`: what the rule of an operator gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import numpy as np

from graphc.importers.core.words import Words
from graphc.importers.onnx.values import (
    Value,
    WeightRef,
    as_dims,
    is_dims,
    is_strings,
    tensor_of_array,
)
from graphc.ir.dims import Dim
from graphc.ir.dtypes import Array
from graphc.ir.node import Tensor


class Refused(Exception):
    """A node cannot be imported. The importer collects these.

    Args:
        why: completes the sentence that starts with the operator's name.
        needs: whether it would be imported if more values were known.
    """

    def __init__(self, why: str, *, needs: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.needs = needs


@dataclass(frozen=True)
class Call:
    """A node of a model while its nodes of the graph are made.

    Attributes:
        op: the name of the operator.
        version: the version of its operator set that the model uses.
        inputs: the values; None for one that is left out.
        attrs: the attributes as Python values: numbers, strings, arrays, lists and graphs.
        outputs: the names of the results; "" for one that is not used.
        weight: gives the variable of a weight.
        body: `(graph, values) -> results` adds the nodes of a subgraph, with values for its inputs.
    """

    op: str
    version: int
    inputs: Sequence[Value]
    attrs: dict[str, Any]
    outputs: Sequence[str]
    weight: Callable[[str], Any]
    body: Callable[[Any, Sequence[Value]], list[Value]]

    def refuse(self, why: str) -> NoReturn:
        """Says that this node cannot be imported; `why` follows the operator's name."""
        raise Refused(why)

    def has(self, i: int) -> bool:
        """Whether the i-th input is given."""
        return i < len(self.inputs) and self.inputs[i] is not None

    def x(self, i: int = 0) -> Tensor:
        """The i-th input as a tensor."""
        if not self.has(i):
            raise Refused(f"has no input number {i}")
        return self.tensor(self.inputs[i])

    def xs(self) -> list[Tensor]:
        """All inputs as tensors."""
        return [self.tensor(value) for value in self.inputs]

    def tensor(self, value: Value) -> Tensor:
        """A value as a tensor."""
        if isinstance(value, WeightRef):
            found: Tensor = self.weight(value.name).read()
            return found
        if isinstance(value, list):
            raise Refused("takes a tensor, got a sequence")
        if value is None:
            raise Refused("takes a tensor, got an optional value that is not there")
        if isinstance(value, np.ndarray):
            if is_strings(value):
                raise Refused("takes strings, which must be known at import", needs=True)
            return tensor_of_array(value)
        if isinstance(value, Words):
            raise Refused("takes strings that are known only in a run")
        tensor: Tensor = value
        return tensor

    def known(self, i: int) -> Array | None:
        """The i-th input if its value is known at import."""
        value = self.inputs[i] if i < len(self.inputs) else None
        if isinstance(value, WeightRef):
            return value.array
        return value if isinstance(value, np.ndarray) else None

    def need(self, i: int, what: str) -> Array:
        """The value of the i-th input, which must be known at import and without named sizes."""
        value = self.known(i)
        if value is None or is_dims(value):
            raise Refused(
                f"needs {what} at import, but it is computed when the model runs", needs=True
            )
        return value

    def dims(self, i: int, what: str) -> list[Dim]:
        """The sizes in the i-th input, of which some may be named."""
        value = self.known(i)
        if value is None:
            raise Refused(
                f"needs {what} at import, but it is computed when the model runs", needs=True
            )
        return as_dims(value)

    def ints(self, i: int, name: str, what: str) -> list[int] | None:
        """Numbers that are an input in newer versions and an attribute in older ones; None if
        neither is given."""
        if self.has(i):
            return [int(item) for item in self.need(i, what).reshape(-1)]
        found = self.attrs.get(name)
        return None if found is None else [int(item) for item in found]

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute, or its default."""
        return self.attrs.get(name, default)

    def wants(self, i: int) -> bool:
        """Whether the i-th result is used."""
        return i < len(self.outputs) and bool(self.outputs[i])


Rule: TypeAlias = Callable[[Call], Any]
"""Gives the value of the only result, or a tuple with the value of each."""
