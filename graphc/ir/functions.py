"""`Functions`: the typed functions that gradient rules may call to add nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from graphc.ir.dims import Dim
    from graphc.ir.node import Tensor


class Unary(Protocol):
    """A function of one operand."""

    def __call__(self, x: Any, /, *, name: str | None = None) -> Tensor:
        """The result of the function."""


class Binary(Protocol):
    """A function of two operands."""

    def __call__(self, x: Any, y: Any, /, *, name: str | None = None) -> Tensor:
        """The result of the function."""


class Functions(Protocol):
    """Functions of operator families other than the family of the calling rule.

    A rule directly imports functions of its own family, or of a family earlier in the import order.
    A test compares these signatures with those of the functions.
    """

    conj: Unary
    erf: Unary
    exp: Unary
    log: Unary
    rsqrt: Unary
    sigmoid: Unary
    tanh: Unary
    equal: Binary
    greater: Binary
    greater_equal: Binary
    igamma_grad_a: Binary
    less: Binary
    logical_and: Binary

    def arange(
        self,
        start: Dim | float,
        stop: Dim | float | None = None,
        step: float = 1,
        dtype: Any = None,
        *,
        name: str | None = None,
    ) -> Tensor: ...

    def dim_value(self, dim: Dim, dtype: Any = ...) -> Tensor: ...

    def expand_dims(
        self, x: Any, axis: int | Sequence[int], *, name: str | None = None
    ) -> Tensor: ...

    def gather_at(
        self,
        x: Any,
        indices: Any,
        axes: tuple[int, ...],
        batch: int = 0,
        mode: str = "clip",
        *,
        name: str | None = None,
    ) -> Tensor: ...

    def log_softmax(self, x: Any, axis: int = -1, *, name: str | None = None) -> Tensor: ...

    def matmul(
        self,
        a: Any,
        b: Any,
        *,
        transpose_a: bool = False,
        transpose_b: bool = False,
        name: str | None = None,
    ) -> Tensor: ...

    def random_gamma_grad(
        self, alpha: Any, x: Any, *, log: bool = False, name: str | None = None
    ) -> Tensor: ...

    def reduce_sum(
        self,
        x: Any,
        axis: int | Sequence[int] | None = None,
        keepdims: bool = False,
        *,
        dtype: Any = None,
        where: Any = None,
        initial: Any = None,
        name: str | None = None,
    ) -> Tensor: ...

    def reshape(self, x: Any, shape: Any, *, name: str | None = None) -> Tensor: ...

    def scatter_at(
        self,
        operand: Any,
        indices: Any,
        updates: Any,
        op: str,
        axes: tuple[int, ...],
        batch: int = 0,
        mode: str = "drop",
        *,
        name: str | None = None,
    ) -> Tensor: ...

    def shard(self, x: Any, spec: Any, *, name: str | None = None) -> Tensor: ...

    def softmax(self, x: Any, axis: int = -1, *, name: str | None = None) -> Tensor: ...

    def where(self, condition: Any, x: Any, y: Any, *, name: str | None = None) -> Tensor: ...

    def zeros(self, shape: Any, dtype: Any = ..., *, name: str | None = None) -> Tensor: ...

    def zeros_like(self, x: Any, dtype: Any = None, *, name: str | None = None) -> Tensor: ...
