"""Reductions, sorting, cumulative sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from graphc import ops
from graphc.importers.torch.call import Call, Refused, Rule, axes_of, axis_of, within_reason
from graphc.importers.torch.families.slopes import magnitude, power_at_zero, root
from graphc.ir.dtypes import is_floating


def _reduced(function: Callable[..., Any]) -> Rule:
    def rule(call: Call, x: Any, dim: Any = None, keepdim: bool = False, **options: Any) -> Any:
        axes = axes_of(dim, x.ndim)
        wide = call.own(x) if call.dtype.kind != "b" else x
        return function(wide, axis=axes, keepdims=keepdim) if axes or not x.ndim else wide

    return rule


def _truth(function: Callable[..., Any]) -> Rule:
    def rule(call: Call, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        whole = x if x.dtype.kind == "b" else ops.not_equal(x, 0)
        return function(whole, axis=axes_of(dim, x.ndim), keepdims=keepdim)

    return rule


def _variance(
    call: Call, x: Any, dim: Any = None, unbiased: Any = None, keepdim: bool = False, **options: Any
) -> Any:
    """`unbiased` is a bool in older overloads; newer ones have `correction`."""
    correction = options.get("correction", 1 if unbiased in (None, True) else 0)
    keep = options.get("keepdim", keepdim)
    axes = axes_of(dim if not isinstance(dim, bool) else None, x.ndim)
    if isinstance(dim, bool):
        correction = int(dim)
    mean = ops.reduce_mean(x, axis=axes, keepdims=True)
    away = x - mean
    squares = ops.square(away)
    if x.dtype.kind == "c":
        squares = ops.square(ops.real(away)) + ops.square(ops.imag(away))
    total = ops.reduce_sum(squares, axis=axes, keepdims=keep)
    count: Any = 1
    for axis in axes:
        count = count * x.shape[axis]
    divisor = count - (1 if correction is None else correction)
    return total / (
        max(divisor, 0) if isinstance(divisor, (int, float)) else ops.cast(divisor, total.dtype)
    )


def _std(call: Call, *args: Any, **options: Any) -> Any:
    return root(_variance(call, *args, **options))


def _var_mean(call: Call, x: Any, dim: Any = None, **options: Any) -> Any:
    keep = options.get("keepdim", False)
    mean = ops.reduce_mean(x, axis=axes_of(dim, x.ndim), keepdims=keep)
    return _variance(call, x, dim, **options), mean


def _arg(function: Callable[..., Any]) -> Rule:
    def rule(call: Call, x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
        if not x.ndim:
            return ops.zeros((), "int64")
        if dim is None:
            found = function(ops.ravel(x), axis=0, dtype="int64")
            return ops.reshape(found, (1,) * x.ndim) if keepdim else found
        return function(x, axis=axis_of(dim, x.ndim), keepdims=keepdim, dtype="int64")

    return rule


def _extreme_at(arg: Callable[..., Any]) -> Rule:
    def rule(call: Call, x: Any, dim: int, keepdim: bool = False) -> Any:
        if not x.ndim:
            return x, ops.zeros((), "int64")
        axis = axis_of(dim, x.ndim)
        places = arg(x, axis=axis, keepdims=True, dtype="int64")
        values = ops.take_along_axis(x, places, axis=axis)  # of equals, one gets the gradient
        found = values, places
        return found if keepdim else tuple(ops.squeeze(t, axis) for t in found)

    return rule


def _cumulative(function: Callable[..., Any]) -> Rule:
    def rule(call: Call, x: Any, dim: int, **options: Any) -> Any:
        return function(call.own(x), axis=axis_of(dim, x.ndim)) if x.ndim else call.own(x)

    return rule


def _top_k(
    call: Call, x: Any, k: int, dim: int = -1, largest: bool = True, ordered: bool = True
) -> Any:
    axis = axis_of(dim, x.ndim)
    moved = ops.moveaxis(x, axis, -1)
    if largest:
        values, places = ops.top_k(moved, k)
    else:
        places = ops.argsort(moved, axis=-1)[..., :k]
        values = ops.take_along_axis(moved, places, axis=-1)
    return ops.moveaxis(values, -1, axis), ops.cast(ops.moveaxis(places, -1, axis), "int64")


def _sort(call: Call, x: Any, *args: Any, **options: Any) -> Any:
    """`sort(x, dim, descending)`, or with `stable` as a keyword."""
    dim = options.get("dim", args[0] if args else -1)
    descending = options.get("descending", args[1] if len(args) > 1 else False)
    axis = axis_of(dim, x.ndim)
    if descending:  # equal elements keep their order
        flipped = ops.argsort(ops.flip(x, axis), axis=axis)
        places = x.shape[axis] - 1 - ops.flip(ops.cast(flipped, "int64"), axis)
    else:
        places = ops.cast(ops.argsort(x, axis=axis), "int64")
    return ops.take_along_axis(x, places, axis=axis), places


def _argsort(call: Call, x: Any, *args: Any, **options: Any) -> Any:
    options.pop("stable", None)
    return _sort(
        call, x, *[a for a in args if not isinstance(a, bool) or len(args) > 1], **options
    )[1]


def _norm(
    call: Call, x: Any, p: Any = 2, dim: Any = None, keepdim: bool = False, **options: Any
) -> Any:
    wide = x if x.dtype.kind == "c" else call.own(x)
    return vector_norm(wide, 2.0 if p is None else float(p), axes_of(dim, x.ndim), keepdim)


def vector_norm(x: Any, order: float, axes: tuple[int, ...], keepdim: bool) -> Any:
    """The norm of x along axes; its gradient is 0 where it is 0."""
    x = ops.abs(x) if x.dtype.kind == "c" else magnitude(x)
    if order == float("inf"):
        return ops.reduce_max(x, axis=axes, keepdims=keepdim)
    if order == float("-inf"):
        return ops.reduce_min(x, axis=axes, keepdims=keepdim)
    if order == 0:
        return ops.reduce_sum(ops.cast(ops.not_equal(x, 0), x.dtype), axis=axes, keepdims=keepdim)
    if order == 1:
        return ops.reduce_sum(x, axis=axes, keepdims=keepdim)
    if order == 2:
        return root(ops.reduce_sum(ops.square(x), axis=axes, keepdims=keepdim))
    total = ops.reduce_sum(power_at_zero(x, order), axis=axes, keepdims=keepdim)
    return power_at_zero(total, 1 / order)


def _aminmax(call: Call, x: Any, *, dim: int | None = None, keepdim: bool = False) -> Any:
    axes = axes_of(dim, x.ndim)
    return ops.reduce_min(x, axis=axes, keepdims=keepdim), ops.reduce_max(
        x, axis=axes, keepdims=keepdim
    )


def _median(call: Call, x: Any, dim: int, keepdim: bool = False) -> Any:
    """The lower of the two in the middle; NaN if there is one."""
    axis = axis_of(dim, x.ndim)
    middle = (_known_size(x, axis) - 1) // 2
    if not is_floating(x.dtype):
        return _at_place(x, axis, middle, keepdim)
    bad = ops.isnan(x)
    first = ops.expand_dims(ops.argmax(bad, axis=axis), axis)
    sorted_place = ops.take(ops.argsort(x, axis=axis), ops.constant([middle]), axis=axis)
    place = ops.where(ops.reduce_any(bad, axis=axis, keepdims=True), first, sorted_place)
    return _picked(x, place, axis, keepdim)


def _nanmedian(call: Call, x: Any, dim: int, keepdim: bool = False) -> Any:
    """The lower of the two in the middle of those that are not NaN, which are sorted last."""
    axis = axis_of(dim, x.ndim)
    count = ops.reduce_sum(ops.cast(~ops.isnan(x), "int32"), axis=axis, keepdims=True)
    middle = ops.maximum(count - 1, 0) // 2
    places = ops.take_along_axis(ops.argsort(x, axis=axis), middle, axis=axis)
    return _picked(x, places, axis, keepdim)


def _kth_value(call: Call, x: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    return _at_place(x, axis_of(dim, x.ndim), k - 1, keepdim)


def _mode(call: Call, x: Any, dim: int = -1, keepdim: bool = False) -> Any:
    """The smallest of the most frequent elements, and the last place of it."""
    axis = axis_of(dim, x.ndim)
    within_reason(_known_size(x, axis) ** 2, "comparisons for each row")
    moved = ops.moveaxis(x, axis, -1)
    same = ops.equal(ops.expand_dims(moved, -1), ops.expand_dims(moved, -2))
    count = ops.reduce_sum(ops.cast(same, "int32"), axis=-1)
    most = ops.equal(count, ops.reduce_max(count, axis=-1, keepdims=True))
    order = ops.argsort(moved, axis=-1)
    first = ops.argmax(ops.take_along_axis(most, order, axis=-1), axis=-1)
    value = ops.take_along_axis(ops.take_along_axis(moved, order, -1), first[..., None], axis=-1)
    size = _known_size(moved, -1)
    place = size - 1 - ops.argmax(ops.flip(ops.equal(moved, value), -1), axis=-1)
    places = ops.cast(ops.expand_dims(place, -1), "int64")
    found = tuple(ops.moveaxis(t, -1, axis) for t in (value, places))
    return found if keepdim else tuple(ops.squeeze(t, axis) for t in found)


def _at_place(x: Any, axis: int, place: int, keepdim: bool) -> Any:
    """The element at a place of the sorted ones."""
    places = ops.take(ops.argsort(x, axis=axis), ops.constant([place]), axis=axis)
    return _picked(x, places, axis, keepdim)


def _picked(x: Any, places: Any, axis: int, keepdim: bool) -> Any:
    """The elements at places, [..., 1, ...] along the axis, and these."""
    found = ops.take_along_axis(x, places, axis=axis), ops.cast(places, "int64")
    return found if keepdim else tuple(ops.squeeze(t, axis) for t in found)


def _also_of_scalars(rule: Rule) -> Rule:
    """A rule along an axis that takes a scalar as a vector of one element."""

    def wrapped(call: Call, x: Any, *args: Any, **options: Any) -> Any:
        if x.ndim:
            return rule(call, x, *args, **options)
        found = rule(call, ops.reshape(x, (1,)), *args, **options)
        return tuple(ops.reshape(t, ()) for t in found)

    return wrapped


def _of_all(rule: Rule) -> Rule:
    """A rule along an axis, for all elements."""
    return lambda call, x: rule(call, ops.ravel(x), 0)[0]


def _known_size(x: Any, axis: int) -> int:
    size = x.shape[axis]
    if not isinstance(size, int):
        raise Refused("along a named size is not supported")
    return size


def _histogram(call: Call, x: Any, bins: int = 100, low: Any = 0, high: Any = 0) -> Any:
    if low == high:
        raise Refused("without limits depends on values")
    x = ops.ravel(x)
    inside = ops.logical_and(x >= low, x <= high)
    place = ops.minimum(ops.floor((x - low) * bins / (high - low)), bins - 1)
    counted = ops.where(inside, ops.cast(place, "int32"), ops.constant(bins))
    return ops.reduce_sum(ops.one_hot(counted, bins, call.dtype), axis=0)


def _counts_between(
    call: Call, x: Any, edges: Any, *, weight: Any = None, density: bool = False
) -> Any:
    """How many elements, or which sum of weights, lie between neighbouring edges."""
    bins = _known_size(edges, 0) - 1
    x = ops.ravel(x)
    place = ops.searchsorted(edges, x, side="right") - 1
    place = ops.where(ops.equal(x, edges[-1]), ops.constant(bins - 1), place)
    shares = ops.one_hot(place, bins, call.dtype)  # a place outside has none
    if weight is not None:
        shares = shares * ops.expand_dims(ops.ravel(weight), -1)
    counts = ops.reduce_sum(shares, axis=0)
    if density:
        counts = counts / ops.reduce_sum(counts) / (edges[1:] - edges[:-1])
    return counts, edges


def _histogram_of_range(
    call: Call, x: Any, bins: int = 100, *, range: Any = None, **options: Any
) -> Any:
    if range is None:
        raise Refused("without a range depends on values")
    low, high = range
    if low == high:
        low, high = low - 0.5, high + 0.5
    edges = ops.cast(ops.linspace(low, high, bins + 1, dtype="float64"), call.dtype)
    return _counts_between(call, x, edges, **options)


def _unknown_size(call: Call, *args: Any, **options: Any) -> Any:
    raise Refused("has a result whose size depends on values, and XLA compiles for known sizes")


def _cumextreme(function: Callable[..., Any]) -> Rule:
    def rule(call: Call, x: Any, dim: int) -> Any:
        axis, size = axis_of(dim, x.ndim), x.shape[dim]
        given, x = x, ops.cast(x, "int8") if x.dtype.kind == "b" else x
        values = function(x, axis=axis)
        steps = ops.reshape(
            ops.arange(size, dtype="int64"), [size if i == axis else 1 for i in range(x.ndim)]
        )
        here = ops.equal(x, values)
        if x.dtype.kind == "f":
            here = ops.logical_or(here, ops.isnan(x))
        places = ops.cummax(ops.where(here, steps, ops.constant(0)), axis=axis)
        return ops.take_along_axis(given, places, axis=axis), places

    return rule


RULES: Final[dict[str, Rule]] = {
    **{f"aten.sum.{o}": _reduced(ops.reduce_sum) for o in ("default", "dim_IntList")},
    **{f"aten.mean.{o}": _reduced(ops.reduce_mean) for o in ("default", "dim")},
    **{f"aten.prod.{o}": _reduced(ops.reduce_prod) for o in ("default", "dim_int")},
    **{f"aten.var.{o}": _variance for o in ("default", "dim", "correction")},
    **{f"aten.std.{o}": _std for o in ("default", "dim", "correction")},
    **{f"aten.all.{o}": _truth(ops.reduce_all) for o in ("default", "dim", "dims")},
    **{f"aten.any.{o}": _truth(ops.reduce_any) for o in ("default", "dim", "dims")},
    **{f"aten.linalg_vector_norm.{o}": _norm for o in ("default",)},
    **{
        f"aten.norm.{o}": _norm
        for o in ("Scalar", "ScalarOpt_dim", "ScalarOpt_dtype", "ScalarOpt_dim_dtype")
    },
    **{f"aten.sort.{o}": _sort for o in ("default", "stable")},
    **{f"aten.argsort.{o}": _argsort for o in ("default", "stable")},
    "aten.amax.default": _reduced(ops.reduce_max),
    "aten.amin.default": _reduced(ops.reduce_min),
    "aten.aminmax.default": _aminmax,
    "aten.argmax.default": _arg(ops.argmax),
    "aten.argmin.default": _arg(ops.argmin),
    "aten.bincount.default": _unknown_size,
    "aten.count_nonzero.default": lambda call, x, dim=None: ops.count_nonzero(x, axis=dim),
    "aten.cummax.default": _also_of_scalars(_cumextreme(ops.cummax)),
    "aten.cummin.default": _also_of_scalars(_cumextreme(ops.cummin)),
    "aten.cumprod.default": _cumulative(ops.cumprod),
    "aten.cumsum.default": _cumulative(ops.cumsum),
    "aten.dist.default": lambda call, x, y, p=2: _norm(call, x - y, p),
    "aten.histc.default": _histogram,
    "aten.histogram.bin_ct": _histogram_of_range,
    "aten.histogram.bins_tensor": _counts_between,
    "aten.kthvalue.default": _also_of_scalars(_kth_value),
    "aten.logcumsumexp.default": _cumulative(ops.cumlogsumexp),
    "aten.logsumexp.default": _reduced(ops.logsumexp),
    "aten.max.default": _reduced(ops.reduce_max),
    "aten.max.dim": _extreme_at(ops.argmax),
    "aten.max.other": lambda call, x, y: ops.maximum(call.own(x), call.own(y)),
    "aten.mean.dtype": _reduced(ops.reduce_mean),
    "aten.median.default": _of_all(_median),
    "aten.median.dim": _also_of_scalars(_median),
    "aten.min.default": _reduced(ops.reduce_min),
    "aten.min.dim": _extreme_at(ops.argmin),
    "aten.nanmedian.default": _of_all(_nanmedian),
    "aten.nanmedian.dim": _also_of_scalars(_nanmedian),
    "aten.min.other": lambda call, x, y: ops.minimum(call.own(x), call.own(y)),
    "aten.nonzero.default": _unknown_size,
    "aten.masked_select.default": _unknown_size,
    "aten.mode.default": _also_of_scalars(_mode),
    "aten.topk.default": _also_of_scalars(_top_k),
    "aten.unique2.default": _unknown_size,
    "aten._unique2.default": _unknown_size,
    "aten.unique_consecutive.default": _unknown_size,
    "aten.unique_dim.default": _unknown_size,
    "aten.repeat_interleave.Tensor": _unknown_size,
    "aten.var_mean.correction": _var_mean,
}
