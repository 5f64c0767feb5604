"""`Variable`: named state of a graph, with an initial value that is data."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from graphc.ir.calls import explain_methods, explained
from graphc.ir.node import Tensor
from graphc.ir.operand import Operand
from graphc.ir.operand_types import OperandLike
from graphc.ir.operators import METHODS
from graphc.ir.sharding import Spec
from graphc.ir.types import TensorType

if TYPE_CHECKING:
    from graphc.ir.graph import Graph
    from graphc.ir.source import Source


class Initializer(Protocol):
    """Computes an initial value on the host: `(rng, shape, dtype) -> array`."""

    def __call__(
        self, rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any], /
    ) -> np.ndarray[Any, Any]: ...


class Variable(Operand):
    """State that persists across runs under one name. `gc.variable` creates it.

    As an operand it is read at its position in program order. A run that includes an assignment
    updates it. Fetching the variable returns its value after the run.

    Attributes:
        initial: an array, an `Initializer`, or a tensor of the same graph, computed from the
            initial values of other variables when it is first needed.
        shard: its layout on a mesh of devices, with an entry for each axis, as set by `gc.shard`;
            None if it is not set.
        shard_source: the line that sets it.

    Examples:
        >>> w = gc.variable([1.0, 2.0], name="w")
        >>> w, w.trainable
        (<Variable w f32[2]>, True)
        >>> run(w.assign(w * 10))
        Array([10., 20.], dtype=float32)
    """

    __slots__ = (
        "__weakref__",
        "collections", "device", "graph", "initial", "name", "shard", "shard_source", "source",
        "trainable", "type",
    )  # fmt: skip

    name: str

    instead = (
        "send the graph, which can be pickled and copied, and find it there: graph.variable(name). "
        "To use a layer twice, create two layers"
    )

    def __init__(
        self,
        graph: Graph,
        name: str,
        type: TensorType,
        initial: np.ndarray[Any, Any] | Initializer | Tensor,
        *,
        trainable: bool = True,
        collections: tuple[str, ...] = (),
        device: str = "",
        source: Source | None = None,
        shard: Spec | None = None,
    ) -> None:
        self.graph = graph
        object.__setattr__(self, "name", name)  # the class's own method rejects changes of a name
        self.type = type
        self.initial = initial
        self.trainable = trainable
        self.collections = collections
        self.device = device
        self.source = source
        self.shard = shard
        self.shard_source = source

    def read(self) -> Tensor:
        """The value at this point of program order: after the earlier assignments of the run.

        Examples:
            >>> w = gc.variable(1.0, name="w")
            >>> before, changed = w.read(), w.assign(5.0)
            >>> run([before, changed])
            [Array(1., dtype=float32), Array(5., dtype=float32)]
        """
        return _method("read")(self)

    def assign(self, value: OperandLike) -> Tensor:
        """Adds an assignment of `value` (no cast, same shape). Returns the assigned value.

        The assignment is executed only in runs whose fetches need it: fetch it, or name it in
        `gc.group` or `gc.control_dependencies`.

        Examples:
            >>> w = gc.variable([1.0, 2.0], name="w")
            >>> run(w.assign([3.0, 4.0]))
            Array([3., 4.], dtype=float32)
        """
        return _method("assign")(self, value)

    def assign_add(self, value: OperandLike) -> Tensor:
        """`assign(read() + value)`.

        Examples:
            >>> count = gc.variable(1, name="count")
            >>> run(count.assign_add(10))
            Array(11, dtype=int32)
        """
        return _method("assign_add")(self, value)

    def assign_sub(self, value: OperandLike) -> Tensor:
        """`assign(read() - value)`.

        Examples:
            >>> count = gc.variable(1, name="count")
            >>> run(count.assign_sub(10))
            Array(-9, dtype=int32)
        """
        return _method("assign_sub")(self, value)

    def __repr__(self) -> str:
        return f"<Variable {self.name} {self.type}>"


Variable.__init__ = explained(  # type: ignore[method-assign]
    Variable.__init__, hint="gc.variable(initial, name=...) makes a variable"
)
explain_methods(Variable)


def _method(name: str) -> Callable[..., Tensor]:
    return METHODS[name]
