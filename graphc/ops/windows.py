"""Windows that slide over the two spatial axes of NHWC tensors: sizes, padding, attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphc.errors import AttributeValueError
from graphc.ir.dims import Dim, Shape
from graphc.ir.node import Tensor
from graphc.ir.opdef import Attr, InferContext
from graphc.ops.checks import refuse

Ints = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]


def _two_positive(value: Any) -> bool:
    return len(value) == 2 and min(value) > 0


def two_positive_ints(doc: str) -> Attr:
    """An attribute with one positive int per spatial axis."""
    return Attr("ints", check=_two_positive, must="be two positive ints", doc=doc)


PADDING = Attr(
    "pairs",
    check=lambda v: [len(p) for p in v] == [2, 2] and all(type(i) is int for p in v for i in p),
    must="be ((top, bottom), (left, right))",
    doc="rows added around each spatial axis: ((top, bottom), (left, right))",
)


def two_ints(op: str, what: str, value: Any) -> tuple[int, int]:
    """`value` for both spatial axes: one positive int for both, or a pair of them.

    Raises:
        AttributeValueError: neither.
    """
    pair = (value, value) if type(value) is int else value
    if (
        isinstance(pair, (tuple, list))
        and len(pair) == 2
        and all(type(v) is int and v > 0 for v in pair)
    ):
        return pair[0], pair[1]
    refuse(
        f"{op}: {what} must be a positive int or a pair of them, got {value!r}",
        error=AttributeValueError,
    )


def explicit_padding(
    op: str, padding: Any, x: Tensor, window: Ints, strides: Ints, dilation: Ints
) -> Pairs:
    """`padding` as ((top, bottom), (left, right)).

    Args:
        padding: "valid" (none), "same" (the result has ceil(size / stride) rows; an odd rest
            goes to the end, as in TensorFlow and JAX), one int for all four sides, or the pairs.

    Raises:
        AttributeValueError: something else.
        ShapeError: "same" with a stride over a size that is not known yet.
    """
    if isinstance(padding, str) and padding.lower() == "valid":
        return ((0, 0), (0, 0))
    if isinstance(padding, str) and padding.lower() == "same":
        check_rank(op, x)
        sizes = x.shape[1:3]
        top = same_padding(op, x, sizes[0], window[0], strides[0], dilation[0])
        left = same_padding(op, x, sizes[1], window[1], strides[1], dilation[1])
        return (top, left)
    if type(padding) is int and padding >= 0:
        return ((padding, padding), (padding, padding))
    if isinstance(padding, Sequence) and not isinstance(padding, str) and len(padding) == 2:
        pairs = tuple(tuple(p) if isinstance(p, Sequence) else () for p in padding)
        if all(len(p) == 2 and all(type(i) is int and i >= 0 for i in p) for p in pairs):
            return pairs
    refuse(
        f'{op}: padding must be "same", "valid", an int of at least 0, or '
        f"((top, bottom), (left, right)), got {padding!r}",
        error=AttributeValueError,
    )


def check_rank(op: str, x: Tensor) -> None:
    """Raises `ShapeError` unless `x` is [batch, height, width, channels]."""
    if x.ndim != 4:
        refuse(f"{op}: x must be [batch, height, width, channels], got {x.ndim} axes", x=x)


def same_padding(
    op: str, x: Tensor, size: Dim, window: int, stride: int, dilation: int
) -> tuple[int, int]:
    """Rows before and after, so that the result has ceil(size / stride) rows."""
    extent = (window - 1) * dilation + 1
    if stride == 1:
        total = extent - 1
    elif isinstance(size, int):
        total = max((-(-size // stride) - 1) * stride + extent - size, 0)
    else:
        refuse(
            f'{op}: padding="same" with stride {stride} depends on the size {size!s}, '
            "which is not known yet",
            x=x,
            mend="give the padding as ((top, bottom), (left, right)), or fix the size",
        )
    return total // 2, total - total // 2


def window_sizes(
    ctx: InferContext, sizes: Shape, window: Sequence[Dim], attrs: dict[str, Any]
) -> Shape:
    """How many places the window takes along each spatial axis.

    Raises:
        ShapeError: it is larger than the padded input.
    """
    results: list[Dim] = []
    for axis, (size, extent) in enumerate(zip(sizes, window, strict=True)):
        low, high = attrs["padding"][axis]
        padded = size + low + high
        reach = (extent - 1) * attrs["dilation"][axis] + 1
        if isinstance(padded, int) and isinstance(reach, int) and padded < reach:
            ctx.fail(
                f"a window of {reach} does not fit into {padded} {('rows', 'columns')[axis]}, "
                "padding included",
                mend='use padding="same", or a smaller window or dilation',
            )
        results.append((padded - reach) // attrs["strides"][axis] + 1)
    return tuple(results)
