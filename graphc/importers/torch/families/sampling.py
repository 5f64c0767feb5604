"""Sampling of images at grids, bags of embeddings, and other ways to collect values."""

from __future__ import annotations

import math
from typing import Any, Final

from jax import numpy as jnp

from graphc import ops
from graphc.importers.core.grids import sample
from graphc.importers.torch.call import Call, Refused, Rule, within_reason
from graphc.importers.torch.families.reductions import vector_norm
from graphc.jaxpr.function import from_jax
from graphc.ops import fft

_MODES: Final = ("linear", "nearest", "cubic")
_PADDINGS: Final = ("zeros", "border", "reflection")
# NumPy's names for: no factor, 1 / sqrt(n), 1 / n; of the transform and of its inverse.
_NORMS: Final = ("backward", "ortho", "forward")
_INVERSE_NORMS: Final = ("forward", "ortho", "backward")


def _grid_sample(call: Call, x: Any, grid: Any, mode: int, padding: int, corners: bool) -> Any:
    def function(x: Any, grid: Any) -> Any:
        return sample(x, grid, _MODES[mode], _PADDINGS[padding], corners)

    return from_jax(function, name="grid_sample")(x, grid)


def _embedding_bag(
    call: Call,
    w: Any,
    places: Any,
    offsets: Any,
    scale: bool = False,
    mode: int = 0,
    sparse: bool = False,
    weights: Any = None,
    include_last: bool = False,
    padding: int = -1,
) -> Any:
    """The sum (mode 0), mean (1) or maximum (2) of the rows of each bag."""
    bags = offsets.shape[0] - 1 if include_last else offsets.shape[0]
    starts = offsets[:bags] if include_last else offsets
    count = places.shape[0]
    bag = ops.searchsorted(starts, ops.arange(count, dtype=starts.dtype), side="right") - 1
    rows = ops.take(w, places, axis=0)
    kept = (
        ops.ones((count,), w.dtype)
        if padding < 0
        else ops.cast(ops.not_equal(places, padding), w.dtype)
    )
    sizes = ops.segment_sum(kept, bag, bags)
    if mode == 2:
        rows = ops.where(ops.expand_dims(kept > 0, -1), rows, -math.inf)
        found = ops.segment_max(rows, bag, bags)
        result = ops.where(ops.expand_dims(sizes > 0, -1), found, 0)
    else:
        if weights is not None:
            rows = rows * ops.expand_dims(weights, -1)
        result = ops.segment_sum(rows * ops.expand_dims(kept, -1), bag, bags)
        if mode == 1:
            result = result / ops.expand_dims(ops.maximum(sizes, 1), -1)
    whole = ops.cast(sizes, offsets.dtype)
    return result, ops.cast(bag, offsets.dtype), whole, ops.zeros((bags,), offsets.dtype)


def _pdist(call: Call, x: Any, p: float = 2.0) -> Any:
    """The distances of all pairs of rows, the first with all others first."""
    count = x.shape[0]
    if not isinstance(count, int):
        raise Refused("of a named number of rows is not supported")
    within_reason(count * count, "pairs")
    first, second = jnp.triu_indices(count, 1)
    return vector_norm(ops.take(x, first, axis=0) - ops.take(x, second, axis=0), p, (1,), False)


def _masked_scatter(call: Call, x: Any, mask: Any, source: Any) -> Any:
    """The elements where the mask holds, in order, are those of the source."""
    x, mask = ops.broadcast_arrays(x, mask)
    order = ops.cumsum(ops.cast(ops.ravel(mask), "int32"), axis=0) - 1
    taken = ops.take(ops.ravel(source), ops.maximum(order, 0))
    return ops.where(mask, ops.reshape(taken, x.shape), x)


def _real_fft(call: Call, x: Any, dim: Any, norm: int, onesided: bool) -> Any:
    function = fft.rfftn if onesided else fft.fftn
    return function(x, axes=tuple(dim), norm=_NORMS[norm])


def _inverse_real_fft(call: Call, x: Any, dim: Any, norm: int, last: Any) -> Any:
    sizes = [*(x.shape[axis] for axis in dim[:-1]), last]
    return fft.irfftn(x, sizes, axes=tuple(dim), norm=_INVERSE_NORMS[norm])


def _complex_fft(call: Call, x: Any, dim: Any, norm: int, forward: bool) -> Any:
    if forward:
        return fft.fftn(x, axes=tuple(dim), norm=_NORMS[norm])
    return fft.ifftn(x, axes=tuple(dim), norm=_INVERSE_NORMS[norm])


RULES: Final[dict[str, Rule]] = {
    "aten._embedding_bag.default": _embedding_bag,
    "aten._embedding_bag_forward_only.default": _embedding_bag,
    "aten._fft_c2c.default": _complex_fft,
    "aten._fft_c2r.default": _inverse_real_fft,
    "aten._fft_r2c.default": _real_fft,
    "aten._pdist_forward.default": _pdist,
    "aten.grid_sampler_2d.default": _grid_sample,
    "aten.grid_sampler_3d.default": _grid_sample,
    "aten.masked_scatter.default": _masked_scatter,
}
