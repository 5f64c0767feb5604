"""What each node of a program costs, estimated from shapes alone: nothing is compiled.

Floating-point operations: a sum, a product and an elementary function (exp, tanh, ...) count as
one each; integer and logical work counts alike. Bytes: operands and results, each read or
written once, as if nothing were fused. XLA's own figures, after fusion, are those of
`Executable.cost`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from graphc.errors import ShapeError
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ir.types import TensorType


class Cost(NamedTuple):
    """Floating-point operations, and bytes read and written."""

    flops: int
    bytes: int


def program_costs(program: Program) -> list[tuple[Node, Cost]]:
    """Every node with its cost, in program order; that of a loop is of all its turns.

    Raises:
        ShapeError: a size is not bound.
    """
    if program.symbols():
        raise ShapeError(
            f"{program.name}: costs need sizes, and {', '.join(program.symbols())} are open",
            hint="bind them: give the shapes of the feeds",
        )
    return [(node, node_cost(node)) for node in program.nodes]


def total(costs: Iterable[Cost]) -> Cost:
    """The sum."""
    flops = moved = 0
    for cost in costs:
        flops, moved = flops + cost.flops, moved + cost.bytes
    return Cost(flops, moved)


def node_cost(node: Node) -> Cost:
    """The cost of one node whose sizes are all known."""
    if node.regions:  # of branches, the costliest
        bodies = [total(map(node_cost, body.nodes)) for body in node.regions]
        if node.op.name == "UpdateByRows":  # every body in every turn
            blocks = _int(node.inputs[0].type.shape[1]) // node.attrs["rows"]
            return Cost(*[blocks * sum(costs) for costs in zip(*bodies, strict=True)])
        length = node.attrs.get("length")  # of a While without the most trips it makes: None
        turns = 1 if length is None else length
        return Cost(*[turns * max(costs) for costs in zip(*bodies, strict=True)])
    flops = _FLOPS.get(node.op.name, _per_result)
    moved = _BYTES.get(node.op.name, _all_bytes)
    return Cost(flops(node), moved(node))


def _size(tensor: Tensor) -> int:
    return math.prod(dim for dim in tensor.type.shape if isinstance(dim, int))


def _bytes(tensor: Tensor) -> int:
    return bytes_of_type(tensor.type)


def bytes_of_type(type: TensorType) -> int:
    """What a value takes; named sizes count as one."""
    return math.prod(d for d in type.shape if isinstance(d, int)) * type.dtype.itemsize


# -- floating-point operations --------------------------------------------------------------


def _none(node: Node) -> int:
    return 0


def _per_result(node: Node) -> int:
    return sum(_size(tensor) for tensor in node.outputs)


def _times_result(count: int) -> Callable[[Node], int]:
    return lambda node: count * _size(node.outputs[0])


def _times_operand(count: int) -> Callable[[Node], int]:
    return lambda node: count * _size(node.inputs[0])


def _matmul(node: Node) -> int:
    a = node.inputs[0].type.shape
    inner = a[-2 if node.attrs["transpose_a"] and len(a) > 1 else -1]
    return 2 * _size(node.outputs[0]) * _int(inner)


def _dot_general(node: Node) -> int:
    shape = node.inputs[0].type.shape
    contracted = math.prod(_int(shape[axis]) for axis in node.attrs["lhs_contract"])
    return 2 * _size(node.outputs[0]) * contracted


def _attention(node: Node) -> int:
    """The products of queries and keys, and those of weights and values."""
    batch, time, heads, depth = node.inputs[0].type.shape
    _, source, _, width = node.inputs[2].type.shape
    return 2 * _int(batch) * _int(heads) * _int(time) * _int(source) * (_int(depth) + _int(width))


def _attention_gradient(node: Node) -> int:
    """The weights again, their adjoints, and a product for each of three operands."""
    depth, width = (node.inputs[i].type.shape[3] for i in (0, 2))
    each = _attention(node) // (_int(depth) + _int(width))
    return each * (3 * _int(depth) + 2 * _int(width))


def _convolution(x: Any, w: Any, y: Any, attrs: Mapping[str, Any]) -> int:
    """Of the shapes of a `Conv`: a product and a sum for each tap that meets no padding."""
    taps = 1
    for axis, (low, _) in enumerate(attrs["padding"]):
        taps *= _taps(
            x[1 + axis], w[axis], y[1 + axis], attrs["strides"][axis], low, attrs["dilation"][axis]
        )
    return int(2 * y[0] * w[-2] * w[-1] * taps)


def _taps(size: int, window: int, results: int, stride: int, low: int, dilation: int) -> int:
    """How many pairs of a result and a tap along one axis lie on the operand."""
    count = 0
    for tap in range(window):
        # stride * result + offset must lie in 0 .. size - 1
        offset = tap * dilation - low
        first = max(0, -(offset // stride))
        last = min(results - 1, (size - 1 - offset) // stride)
        count += max(0, last - first + 1)
    return count


def _conv(node: Node) -> int:
    (x, w), (y,) = node.inputs, node.outputs
    return _convolution(x.type.shape, w.type.shape, y.type.shape, node.attrs)


def _conv_input_gradient(node: Node) -> int:
    (dy, w), (dx,) = node.inputs, node.outputs
    return _convolution(dx.type.shape, w.type.shape, dy.type.shape, node.attrs)


def _conv_kernel_gradient(node: Node) -> int:
    (x, dy), (dw,) = node.inputs, node.outputs
    return _convolution(x.type.shape, dw.type.shape, dy.type.shape, node.attrs)


def _pool(node: Node) -> int:
    return int(math.prod(node.attrs["window"])) * _size(node.outputs[0])


def _pool_gradient(node: Node) -> int:
    return int(math.prod(node.attrs["window"])) * _size(node.inputs[-1])  # dy


def _of_matrices(share: float) -> Callable[[Node], int]:
    """`share` of m * n * min(m, n) for each matrix [..., m, n] of the first operand.

    Source of the shares: Golub & Van Loan, Matrix Computations, 4th ed. 2013; of what is
    iterated they are averages.
    """

    def flops(node: Node) -> int:
        *stack, m, n = (_int(dim) for dim in node.inputs[0].type.shape)
        return round(share * math.prod(stack) * m * n * min(m, n))

    return flops


def _solve(node: Node) -> int:
    return _of_matrices(2 / 3)(node) + 2 * _triangular_solve(node)


def _triangular_solve(node: Node) -> int:
    return _int(node.inputs[0].type.shape[-1]) * _size(node.outputs[0])


def _fft(node: Node) -> int:
    """Of complex numbers 5 n log2 n (Cooley & Tukey); of real ones, half of it."""
    lengths, real = node.attrs["lengths"], node.attrs["kind"] in ("RFFT", "IRFFT")
    stack = node.inputs[0].type.shape[: -len(lengths)]
    elements = math.prod(map(_int, lengths))
    of_each = 5 * elements * math.log2(max(elements, 2))
    return round(math.prod(map(_int, stack)) * of_each / (2 if real else 1))


def _int(dim: Any) -> int:
    return int(dim)


# Operators that are not here cost one operation for each element of their results.
_FLOPS: Mapping[str, Callable[[Node], int]] = {
    **dict.fromkeys(
        (
            *("Constant", "Group", "Identity", "StopGradient", "Undifferentiable", "DimValue"),
            *("ReadVariable", "Assign", "Placeholder", "Reshape", "Transpose", "BroadcastTo"),
            "After",
            *("Iota", "Concatenate", "Split", "Slice", "Pad", "Reverse", "Take", "TakeAlongAxis"),
            *("Real", "Imag", "Complex", "AllGather", "ShardSlice", "ReplicaIndex", "Cast"),
            "GatherNd",
        ),
        _none,
    ),
    **dict.fromkeys(
        ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceAny", "ReduceAll"),
        _times_operand(1),
    ),
    **dict.fromkeys(("ReduceMean", "ArgMax", "ArgMin", "CumSum"), _times_operand(1)),
    "Variance": _times_operand(3),
    "LogSumExp": _times_operand(4),
    "Softmax": _times_operand(5),
    "LogSoftmax": _times_operand(5),
    "SoftmaxCrossEntropy": _times_operand(7),
    "SparseSoftmaxCrossEntropy": _times_operand(5),
    "SparseSoftmaxCrossEntropyGradient": _times_operand(4),
    "SigmoidCrossEntropy": _times_operand(6),
    "Silu": _times_result(4),
    "Gelu": _times_result(8),
    "Clip": _times_result(2),
    "BatchNorm": _times_operand(4),
    "LayerNorm": _times_operand(8),
    "LayerNormGradient": _times_operand(14),
    "Dropout": _times_operand(2),
    "ScatterAdd": lambda node: _size(node.inputs[2]),
    "ScatterAddAlongAxis": lambda node: _size(node.inputs[2]),
    "ScatterNd": lambda node: _size(node.inputs[2]),
    "VJP": lambda node: 2 * sum(_size(tensor) for tensor in node.inputs),
    "Cholesky": _of_matrices(1 / 3),
    **dict.fromkeys(("Determinant", "LogDeterminant"), _of_matrices(2 / 3)),
    "Inverse": _of_matrices(2),
    "QR": _of_matrices(4),
    "SingularValues": _of_matrices(4),
    "Eigh": _of_matrices(9),
    **dict.fromkeys(("SVD", "PseudoInverse", "MatrixExponential"), _of_matrices(22)),
    "Solve": _solve,
    "TriangularSolve": _triangular_solve,
    "FFT": _fft,
    "MatMul": _matmul,
    "DotGeneral": _dot_general,
    "Attention": _attention,
    "AttentionGradient": _attention_gradient,
    "Conv": _conv,
    "ConvInputGradient": _conv_input_gradient,
    "ConvKernelGradient": _conv_kernel_gradient,
    "MaxPool": _pool,
    "AvgPool": _pool,
    "MaxPoolGradient": _pool_gradient,
    "AvgPoolGradient": _pool_gradient,
}


# -- bytes ----------------------------------------------------------------------------------


def _all_bytes(node: Node) -> int:
    return sum(map(_bytes, node.inputs)) + sum(map(_bytes, node.outputs))


def _picked_bytes(node: Node) -> int:
    """Of what reads as much of its first operand as it gives."""
    return sum(map(_bytes, node.inputs[1:])) + 2 * sum(map(_bytes, node.outputs))


_BYTES: Mapping[str, Callable[[Node], int]] = {
    **dict.fromkeys(
        (
            *("Constant", "Group", "Identity", "StopGradient", "Undifferentiable", "DimValue"),
            *("ReadVariable", "Assign", "Placeholder", "Reshape", "ReplicaIndex", "After"),
        ),
        _none,
    ),
    **dict.fromkeys(("Take", "TakeAlongAxis", "Slice", "Split", "ShardSlice"), _picked_bytes),
}
