"""Pointwise convolutions on CPU: convolutions with windows of one element become matrix
products."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from graphc.ir.dims import Shape
from graphc.ir.dtypes import WIDE_FLOATS
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ops.arrays.shape import RESHAPE, reshape, transpose
from graphc.ops.arrays.slicing import PAD, slice_
from graphc.ops.matrices.matrix_product import matmul
from graphc.ops.nn.conv_rules import CONV, CONV_INPUT_GRADIENT, CONV_KERNEL_GRADIENT
from graphc.ops.reductions.reduction import reduce_sum
from graphc.passes.core.base import Pass, PassResult
from graphc.passes.core.rules import Answer, Rewriter, Rules, change, simplify

Sizes = tuple[int, ...]

# If the product has at most this many elements and sums at least this many rows, one image at a
# time is faster (64 x 256 from 25,088 rows: 136 against 69 GFLOP/s; 256 x 1024 from 1,568: slower).
_SMALL_PRODUCT = 64 * 256
_MANY_ROWS = 1024


@dataclass(frozen=True)
class CpuPointwise(Pass):
    """Replaces a convolution whose window is one element, and both its gradients, by matrix
    products. For a stride, it first selects the rows; in the gradient of the input it inserts zeros
    between them.

    XLA:CPU uses different libraries for convolutions and products, and does not see that these are
    the same. The products run 2 to 10 times as fast, most of all the gradient of the kernel, which
    is written so that neither operand is transposed, with the fewer channels as rows.

    Must not: change groups, or padding, whose zeros a product does not have. float32 and float64
    only: narrow dtypes were not measured. Sums are added in another order, so results differ by
    rounding.
    """

    def run(self, program: Program) -> PassResult:
        return simplify(self, program, _RULES)


def _is_pointwise(node: Node, window: Shape) -> bool:
    shapes = [t.type.shape for t in (*node.inputs, *node.outputs)]
    return (
        set(window) == {1}
        and node.attrs["groups"] == 1
        and not any(map(any, node.attrs["padding"]))
        and node.inputs[0].type.dtype in WIDE_FLOATS
        and all(isinstance(dim, int) and dim > 0 for shape in shapes for dim in shape)
    )


def _rows(x: Tensor) -> Tensor:
    """[..., channels] as a matrix with a row for each position."""
    shape = x.type.sizes
    return reshape(x, (prod(shape[:-1]), shape[-1]))


def _images(x: Tensor) -> Tensor:
    """[batch, ..., channels] as a matrix for each image."""
    shape = x.type.sizes
    return reshape(x, (shape[0], prod(shape[1:-1]), shape[-1]))


def _thinned(x: Tensor, places: Sizes, steps: Sizes) -> Tensor:
    """The elements of x at the positions of the window, `places` of them along each spatial
    axis."""
    if max(steps) == 1:
        return x
    shape = x.type.sizes
    limits = (shape[0], *_reach(places, steps), shape[-1])
    return slice_(x, (0,) * len(shape), limits, (1, *steps, 1))


def _reach(places: Sizes, steps: Sizes) -> Sizes:
    """The distance from the first to the last position, including both."""
    return tuple([(n - 1) * step + 1 for n, step in zip(places, steps, strict=True)])


def _forward(rewriter: Rewriter, node: Node) -> Answer:
    x, w = node.inputs
    if not _is_pointwise(node, w.type.shape[:-2]):
        return None
    result = node.outputs[0].type.sizes
    rows = _rows(_thinned(x, result[1:-1], node.attrs["strides"]))
    product = matmul(rows, reshape(w, w.type.sizes[-2:]))
    return change(node, RESHAPE, (product,), shape=result)


def _input_gradient(rewriter: Rewriter, node: Node) -> Answer:
    dy, w = node.inputs
    if not _is_pointwise(node, w.type.shape[:-2]):
        return None
    result, shape = node.outputs[0].type.sizes, dy.type.sizes
    product = matmul(_rows(dy), reshape(w, w.type.sizes[-2:]), transpose_b=True)
    steps = node.attrs["strides"]
    if max(steps) == 1:
        return change(node, RESHAPE, (product,), shape=result)
    places = shape[1:-1]
    narrow = reshape(product, (shape[0], *places, result[-1]))
    spread = zip(result[1:-1], _reach(places, steps), steps, strict=True)
    pads = [(0, size - reach, step - 1) for size, reach, step in spread]
    pads = [(0, 0, 0), *pads, (0, 0, 0)]
    return change(node, PAD, (narrow, rewriter.constant(0, dy.type.dtype)), pads=tuple(pads))


def _kernel_gradient(rewriter: Rewriter, node: Node) -> Answer:
    x, dy = node.inputs
    if not _is_pointwise(node, node.attrs["size"]):
        return None
    shape = dy.type.sizes
    x = _thinned(x, shape[1:-1], node.attrs["strides"])
    few, many = (x, dy) if x.type.sizes[-1] <= shape[-1] else (dy, x)
    size = (few.type.sizes[-1], many.type.sizes[-1])
    if prod(size) <= _SMALL_PRODUCT and prod(shape[1:-1]) >= _MANY_ROWS and shape[0] > 1:
        product = reduce_sum(matmul(_images(few), _images(many), transpose_a=True), axis=0)
    else:
        product = matmul(_rows(few), _rows(many), transpose_a=True)
    if few is dy:
        product = transpose(product, (1, 0))
    return change(node, RESHAPE, (product,), shape=node.outputs[0].type.shape)


_RULES: Rules = {
    CONV: _forward,
    CONV_INPUT_GRADIENT: _input_gradient,
    CONV_KERNEL_GRADIENT: _kernel_gradient,
}
