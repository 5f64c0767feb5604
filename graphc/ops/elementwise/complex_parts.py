"""Complex numbers and their parts. Gradients are those of `jax.vjp`."""

from __future__ import annotations

from functools import partial

import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.ir.dtypes import COMPLEX64, is_complex, real_of
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import GradientContext, InferContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.core.broadcasting import Adjoints, infer_broadcast, require_one_dtype, unbroadcast
from graphc.ops.core.cost_rules import moves_only
from graphc.ops.core.declaring import Given, declared, elementwise_operator, record
from graphc.ops.core.emit import convert, promote_inexact, to_dtype
from graphc.ops.core.layout_rules import additive
from graphc.typing import TensorLike

__all__ = ["complex", "conj", "conjugate", "imag", "real"]


def _infer_part(ctx: InferContext, x: TensorType) -> TensorType:
    return TensorType(real_of(x.dtype), x.shape)


def _imag_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    if not is_complex(node.inputs[0].type.dtype):
        return [None]
    return [make_complex(0.0, -dy)]


_part = partial(elementwise_operator, infer=_infer_part, layout=additive, cost=moves_only)


@_part("Real", jnp.real, derivative=lambda dy, x, y: to_dtype(dy, x.type.dtype), fold=np.real)
def real(x: TensorLike, *, name: str | None = None) -> Given:
    """The real part, elementwise: complex64 gives float32; real x is unchanged.

    Examples:
        >>> run(gc.real([1 + 2j]))
        Array([1.], dtype=float32)
    """
    return (convert(x),)


@_part(
    "Imag",
    jnp.imag,
    gradient=_imag_gradient,
    fold=lambda x: np.imag(x) if is_complex(x.dtype) else np.zeros_like(x),
)
def imag(x: TensorLike, *, name: str | None = None) -> Given:
    """The imaginary part, elementwise: complex64 gives float32; zeros for real x.

    Examples:
        >>> run(gc.imag([1 + 2j]))
        Array([2.], dtype=float32)
    """
    return (convert(x),)


def _infer_complex(ctx: InferContext, re: TensorType, im: TensorType) -> TensorType:
    require_one_dtype(ctx, re, im)
    ctx.require_dtype((re, im), lambda dtype: dtype.char in "fd", "float32 or float64")
    dtype = np.dtype(np.complex128) if re.dtype == np.float64 else COMPLEX64
    return TensorType(dtype, infer_broadcast(ctx, re, im).shape)


def _complex_gradient(ctx: GradientContext, node: Node, dz: Tensor) -> Adjoints:
    re, im = node.inputs
    return [unbroadcast(ctx, real(dz), re), unbroadcast(ctx, -imag(dz), im)]


@elementwise_operator(
    "Complex",
    lax.complex,
    "re, im -> z",
    infer=_infer_complex,
    gradient=_complex_gradient,
    layout=additive,
    fold=lambda re, im: re + np.asarray(1j, COMPLEX64) * im,
    cost=moves_only,
)
def make_complex(re: TensorLike, im: TensorLike, *, name: str | None = None) -> Given:
    """re + i * im, elementwise with broadcasting and dtype promotion.

    float32 gives complex64, float64 complex128.

    Raises:
        DTypeError: the operands are not real, or floats narrower than float32.

    Examples:
        >>> run(gc.complex([1.0, 2.0], [3.0, 4.0]))
        Array([1.+3.j, 2.+4.j], dtype=complex64)
    """
    return promote_inexact(re, im)


def _conj_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    return [conj(dy)]


@elementwise_operator(
    "Conj",
    jnp.conj,
    infer=lambda ctx, x: x,
    gradient=_conj_gradient,
    layout=additive,
    fold=np.conj,
)
def conj(x: TensorLike, *, name: str | None = None) -> Given:
    """The complex conjugate, elementwise; real x is unchanged.

    Examples:
        >>> run(gc.conj([1 + 2j]))
        Array([1.-2.j], dtype=complex64)
    """
    return (convert(x),)


complex = make_complex
conjugate = conj

# Records by name, for passes and for rules of other families.
REAL = record(real)
IMAG = record(imag)
COMPLEX = record(make_complex)
CONJ = record(conj)

OPS: tuple[OpDef, ...] = declared(__name__)
