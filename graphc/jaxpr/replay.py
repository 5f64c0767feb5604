"""Replays a jaxpr as nodes: one rule for each equation, in order, without dead equations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jax.extend.core import DropVar, Literal

from graphc.errors import GraphcError, GraphError, JaxImportError
from graphc.ir.dtypes import UINT32, Array, DType, as_dtype
from graphc.ir.node import Tensor
from graphc.ir.scopes import AMBIENT, at_source
from graphc.ir.types import TensorType
from graphc.jaxpr.avals import is_array
from graphc.jaxpr.equation import Equation, Rule, refuse
from graphc.jaxpr.keys import is_key, words_of
from graphc.jaxpr.primitives import primitive
from graphc.jaxpr.sources import is_users, user_line
from graphc.jaxpr.symbols import Symbols
from graphc.ops.arrays.shape import broadcast_to
from graphc.ops.core.emit import constant
from graphc.ops.structure.primitive import is_known

_SHARED = 16  # elements: constants up to this size are created once


@dataclass(eq=False, repr=False)
class Replay:
    """Adds the nodes of jaxprs to the graph being built.

    Args:
        symbols: the named sizes of graphc and of JAX.
        rule_of: returns the rule of an equation's primitive, or raises.
        max_trips: the maximum number of iterations of loops of a computed length.
        whole: whether the function as a whole will get a derivative, so its equations need none.
        make_constant: creates the tensor of an array of more than 16 elements.
        refusals: if given, collects the errors of equations that cannot be turned into nodes, by
            primitive. Zeros take their places. So one replay finds all of them.
    """

    symbols: Symbols
    rule_of: Callable[[Any], Rule]
    max_trips: int | None = None
    whole: bool = False
    make_constant: Callable[[Any], Tensor] | None = None
    refusals: dict[str, JaxImportError] | None = None
    _constants: dict[Any, Tensor] = field(default_factory=dict, init=False)

    def run(
        self,
        jaxpr: Any,
        operands: Sequence[Tensor],
        used: Sequence[bool] | None = None,
        *,
        sources: bool = True,
    ) -> list[Tensor]:
        """The results of `jaxpr` (closed or open) for `operands`.

        Args:
            used: which results are needed. The others are not computed, and the list is shorter.
            sources: whether the equations' own lines are the user's.

        Raises:
            JaxImportError: an equation cannot be turned into nodes.
        """
        inner = getattr(jaxpr, "jaxpr", jaxpr)
        values: dict[Any, Tensor] = dict(zip(inner.invars, operands, strict=True))
        consts: dict[Any, Any] = dict(
            zip(inner.constvars, getattr(jaxpr, "consts", ()), strict=True)
        )

        def value(atom: Any) -> Tensor:
            if isinstance(atom, Literal):
                return self.constant(atom.val, self.type(atom.aval).dtype)
            if atom not in values:
                const = consts[atom]
                words = words_of(const) if is_key(atom.aval.dtype) else const
                values[atom] = self.constant(words, self.type(atom.aval).dtype)
            return values[atom]

        wanted = [v for i, v in enumerate(inner.outvars) if used is None or used[i]]
        outer = AMBIENT.source
        with at_source(outer):
            for eqn, needed in _live(inner.eqns, wanted):
                AMBIENT.source = (user_line(eqn) if sources else None) or outer
                values.update(self._apply(eqn, needed, [value(v) for v in eqn.invars]))
        return [value(v) for v in wanted]

    def type(self, aval: Any) -> TensorType:
        """The type of a JAX value; for random keys, the type of their words.

        Raises:
            JaxImportError: a random key belongs to another generator than graphc's, or the value
                is not an array.
        """
        if not is_array(aval):
            raise JaxImportError(f"it computes with values that are not arrays, of type {aval}")
        shape = self.symbols.dims(aval.shape)
        if is_key(aval.dtype):
            return TensorType(UINT32, (*shape, 2))
        return TensorType(as_dtype(aval.dtype), shape)

    def constant(self, array: Any, dtype: DType) -> Tensor:
        """An array as a tensor; small ones are created once for each graph."""
        if np.size(array) > _SHARED:
            if self.make_constant is not None:
                return self.make_constant(array)
            return constant(np.asarray(array, dtype))
        value: Array = np.asarray(array, dtype)
        key = (AMBIENT.graphs[-1], value.dtype, value.shape, value.tobytes())
        if key not in self._constants:
            self._constants[key] = constant(value)
        return self._constants[key]

    def _apply(
        self, eqn: Any, needed: tuple[bool, ...], operands: Sequence[Tensor]
    ) -> dict[Any, Tensor]:
        if self.refusals is None:
            return self._results(eqn, needed, operands)
        try:
            return self._results(eqn, needed, operands)
        except JaxImportError as error:
            self.refusals.setdefault(eqn.primitive.name, error)
            types = {v: self.type(v.aval) for v in eqn.outvars}
            return {v: broadcast_to(constant(0, t.dtype), t.shape) for v, t in types.items()}

    def _results(
        self, eqn: Any, needed: tuple[bool, ...], operands: Sequence[Tensor]
    ) -> dict[Any, Tensor]:
        rule = self.rule_of(eqn)
        types = tuple([self.type(v.aval) for v in eqn.outvars])
        equation = Equation(
            eqn, types, needed, self.symbols, self._inline,
            not self.whole, self._inline_derivative, self.max_trips,
        )  # fmt: skip
        try:
            results = rule(equation, *operands)
        except (JaxImportError, GraphError):
            raise
        except GraphcError as error:  # an operator of graphc does not take such operands
            if not is_known(eqn.primitive.name):
                raise JaxImportError(
                    f"JAX primitive {eqn.primitive.name!r}: {error.what}",
                    details=error.details,
                    source=error.source,
                    hint=error.hint,
                ) from error
            results = primitive(equation, *operands)
        listed = [results] if isinstance(results, Tensor) else list(results)
        found = {}
        for variable, tensor, type in zip(eqn.outvars, listed, types, strict=True):
            if tensor is not None:
                _check_type(eqn, tensor, type)
                found[variable] = tensor
        return found

    def _inline(
        self, jaxpr: Any, operands: Sequence[Tensor], used: Sequence[bool]
    ) -> list[Tensor | None]:
        own = is_users(getattr(jaxpr, "jaxpr", jaxpr))
        results = iter(self.run(jaxpr, operands, used, sources=own))
        return [next(results) if need else None for need in used]

    def _inline_derivative(self, jaxpr: Any, operands: Sequence[Tensor]) -> list[Tensor]:
        return self.run(jaxpr, operands, sources=False)


def _live(eqns: Sequence[Any], wanted: Sequence[Any]) -> list[tuple[Any, tuple[bool, ...]]]:
    """The equations that `wanted` needs or that have effects, and the results of each that are
    needed."""
    needed = {v for v in wanted if not isinstance(v, Literal)}
    found = []
    for eqn in reversed(eqns):
        used = tuple([not isinstance(v, DropVar) and v in needed for v in eqn.outvars])
        if any(used) or eqn.effects:
            found.append((eqn, used))
            needed.update(v for v in eqn.invars if not isinstance(v, Literal))
    return found[::-1]


def _check_type(eqn: Any, tensor: Tensor, expected: TensorType) -> None:
    got = tensor.type
    if got == expected:
        return
    graph = tensor.graph
    if got.dtype == expected.dtype and got.rank == expected.rank and graph is not None:
        pairs = zip(got.shape, expected.shape, strict=True)
        if all(graph.constraints.unify(a, b) for a, b in pairs):
            return
    refuse(eqn, f"its nodes give {got}, but JAX gives {expected}", "please report this")
