"""Evaluates a StableHLO module with `jax.lax`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jax import numpy as jnp

from graphc.importers.core.refusals import Refusal
from graphc.importers.core.weights import Weight
from graphc.importers.stablehlo import arrays, elementwise, regions
from graphc.importers.stablehlo.operation import NotKnownError, Operation, constant, parse_type
from graphc.ir.dtypes import is_floating

RULES = {**elementwise.RULES, **arrays.RULES, **regions.RULES}
"""Operation -> the function that evaluates it: (operation, *operands) -> a result, or a list."""

_ENDS = ("func.return", "stablehlo.return")
_SMALLEST = 16  # elements of a constant that is a weight


class Module:
    """A checked module.

    Attributes:
        main: the function that is imported.
        inputs, outputs: the types of its arguments and results.
        weights: the larger floating constants, by names.
    """

    def __init__(self, module: Any) -> None:
        self._module = module  # keeps the context alive
        self._functions = {
            str(each.operation.attributes["sym_name"].value): each.operation
            for each in module.body.operations
            if each.operation.name == "func.func"
        }
        self.main = self._functions["main"]
        block = self.main.regions[0].blocks[0]
        last = list(block.operations)[-1].operation
        self.inputs = [parse_type(str(argument.type)) for argument in block.arguments]
        self.outputs = [parse_type(str(value.type)) for value in last.operands]
        self._names: dict[Any, str] = {}
        self.weights: dict[str, Weight] = {}
        for operation in self._all():
            self._take_weight(operation)

    def _all(self) -> Iterator[Any]:
        for function in self._functions.values():
            for block in function.regions[0].blocks:
                yield from (each.operation for each in block.operations)

    def _take_weight(self, operation: Any) -> None:
        if operation.name != "stablehlo.constant":
            return
        shape, dtype = parse_type(str(operation.results[0].type))
        if not is_floating(dtype) or np.prod(shape, dtype=np.int64) < _SMALLEST:
            return
        if not getattr(operation.attributes["value"], "is_splat", False):
            name = f"constant_{len(self.weights)}"
            self._names[operation.results[0]] = name
            self.weights[name] = Weight(constant(operation), trainable=True)

    def evaluate(
        self,
        inputs: Sequence[Any],
        weights: Mapping[str, Any],
        refusals: list[Refusal] | None = None,
    ) -> list[Any]:
        """The results of the main function.

        Args:
            weights: their values by name.
            refusals: collects what no rule covers, whose results are then zeros.

        Raises:
            NotKnownError: no rule covers an operation, and `refusals` is not given.
        """
        return _Evaluation(self._functions, self._names, weights, refusals).call("main", inputs)


class _Evaluation:
    """One evaluation. Regions see the values around them, so all values are in one table."""

    def __init__(
        self,
        functions: Mapping[str, Any],
        names: Mapping[Any, str],
        weights: Mapping[str, Any],
        refusals: list[Refusal] | None,
    ) -> None:
        self._functions, self._names, self._weights = functions, names, weights
        self._refusals = refusals
        self._values: dict[Any, Any] = {}

    def call(self, name: str, values: Sequence[Any]) -> list[Any]:
        return self.run(self._functions[name].regions[0].blocks[0], values)

    def run(self, block: Any, values: Sequence[Any]) -> list[Any]:
        known = self._values
        known.update(zip(block.arguments, values, strict=True))
        for each in block.operations:
            raw = each.operation
            operands = [known[value] for value in raw.operands]
            if raw.name in _ENDS:
                return operands
            known.update(zip(raw.results, self._results(raw, operands), strict=True))
        return []

    def _results(self, raw: Any, operands: Sequence[Any]) -> Sequence[Any]:
        if len(raw.results) == 1 and raw.results[0] in self._names:
            return [self._weights[self._names[raw.results[0]]]]
        op = Operation(raw, self.run, self.call)
        try:
            rule = RULES.get(op.name)
            if rule is None:
                raise NotKnownError(op.name)
            found = rule(op, *operands)
        except NotKnownError as error:
            if self._refusals is None:
                raise
            self._refusals.append(Refusal(str(error)))
            found = [jnp.zeros(*parse_type(str(value.type))) for value in raw.results]
        return found if isinstance(found, list) else [found]
