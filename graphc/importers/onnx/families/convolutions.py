"""Convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import jax
from jax import numpy as jnp

from graphc import ops
from graphc.importers.core.channels_first import beside, conv, conv_transpose, summed_windows
from graphc.importers.onnx.call import Call, Refused, Rule
from graphc.ir.dims import Dim
from graphc.ir.node import Tensor
from graphc.jaxpr.function import from_jax


def pads_of(
    call: Call, sizes: Any, window: Any, strides: Any, dilation: Any
) -> list[tuple[int, int]]:
    """The padding of a convolution or pooling, by its attributes."""
    auto = call.attr("auto_pad", "NOTSET")
    rank = len(window)
    if auto in ("NOTSET", ""):
        pads = call.attr("pads") or [0] * (2 * rank)
        return list(zip(pads[:rank], pads[rank:], strict=True))
    if auto == "VALID":
        return [(0, 0)] * rank
    found: list[tuple[Any, Any]] = []
    for size, k, s, d in zip(sizes, window, strides, dilation, strict=True):
        total = _same(size, d * (k - 1) + 1, s)
        low = total // 2 if auto == "SAME_UPPER" else total - total // 2
        found.append((low, total - low))
    return found


def _same(size: Dim, window: int, stride: int) -> Any:
    """How many elements are added, so that there is a result for each `stride` elements."""
    needed = (size - 1) // stride * stride + window - size
    if isinstance(needed, int):
        return max(needed, 0)
    if window < stride:
        raise Refused("with auto_pad, and steps that pass over elements, needs known sizes")
    return needed


def padded_first(x: Tensor, pads: Sequence[tuple[Any, Any]], value: Any = 0) -> Any:
    """`x`, and what must still be padded: numbers that depend on named sizes are padded here."""
    if all(isinstance(n, int) for pair in pads for n in pair):
        return x, pads
    return ops.pad(x, [(0, 0)] * 2 + list(pads), constant_values=value), [(0, 0)] * len(pads)


def windows(call: Call, x: Tensor, window: Any) -> dict[str, Any]:
    """The attributes of a window that moves over x."""
    rank = len(window)
    strides = call.attr("strides") or [1] * rank
    dilation = call.attr("dilations") or [1] * rank
    pads = pads_of(call, x.shape[2:], window, strides, dilation)
    return {"strides": strides, "dilation": dilation, "pads": pads}


def settings(call: Call, x: Tensor, window: Any) -> dict[str, Any]:
    """The attributes of a convolution, as arguments of `conv`."""
    return {**windows(call, x, window), "groups": call.attr("group", 1)}


def with_bias(y: Tensor, bias: Tensor) -> Any:
    """Adds a vector over the channels."""
    return y + beside(bias, y)


def _conv(call: Call) -> Any:
    x, w = call.x(0), call.x(1)
    how = settings(call, x, w.shape[2:])
    x, how["pads"] = padded_first(x, how["pads"])
    y = conv(x, w, **how)
    return with_bias(y, call.x(2)) if call.has(2) else y


def _conv_transpose(call: Call) -> Any:
    x, w = call.x(0), call.x(1)
    window, rank = w.shape[2:], x.ndim - 2
    strides = call.attr("strides") or [1] * rank
    dilation = call.attr("dilations") or [1] * rank
    extra = call.attr("output_padding") or [0] * rank
    auto, wanted = call.attr("auto_pad", "NOTSET"), call.attr("output_shape")
    pads = call.attr("pads") or [0] * (2 * rank)
    pairs = list(zip(pads[:rank], pads[rank:], strict=True))
    if wanted is not None or auto.startswith("SAME"):
        pairs = []
        for i, (size, k, s, d) in enumerate(
            zip(x.shape[2:], window, strides, dilation, strict=True)
        ):
            goal = wanted[-rank:][i] if wanted is not None else size * s
            total = s * (size - 1) + extra[i] + d * (k - 1) + 1 - goal
            if total < 0:  # more is asked for than there is
                extra = [*extra[:i], extra[i] - total, *extra[i + 1 :]]
                total = 0
            low = total - total // 2 if auto == "SAME_LOWER" else total // 2
            pairs.append((low, total - low))
    y = conv_transpose(
        x,
        w,
        strides=strides,
        pads=pairs,
        output_padding=extra,
        dilation=dilation,
        groups=call.attr("group", 1),
    )
    return with_bias(y, call.x(2)) if call.has(2) else y


def _deform_conv(call: Call) -> Any:
    x, w, offset = call.x(0), call.x(1), call.x(2)
    window = call.attr("kernel_shape") or w.shape[2:]
    how = settings(call, x, window)
    groups, parts = how["groups"], call.attr("offset_group", 1)
    if len(window) != 2:
        raise Refused("is supported for images of two axes only")

    def convolve(x: Any, w: Any, offset: Any, bias: Any, mask: Any) -> Any:
        (top, _), (left, _) = how["pads"]
        count, channels, height, width = x.shape
        rows, columns = offset.shape[2:]
        taps = window[0] * window[1]
        moved = offset.reshape(count, parts, taps, 2, rows, columns)
        kh, kw = jnp.meshgrid(*(jnp.arange(k) for k in window), indexing="ij")
        base_y = jnp.arange(rows) * how["strides"][0] - top
        base_x = jnp.arange(columns) * how["strides"][1] - left
        y = base_y[None, :, None] + (kh.reshape(-1) * how["dilation"][0])[:, None, None]
        z = base_x[None, None, :] + (kw.reshape(-1) * how["dilation"][1])[:, None, None]
        ys, zs = moved[:, :, :, 0] + y, moved[:, :, :, 1] + z
        apart = x.reshape(count, parts, channels // parts, height, width)
        values = jax.vmap(jax.vmap(bilinear))(apart, ys, zs)
        if mask is not None:
            values = values * mask.reshape(count, parts, 1, taps, rows, columns)
        values = values.reshape(count, groups, channels // groups, taps, rows, columns)
        kernel = w.reshape(groups, w.shape[0] // groups, channels // groups, taps)
        out = jnp.einsum("ngctyx,goct->ngoyx", values, kernel)
        out = out.reshape(count, w.shape[0], rows, columns)
        return out if bias is None else out + bias[:, None, None]

    bias, mask = (call.x(i) if call.has(i) else None for i in (3, 4))
    return from_jax(convolve, name=call.op)(x, w, offset, bias, mask)


def bilinear(image: Any, y: Any, x: Any) -> Any:
    """The values of an image [channels, height, width] at positions; 0 outside."""
    height, width = image.shape[1:]
    y0, x0 = jnp.floor(y), jnp.floor(x)

    def at(yi: Any, xi: Any) -> Any:
        inside = (yi >= 0) & (yi < height) & (xi >= 0) & (xi < width)
        rows = jnp.clip(yi, 0, height - 1).astype(int)
        columns = jnp.clip(xi, 0, width - 1).astype(int)
        return image[:, rows, columns] * inside

    wy, wx = y - y0, x - x0
    return (
        at(y0, x0) * (1 - wy) * (1 - wx)
        + at(y0, x0 + 1) * (1 - wy) * wx
        + at(y0 + 1, x0) * wy * (1 - wx)
        + at(y0 + 1, x0 + 1) * wy * wx
    )


def _col2im(call: Call) -> Any:
    image = [int(d) for d in call.need(1, "the shape of the image")]
    block = [int(d) for d in call.need(2, "the shape of the blocks")]
    rank = len(image)
    pads = call.attr("pads") or [0] * (2 * rank)
    return summed_windows(
        call.x(0),
        image,
        window=block,
        strides=call.attr("strides") or [1] * rank,
        pads=list(zip(pads[:rank], pads[rank:], strict=True)),
        dilation=call.attr("dilations") or [1] * rank,
        name=call.op,
    )


RULES: Final[dict[str, Rule]] = {
    "Col2Im": _col2im,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "DeformConv": _deform_conv,
}
