"""Operators of backward passes, which programs of whole training steps contain.

Each is the gradient of the rule of its forward operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from graphc import ops
from graphc.autodiff.reverse import gradients
from graphc.importers.torch.call import Call, Rule
from graphc.importers.torch.families import convolutions


def _of(
    forward: Callable[..., Any], xs: Sequence[Any], dy: Any, wanted: Sequence[bool] = ()
) -> list[Any]:
    """The gradients of `forward(*xs)` by those xs that are wanted; None for the others."""
    ask = [x is not None and (not wanted or wanted[i]) for i, x in enumerate(xs)]
    asked = [x for x, yes in zip(xs, ask, strict=True) if yes]
    found = iter(gradients(forward(*xs), asked, dy, unconnected="zero") if asked else ())
    return [next(found) if yes else None for yes in ask]


def _convolution(
    call: Call, dy: Any, x: Any, w: Any, bias_sizes: Any, *rest: Any
) -> tuple[Any, Any, Any]:
    *settings, mask = rest

    def forward(x: Any, w: Any) -> Any:
        return convolutions.convolution(call, x, w, None, *settings)

    dx, dw = _of(forward, (x, w), dy, mask[:2])
    axes = (0, *range(2, dy.ndim)) if dy.ndim == w.ndim else tuple(range(1, dy.ndim))
    return dx, dw, ops.reduce_sum(dy, axis=axes) if mask[2] else None


def _pool(forward: Rule) -> Rule:
    """The gradient of a pooling by its input."""
    return lambda call, dy, x, *settings: _of(lambda x: forward(call, x, *settings), [x], dy)[0]


def _max_pool(call: Call, dy: Any, x: Any, *settings: Any) -> Any:
    forward = convolutions.RULES["aten.max_pool2d.default"]
    return _pool(forward)(call, dy, x, *settings[:-1])  # the last are the places of the maxima


def _adaptive(call: Call, dy: Any, x: Any) -> Any:
    sizes = dy.shape[-2:]
    return _of(lambda x: convolutions.adaptive(2)(call, x, sizes), [x], dy)[0]


def _layer_norm(
    call: Call, dy: Any, x: Any, shape: Any, mean: Any, inverse: Any, w: Any, b: Any, mask: Any
) -> Any:
    # The epsilon is in the statistics: 1 / inverse^2 is the variance with it.
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    centred = x - mean
    rows = centred * inverse
    along = dy if w is None else dy * w
    whole = tuple(range(x.ndim - len(shape)))
    share = ops.reduce_mean(along, axis=axes, keepdims=True)
    turned = ops.reduce_mean(along * rows, axis=axes, keepdims=True)
    dx = (along - share - rows * turned) * inverse
    return (
        dx if mask[0] else None,
        ops.reduce_sum(dy * rows, axis=whole) if mask[1] else None,
        ops.reduce_sum(dy, axis=whole) if mask[2] else None,
    )


def _group_norm(
    call: Call,
    dy: Any,
    x: Any,
    mean: Any,
    inverse: Any,
    w: Any,
    n: Any,
    c: Any,
    area: Any,
    groups: int,
    mask: Any,
) -> Any:
    apart = (x.shape[0], groups, c // groups, *x.shape[2:])
    shape = (x.shape[0], groups, *(1,) * (x.ndim - 1))
    inverse, mean = ops.reshape(inverse, shape), ops.reshape(mean, shape)
    rows = (ops.reshape(x, apart) - mean) * inverse
    scale = 1 if w is None else ops.reshape(w, (1, c, *(1,) * (x.ndim - 2)))
    along = ops.reshape(dy * scale, apart)
    axes = tuple(range(2, len(apart)))
    share = ops.reduce_mean(along, axis=axes, keepdims=True)
    turned = ops.reduce_mean(along * rows, axis=axes, keepdims=True)
    dx = ops.reshape((along - share - rows * turned) * inverse, x.shape)
    over = (0, *range(2, x.ndim))
    return (
        dx if mask[0] else None,
        ops.reduce_sum(dy * ops.reshape(rows, x.shape), axis=over) if mask[1] else None,
        ops.reduce_sum(dy, axis=over) if mask[2] else None,
    )


def _embedding(call: Call, dy: Any, places: Any, count: Any, padding: int, scale: bool) -> Any:
    flat = ops.reshape(places, (-1,))
    rows = ops.reshape(dy, (-1, dy.shape[-1]))
    if padding >= 0:
        rows = ops.where(ops.expand_dims(ops.equal(flat, padding), -1), 0, rows)
    if scale:  # rows that occur more often count less
        times = ops.segment_sum(ops.ones_like(flat), flat, count)
        rows = rows / ops.cast(ops.expand_dims(ops.take(times, flat), -1), rows.dtype)
    return ops.segment_sum(rows, flat, count)


RULES: Final[dict[str, Rule]] = {
    "aten._adaptive_avg_pool2d_backward.default": _adaptive,
    "aten.avg_pool2d_backward.default": _pool(convolutions.RULES["aten.avg_pool2d.default"]),
    "aten.convolution_backward.default": _convolution,
    "aten.embedding_dense_backward.default": _embedding,
    "aten.max_pool2d_with_indices_backward.default": _max_pool,
    "aten.native_group_norm_backward.default": _group_norm,
    "aten.native_layer_norm_backward.default": _layer_norm,
}
