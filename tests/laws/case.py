"""One row of the law suite: an operator applied to generated inputs, and its NumPy oracle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class In:
    """An input to generate, with a fixed seed.

    Attributes:
        shape: all ints. For the layout law axis `batch_axis` must be divisible by 4.
        dtype: a dtype name, or "T": replaced by each dtype of the case in turn.
        low, high: range of the (uniform) values; integers include neither NaN nor overflow.
        values: explicit values instead (indices, keys); cast to dtype.
        batch_axis: the axis that may be sharded, or None: the input stays replicated.
        grad: whether the gradient law differentiates with respect to it (floating dtypes only).
        distinct: no two values closer than 1e-2 (for max, argmax: finite differences need it).
    """

    shape: tuple[int, ...]
    dtype: str = "T"
    low: float = -2.0
    high: float = 2.0
    values: Any = None
    batch_axis: int | None = None
    grad: bool = True
    distinct: bool = False


@dataclass(frozen=True)
class Bad:
    """A call that must fail while the graph is built, with a helpful error.

    `call(*tensors)` gets tensors of `inputs`; `match` is a regex on the error's text.
    """

    call: Callable[..., Any]
    inputs: Sequence[In]
    error: type[Exception]
    match: str


@dataclass(frozen=True)
class Case:
    """`build(*tensors)` must equal `oracle(*numpy_arrays)`, for each dtype.

    Attributes:
        op: the catalogue name of the operator the case is about.
        oracle: NumPy/SciPy only, no JAX and no graphc; gives an array or a tuple of them,
            computed in float64 where it matters. None: random operators (moments are tested
            apart); the other laws still hold.
        dtypes: what "T" stands for in turn. Keep float64 among them for differentiable
            operators: the gradient law runs in float64 only.
        gradient: whether the gradient law applies (against finite differences and jax.vjp).
        layout: whether the layout law applies: the program on 1, 2 and 4 devices agrees.
        rtol, atol: for float32 and wider; narrower dtypes get their own from the suite.
    """

    op: str
    build: Callable[..., Any]
    inputs: Sequence[In]
    oracle: Callable[..., Any] | None
    dtypes: Sequence[str] = ("float32", "float64")
    gradient: bool = True
    layout: bool = True
    rtol: float = 2e-5
    atol: float = 1e-6
    label: str = ""
    bad: Sequence[Bad] = ()
