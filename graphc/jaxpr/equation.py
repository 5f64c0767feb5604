"""The argument of the rules of primitives: the equation with its parameters, result types and
helpers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from graphc.errors import JaxImportError
from graphc.ir.dims import product
from graphc.ir.dtypes import Array
from graphc.ir.node import Tensor
from graphc.ir.opdef import Effects
from graphc.ir.scopes import AMBIENT
from graphc.ir.source import current_source
from graphc.ir.types import TensorType
from graphc.jaxpr.sources import origin
from graphc.jaxpr.symbols import Symbols

Results = Tensor | Sequence[Tensor | None]  # None: an unused result

# The default hint.
OTHERWISE = "write this part with gc.* operators, or pass its result as an argument"
# Why collectives are refused, and the hint.
COLLECTIVES = (
    "graphc inserts collectives itself",
    "write the function for the whole batch: a strategy splits it over devices",
)
_SMALL = 64  # elements: only indices and sizes are needed at import


@dataclass(frozen=True, eq=False, slots=True)
class Equation:
    """One equation of a jaxpr while its nodes are added.

    Attributes:
        eqn: JAX's record.
        types: the types of its results.
        used: which of its results are needed.
        symbols: the named sizes of graphc and of JAX.
        inline: `(jaxpr, operands, used) -> results`, for the jaxprs in its parameters.
        has_own_derivative: whether a custom derivative becomes that of the node; otherwise the
            function as a whole has a derivative.
        inline_derivative: `(jaxpr, operands) -> results`, for the jaxpr of a derivative.
        max_trips: the maximum number of iterations of a loop of a computed length; None for no
            limit.
    """

    eqn: Any
    types: tuple[TensorType, ...]
    used: tuple[bool, ...]
    symbols: Symbols
    inline: Callable[[Any, Sequence[Tensor], Sequence[bool]], list[Tensor | None]]
    has_own_derivative: bool
    inline_derivative: Callable[[Any, Sequence[Tensor]], list[Tensor]]
    max_trips: int | None

    @property
    def params(self) -> Mapping[str, Any]:
        params: Mapping[str, Any] = self.eqn.params
        return params

    @property
    def type(self) -> TensorType:
        """The type of the only result."""
        return self.types[0]

    def ints(self, name: str) -> tuple[int, ...]:
        """A parameter that holds axes or counts (which JAX may give as NumPy integers)."""
        return tuple(int(i) for i in self.params[name])

    def refuse(self, why: str, hint: str = OTHERWISE) -> NoReturn:
        """Raises `JaxImportError` with the primitive's name, JAX's caller and the user's line."""
        refuse(self.eqn, why, hint)


Rule = Callable[..., Results]  # (equation, *operands)


def refuse(eqn: Any, why: str, hint: str = OTHERWISE) -> NoReturn:
    """Raises `JaxImportError` for an equation."""
    where = origin(eqn)
    raise JaxImportError(
        f"JAX primitive {eqn.primitive.name!r}: {why}",
        details=[f"in {where}"] if where else [],
        source=AMBIENT.source or current_source(),
        hint=hint,
    )


def known_value(tensor: Tensor) -> Array | None:
    """The value of a small tensor that depends only on constants; None for any other."""
    return _known(tensor, {})


def _known(tensor: Tensor, seen: dict[Tensor, Array | None]) -> Array | None:
    if tensor not in seen:
        seen[tensor] = _folded(tensor, seen)
    return seen[tensor]


def _folded(tensor: Tensor, seen: dict[Tensor, Array | None]) -> Array | None:
    graph = tensor.graph
    node = graph.find_producer(tensor) if graph is not None else None
    if node is None or node.op.fold is None or len(node.outputs) != 1:
        return None
    size = product(tensor.type.shape)
    if not isinstance(size, int) or size > _SMALL:
        return None
    operands = []
    for operand in node.inputs:
        value = _known(operand, seen)
        if value is None:
            return None
        operands.append(value)
    result = node.op.fold(*operands, **node.attrs)
    return None if result is None else np.asarray(result, tensor.type.dtype)


def known_int(tensor: Tensor) -> int | None:
    """`known_value` of an integer scalar."""
    value = known_value(tensor)
    return None if value is None else int(value.reshape(()))


def depends_on_nothing(tensor: Tensor) -> bool:
    """Whether a tensor is computed from constants alone."""
    waiting, seen = [tensor], {tensor}
    while waiting:
        graph = waiting[-1].graph
        node = graph.find_producer(waiting.pop()) if graph is not None else None
        if node is None or node.regions or node.op.effects is not Effects.PURE:
            return False
        new = [operand for operand in node.inputs if operand not in seen]
        seen.update(new)
        waiting += new
    return True
