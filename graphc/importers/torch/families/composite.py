"""Operators that PyTorch defines by others. Programs in files may have them."""

from __future__ import annotations

from typing import Any, Final

from graphc import ops
from graphc.importers.torch.call import PARTS, Call, Rule, axes_of, axis_of, within_reason
from graphc.importers.torch.families import (
    activations,
    elementwise,
    matrices,
    reductions,
    sampling,
    shapes,
)
from graphc.ops import fft

_SYNONYMS: Final = {
    **{f"special_{name}": name for name in ("digamma", "erf", "erfc", "erfinv", "exp2", "expm1")},
    **{f"special_{name}": name for name in ("i0", "log1p", "logit", "logsumexp")},
    **{f"special_{name}": name for name in ("round", "sinc", "xlogy")},
    **{name: name.replace("arc", "a") for name in ("arccos", "arccosh", "arcsin", "arcsinh")},
    **{name: name.replace("arc", "a") for name in ("arctan", "arctan2", "arctanh")},
    **{f"__{name}__": f"bitwise_{name}" for name in ("and", "or", "xor")},
    "absolute": "abs",
    "adjoint": "matrix_H",
    "clip": "clamp",
    "concatenate": "cat",
    "conj": "_conj",
    "det": "linalg_det",
    "divide": "div",
    "fix": "trunc",
    "ger": "outer",
    "greater": "gt",
    "greater_equal": "ge",
    "inverse": "linalg_inv",
    "less": "lt",
    "less_equal": "le",
    "linalg_matmul": "matmul",
    "mH": "matrix_H",
    "moveaxis": "movedim",
    "multiply": "mul",
    "negative": "neg",
    "not_equal": "ne",
    "resolve_conj": "alias",
    "resolve_neg": "alias",
    "special_expit": "sigmoid",
    "special_gammaln": "lgamma",
    "special_psi": "digamma",
    "subtract": "sub",
    "true_divide": "div",
    "unsafe_chunk": "chunk",
}
_FAMILIES: Final = (activations, elementwise, matrices, reductions, shapes)


def _synonyms() -> dict[str, Rule]:
    found = {}
    for name, known in _SYNONYMS.items():
        for family in _FAMILIES:
            for key, rule in family.RULES.items():
                if key.startswith(f"aten.{known}."):
                    found[f"aten.{name}.{key.rpartition('.')[2]}"] = rule
    return found


def _grid_sampler(call: Call, x: Any, grid: Any, *settings: Any) -> Any:
    return sampling.RULES[f"aten.grid_sampler_{x.ndim - 2}d.default"](call, x, grid, *settings)


def _embedding_bag(call: Call, *args: Any) -> Any:
    given = list(args)
    if len(given) == 9:  # counts from the end if negative; `_embedding_bag` takes -1 as none
        given[8] = -1 if given[8] is None else axis_of(given[8], given[0].shape[0])
    return sampling.RULES["aten._embedding_bag.default"](call, *given)


def _broadcast(call: Call, tensors: Any) -> Any:
    shape = ops.broadcast_arrays(*tensors)[0].shape
    return tuple(ops.broadcast_to(tensor, shape) for tensor in tensors)


def _line(function: Any) -> Rule:
    """A transform along one axis."""

    def rule(call: Call, x: Any, n: Any = None, dim: int = -1, norm: str | None = None) -> Any:
        return function(x, n, axis=dim, norm=norm)

    return rule


def _grid(function: Any, axes: tuple[int, ...] | None) -> Rule:
    """A transform along several axes."""

    def rule(call: Call, x: Any, s: Any = None, dim: Any = axes, norm: str | None = None) -> Any:
        if dim is None:
            dim = range(x.ndim - len(s), x.ndim) if s is not None else range(x.ndim)
        sizes = None
        if s is not None:
            sizes = [x.shape[d] if n == -1 else n for n, d in zip(s, dim, strict=True)]
        return function(x, sizes, axes=tuple(dim), norm=norm)

    return rule


def _mean_and(name: str) -> Rule:
    spread = reductions.RULES[f"aten.{name}.correction"]

    def rule(call: Call, x: Any, dim: Any = None, *rest: Any, **options: Any) -> Any:
        axes = None if isinstance(dim, bool) else dim
        keep = rest[1] if len(rest) > 1 else options.get("keepdim", False)
        mean = ops.reduce_mean(x, axis=axes_of(axes, x.ndim), keepdims=keep)
        return spread(call, x, dim, *rest, **options), mean

    return rule


def _at_least(rank: int) -> Rule:
    """Tensors of at least this rank: ones are put before the shape, and for a third axis after."""

    def one(x: Any) -> Any:
        if x.ndim >= rank:
            return x
        if rank == 3 and x.ndim == 2:
            return ops.expand_dims(x, -1)
        row = ops.reshape(x, (1, *x.shape)) if x.ndim else ops.reshape(x, (1,) * min(rank, 2))
        return ops.expand_dims(row, -1) if rank == 3 else row

    return lambda call, x: tuple(map(one, x)) if isinstance(x, (list, tuple)) else one(x)


def _stacked(rank: int, axis: int) -> Rule:
    def rule(call: Call, tensors: Any) -> Any:
        parts = _at_least(rank)(call, tensors)
        return ops.concatenate([call.own(part) for part in parts], min(axis, parts[0].ndim - 1))

    return rule


def _column_stack(call: Call, tensors: Any) -> Any:
    parts = [ops.reshape(t, (-1, 1)) if t.ndim < 2 else t for t in tensors]
    return ops.concatenate([call.own(part) for part in parts], 1)


def _inner(call: Call, x: Any, y: Any) -> Any:
    return ops.tensordot(x, y, ((x.ndim - 1,), (y.ndim - 1,))) if x.ndim and y.ndim else x * y


def _tensordot(call: Call, x: Any, y: Any, left: Any, right: Any) -> Any:
    for a, b in zip(left, right, strict=True):  # an axis of size 1 is broadcast
        if x.shape[a] == 1:
            y = ops.reduce_sum(y, axis=b, keepdims=True)
        elif y.shape[b] == 1:
            x = ops.reduce_sum(x, axis=a, keepdims=True)
    return ops.tensordot(x, y, (tuple(left), tuple(right)))


def _sum_to(call: Call, x: Any, shape: Any) -> Any:
    """The sums over the axes that broadcasting from a shape would add or stretch."""
    lead = x.ndim - len(shape)
    axes = [i for i in range(x.ndim) if i < lead or (shape[i - lead] == 1 and x.shape[i] != 1)]
    return ops.reshape(ops.reduce_sum(x, axis=tuple(axes)), tuple(shape)) if axes else x


def _diff(
    call: Call, x: Any, n: int = 1, dim: int = -1, before: Any = None, after: Any = None
) -> Any:
    within_reason(n, "differences", PARTS)
    if n == 0:  # PyTorch adds nothing before or after it
        return x
    parts = [part for part in (before, x, after) if part is not None]
    x = ops.concatenate(parts, dim) if len(parts) > 1 else x
    lead = [slice(None)] * axis_of(dim, x.ndim)
    for _ in range(n):
        high, low = x[(*lead, slice(1, None))], x[(*lead, slice(None, -1))]
        x = ops.not_equal(high, low) if x.dtype.kind == "b" else high - low
    return x


def _weight_norm(call: Call, v: Any, g: Any, dim: int = 0) -> Any:
    axes = tuple(i for i in range(v.ndim) if dim == -1 or i != dim)
    return v * (g / ops.sqrt(ops.reduce_sum(ops.square(v), axis=axes, keepdims=True)))


def _pairwise(
    call: Call, x: Any, y: Any, p: float = 2, eps: float = 1e-6, keepdim: bool = False
) -> Any:
    return reductions.RULES["aten.linalg_vector_norm.default"](call, x - y + eps, p, -1, keepdim)


RULES: Final[dict[str, Rule]] = {
    **_synonyms(),
    "aten.broadcast_tensors.default": _broadcast,
    "aten.embedding_bag.default": _embedding_bag,
    "aten.embedding_bag.padding_idx": _embedding_bag,
    "aten.grid_sampler.default": _grid_sampler,
    "aten._weight_norm.default": _weight_norm,
    "aten.atleast_1d.Sequence": _at_least(1),
    "aten.atleast_1d.default": _at_least(1),
    "aten.atleast_2d.Sequence": _at_least(2),
    "aten.atleast_2d.default": _at_least(2),
    "aten.atleast_3d.Sequence": _at_least(3),
    "aten.atleast_3d.default": _at_least(3),
    "aten.column_stack.default": _column_stack,
    "aten.diff.default": _diff,
    "aten.dstack.default": _stacked(3, 2),
    "aten.fliplr.default": lambda call, x: ops.flip(x, (1,)),
    "aten.flipud.default": lambda call, x: ops.flip(x, (0,)),
    "aten.float_power.Tensor_Scalar": lambda call, x, y: ops.power(call.own(x), call.own(y)),
    "aten.float_power.Tensor_Tensor": lambda call, x, y: ops.power(call.own(x), call.own(y)),
    "aten.hstack.default": _stacked(1, 1),
    "aten.inner.default": _inner,
    "aten.linalg_vecdot.default": lambda call, x, y, *, dim=-1: ops.reduce_sum(
        ops.conj(x) * y, axis=dim
    ),
    "aten.pairwise_distance.default": _pairwise,
    "aten.ravel.default": lambda call, x: ops.ravel(x),
    "aten.reshape_as.default": lambda call, x, other: ops.reshape(x, other.shape),
    "aten.row_stack.default": _stacked(2, 0),
    "aten.size.int": lambda call, x, axis: x.shape[axis],
    "aten.sum_to_size.default": _sum_to,
    "aten.swapaxes.default": shapes.RULES["aten.transpose.int"],
    "aten.swapdims.default": shapes.RULES["aten.transpose.int"],
    "aten.tensordot.default": _tensordot,
    "aten.vstack.default": _stacked(2, 0),
    "aten.pdist.default": sampling.RULES["aten._pdist_forward.default"],
    "aten.special_log_softmax.default": activations.RULES["aten.log_softmax.int"],
    "aten.special_softmax.default": activations.RULES["aten.softmax.int"],
    "aten.std_mean.correction": _mean_and("std"),
    "aten.std_mean.default": _mean_and("std"),
    "aten.std_mean.dim": _mean_and("std"),
    "aten.var_mean.default": _mean_and("var"),
    "aten.var_mean.dim": _mean_and("var"),
    **{
        f"aten.fft_{name}.default": _line(getattr(fft, name))
        for name in ("fft", "hfft", "ifft", "ihfft", "irfft", "rfft")
    },
    **{
        f"aten.fft_{name}2.default": _grid(getattr(fft, f"{name}n"), (-2, -1))
        for name in ("fft", "ifft", "irfft", "rfft")
    },
    **{
        f"aten.fft_{name}n.default": _grid(getattr(fft, f"{name}n"), None)
        for name in ("fft", "ifft", "irfft", "rfft")
    },
    "aten.fft_fftshift.default": lambda call, x, dim=None: fft.fftshift(x, dim),
    "aten.fft_ifftshift.default": lambda call, x, dim=None: fft.ifftshift(x, dim),
}
