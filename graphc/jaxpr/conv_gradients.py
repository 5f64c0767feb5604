"""Recognises the convolutions that JAX makes of the gradients of a convolution.

JAX has one primitive for a convolution and for both its gradients. graphc has an operator for each,
for which its passes have better algorithms than XLA:CPU has for one convolution. A user may write a
convolution of the same form. It computes the same numbers, so it becomes the same operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from graphc.ir.node import Tensor
from graphc.ir.types import TensorType
from graphc.jaxpr.equation import Equation
from graphc.jaxpr.shapes import inverse, transposed
from graphc.ops.arrays.shape import reshaped
from graphc.ops.arrays.slicing import REVERSE
from graphc.ops.core.emit import emit_one
from graphc.ops.nn.conv_rules import CONV_INPUT_GRADIENT, CONV_KERNEL_GRADIENT

Axes = tuple[int, ...]
Pads = tuple[tuple[int, int], ...]


def as_input_gradient(
    eqn: Equation, dy: Tensor, w: Tensor, specs: tuple[Axes, Axes, Axes]
) -> Tensor | None:
    """The gradient of the images, if the equation convolves `dy`, spread by the strides, with a
    reversed kernel; otherwise None.

    Args:
        specs: the axes (batch, channels, *space) of `dy`, (filters, channels, *space) of `w`, and
            (batch, filters, *space) of the result.
    """
    params, (lhs, rhs, out) = eqn.params, specs
    reverse = w.graph.find_producer(w) if w.graph is not None else None  # None: a body's argument
    if reverse is None or reverse.op is not REVERSE:
        return None
    if set(reverse.attrs["axes"]) != set(rhs[2:]):
        return None
    if set(params["window_strides"]) != {1} or params["batch_group_count"] != 1:
        return None
    counts, window = _sizes(dy, lhs[2:]), _sizes(w, rhs[2:])
    size = _sizes(eqn.type, out[2:])
    if counts is None or window is None or size is None:
        return None
    strides, dilation = eqn.ints("lhs_dilation"), eqn.ints("rhs_dilation")
    reach = [(n - 1) * d for n, d in zip(window, dilation, strict=True)]
    lows = [r - int(low) for r, (low, _) in zip(reach, params["padding"], strict=True)]
    padding = _padding(lows, size, counts, strides, reach)
    if padding is None:
        return None
    groups = int(params["feature_group_count"])
    return transposed(
        emit_one(
            CONV_INPUT_GRADIENT,
            (
                transposed(dy, (lhs[0], *lhs[2:], lhs[1])),
                _of_images(transposed(reverse.inputs[0], (*rhs[2:], rhs[1], rhs[0])), groups),
            ),
            size=size,
            strides=strides,
            padding=padding,
            dilation=dilation,
            groups=groups,
        ),
        inverse((out[0], *out[2:], out[1])),
    )


def _of_images(w: Tensor, groups: int) -> Tensor:
    """The kernel of the convolution of the images, from that of the convolution of dy:
    [..., filters / groups, channels] to [..., channels / groups, filters]."""
    *window, few, channels = w.shape
    space = range(len(window))
    apart = reshaped(w, (*window, few, groups, channels // groups))
    a, b, c = (len(window) + n for n in range(3))
    return reshaped(
        transposed(apart, (*space, c, b, a)), (*window, channels // groups, groups * few)
    )


def as_kernel_gradient(
    eqn: Equation, x: Tensor, dy: Tensor, specs: tuple[Axes, Axes, Axes]
) -> Tensor | None:
    """The gradient of the kernel, if the equation sums over the first axis of both operands and the
    window is larger than the result, as `dy` is larger than a kernel; otherwise None.

    Args:
        specs: as in `as_input_gradient`; here, channels are the batch of the images, and the batch
            is their channels.
    """
    params, (lhs, rhs, out) = eqn.params, specs
    if lhs[1] != 0 or rhs[1] != 0 or params["feature_group_count"] != 1:
        return None
    if set(params["lhs_dilation"]) != {1}:
        return None
    images, counts = _sizes(x, lhs[2:]), _sizes(dy, rhs[2:])
    size = _sizes(eqn.type, out[2:])
    if images is None or counts is None or size is None or prod(counts) <= prod(size):
        return None
    strides, dilation = eqn.ints("rhs_dilation"), eqn.ints("window_strides")
    reach = [(n - 1) * d for n, d in zip(size, dilation, strict=True)]
    lows = [int(low) for low, _ in params["padding"]]
    padding = _padding(lows, images, counts, strides, reach)
    if padding is None:
        return None
    return transposed(
        emit_one(
            CONV_KERNEL_GRADIENT,
            (
                transposed(x, (lhs[1], *lhs[2:], lhs[0])),
                transposed(dy, (rhs[1], *rhs[2:], rhs[0])),
            ),
            size=size,
            strides=strides,
            padding=padding,
            dilation=dilation,
            groups=int(params["batch_group_count"]),
        ),
        inverse((*out[2:], out[0], out[1])),
    )


def _sizes(x: Tensor | TensorType, axes: Axes) -> Axes | None:
    """The sizes along axes; None if one has a name."""
    sizes = [x.shape[axis] for axis in axes]
    known = [size for size in sizes if isinstance(size, int)]
    return tuple(known) if len(known) == len(sizes) else None


def _padding(
    lows: Sequence[int], images: Axes, counts: Axes, strides: Axes, reach: Sequence[int]
) -> Pads | None:
    """The padding with which a window over the images has `counts` positions, and as few zeros
    after them as possible; None if there is none.

    Args:
        lows: the padding before the images.
        reach: the distance between the first and the last tap of the window.
    """
    pads: list[tuple[int, int]] = []
    for low, n, count, step, far in zip(lows, images, counts, strides, reach, strict=True):
        high = max(0, (count - 1) * step + far + 1 - n - low)
        if low < 0 or (n + low + high - far - 1) // step + 1 != count:
            return None
        pads.append((low, high))
    return tuple(pads)
