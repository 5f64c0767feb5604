"""Rules: how an operator of TensorFlow is written with graphc's operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from graphc.importers.tensorflow.values import Sizes, Value, VariableRef, WeightValue, as_tensor
from graphc.ir.dims import Dim
from graphc.ir.dtypes import Array, DType
from graphc.ir.node import Tensor
from graphc.train.tensorflow.tensors import DTypeNumber

if TYPE_CHECKING:
    from graphc.importers.tensorflow.evaluation import Scope
    from graphc.importers.tensorflow.graph import TFNode


class Unsupported(Exception):
    """An operator cannot be imported with these arguments. The text is the reason."""


class Call:
    """One application of an operator, as a rule sees it.

    Attributes:
        node: TensorFlow's node.
        scope: where its inputs were evaluated.
    """

    def __init__(self, node: TFNode, scope: Scope) -> None:
        self.node = node
        self.scope = scope

    def attr(self, name: str, default: Any = None) -> Any:
        """The value of an attribute."""
        return self.node.attr(name, default)

    def text(self, name: str, default: str = "") -> str:
        """The value of an attribute that is a string."""
        value = self.node.attr(name)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else default

    def dtype(self, name: str = "T", default: str | None = None) -> DType:
        """The dtype that an attribute names. Without a default, the attribute must be there."""
        value = self.node.attr(name)
        if not value and default is not None:
            return np.dtype(default)
        if not isinstance(value, DTypeNumber):
            self.refuse(f"has no attribute {name!r}")
        return value.dtype

    def refuse(self, why: str) -> NoReturn:
        """Raises Unsupported.

        Args:
            why: goes on after the name of the operator: "takes strings".
        """
        raise Unsupported(why)

    def tensor(self, value: Value) -> Tensor:
        """An input as a tensor. A weight is read."""
        if isinstance(value, (WeightValue, VariableRef)):
            return self.scope.build.variable(value.name).read()
        try:
            return as_tensor(value)
        except TypeError as error:
            raise Unsupported(str(error)) from None

    def static(self, value: Value, what: str) -> Array:
        """An input whose value must be known at import, as an array."""
        if isinstance(value, WeightValue):
            return value.array
        if isinstance(value, np.ndarray):
            return value
        self.refuse(f"needs a constant for {what}")

    def dims(self, value: Value, what: str) -> list[Dim]:
        """A vector of sizes that must be known at import, up to named sizes."""
        if isinstance(value, Sizes):
            return [d if not isinstance(d, np.integer) else int(d) for d in value.items.reshape(-1)]
        return [int(d) for d in self.static(value, what).reshape(-1)]

    def dim(self, value: Value, what: str) -> Dim:
        """A size that must be known at import, up to named sizes."""
        found = self.dims(value, what)
        if len(found) != 1:
            self.refuse(f"needs one number for {what}")
        return found[0]

    def number(self, value: Value, what: str) -> int:
        """An integer that must be known at import."""
        found = self.static(value, what)
        if found.size != 1:
            self.refuse(f"needs one number for {what}")
        return int(found.reshape(()))

    def axes(self, value: Value, rank: int) -> tuple[int, ...]:
        """The axes that an input names, none negative."""
        found = [int(a) for a in self.static(value, "its axes").reshape(-1)]
        if any(not -rank <= a < rank for a in found):
            self.refuse(f"names the axes {found} of {rank}")
        return tuple(sorted({a % rank for a in found}))


Function = Callable[..., Any]
"""(call, inputs in the forms that the rule asks for) -> a value, or a sequence of values."""


@dataclass(frozen=True)
class Rule:
    """How one operator is written.

    Attributes:
        function: makes the results.
        kinds: a letter for each input: t tensor, s array known at import, d sizes known at import,
            n integer known at import, v any value. A last "*" repeats the letter before it.
        outputs: the names of the output arguments, if there are several.
    """

    function: Function
    kinds: str
    outputs: tuple[str, ...] = ()

    def apply(self, call: Call, inputs: Sequence[Value]) -> list[Value]:
        """The results of a node.

        Raises:
            Unsupported: they cannot be imported.
        """
        kinds = self.kinds
        if kinds.endswith("*"):
            kinds = kinds[:-1] + kinds[-2] * max(0, len(inputs) - len(kinds) + 1)
        if len(inputs) > len(kinds):
            call.refuse(f"has {len(inputs)} inputs, where {len(kinds)} are known")
        converted = [
            _CONVERSIONS[kind](call, value) for kind, value in zip(kinds, inputs, strict=False)
        ]
        result = self.function(call, *converted)
        return list(result) if isinstance(result, (list, tuple)) else [result]


_CONVERSIONS: dict[str, Callable[[Call, Value], Any]] = {
    "t": lambda call, value: call.tensor(value),
    "s": lambda call, value: call.static(value, "an argument"),
    "d": lambda call, value: call.dims(value, "a shape"),
    "n": lambda call, value: call.number(value, "an argument"),
    "v": lambda call, value: value,
}


class Family:
    """The rules of one file."""

    def __init__(self) -> None:
        self.rules: dict[str, Rule] = {}

    def rule(
        self, *names: str, kinds: str = "t*", outputs: Sequence[str] = ()
    ) -> Callable[[Function], Function]:
        """Registers a function as the rule of operators."""

        def register(function: Function) -> Function:
            for name in names:
                self.rules[name] = Rule(function, kinds, tuple(outputs))
            return function

        return register

    def plain(self, table: dict[str, Callable[..., Any]]) -> None:
        """Registers operators that take tensors and have no attributes."""
        for name, function in table.items():
            self.rules[name] = Rule(_without_call(function), "t*")


def _without_call(function: Callable[..., Any]) -> Function:
    return lambda call, *tensors: function(*tensors)
