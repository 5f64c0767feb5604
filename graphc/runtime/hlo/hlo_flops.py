"""The floating-point operations of one HLO instruction.

Matrix products, convolutions and attention count as matrix FLOPs, by the dtype that the matrix
units compute in. Everything else counts as vector FLOPs: one for each element of a result, or for
each operand element of a reduction. Data movement counts as zero.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from graphc.jax_internals import (
    CUBLAS_PRODUCTS,
    CUDNN_ATTENTION,
    CUDNN_BACKWARD_FILTER,
    CUDNN_BACKWARD_INPUT,
    CUDNN_CONVOLUTION,
)
from graphc.runtime.hlo.hlo_text import Instruction, Shape


class Flops(NamedTuple):
    """Floating-point operations.

    Attributes:
        matrix: operations of matrix units by dtype: "f64", "tf32", "f16", "bf16", "f8", "i8".
        vector: all other operations.
        known: False for a custom call whose operations cannot be counted.
    """

    matrix: Mapping[str, float]
    vector: float = 0.0
    known: bool = True


# Opcodes that compute nothing.
MOVES = frozenset(
    (
        *("after-all", "bitcast", "bitcast-convert", "broadcast", "concatenate"),
        *("constant", "copy", "domain", "dynamic-slice", "dynamic-update-slice", "gather"),
        *("get-tuple-element", "iota", "opt-barrier", "pad", "parameter", "partition-id"),
        *("replica-id", "reshape", "reverse", "slice", "transpose", "tuple"),
    )
)


def flops_of(instruction: Instruction, operands: Sequence[Shape]) -> Flops:
    """The operations of an instruction that is neither a fusion nor control flow.

    Args:
        operands: the shapes of its operands.
    """
    opcode = instruction.opcode
    if opcode in MOVES:
        return Flops({})
    if opcode == "custom-call":
        return _custom_call(instruction, operands)
    if opcode == "dot":
        contracted = _sizes(operands[0], instruction.numbers("lhs_contracting_dims"))
        return _matrix(2.0 * instruction.shape.elements * contracted, instruction, operands)
    if opcode == "convolution":
        flops = _convolution(operands[0], operands[1], instruction.shape, instruction)
        return _matrix(flops, instruction, operands)
    count = _VECTOR.get(opcode, _per_result)
    return Flops({}, float(count(instruction, operands)))


def _sizes(shape: Shape, axes: Sequence[int]) -> int:
    return math.prod(shape.dims[axis] for axis in axes)


# -- matrix units ---------------------------------------------------------------------------

# The dtype of the products, and how many of them make one product of the operands.
_ALGORITHM = re.compile(r"dot_(tf32|bf16|f16|f32|f64)_\w+?(?:_x(\d))?\b", re.IGNORECASE)
_UNITS = ("f64", "tf32", "f16", "bf16")
_COMPLEX = {"c64": "f32", "c128": "f64"}


def _matrix(flops: float, instruction: Instruction, operands: Sequence[Shape]) -> Flops:
    """The FLOPs of a product, by the dtype that it is computed in.

    A float32 product runs as tf32 unless its precision is HIGHEST. An algorithm that splits its
    operands, such as bf16_bf16_f32_x3, runs that many products.
    """

    def setting(name: str) -> str:
        return instruction.attribute(name) or instruction.configured(name) or ""

    dtype = max(operands[:2], key=lambda shape: (shape.dtype[0] in "fbc", shape.bits)).dtype
    if dtype in _COMPLEX:  # four real products
        flops, dtype = 4 * flops, _COMPLEX[dtype]
    algorithm = _ALGORITHM.search(setting("algorithm"))
    if algorithm is not None:
        dtype, flops = algorithm[1].lower(), flops * int(algorithm[2] or 1)
    elif dtype == "f32" and "highest" not in setting("operand_precision").lower():
        dtype = "tf32"
    if dtype.startswith(("f8", "f4")):
        dtype = "f8"
    elif dtype in ("s8", "u8", "s4", "u4"):
        dtype = "i8"
    elif dtype not in _UNITS:
        return Flops({}, flops)
    return Flops({dtype: flops})


def _custom_call(instruction: Instruction, operands: Sequence[Shape]) -> Flops:
    target = instruction.target
    result = next(instruction.shape.leaves(), None)
    if result is None or len(operands) < 2:
        return Flops({}, known=False)
    axes = instruction.configured("lhs_contracting_dimensions")
    if target.startswith(CUBLAS_PRODUCTS) and axes is not None:
        contracted = _sizes(operands[0], [int(axis) for axis in axes.split(",") if axis.strip()])
        return _matrix(2.0 * result.elements * contracted, instruction, operands)
    if target.startswith(CUDNN_CONVOLUTION):
        x, kernel, y = operands[0], operands[1], result
        if target.startswith(CUDNN_BACKWARD_INPUT):
            x, kernel, y = result, operands[1], operands[0]
        elif target.startswith(CUDNN_BACKWARD_FILTER):
            x, kernel, y = operands[0], result, operands[1]
        return _matrix(_convolution(x, kernel, y, instruction), instruction, operands)
    if target.startswith(CUDNN_ATTENTION):
        return _attention(instruction, operands)
    return Flops({}, known=False)


def _attention(instruction: Instruction, operands: Sequence[Shape]) -> Flops:
    """The FLOPs of the products of attention. A mask does not reduce them.

    The forward pass has two: queries by keys, and weights by values. The backward pass has five:
    the weights again, and two for each product of the forward pass.
    """
    weights = re.search(
        r'"intermediate_tensor_shape".*?"dimensions":\s*\[([^\]]*)\]',
        instruction.attribute("backend_config"),
    )
    if weights is None or len(operands) < 3:
        return Flops({}, known=False)
    batch, heads, time, source = (int(n) for n in re.findall(r"\d+", weights[1]))
    query, key, value = operands[:3]
    depth = query.elements / (batch * heads * time)
    width = depth * value.elements / key.elements
    products = 3 * depth + 2 * width if "Backward" in instruction.target else depth + width
    return _matrix(2.0 * batch * heads * time * source * products, instruction, operands)


def _convolution(x: Shape, kernel: Shape, y: Shape, instruction: Instruction) -> float:
    """The FLOPs of a convolution of x with a kernel, or of one of its two gradients.

    Only pairs of a result and a tap that meet neither padding nor a hole count, as in XLA.
    """
    labels = re.fullmatch(r"(\w+)_(\w+)->(\w+)", instruction.attribute("dim_labels"))
    if labels is None:
        return 0.0
    window = dict(part.split("=") for part in instruction.attribute("window")[1:-1].split())
    spatial = sorted(set(labels[1]) - set("bf"))
    total = 2.0 * kernel.dims[labels[2].index("i")]
    total *= math.prod(y.dims[labels[3].index(axis)] for axis in "bf")
    for place, axis in enumerate(spatial):

        def option(name: str, default: int, place: int = place) -> int:
            return int(window[name].split("x")[place]) if name in window else default

        low = int(window["pad"].split("x")[place].split("_")[0]) if "pad" in window else 0
        total *= _meetings(
            *(x.dims[labels[1].index(axis)], kernel.dims[labels[2].index(axis)]),
            *(y.dims[labels[3].index(axis)], option("stride", 1), low),
            *(option("lhs_dilate", 1), option("rhs_dilate", 1)),
        )
    return total


def _meetings(
    size: int, taps: int, results: int, stride: int, low: int, spread: int, dilation: int
) -> int:
    """The number of pairs of a result and a tap along one axis that meet an element of the
    operand."""
    count, last = 0, (size - 1) * spread
    period = spread // math.gcd(spread, stride)
    for tap in range(taps):
        # stride * result + offset lies in 0 .. last and is a multiple of `spread`
        offset = tap * dilation - low
        first = max(0, -(offset // stride))
        end = min(results - 1, (last - offset) // stride)
        for result in range(first, min(end, first + period - 1) + 1):
            if (stride * result + offset) % spread == 0:
                count += (end - result) // period + 1
                break
    return count


# -- vector units ---------------------------------------------------------------------------


def _per_result(instruction: Instruction, operands: Sequence[Shape]) -> float:
    return next((leaf.elements for leaf in instruction.shape.leaves()), 0)


def _per_operand(instruction: Instruction, operands: Sequence[Shape]) -> float:
    return operands[0].elements if operands else 0


def _per_window(instruction: Instruction, operands: Sequence[Shape]) -> float:
    size = re.search(r"size=([\dx]+)", instruction.attribute("window"))
    window = math.prod(map(int, size[1].split("x"))) if size else 1
    return window * _per_result(instruction, operands)


def _sort(instruction: Instruction, operands: Sequence[Shape]) -> float:
    elements = _per_operand(instruction, operands)
    length = _sizes(operands[0], instruction.numbers("dimensions")) if operands else 1
    return elements * math.ceil(math.log2(max(length, 2)))


def _fft(instruction: Instruction, operands: Sequence[Shape]) -> float:
    length = math.prod(instruction.numbers("fft_length"))
    elements = max(_per_operand(instruction, operands), _per_result(instruction, operands))
    of_complex = 5 * elements * math.log2(max(length, 2))
    return of_complex if instruction.attribute("fft_type") in ("FFT", "IFFT") else of_complex / 2


def _of_matrices(share: float) -> Callable[[Instruction, Sequence[Shape]], float]:
    def count(instruction: Instruction, operands: Sequence[Shape]) -> float:
        return share * operands[0].elements * next(instruction.shape.leaves()).dims[-1]

    return count


# Opcodes that are not here cost one operation for each element of their results.
_VECTOR: Mapping[str, Callable[[Instruction, Sequence[Shape]], float]] = {
    "reduce": _per_operand,
    "reduce-window": _per_window,
    "scatter": lambda instruction, operands: operands[-1].elements if operands else 0,
    "select-and-scatter": _per_operand,
    "sort": _sort,
    "fft": _fft,
    "cholesky": _of_matrices(1 / 3),
    "triangular-solve": _of_matrices(1),
}
