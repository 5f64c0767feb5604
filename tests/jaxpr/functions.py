"""JAX functions whose import must give the same results: one row for each form of a primitive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp


@dataclass(frozen=True)
class Row:
    """`fn`, called with arrays drawn for `shapes`.

    Attributes:
        shapes: of the arguments, floating in `dtype`; an array is passed unchanged.
        primitives: what the row tests; the jaxpr must contain them.
        low, high: range of the drawn values.
        gradient: whether the gradient with respect to the drawn arguments is compared too.
    """

    label: str
    fn: Callable[..., Any]
    shapes: Sequence[Any]
    primitives: tuple[str, ...] = ()
    low: float = -2.0
    high: float = 2.0
    gradient: bool = True
    dtype: str = "float64"


def row(label: str, fn: Callable[..., Any], *shapes: Any, **options: Any) -> Row:
    return Row(label, fn, shapes, **options)


def of(primitive: str, fn: Callable[..., Any], *shapes: Any, **options: Any) -> Row:
    return Row(primitive, fn, shapes or ((4, 3),), primitives=(primitive,), **options)


@jax.custom_jvp
def cubed(x: Any) -> Any:
    return x**3


cubed.defjvp(lambda primals, tangents: (cubed(*primals), 7.0 * tangents[0]))


@jax.custom_vjp
def scaled(x: Any, i: Any, y: Any) -> Any:
    return jnp.sin(x) * i, x * y, i + 1


def _scaled_forward(x: Any, i: Any, y: Any) -> Any:
    return scaled(x, i, y), (x, y)


def _scaled_backward(saved: Any, adjoints: Any) -> Any:
    x, y = saved
    return 10.0 * adjoints[0] + adjoints[1] * y, None, jnp.exp(x) * adjoints[1]


scaled.defvjp(_scaled_forward, _scaled_backward)

INTS = np.array([[7, -7, 3], [-8, 9, -1]], np.int32)
DIVISORS = np.array([[2, 2, -2], [3, -4, -5]], np.int32)
BOOLS = np.array([[True, False, True], [False, True, False]])
PLACES = np.array([[0, 2, 1], [3, 1, 0]], np.int32)
OUTSIDE = np.array([0, -1, 3, 9, -9, -5], np.int32)
COMPLEX = np.array([1 + 2j, -0.5 + 0.1j, 3 - 1j], np.complex128)
HALF = dict(dtype="float32", gradient=False)
INSIDE = dict(low=-0.9, high=0.9)
POSITIVE = dict(low=0.3, high=2.0)


def rem_with_signs(x: Any, y: Any) -> Any:
    return lax.rem(x, y)


ELEMENTWISE = [
    *[
        of(name, fn)
        for name, fn in {
            "abs": jnp.abs, "ceil": jnp.ceil, "cos": jnp.cos, "cosh": jnp.cosh, "erf": lax.erf,
            "exp": jnp.exp, "exp2": jnp.exp2, "expm1": jnp.expm1, "floor": jnp.floor,
            "logistic": lax.logistic, "neg": lax.neg, "sign": jnp.sign, "sin": jnp.sin,
            "sinh": jnp.sinh, "square": jnp.square, "tan": jnp.tan, "tanh": jnp.tanh,
            "atan": jnp.arctan, "cbrt": jnp.cbrt, "copy": jnp.copy,
        }.items()
    ],
    of("acos", jnp.arccos, (4, 3), **INSIDE),
    of("acosh", lambda x: jnp.arccosh(x + 1), (4, 3), **POSITIVE),
    of("asinh", jnp.arcsinh),
    of("atanh", jnp.arctanh, (4, 3), **INSIDE),
    of("erfc", lax.erfc),
    of("erf_inv", lax.erf_inv, (4, 3), **INSIDE),
    row("log2", jnp.log2, (4, 3), **POSITIVE),
    of("asin", jnp.arcsin, (4, 3), **INSIDE),
    of("log", jnp.log, (4, 3), **POSITIVE),
    of("log1p", jnp.log1p, (4, 3), **POSITIVE),
    of("rsqrt", lax.rsqrt, (4, 3), **POSITIVE),
    of("sqrt", jnp.sqrt, (4, 3), **POSITIVE),
    of("add", lambda x, y: x + y, (4, 3), (3,)),
    of("sub", lambda x, y: 1.0 - x - y, (4, 3), (4, 1)),
    of("mul", lambda x, y: x * y * 3, (4, 3), (4, 3)),
    of("div", lambda x, y: x / y, (4, 3), (4, 3), **POSITIVE),
    of("max", jnp.maximum, (4, 3), (4, 3)),
    of("min", jnp.minimum, (4, 3), (3,)),
    row("max of ties", lambda x: jnp.maximum(x, jnp.stack([x[0]] * 4)), (4, 3)),
    of("atan2", jnp.arctan2, (4, 3), (4, 3)),
    of("pow", lambda x, y: x**y, (4, 3), (4, 3), **POSITIVE),
    row("pow of a count", lambda x: x[0] ** jnp.array(3, jnp.int32), (4, 3)),
    row("pow by a number", lambda x: x**2.5, (4, 3), primitives=("pow",), **POSITIVE),
    row("integer_pow", lambda x: (x**2, x**5, x**-3), (4, 3), primitives=("integer_pow",)),
    of("reduce_precision", lambda x: lax.reduce_precision(x, 5, 7)),
    of("clamp", lambda x: lax.clamp(-1.0, x, 0.5)),
    row("clip by arrays", jnp.clip, (4, 3), (3,), (4, 3)),
    of("rem", rem_with_signs, (4, 3), (4, 3), **POSITIVE),
    row("rem of negative", lambda x, y: lax.rem(-x, y), (4, 3), (4, 3), **POSITIVE),
    row("rem by negative", lambda x, y: lax.rem(x, -y), (4, 3), (4, 3), **POSITIVE),
    row("mod", lambda x: (x % 0.7, x // 0.7, jnp.fmod(x, 0.7), divmod(x, 0.3)), (4, 3)),
    of("round", jnp.round),
    row("round away", lambda x: lax.round(x), np.arange(-3, 3, 0.25), gradient=False),
    of("select_n", lambda x, y: jnp.where(x > 0, x, y), (4, 3), (4, 3)),
    row(
        "select_n of three",
        lambda x: lax.select_n(jnp.array([0, 2, 1]), x[0], x[1], x[2]),
        (4, 3),
        primitives=("select_n",),
    ),
    row("select by a scalar", lambda x: lax.select(x[0, 0] > 0, x, -x), (4, 3)),
    *[
        of(name, fn, (4, 3), (4, 3), gradient=False)
        for name, fn in {
            "eq": jnp.equal, "ne": jnp.not_equal, "lt": jnp.less, "le": jnp.less_equal,
            "gt": jnp.greater, "ge": jnp.greater_equal,
        }.items()
    ],
    of("is_finite", lambda x: jnp.isfinite(x / jnp.floor(x)), gradient=False),
    row("isnan and isinf", lambda x: (jnp.isnan(x), jnp.isinf(x / 0)), (4, 3), gradient=False),
    of("convert_element_type", lambda x: (x.astype(jnp.float32) * 2).astype(jnp.float64)),
    row("to integers", lambda x: (x.astype("int32"), x.astype(bool)), (4, 3), gradient=False),
    of("stop_gradient", lambda x: lax.stop_gradient(x) * x),
    of("optimization_barrier", lambda x: lax.optimization_barrier((x, x * 2)), gradient=False),
    of("real", lambda x: jnp.real(x * COMPLEX), (3,), gradient=False),
    of("imag", lambda x: jnp.imag(x * COMPLEX), (3,), gradient=False),
    of("conj", lambda x: jnp.conj(x * COMPLEX), (3,), gradient=False),
    of("complex", lambda x: lax.complex(x, x * 2), (3,), gradient=False),
    row("abs of complex", lambda x: jnp.abs(x * COMPLEX), (3,)),
    *[
        of(name, fn, INTS, DIVISORS, gradient=False)
        for name, fn in {
            "and": jnp.bitwise_and, "or": jnp.bitwise_or, "xor": jnp.bitwise_xor,
        }.items()
    ],
    of("not", lambda i, b: (~i, ~b), INTS, BOOLS, gradient=False),
    row("logic", lambda b, c: (b & c, b | ~c, b ^ c), BOOLS, ~BOOLS[::-1], gradient=False),
    row(
        "integer division",
        lambda i, j: (lax.div(i, j), lax.rem(i, j), i // j, i % j),
        INTS,
        DIVISORS,
        gradient=False,
    ),
    row("unsigned division", lambda i: (lax.div(i, i - i + 3), lax.rem(i, i - i + 3)),
        np.arange(7, dtype=np.uint32), gradient=False),
    row("powers of integers", lambda i: (i**3, i**2, abs(i)), INTS, gradient=False),
]  # fmt: skip

SHAPES = [
    of("reshape", lambda x: x.reshape(2, -1)),
    of("transpose", lambda x: jnp.transpose(x, (2, 0, 1)), (4, 3, 2)),
    of("squeeze", lambda x: jnp.squeeze(x, 1), (4, 1, 3)),
    of("broadcast_in_dim", lambda x: jnp.broadcast_to(x[:, None], (4, 5, 3)) * 1.0),
    row("broadcast in the middle", lambda x: lax.broadcast_in_dim(x, (3, 5, 4), (2,)), (4,)),
    row("new axes", lambda x: (x[None], x[:, None], jnp.expand_dims(x, (0, 2))), (4, 3)),
    of("concatenate", lambda x, y: jnp.concatenate([x, y, x], 1), (4, 3), (4, 2)),
    of("stack", lambda x, y: jnp.stack([x, y], 1), (4, 3), (4, 3)),
    of("split", lambda x: jnp.split(x, [1, 3], 0)),
    row("unstack", lambda x: jnp.unstack(x, axis=1)[::-1], (4, 3)),
    row("tile and repeat", lambda x: (jnp.tile(x, (2, 1)), jnp.repeat(x, 2, 1)), (4, 3)),
    of("pad", lambda x: jnp.pad(x, ((1, 2), (0, 3)), constant_values=5.0)),
    row("pad inside and cut", lambda x: lax.pad(x, x[0, 0], [(-1, 2, 1), (1, -1, 0)]), (4, 3)),
    row("pad at the edge", lambda x: jnp.pad(x, 1, mode="edge"), (4, 3)),
    of("slice", lambda x: x[1:4:2, :2]),
    of("rev", lambda x: x[::-1, ::-1]),
    row("roll", lambda x: jnp.roll(x, 2, 0), (4, 3)),
    of("iota", lambda x: x * jnp.arange(3.0) + lax.broadcasted_iota(jnp.int32, (4, 3), 0)),
    row("triangles", lambda x: (jnp.tril(x), jnp.triu(x, 1), jnp.eye(3), jnp.diag(x[0])), (4, 3)),
    row("linspace", lambda x: x * jnp.linspace(0, 1, 3), (4, 3)),
]

REDUCTIONS = [
    of("reduce_sum", lambda x: (jnp.sum(x), jnp.sum(x, 1), jnp.mean(x, 0, keepdims=True))),
    of("reduce_max", lambda x: (jnp.max(x), jnp.max(x, 1))),
    of("reduce_min", lambda x: (jnp.min(x, 0), jnp.min(x, (0, 1)))),
    of("reduce_prod", lambda x: jnp.prod(x, 1)),
    of("reduce_and", lambda x: jnp.all(x > -1, 1), gradient=False),
    of("reduce_or", lambda x: jnp.any(x > 1, 1), gradient=False),
    of("argmax", lambda x: (jnp.argmax(x, 1), jnp.argmax(x)), gradient=False),
    of("argmin", lambda x: jnp.argmin(x, 0), gradient=False),
    of("cumsum", lambda x: (jnp.cumsum(x, 1), lax.cumsum(x, 0, reverse=True))),
    of("cumprod", lambda x: (jnp.cumprod(x, 0), lax.cumprod(x, 1, reverse=True))),
    of("cummax", lambda x: (lax.cummax(x, 0), lax.cummax(x, 0, reverse=True)), (5, 3)),
    of("cummin", lambda x: lax.cummin(x, 1)),
    row("cummax of integers", lambda i: lax.cummax(i, 1), INTS, gradient=False),
    row("moments", lambda x: (jnp.var(x, 0), jnp.std(x), jnp.linalg.norm(x)), (4, 3)),
    row("logsumexp", lambda x: jax.nn.logsumexp(x, axis=1), (4, 3)),
    of(
        "reduce_window_max",
        lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 2, 1), (1, 2, 1, 1), "SAME"),
        (2, 6, 5, 3),
    ),
    row(
        "max over three axes, and over none",
        lambda x: (
            lax.reduce_window(x, -jnp.inf, lax.max, (2, 2, 2), (1, 1, 1), "VALID"),
            lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 1), (1, 1, 1), "VALID"),
        ),
        (3, 4, 3),
    ),
    of(
        "reduce_window_sum",
        lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
        (2, 6, 4, 3),
    ),
    of(
        "reduce_window_min",
        lambda x: lax.reduce_window(x, jnp.inf, lax.min, (2, 2), (2, 1), "VALID"),
        (4, 6),
    ),
    row(
        "windows over one leading axis",
        lambda x: lax.reduce_window(x, 0.0, lax.add, (3, 1), (1, 1), ((1, 1), (0, 0))),
        (6, 4),
    ),
    row(
        "windows of channels first",
        lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID"),
        (2, 3, 4, 6),
    ),
    row(
        "windows over all",
        lambda x: lax.reduce_window(x, 0.0, lax.add, (2, 2), (1, 1), "VALID"),
        (4, 3),
    ),
]

PRODUCTS = [
    of("dot_general", lambda a, b: a @ b, (4, 3), (3, 5)),
    row("product with a vector", lambda a, b: (a @ b, b @ a.T, b @ b), (4, 3), (3,)),
    row("batches", lambda a, b: (a @ b, jnp.einsum("bij,bkj->bik", a, a)), (2, 4, 3), (2, 3, 5)),
    row("many rows, one matrix", lambda a, b: a @ b, (2, 4, 3), (3, 5)),
    row("einsum", lambda a, b: jnp.einsum("bij,cjd->icdb", a, b), (2, 4, 3), (5, 3, 2)),
    row("transposed", lambda a, b: a.T @ b.T, (3, 4), (5, 3)),
    row(
        "wider sums",
        lambda a: lax.dot(a, a.T, preferred_element_type=jnp.float32),
        (4, 3),
        dtype="float16",
        gradient=False,
    ),
    row("outer", jnp.outer, (4,), (3,)),
    of(
        "conv_general_dilated",
        lambda x, w: lax.conv_general_dilated(
            x, w, (2, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        ),
        (2, 6, 5, 3),
        (3, 2, 3, 4),
    ),
    row(
        "conv, channels first, grouped, dilated",
        lambda x, w: lax.conv_general_dilated(
            x, w, (1, 2), ((2, 1), (0, 3)), rhs_dilation=(2, 1), feature_group_count=2
        ),
        (2, 4, 7, 6),
        (6, 2, 3, 2),
    ),
    row(
        "conv over one axis",
        lambda x, w: lax.conv_general_dilated(
            x, w, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")
        ),
        (2, 6, 3),
        (3, 3, 4),
    ),
    row(
        "conv over three axes",
        lambda x, w: lax.conv(x, w, (1, 2, 1), "SAME"),
        (2, 2, 3, 4, 2),
        (3, 2, 2, 2, 1),
    ),
    row(
        "transposed conv",
        lambda x, w: lax.conv_transpose(x, w, (2, 2), "SAME"),
        (2, 4, 3, 2),
        (3, 3, 2, 5),
    ),
    row(
        "conv cut",
        lambda x, w: lax.conv(x, w, (1, 1), ((-1, 0), (1, -1))),
        (2, 3, 6, 6),
        (4, 3, 2, 2),
    ),
]  # fmt: skip

INDEXING = [
    of("gather", lambda x: x[PLACES]),
    row("take, out of range", lambda x: jnp.take(x, OUTSIDE, axis=0), (4, 3)),
    row("take, clipped", lambda x: jnp.take(x, OUTSIDE, axis=1, mode="clip"), (4, 3)),
    row("take, zeros", lambda x: jnp.take(x, OUTSIDE, axis=0, fill_value=0), (4, 3)),
    row("take of integers", lambda i: jnp.take(i, OUTSIDE, axis=1), INTS, gradient=False),
    row("take by unsigned", lambda x: x[PLACES.astype(np.uint8)], (4, 3)),
    row("two indices", lambda x: x[jnp.arange(4), jnp.array([0, 2, 1, 1])], (4, 3)),
    row(
        "two indices, out of range",
        lambda x: x.at[OUTSIDE, OUTSIDE].get(mode="fill", fill_value=jnp.nan),
        (4, 3),
    ),
    row("two indices, clipped", lambda x: x.at[OUTSIDE, OUTSIDE].get(mode="clip"), (4, 3)),
    row("indices apart", lambda x: x[PLACES, :, PLACES], (4, 5, 4)),
    row("middle axis", lambda x: x[:, PLACES], (2, 4, 3)),
    row("take_along_axis", lambda x: jnp.take_along_axis(x, PLACES, 0), (4, 3)),
    row(
        "take_along_axis, broadcast",
        lambda x: (
            jnp.take_along_axis(x, PLACES[:, :, None], 1),
            jnp.take_along_axis(x, PLACES[:, None, :], 1, mode="clip"),
        ),
        (2, 4, 3),
    ),
    row("vmapped index", lambda x: jax.vmap(lambda a, i: a[i])(x, PLACES), (2, 4, 3)),
    row(
        "vmapped two indices",
        lambda x: jax.vmap(lambda a, i: a[i, i])(x, PLACES % 3),
        (2, 4, 3),
    ),
    of("dynamic_slice", lambda x, i: lax.dynamic_slice(x, (i[0], i[1]), (2, 2)), (4, 3), PLACES[1]),
    row(
        "dynamic_slice, clamped",
        lambda x, i: (
            lax.dynamic_slice(x, (i[3], i[4]), (2, 3)),
            lax.dynamic_slice(x, (9, -9), (2, 2)),
        ),
        (4, 3),
        OUTSIDE,
    ),
    row("one row", lambda x, i: (x[i[1]], x[i[1], i[0]], x[1], x[-1, 2]), (4, 3), PLACES[0]),
    of(
        "dynamic_update_slice",
        lambda x, y, i: (
            lax.dynamic_update_slice(x, y, (i[1], i[0])),
            lax.dynamic_update_slice(x, y, (1, 0)),
            lax.dynamic_update_slice(x, y, (i[3], i[4])),
        ),
        (4, 3),
        (2, 2),
        OUTSIDE,
    ),
    of("scatter", lambda x: (x.at[1].set(0.0), x.at[0, 1].set(5.0), x.at[1:3].set(x[:2]))),
    row(
        "set, out of range",
        lambda x, i: (x.at[i[3]].set(1.0), x.at[i[2]].set(1.0)),
        (4, 3),
        OUTSIDE,
    ),
    of("scatter-add", lambda x, y: x.at[PLACES].add(y), (4, 3), (3,)),
    row("add, out of range", lambda x: x.at[OUTSIDE].add(1.0), (4, 3)),
    row("add, clipped", lambda x: x.at[OUTSIDE].add(x[:1], mode="clip"), (4, 3)),
    row("add at two indices", lambda x: x.at[PLACES, PLACES % 3].add(x[0, 0]), (4, 3)),
    row("add to columns", lambda x: x.at[:, PLACES].add(2.0), (2, 4)),
    row("add to a window", lambda x: (x.at[1:3, 1:].add(x[:2, :2]), x.at[2].add(1.0)), (4, 3)),
    row(
        "add along an axis",
        lambda x: jax.vmap(lambda a, i: a.at[i].add(a[i] * 2))(x, PLACES),
        (2, 4),
    ),
    row("one_hot", lambda x: x * jax.nn.one_hot(PLACES[0], 3), (3, 3)),
]  # fmt: skip

CALLS = [
    of("jit", lambda x: jax.jit(jnp.sin)(x) + jax.jit(lambda a: (a, a * 2))(x)[1]),
    row("checkpoint", jax.checkpoint(lambda x: jnp.sin(x) * x), (4, 3), primitives=("remat2",)),
    of("custom_jvp_call", lambda x: cubed(x) * x),
    of("custom_vjp_call", lambda x, y: scaled(x, 3, y)[:2], (4, 3), (4, 3)),
    row("one custom result", lambda x, y: scaled(x, 3, y)[1], (4, 3), (4, 3)),
    row("a custom function of one value twice", lambda x: scaled(x, 2, x)[:2], (4, 3)),
    *[
        row(f"nn.{name}", getattr(jax.nn, name), (4, 3))
        for name in (
            "relu", "relu6", "silu", "elu", "gelu", "celu", "leaky_relu", "softmax",
            "log_softmax", "softplus", "soft_sign", "log_sigmoid", "hard_tanh", "standardize",
        )
    ],
    row("gelu, exact", lambda x: jax.nn.gelu(x, approximate=False), (4, 3)),
    row("logaddexp", jnp.logaddexp, (4, 3), (4, 3)),
    row("sinc", jnp.sinc, (4, 3)),
    row(
        "gradient of a loss",
        jax.grad(lambda w, x: jnp.mean(jnp.tanh(x @ w) ** 2 * PLACES[0])),
        (3, 3),
        (4, 3),
    ),
    row("vmap", jax.vmap(lambda a, b: jnp.dot(a, b) * a), (4, 3), (4, 3)),
]  # fmt: skip

ROWS = (*ELEMENTWISE, *SHAPES, *REDUCTIONS, *PRODUCTS, *INDEXING, *CALLS)
